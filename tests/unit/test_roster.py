"""What a worker holds: an attempt that is over takes nothing of a later one of the same task with it (M15)."""

from typing import Any
from uuid import UUID

import pytest

from holdfast import Tasks
from holdfast._engine.run.attempt import Attempt, now
from holdfast._engine.run.roster import Roster
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.rows import Claimed

tasks = Tasks()


@tasks.task
async def step() -> None: ...


def attempt(id: UUID, number: int, crashes: int) -> Attempt:
    definition: Any = tasks._steps["step", "main"]
    row = Claimed(id.bytes, "step", "main", b"{}", number, 0, 0, crashes, 0, 0.0, 0.0, None, None, None)
    return Attempt(*row, "default", uuid7(), definition, now())


def test_M15_a_suspect_stays_one_when_an_earlier_attempt_of_its_task_is_forgotten() -> None:
    roster, id = Roster(4), uuid7()
    first, second = attempt(id, 1, 1), attempt(id, 2, 2)
    roster.put([first])
    roster.put([second])
    roster.forget(first)
    assert roster.holds(second)
    assert roster.on_probation()
    roster.forget(second)
    assert not roster.holds(second)
    assert not roster.on_probation()


def test_M15_a_task_that_has_moved_on_is_no_suspect() -> None:
    roster, id = Roster(4), uuid7()
    suspect, next_one = attempt(id, 1, 1), attempt(id, 2, 0)
    roster.put([suspect])
    roster.forget(suspect)
    roster.put_first(next_one)
    assert not roster.on_probation()
    assert roster.find(id) is next_one


def test_M15_a_suspect_of_another_task_is_not_forgotten() -> None:
    roster = Roster(4)
    suspect, innocent = attempt(uuid7(), 1, 1), attempt(uuid7(), 1, 0)
    roster.put([suspect, innocent])
    roster.forget(innocent)
    assert roster.on_probation()


def test_W1_a_roster_knows_how_long_there_was_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("holdfast._engine.run.roster.now", lambda: clock[0])
    roster = Roster(4)
    clock[0] += 5
    assert roster.rested == 5
    roster.put([attempt(uuid7(), 1, 0), attempt(uuid7(), 1, 0)])
    clock[0] += 1
    first, second = roster.begin(), roster.begin()
    clock[0] += 1
    assert first is not None and second is not None
    roster.end(first)
    clock[0] += 1
    assert roster.rested == 5, "one is still at work"
    roster.end(second)
    clock[0] += 2
    assert roster.rested == 7
    roster.put_first(attempt(uuid7(), 1, 0))
    clock[0] += 1
    assert roster.rested == 7


def test_M15_many_are_forgotten_at_once_and_it_is_told_if_a_suspect_was_among_them() -> None:
    roster = Roster(4)
    suspect, innocent, later = attempt(uuid7(), 1, 1), attempt(uuid7(), 1, 0), attempt(uuid7(), 2, 0)
    earlier = attempt(later.id, 1, 0)
    roster.put([suspect, innocent, later])
    assert roster.forget_all([innocent, earlier]) is False
    assert [roster.holds(each) for each in (suspect, innocent, later)] == [True, False, True]
    assert roster.forget_all([later, suspect]) is True
    assert not roster.held and not roster.on_probation()
    assert roster.forget_all([later]) is False


def test_an_attempt_begins_with_the_columns_of_a_claim() -> None:
    """They are given by their places: one in another order would be executed with another's values."""
    columns = ["number" if name == "attempt" else name for name in Claimed._fields]
    assert list(Attempt.__struct_fields__[: len(columns)]) == columns
