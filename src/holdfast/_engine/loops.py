"""When each loop of a worker last did what it is for, and whether that is too long ago.

A process that answers may still do nothing: its claims may wait for a lock, its connection may be dead. So each loop
notes its successes here. How late is too late follows from how often it should succeed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

TIMES = 3
MARGIN = 10.0
"""A loop is late after so many of its intervals, and so many seconds more."""


def nothing() -> None:
    """For those whom nobody watches."""


@dataclass(slots=True)
class _Loop:
    every: float
    succeeded_at: float

    @property
    def age(self) -> float:
        return max(0.0, time.monotonic() - self.succeeded_at)

    @property
    def allowed(self) -> float:
        return TIMES * self.every + MARGIN


class Pulse:
    """The loops of one worker. They are noted in several threads: each note is one assignment."""

    def __init__(self) -> None:
        self._loops: dict[str, _Loop] = {}

    def expect(self, loop: str, every: float) -> Callable[[], None]:
        """From now on a loop should succeed this often, in seconds; answers what it calls when it does."""
        watched = self._loops[loop] = _Loop(every, time.monotonic())

        def succeeded() -> None:
            watched.succeeded_at = time.monotonic()

        return succeeded

    def forget(self, loop: str) -> None:
        """This loop has nothing to do."""
        self._loops.pop(loop, None)

    @property
    def ages(self) -> dict[str, float]:
        """How long ago each loop last succeeded, in seconds."""
        return {name: loop.age for name, loop in list(self._loops.items())}

    @property
    def late(self) -> dict[str, str]:
        """The loops that have not succeeded lately, each with a sentence about it."""
        return {
            name: f"{name} has not succeeded for {loop.age:.0f} s; it should at least every {loop.allowed:.0f} s"
            for name, loop in list(self._loops.items())
            if loop.age > loop.allowed
        }
