"""`python -m holdfast.cli`, the same as `holdfast`."""

from holdfast.cli import main

main(prog_name="holdfast")
