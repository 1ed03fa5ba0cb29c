"""Keys: at most one unfinished task per queue and key, whoever commits first (M9, M17, Q2, Q3)."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import Connection

from holdfast._db.driver.connection import run_sync
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.ref import HowEnqueued
from holdfast._model.enqueue.request import OnConflict, Request
from holdfast._sql.plans import Enqueued, drive_sync, enqueue, enqueue_many
from holdfast.errors import EnqueueRefused, KeyTaken

from .support import Db

HOUR = timedelta(hours=1)


def new(key: str | None = "k", args: bytes = b"{}", id: UUID | None = None, **fields: Any) -> Request:
    return Request(id or uuid7(), fields.pop("queue", "default"), "greeter", "ReadName", args, key=key, **fields)


def follow(
    db: Db, task: Request, on_conflict: OnConflict = "skip", *, again: bool = False, via: Connection[Any] | None = None
) -> Enqueued:
    plan = enqueue(db.queries, replace(task, on_conflict=on_conflict), again=again)
    return drive_sync(plan, partial(run_sync, via or db.connection))


def test_Q2_skip_gives_the_task_that_holds_the_key(db: Db) -> None:
    first = follow(db, new())
    assert first.how == "created"
    again = follow(db, new(args=b'{"later": 1}'))
    assert again == Enqueued(first.id, "greeter", "existing")
    assert follow(db, new(queue="other")).how == "created", "a key counts within its queue"


def test_Q2_raise_names_the_holder(db: Db) -> None:
    first = follow(db, new())
    with pytest.raises(KeyTaken, match=f"{first.id}.*ready.*holds the key 'k'"):
        follow(db, new(), "raise")


def test_M9_my_own_id_counts_as_created(db: Db) -> None:
    task = new()
    assert follow(db, task) == follow(db, task, again=True) == Enqueued(task.id, "greeter", "created")


def test_an_id_that_is_taken_is_refused_with_and_without_a_key(db: Db) -> None:
    id = follow(db, new("one")).id
    with pytest.raises(EnqueueRefused, match=f"already a task with the id {id}"):
        follow(db, new(None, id=id))
    with pytest.raises(EnqueueRefused, match=f"already a task with the id {id}"):
        follow(db, new("two", id=id))
    assert follow(db, new(None, id=id), again=True).how == "created", "sent again, it is the one that was meant"


def test_Q3_a_key_is_freed_by_the_end_of_its_task_but_not_by_parking(db: Db, worker: UUID) -> None:
    task = db.claimed(worker, key="k")
    assert follow(db, new()).how == "existing"
    db.run(db.stay(worker, [task], "failed", error={}, errors=1))
    assert follow(db, new()).how == "existing"
    db.discard(task.id)
    assert follow(db, new()).how == "created"
    assert db.archived(task.id)["key"] == "k"


@pytest.mark.parametrize("on_conflict", ["skip", "replace"])
def test_M9_the_other_transaction_commits_while_we_wait(db: Db, on_conflict: OnConflict) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = follow(db, new(), via=theirs)
    waiting = db.blocked(ours, lambda: follow(db, new(args=b'{"n": 2}'), on_conflict, via=ours))
    theirs.execute(b"COMMIT")
    how: HowEnqueued = "replaced" if on_conflict == "replace" else "existing"
    assert waiting.result(20) == Enqueued(first.id, "greeter", how)
    assert db.one("SELECT count(*) FROM holdfast.task") == 1


def test_M9_the_other_transaction_rolls_back_while_we_wait(db: Db) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    follow(db, new(), via=theirs)
    task = new()
    waiting = db.blocked(ours, lambda: follow(db, task, via=ours))
    theirs.execute(b"ROLLBACK")
    assert waiting.result(20) == Enqueued(task.id, "greeter", "created")
    assert db.sql("SELECT id FROM holdfast.task") == [(task.id,)]


def test_M9_a_lock_timeout_ends_the_wait_for_a_key(db: Db) -> None:
    theirs, ours = db.connect(), db.connect(options="-c lock_timeout=50ms")
    theirs.execute(b"BEGIN")
    follow(db, new(), via=theirs)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        follow(db, new(), via=ours)
    theirs.execute(b"ROLLBACK")
    assert follow(db, new(), via=ours).how == "created"


def test_M9_one_statement_would_lose_what_commits_while_it_waits(db: Db) -> None:
    """The naive form, INSERT … DO NOTHING UNION ALL SELECT, answers nothing at all."""
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    follow(db, new(), via=theirs)
    naive = """
        WITH made AS (
            INSERT INTO holdfast.task (id, kind, step, key) VALUES ($1, 'greeter', 'main', 'k')
            ON CONFLICT DO NOTHING RETURNING id
        )
        SELECT id FROM made UNION ALL SELECT id FROM holdfast.task WHERE queue = 'default' AND key = 'k'
    """
    waiting = db.blocked(ours, lambda: db.sql(naive, uuid7(), via=ours))
    theirs.execute(b"COMMIT")
    assert waiting.result(20) == []


def test_M9_at_repeatable_read_the_caller_is_told(db: Db) -> None:
    ours = db.connect()
    ours.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
    db.sql("SELECT count(*) FROM holdfast.task", via=ours)
    follow(db, new())
    with pytest.raises(psycopg.errors.SerializationFailure):
        follow(db, new(), via=ours)


def test_Q2_replace_while_not_yet_started(db: Db, worker: UUID) -> None:
    id = follow(db, new(args=b'{"n": 1}')).id
    task = Request(uuid7(), "default", "greeter", "SayHello", b'{"n": 2}', 5, key="k", headers=b'{"h": "x"}')
    assert follow(db, task, "replace") == Enqueued(id, "greeter", "replaced")
    row = db.task(id)
    assert (row["args"], row["step"], row["priority"], row["headers"]) == ({"n": 2}, "SayHello", 5, {"h": "x"})
    assert db.one("SELECT count(*) FROM holdfast.task") == 1


def park(db: Db, id: UUID) -> None:
    worker = uuid7()
    db.run(db.stay(worker, db.claim(worker), "failed", error={}, errors=1))


def snooze(db: Db, id: UUID) -> None:
    worker = uuid7()
    db.run(db.stay(worker, db.claim(worker), "snoozed", delay=60))


def start(db: Db, id: UUID) -> None:
    db.claim(uuid7())


@pytest.mark.parametrize("meanwhile", [start, snooze, park])
def test_M9_a_replace_asked_again_is_told_that_it_had_come_to_pass(
    db: Db, meanwhile: Callable[[Db, UUID], None]
) -> None:
    first = follow(db, new())
    task, other = new(args=b'{"n": 2}'), new(args=b'{"n": 3}')
    assert follow(db, task, "replace") == Enqueued(first.id, "greeter", "replaced")
    meanwhile(db, first.id)
    assert follow(db, task, "replace", again=True) == Enqueued(first.id, "greeter", "replaced")
    assert follow(db, other, "replace").how not in ("replaced", "created")
    assert db.task(first.id)["args"] == {"n": 2}


@pytest.mark.parametrize(("begin", "how"), [(start, "running"), (snooze, "started"), (park, "parked")])
def test_Q2_replace_leaves_a_task_that_was_started_alone_and_says_why(
    db: Db, begin: Callable[[Db, UUID], None], how: HowEnqueued
) -> None:
    id = follow(db, new(args=b'{"n": 1}')).id
    begin(db, id)
    before = db.snapshot()
    assert follow(db, new(args=b'{"n": 2}'), "replace") == Enqueued(id, "greeter", how)
    assert db.snapshot() == before


def test_M17_many_with_keys_are_looked_after_one_by_one(db: Db) -> None:
    held = follow(db, new("a")).id
    tasks = [new("b"), new("a"), new("b"), new(None), new("a", queue="other"), new("a", on_conflict="replace")]
    answers, queues = drive_sync(enqueue_many(db.queries, tasks), db.run)
    assert queues == {"default", "other"}
    assert [a.how for a in answers] == ["created", "existing", "existing", "created", "created", "replaced"]
    assert [a.id for a in answers] == [tasks[0].id, held, tasks[0].id, tasks[3].id, tasks[4].id, held]
    with pytest.raises(KeyTaken, match=str(held)):
        drive_sync(enqueue_many(db.queries, [new("x"), new("a", on_conflict="raise")]), db.run)


def test_M8_an_enqueue_sent_again_after_its_task_ended_must_look_at_the_archive(db: Db, worker: UUID) -> None:
    """The id is free again once the task is archived: only the second statement knows that it has run."""
    task = new(None)
    follow(db, task)
    db.run(db.finish(worker, db.claim(worker)))
    with db.connection.transaction(force_rollback=True):
        assert follow(db, task, again=True).how == "created", "the naive resend would run it twice"
        assert db.run(db.queries.archived([task.id])) is True
    assert db.run(db.queries.archived([uuid7()])) is False
