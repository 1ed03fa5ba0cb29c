"""`examples/process_executor.py`: counted in another process, and killed when its time is over."""

import multiprocessing
import sys
from types import FrameType
from typing import Any

import pytest

from holdfast.testing import Harness

from .support import attempts, example

primes = example("process_executor")


@pytest.fixture
def holdfast_tasks() -> Any:
    return primes.app


async def test_it_counts_and_what_takes_too_long_is_parked(holdfast: Harness) -> None:
    short = await primes.count_primes.enqueue(1000)
    long = await primes.count_primes.enqueue(10**9)
    await holdfast.drain()
    assert await short.result() == 168
    info = await long.info()
    assert info.state == "parked"
    assert info.error is not None
    assert info.error["type"] == "TimeoutError"
    assert attempts(holdfast, long.id) == [("main", "failed")]
    assert multiprocessing.active_children() == []
    assert primes.__file__ not in being_executed()  # a thread would go on counting


def being_executed() -> set[str]:
    """The files whose code is being executed by some thread of this process."""
    files: set[str] = set()
    for frame in sys._current_frames().values():
        at: FrameType | None = frame
        while at is not None:
            files.add(at.f_code.co_filename)
            at = at.f_back
    return files


def test_the_number_in_its_docstring() -> None:
    assert primes.count_primes(100_000) == 9592
