"""Faults with small numbers: the same code as `make faults`, a few seconds each."""

from collections.abc import Iterator

import pytest

from faults.all import FAULTS
from faults.places import Place, own_server
from faults.suite import run

SEED = 7


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """A server that may be stopped."""
    with own_server() as place:
        yield place


def run_short(name: str, place: Place) -> None:
    """Runs a fault, which must leave nothing wrong."""
    fault = FAULTS[name]
    result = run(fault, place, SEED, fault.short, say=lambda text: None)
    if result.skipped:
        pytest.skip(result.skipped)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
