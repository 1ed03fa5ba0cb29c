"""The checker is itself checked: it accepts a sound history, and objects to a broken one of each kind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from faults.checker import INVARIANTS, check, overlaps
from faults.history import Attempt, History, Occurrence, Task
from faults.oracle import Execution, Ledger, executions, read_lines, witnessed
from faults.suite import next_begins

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def sound() -> History:
    """A task whose first attempt was lost with its worker, one that enqueued another, two of one key, a schedule."""
    return History(
        ledger=Ledger(
            acknowledged={"t1": "a", "t2": "p", "t5": "k1", "t6": "k2"},
            rolled_back={"t3"},
            unknown={"t4"},
            children={"t2": ["t2/0"], "t4": ["t4/0"]},
        ),
        executions=[
            Execution("a", "Leave", 1, 0, "w1", 0.0),
            Execution("a", "Leave", 2, 0, "w2", 3.0, 4.0),
            Execution("a", "Pay", 3, 1, "w2", 4.1, 5.0),
            Execution("p", "main", 1, 0, "w2", 1.0, 2.0),
            Execution("c", "main", 1, 0, "w2", 2.0, 2.5),
            Execution("k1", "main", 1, 0, "w1", 0.1, 0.2),
            Execution("k2", "main", 1, 0, "w2", 6.0, 7.0),
            Execution("o", "main", 1, 0, "w2", 8.0, 8.1),
        ],
        deaths={"w1": 1.0},
        tasks=[
            Task("a", "t1"),
            Task("p", "t2", "fan"),
            Task("c", "t2/0", "nap"),
            Task("k1", "t5", key="k"),
            Task("k2", "t6", key="k"),
            Task("o", None, "tick"),
        ],
        attempts=[
            Attempt("a", "Leave", 1, 0, "lost"),
            Attempt("a", "Leave", 2, 0, "advanced"),
            Attempt("a", "Pay", 3, 1, "done"),
            Attempt("p", "main", 1, 0, "done"),
            Attempt("c", "main", 1, 0, "done"),
            Attempt("c", "main", 2, 0, "released"),
            Attempt("c", "main", 3, 0, "cancelled"),
            Attempt("k1", "main", 1, 0, "done"),
            Attempt("k2", "main", 1, 0, "done"),
            Attempt("o", "main", 1, 0, "done"),
        ],
        occurrences=[Occurrence("tick", "", at(1), "o")],
        effects=[("a", 1)],
        transactional=frozenset({"Pay"}),
        may_park=frozenset({"poison"}),
        concurrency=2,
        patience=2.0,
    )


def test_a_sound_history_is_accepted() -> None:
    assert check(sound()) == []


def test_who_was_on_four_killed_workers_may_be_parked_and_no_other() -> None:
    history = sound()
    history.tasks[0] = replace(history.tasks[0], state="parked")
    history.attempts += [Attempt("a", "Pay", 4 + n, 1, "lost") for n in range(4)]
    assert "I1" in {each.rule for each in check(history)}, "nobody was killed at random"
    history.by_chance = True
    assert "I1" not in {each.rule for each in check(history)}
    history.attempts.pop()
    assert "I1" in {each.rule for each in check(history)}


def test_what_is_parked_on_purpose_or_unknown_is_accepted() -> None:
    history = sound()
    history.tasks += [Task("x", "t4"), Task("y", "t4/0"), Task("z", kind="poison", state="parked")]
    history.tasks += [Task("r", kind="nap", state="done")]
    assert check(history) == []


def lose(history: History, id: str) -> None:
    history.tasks = [task for task in history.tasks if task.id != id]
    history.executions = [each for each in history.executions if each.task != id]
    history.attempts = [each for each in history.attempts if each.task != id]


def change(history: History, id: str, **values: object) -> None:
    history.tasks = [replace(task, **values) if task.id == id else task for task in history.tasks]  # type: ignore[arg-type]


BROKEN: list[tuple[str, str, Callable[[History], object]]] = [
    ("I1", "an acknowledged task is gone", lambda h: lose(h, "k1")),
    ("I1", "a child of a task that is done is gone", lambda h: lose(h, "c")),
    ("I1", "a task was left behind", lambda h: change(h, "a", state="ready")),
    ("I1", "a task is parked that should not be", lambda h: change(h, "a", state="parked")),
    ("I2", "a task that was rolled back exists", lambda h: h.tasks.append(Task("x", "t3"))),
    ("I2", "one enqueue made two tasks", lambda h: h.tasks.append(Task("x", "t1"))),
    ("I2", "a child without its parent's end", lambda h: h.tasks.append(Task("x", "t4/0"))),
    ("I2", "something ran that does not exist", lambda h: h.executions.append(Execution("x", "m", 1, 0, "w2", 9, 9.5))),
    (
        "I3",
        "a step ran after its end was recorded",
        lambda h: h.executions.append(Execution("a", "Leave", 4, 0, "w2", 9, 9.5)),
    ),
    ("I3", "the writes of a recorded step are missing", lambda h: h.effects.clear()),
    ("I3", "the writes of a recorded step are there twice", lambda h: h.effects.append(("a", 1))),
    ("I3", "writes of a step that is not recorded", lambda h: h.effects.append(("a", 0))),
    ("I4", "two accepted ends of one visit", lambda h: h.attempts.append(Attempt("a", "Leave", 4, 0, "advanced"))),
    ("I4", "one attempt logged twice", lambda h: h.attempts.append(Attempt("a", "Leave", 1, 0, "lost"))),
    (
        "I5",
        "two at once, and none was lost",
        lambda h: h.executions.insert(0, Execution("a", "Leave", 2, 0, "w3", 2.9, 3.5)),
    ),
    (
        "I6",
        "something ran that is not logged",
        lambda h: h.executions.append(Execution("a", "Pay", 4, 1, "w2", 9, 9.5)),
    ),
    ("I6", "something is logged that nobody ran", lambda h: h.attempts.append(Attempt("a", "Pay", 4, 1, "retried"))),
    ("I6", "another step is logged", lambda h: h.executions.append(Execution("c", "Other", 2, 0, "w2", 9, 9.5))),
    ("I6", "one number ran twice", lambda h: h.executions.append(Execution("p", "main", 1, 0, "w2", 9, 9.5))),
    ("I7", "a lease that nobody took back", lambda h: change(h, "a", state="running", overdue=2.5)),
    ("I8", "two of one key worked at once", lambda h: setattr(h.executions[5], "end", 6.5)),
    ("I8", "two of one key are unfinished", lambda h: h.tasks.extend([Task(n, key="q", state="ready") for n in "xy"])),
    ("I8", "a worker did too much at once", lambda h: setattr(h, "concurrency", 0)),
    ("I9", "an instant came twice", lambda h: h.occurrences.append(Occurrence("tick", "", at(1), "p"))),
    ("I9", "an instant is missing", lambda h: h.occurrences.append(Occurrence("tick", "", at(3), "p"))),
    ("I9", "an instant without a task", lambda h: h.occurrences.append(Occurrence("tick", "", at(2), None))),
    ("I9", "two instants with one task", lambda h: h.occurrences.append(Occurrence("tick", "", at(2), "o"))),
]


@pytest.mark.parametrize(("rule", "what", "breaks"), BROKEN, ids=[f"{rule} {what}" for rule, what, _ in BROKEN])
def test_a_broken_history_is_objected_to(rule: str, what: str, breaks: Callable[[History], object]) -> None:
    history = sound()
    breaks(history)
    assert rule in {violation.rule for violation in check(history)}, what


def test_every_invariant_is_broken_here() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(INVARIANTS)


def test_I5_overlaps_of_lost_attempts_are_counted_and_allowed() -> None:
    history = sound()
    history.deaths = {}
    history.executions[0].end = 3.5
    assert len(overlaps(history)) == 1
    assert check(history) == []


def test_I5_a_lost_attempt_may_be_the_later_one_to_begin() -> None:
    """Its worker stood still between the claim and the first line."""
    history = sound()
    history.deaths = {}
    history.executions[0].begin, history.executions[0].end = 3.2, 3.5
    assert len(overlaps(history)) == 1
    assert check(history) == []


@dataclass
class Ctx:
    attempt: int
    step: str = "main"
    moves: int = 0

    @property
    def id(self) -> UUID:
        return UUID(int=1)


def test_handlers_lines_become_executions(tmp_path: Path) -> None:
    with witnessed(tmp_path, Ctx(1)):
        pass
    with pytest.raises(ValueError, match="no"), witnessed(tmp_path, Ctx(2)):
        raise ValueError("no")
    first, second = executions(read_lines(tmp_path))
    assert (first.attempt, first.broken_off) == (1, False) and first.end is not None
    assert (second.attempt, second.broken_off) == (2, True)
    assert executions(read_lines(tmp_path)[:1])[0].end is None


def test_the_time_until_work_goes_on() -> None:
    found = next_begins(sound(), [0.05, 2.0, 7.5, 99.0])
    assert found == pytest.approx([0.05, 1.0, 0.5])
