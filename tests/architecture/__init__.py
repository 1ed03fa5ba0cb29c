"""Figures about the shape of the code, and the check of its map: `python -m tests.architecture`."""
