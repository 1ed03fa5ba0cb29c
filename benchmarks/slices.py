"""Side by side, in slices of time: each goes on for a fraction of a second, then stands still for the others.

A machine that others use as well is half as fast for seconds at a time, and nothing here tells. Of drains that follow
each other, one then looks faster by chance; in slices all of them meet the same. Each has a server of its own, all of
which are alike: whoever stands still is stopped by a signal, its server included, and goes on as if nothing had been.
A server that is not ours cannot be stopped: what it was asked for it finishes meanwhile. Callers that enqueue share
one: what they have asked for when they are stopped is a task for each of them.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.place import Place
from benchmarks.systems import PATIENCE, Child, Crew, System, Trouble

SLICE = 0.1
"""Seconds that each of several drains goes on."""
CALLS_SLICE = 0.5
"""The same of callers. For 20 ms after a stop they are slower, those in Python by more than a quarter."""
WARM_UP = 0.5
"""Seconds that callers go on before they count."""


@dataclass
class _Side:
    crew: Crew
    active: float = 0.0
    begun: bool = False
    done: bool = False


def drain_in_slices(sides: Sequence[tuple[System, Place, int]], tasks: int) -> list[float]:
    """Systems with so many processes, each in a place of its own, drain so many tasks each, all of which wait already.

    Tasks per second, while they were at it.
    """
    with ExitStack() as stack:
        return by_turns([stack.enter_context(Crew.of(*side)) for side in sides], tasks)


def by_turns(crews: Sequence[Crew], tasks: int) -> list[float]:
    """The same of crews that are ready."""
    sides = [_Side(crew) for crew in crews]
    order = list(sides)
    try:
        for crew in crews:
            crew.place.stand_still()
        while left := [side for side in order if not side.done]:
            for side in left:
                _go_on(side, tasks)
                if side.active > PATIENCE:
                    handled = sum(side.crew.counts)
                    raise Trouble(f"{side.crew.system.name} handled {handled:,} of {tasks:,} in {PATIENCE:.0f} s")
            order.reverse()  # nobody always comes after the same one, and what changes slowly meets all alike
    finally:
        for crew in crews:
            crew.place.go_on()  # whatever was raised: nobody could end a server that stands still
    return [tasks / side.active for side in sides]


def _go_on(side: _Side, tasks: int) -> None:
    crew, began = side.crew, time.monotonic()
    crew.place.go_on()
    if side.begun:
        crew.go_on()
    else:
        crew.go()
        side.begun = True
    while (moment := time.monotonic()) < began + SLICE:
        if crew.take_in(min(0.01, began + SLICE - moment)) >= tasks:
            side.active += max(0.0, crew.ended - began)  # the last line of a slice may be read in the next one
            crew.until(tasks)  # recorded, too
            side.done = True
            break
    crew.stand_still()
    crew.place.stand_still()
    if not side.done:
        side.active += time.monotonic() - began


class Callers:
    """Callers of one system that enqueue as long as they are let. Made, they have begun, and stand still."""

    def __init__(self, system: System, place: Place, callers: int) -> None:
        self._system = system
        self._place = place
        options = {"callers": callers, "seconds": PATIENCE, "pgbench": place.pgbench}
        self._child = Child(system, "single", place.work, options)
        self._before = 0
        self._active = 0.0
        try:
            end = time.monotonic() + PATIENCE
            while not system.waiting(place):
                self._listen(0.01)
                if time.monotonic() > end:
                    raise Trouble(f"{system.name} enqueued nothing in {PATIENCE:.0f} s")
            self._child.stand_still()
        except BaseException:
            self.end()
            raise

    def warm_up(self) -> None:
        """Goes on for a while that does not count: all of their connections are open then."""
        self._go_on(WARM_UP)
        self._before = self._system.waiting(self._place)
        self._active = 0.0

    def go_on(self) -> None:
        """For a slice of time."""
        self._go_on(CALLS_SLICE)

    def rate(self) -> float:
        """Enqueued tasks per second while they were at it."""
        return (self._system.waiting(self._place) - self._before) / self._active

    def end(self) -> None:
        self._child.end()

    def _go_on(self, seconds: float) -> None:
        began = time.monotonic()
        self._child.go_on()
        self._listen(seconds)
        self._child.stand_still()
        self._active += time.monotonic() - began

    def _listen(self, seconds: float) -> None:
        """Whoever enqueues without end has nothing to say, unless something is wrong."""
        if self._child.line(seconds) is not None:
            raise Trouble(f"{self._system.name} stopped enqueuing")
