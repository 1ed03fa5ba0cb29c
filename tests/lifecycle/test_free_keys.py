"""Many tasks with keys at once: by one statement if nobody is in the way, else as if each came alone (M9, Q2, Q12)."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from psycopg import Connection

from holdfast._db.driver.connection import run_sync
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._sql import plans
from holdfast._sql.query import Query
from holdfast._sql.rows import Placed

from .support import Db
from .test_keys import HOUR, follow, new


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "FREE", 2)


def place(db: Db, tasks: Sequence[Request], via: Connection[Any] | None = None) -> tuple[list[str], list[Placed]]:
    """Which statements it took, and what came of each task."""
    used: list[str] = []

    def run(query: Query[Any]) -> Any:
        used.append(query.statement.name)
        return run_sync(via or db.connection, query)

    return used, plans.drive_sync(plans._place(db.queries, tasks), run)


def test_Q12_free_keys_are_written_as_each_alone_would_be(db: Db) -> None:
    fields: list[dict[str, Any]] = [
        {"priority": 3, "delay": HOUR, "headers": b'{"a": "b"}'},
        {"deadline": timedelta(hours=2), "queue": "other"},
        {"unique": True, "key": None, "args": b'{"n": 1}'},
        {"key": "ü€"},
    ]
    made = [new(**{"key": f"key {n}", **each}) for n, each in enumerate(fields)]
    used, placed = place(db, made)
    assert used == ["enqueue_free"]
    assert [(each.id, each.enqueued) for each in placed] == [(task.id, "created") for task in made]
    written = [db.task(task.id) for task in made]
    db.sql("DELETE FROM holdfast.task")
    for task in made:
        assert follow(db, task).how == "created"
    assert [db.task(task.id) for task in made] == written


def _held(db: Db) -> list[Request]:
    follow(db, new("b"))
    return [new("a"), new("b"), new("c")]


def _twice(db: Db) -> list[Request]:
    return [new("a"), new("b"), new("a")]


def _after_its_end(db: Db) -> list[Request]:
    first = follow(db, new("b", unique_for=HOUR))
    db.cancel(first.id)
    return [new("a"), new("b"), new("c")]


def _id_taken(db: Db) -> list[Request]:
    taken = follow(db, new("other"))
    return [new("a"), new("b", id=taken.id), new("c")]


def _expired(db: Db) -> list[Request]:
    follow(db, new("b", deadline=timedelta(seconds=1)))
    db.clock.advance("1m")
    return [new("a"), new("b"), new("c")]


@pytest.mark.parametrize(
    ("arranged", "answers"),
    [
        (_held, ["created", "existing", "created"]),
        (_twice, ["created", "created", "existing"]),
        (_after_its_end, ["created", "ended", "created"]),
        (_id_taken, ["created", "id taken", "created"]),
        (_expired, ["created", "created", "created"]),
    ],
)
def test_Q2_whatever_is_in_the_way_each_gets_its_own_answer(
    db: Db, arranged: Callable[[Db], list[Request]], answers: list[str]
) -> None:
    used, placed = place(db, arranged(db))
    assert used == ["enqueue_free", "enqueue_keyed"]
    assert [each.enqueued for each in placed] == answers


def test_Q4_keys_that_are_to_outlive_their_task_are_taken_one_by_one(db: Db) -> None:
    used, _ = place(db, [new("a"), new("b", unique_for=HOUR)])
    assert used == ["enqueue_keyed"]


@pytest.mark.parametrize("how", ["commit", "rollback", "ends and holds on"])
def test_M9_a_key_in_an_open_transaction_is_waited_for(db: Db, how: str) -> None:
    other, mine = db.connect(), db.connect()
    tasks = [new("c"), new("b"), new("a")]
    with other.transaction(force_rollback=how == "rollback"):
        first = follow(db, new("b", unique_for=HOUR if how == "ends and holds on" else None), via=other)
        if how == "ends and holds on":  # the row is gone when we are let in; only the table of keys knows
            other.execute(b"DELETE FROM holdfast.task WHERE key = 'b'")
        waiting = db.blocked(mine, partial(place, db, tasks, mine))
    used, placed = waiting.result(60)
    if how == "rollback":
        assert used == ["enqueue_free"]
        assert [each.enqueued for each in placed] == ["created"] * 3
    else:
        assert used == ["enqueue_free", "enqueue_keyed"]
        expected = "existing" if how == "commit" else "ended"
        assert [each.enqueued for each in placed] == ["created", expected, "created"]
        assert placed[1].id == first.id
    assert db.one("SELECT count(*) FROM holdfast.task") == (2 if how == "ends and holds on" else 3)


def test_B1_two_with_the_same_keys_never_wait_for_each_other(db: Db) -> None:
    """Both stop at the same key; whoever comes in first has them all."""
    gate, first, second = db.connect(), db.connect(), db.connect()
    names = ["a", "b", "c", "d"]
    with gate.transaction(force_rollback=True):
        follow(db, new("b"), via=gate)
        waiting = [
            db.blocked(via, partial(place, db, [new(key) for key in order], via))
            for via, order in ((first, names), (second, names[::-1]))
        ]
    answers = [{each.enqueued for each in waited.result(60)[1]} for waited in waiting]
    assert sorted(map(sorted, answers)) == [["created"], ["existing"]]
    assert db.one("SELECT count(*) FROM holdfast.task") == 4


def test_Q12_all_or_none_in_the_callers_transaction(db: Db) -> None:
    with db.connection.transaction(force_rollback=True):
        assert place(db, [new("a", id=uuid7()), new("b")])[0] == ["enqueue_free"]
    assert db.one("SELECT count(*) FROM holdfast.task") == 0
