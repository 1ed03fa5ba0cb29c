"""Endings whose steps enqueued under keys: each is written alone, as another session may hold a key for long.

A write that meets such a transaction waits a moment for it, and all later writes with it. So a key that is held is left
alone for the rest of the round, with all endings that want it, and the next round begins after a while.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterator
from itertools import count

from holdfast._engine.settle.ending import Ending

ROUND_SECONDS = 0.5


class KeyedQueue:
    """Those that wait to be written, the least often tried first; `resume` is called when a new round begins."""

    def __init__(self, resume: Callable[[], None]) -> None:
        self._resume = resume
        self._waiting: list[tuple[int, int, Ending]] = []
        self._resting: list[Ending] = []
        self._held: set[tuple[str, str]] = set()
        self._numbers = count()

    def __iter__(self) -> Iterator[Ending]:
        """All of them, those that rest included."""
        yield from (ending for _, _, ending in self._waiting)
        yield from self._resting

    def __len__(self) -> int:
        return len(self._waiting) + len(self._resting)

    @property
    def ready(self) -> bool:
        """Whether some are left in this round."""
        return bool(self._waiting)

    def add(self, ending: Ending) -> None:
        heapq.heappush(self._waiting, (ending.tries, next(self._numbers), ending))

    def next(self) -> Ending | None:
        """The next to be tried, if there is one in this round."""
        while self._waiting:
            ending = heapq.heappop(self._waiting)[-1]
            if self._held.isdisjoint(_keys(ending)):
                return ending
            self._rest(ending)
        return None

    def postpone(self, ending: Ending) -> None:
        """It could not be written in this round: another session has one of its keys."""
        ending.tries += 1
        self._held |= _keys(ending)
        self._rest(ending)

    def _rest(self, ending: Ending) -> None:
        if not self._resting:
            asyncio.get_running_loop().call_later(ROUND_SECONDS, self._new_round)
        self._resting.append(ending)

    def _new_round(self) -> None:
        resting, self._resting = self._resting, []
        self._held.clear()
        for ending in resting:
            self.add(ending)
        self._resume()


def _keys(ending: Ending) -> set[tuple[str, str]]:
    """What it wants. The database makes the key of a unique task: here its args stand for that."""
    return {
        (child.queue, child.key or f"{child.kind}.{child.step} {child.args!r}")
        for child in ending.children
        if child.keyed
    }
