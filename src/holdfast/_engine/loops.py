"""The loops of a worker: how one goes on whatever happens, and when each last did what it is for.

A process that answers may still do nothing: its claims may wait for a lock, its connection may be dead. So each loop
notes its successes in the pulse. How late is too late follows from how often it should succeed.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from holdfast._db.errors import is_passing, pause_after
from holdfast._model.safe_log import Log
from holdfast._sql.rows import Loops

LONGEST_PAUSE = 5.0
TIMES = 3
MARGIN = 10.0
"""A loop is late after so many of its intervals, and so many seconds more."""


@dataclass(slots=True)
class _Success:
    """How often a loop should succeed, in seconds, and when it last did."""

    every: float
    at: float

    @property
    def age(self) -> float:
        return max(0.0, time.monotonic() - self.at)

    @property
    def allowed(self) -> float:
        return TIMES * self.every + MARGIN


class Pulse:
    """The successes of a worker's loops. They are noted in several threads: each note is one assignment."""

    def __init__(self) -> None:
        self._loops: dict[str, _Success] = {}

    def expect(self, loop: str, every: float) -> None:
        """From now on a loop should succeed this often, in seconds."""
        self._loops[loop] = _Success(every, time.monotonic())

    def succeeded(self, loop: str) -> None:
        """A loop has done what it is for. One that is not expected is passed over."""
        if (success := self._loops.get(loop)) is not None:
            success.at = time.monotonic()

    def forget(self, loop: str) -> None:
        """This loop has nothing to do."""
        self._loops.pop(loop, None)

    @property
    def ages(self) -> dict[str, float]:
        """How long ago each loop last succeeded, in seconds."""
        return {name: success.age for name, success in list(self._loops.items())}

    @property
    def loops(self) -> Loops:
        """As the worker's row has it."""
        return Loops({name: round(age, 1) for name, age in self.ages.items()}, sorted(self.late))

    @property
    def late(self) -> dict[str, str]:
        """The loops that have not succeeded lately, each with a sentence about it."""
        return {
            name: f"{name} has not succeeded for {success.age:.0f} s; it should at least every {success.allowed:.0f} s"
            for name, success in list(self._loops.items())
            if success.age > success.allowed
        }


@dataclass(frozen=True, slots=True)
class Words:
    """What a loop logs: that it is interrupted, by which error; that it has recovered, after how many failed tries.

    `permanent` is for a loop that goes on even after an error that will not pass by itself: the first is logged.
    """

    log: Log
    interrupted: str | Callable[[], str]
    recovered: str = ""
    permanent: str = ""


class Loop:
    """Runs a round again and again. It survives every error that passes by itself, and pauses longer each time.

    `every`: how often it should succeed, in seconds, for the pulse. `longest`: the longest pause after a failure;
    0 for a loop that pauses at the beginning of each round. `rest` sleeps for so many seconds, or until it is woken.
    `is_well`: whether a round that came to its end counts as a success.
    """

    def __init__(
        self,
        name: str,
        pulse: Pulse,
        every: float,
        words: Words,
        *,
        longest: float = LONGEST_PAUSE,
        rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
        is_well: Callable[[], bool] | None = None,
    ) -> None:
        self._name = name
        self._pulse = pulse
        self._every = every
        self._words = words
        self._longest = longest
        self._rest = rest
        self._is_well = is_well
        self._failures = 0

    async def run(self, round: Callable[[], Awaitable[float | None]]) -> None:
        """Runs rounds until one returns None. Otherwise it returns the seconds until the next one."""
        self._pulse.expect(self._name, self._every)
        while True:
            pause = await self._try(round)
            await asyncio.sleep(0)  # whatever the round was like: others have their turn
            if pause is None:
                return
            if pause > 0:
                await self._rest(pause)

    async def _try(self, round: Callable[[], Awaitable[float | None]]) -> float | None:
        try:
            pause = await round()
        except Exception as error:
            self._fail(error)
            return pause_after(self._failures, longest=self._longest)
        if self._is_well is None or self._is_well():
            self._pulse.succeeded(self._name)
        if self._failures and self._words.recovered:
            self._words.log.info("%s after %s failed tries", self._words.recovered, self._failures)
        self._failures = 0
        return pause

    def _fail(self, error: Exception) -> None:
        words, passes = self._words, is_passing(error)
        if not passes and not words.permanent:
            raise error
        self._failures += 1
        # Once per outage, not once per try: an outage must not flood the log.
        first = self._failures == 1
        interrupted = words.interrupted if isinstance(words.interrupted, str) else words.interrupted()
        words.log.log(logging.WARNING if first else logging.DEBUG, "%s: %s", interrupted, error)
        if first and not passes:
            words.log.exception("%s", words.permanent)
