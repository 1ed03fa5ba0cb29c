"""What one attempt enqueues under keys, written with its end: few statements, and each rule keeps its meaning (M7)."""

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import OnConflict, Request
from holdfast._sql.plans import MANY, drive_sync, settle_with_children
from holdfast.errors import EnqueueRefused, KeyTaken

from .support import Db


def child(n: int, key: str | None = "k", on_conflict: OnConflict = "skip", queue: str = "small") -> Request:
    return Request(uuid7(), queue, "greeter", "ReadName", b'{"n": %d}' % n, key=key, on_conflict=on_conflict)


def settle(db: Db, worker: UUID, children: list[Request]) -> list[str]:
    """Ends an attempt that enqueued these; gives the names of the statements that it took."""
    task = db.claimed(worker)
    names: list[str] = []

    def run(query: Any) -> Any:
        names.append(query.statement.name)
        return db.run(query)

    with db.connection.transaction():
        drive_sync(settle_with_children(db.queries, db.finish(worker, [task]), children), run)
    return names


def written(db: Db, queue: str = "small") -> list[tuple[str | None, int]]:
    return [
        (k, n)
        for k, n in db.sql("SELECT key, (args ->> 'n')::int FROM holdfast.task WHERE queue = $1 ORDER BY 1, 2", queue)
    ]


def test_M7_many_keyed_children_take_few_statements(db: Db, worker: UUID) -> None:
    settle(db, worker, [child(n, f"k{n}") for n in range(0, MANY, 2)])
    names = settle(db, worker, [child(-n, f"k{n}") for n in range(2 * MANY)])
    assert names == ["finish", "enqueue_free", "enqueue_keyed"]
    values = dict(written(db))
    assert len(values) == 2 * MANY
    assert all(values[f"k{n}"] == (n if n < MANY and n % 2 == 0 else -n) for n in range(2 * MANY))


def test_M7_the_first_child_of_a_key_wins_in_each_queue(db: Db, worker: UUID) -> None:
    settle(db, worker, [child(1), child(2), child(3, queue="other"), child(4, None), child(5, None)])
    assert written(db) == [("k", 1), (None, 4), (None, 5)]
    assert written(db, "other") == [("k", 3)]


@pytest.mark.parametrize("earlier", [[], [child(1, on_conflict="raise")], [child(1, on_conflict="replace")]])
def test_M7_a_taken_key_is_refused_and_nothing_stays(db: Db, worker: UUID, earlier: list[Request]) -> None:
    if not earlier:
        settle(db, worker, [child(1)])
    before = written(db)
    task = db.claimed(worker)
    children = [*[child(n, f"k{n}") for n in range(5)], *earlier, child(2, on_conflict="raise")]
    with pytest.raises(KeyTaken, match="already holds the key 'k'"), db.connection.transaction():
        drive_sync(settle_with_children(db.queries, db.finish(worker, [task]), children), partial(db.run))
    assert written(db) == before
    assert db.state(task.id) == "running"


def test_M7_replace_among_others_keeps_its_meaning(db: Db, worker: UUID) -> None:
    settle(db, worker, [child(1, "a"), child(1, "c")])
    others = [child(n, f"k{n}") for n in range(5)]
    settle(db, worker, [*others, child(2, "a", "replace"), child(2, "b", "replace"), child(3, "b"), child(3, "c")])
    assert written(db) == [("a", 2), ("b", 2), ("c", 1), *[(f"k{n}", n) for n in range(5)]]


def test_M7_an_id_that_exists_is_refused(db: Db, worker: UUID) -> None:
    twice = child(1, None)
    settle(db, worker, [twice])
    with pytest.raises(EnqueueRefused, match="already a task with the id"):
        settle(db, worker, [twice])
