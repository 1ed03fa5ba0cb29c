"""When a flush waits for more outcomes: only while short steps go on, and never for long."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import Tasks
from holdfast._engine.claim.steps import KnownSteps
from holdfast._engine.lease.contact import Contact
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.roster import Roster
from holdfast._engine.settings import WorkerSettings
from holdfast._engine.settle.ending import LARGEST_FLUSH, Ending
from holdfast._engine.settle.pending import Pending
from holdfast._engine.settle.recorder import Recorder
from holdfast._engine.settle.settler import GATHER_SECONDS, Settler
from holdfast._engine.shared import Shared
from holdfast._model.run.outcome import NO_RESULT


def settler_of(roster: Roster) -> Settler:
    nothing: Any = None
    known = KnownSteps([], "0", "0")
    shared = Shared(Tasks(), WorkerSettings(), nothing, known, roster, Contact(30))
    return Settler(shared, nothing, Pending(), cast(Recorder, SimpleNamespace(keeper=nothing)))


@pytest.fixture
def roster() -> Roster:
    return Roster(10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    clock = [1000.0]
    monkeypatch.setattr("holdfast._engine.settle.settler.now", lambda: clock[0])
    yield clock


async def gathered(settler: Settler, turn: Callable[[int], int]) -> int:
    """How many outcomes a flush had, if so many more came in each turn of the loop, by its number."""
    add = settler._pending.endings.append
    attempt = cast(Attempt, None)
    add(Ending(attempt, NO_RESULT))

    async def going_on() -> None:
        for number in range(10_000):
            for _ in range(turn(number)):
                add(Ending(attempt, NO_RESULT))
            await asyncio.sleep(0)

    task = asyncio.create_task(going_on())
    await asyncio.sleep(0)
    await settler._gather()
    task.cancel()
    return len(settler._pending.endings)


async def test_steps_that_end_by_the_hundred_are_waited_for(roster: Roster, clock: list[float]) -> None:
    roster.ready.append(cast(Attempt, None))
    assert await gathered(settler_of(roster), lambda number: 100) in range(LARGEST_FLUSH, LARGEST_FLUSH + 100)


async def test_it_is_over_when_nothing_waits_for_a_slot(roster: Roster, clock: list[float]) -> None:
    assert await gathered(settler_of(roster), lambda number: 100) == 101
    roster.ready.append(cast(Attempt, None))

    def turn(number: int) -> int:
        if number == 3:
            roster.ready.clear()
        return 100

    assert await gathered(settler_of(roster), turn) in range(300, 600)


async def test_it_is_over_when_nothing_has_ended_in_a_turn(roster: Roster, clock: list[float]) -> None:
    roster.ready.append(cast(Attempt, None))
    assert await gathered(settler_of(roster), lambda number: 0) == 1
    assert await gathered(settler_of(roster), lambda number: 5 if number < 4 else 0) == 21


async def test_it_does_not_last(roster: Roster, clock: list[float]) -> None:
    roster.ready.append(cast(Attempt, None))

    def turn(number: int) -> int:
        clock[0] += GATHER_SECONDS / 5  # a step that takes its time without waiting
        return 1

    assert await gathered(settler_of(roster), turn) in range(4, 9)
