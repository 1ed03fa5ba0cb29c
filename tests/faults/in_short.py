"""Faults with small numbers: the same code as `make faults`, a few seconds each."""

from collections.abc import Iterator

import pytest

from faults.all import FAULTS
from faults.lab import own_server
from faults.suite import run
from holdfast.embedded import Server

SEED = 7


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may be stopped."""
    with own_server() as server:
        yield server


def run_short(name: str, server: Server) -> None:
    """Runs a fault, which must leave nothing wrong."""
    fault = FAULTS[name]
    result = run(fault, server, SEED, fault.short, say=lambda text: None)
    assert not result.violations, "\n".join(map(str, result.violations[:20]))
