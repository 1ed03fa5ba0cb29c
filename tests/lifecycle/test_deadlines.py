"""Deadlines: not started by then means never started (Q5, M18)."""

import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from holdfast import insights
from holdfast._sql.plans import drive_sync, enqueue_many

from .support import BOOM, KNOWN, NOW, Db, ids
from .test_explain import explained, register
from .test_explain import utc as utc
from .test_keys import HOUR, follow, new

LATER = datetime(2031, 6, 1, tzinfo=UTC)


def by_sql(db: Db, via: Connection[Any] | None = None, **options: object) -> UUID:
    text = "SELECT holdfast.enqueue('greeter.ReadName', '{}', $1::jsonb)"
    id: UUID = db.one(text, json.dumps(options), via=via)
    return id


def expire(db: Db, limit: int = 1000, via: Connection[Any] | None = None) -> set[UUID]:
    return db.run(db.queries.expire("default", limit), via)


# --- stored


@pytest.mark.parametrize(("deadline", "stored"), [(HOUR, NOW + HOUR), (LATER, LATER), (None, None)])
def test_Q5_a_deadline_is_stored_by_the_clock_of_the_database(
    db: Db, deadline: timedelta | datetime | None, stored: datetime | None
) -> None:
    one = db.enqueue(deadline=deadline)
    (many, _) = drive_sync(
        enqueue_many(db.queries, [new(None, deadline=deadline), new("k", deadline=deadline)]), db.run
    )
    for id in (one, many[0].id, many[1].id):
        assert db.task(id)["deadline"] == stored
        info = db.run(insights.task(db.queries, id))
        assert info is not None and info.deadline == stored


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1h", NOW + HOUR),
        ("90", NOW + timedelta(seconds=90)),
        ("2031-06-01T00:00Z", LATER),
        (" 2031-06-01 02:00+02", LATER),
        (None, None),
    ],
)
def test_Q5_a_deadline_from_sql(db: Db, text: str | None, stored: datetime | None) -> None:
    assert db.task(by_sql(db, deadline=text))["deadline"] == stored
    entries = json.dumps([{"step": "greeter.ReadName", "deadline": text}, {"step": "greeter.ReadName"}])
    (first,), (second,) = db.sql('SELECT holdfast.enqueue_many($1::jsonb, \'{"deadline": "3h"}\')', entries)
    assert db.task(first)["deadline"] == stored
    assert db.task(second)["deadline"] == NOW + 3 * HOUR


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deadline": "soon"}, "interval"),
        ({"deadline": "1h", "delay": "1h"}, "could never start"),
        ({"deadline": "1h", "at": "2031-06-01T00:00Z"}, "could never start"),
        ({"deadline": "infinity"}, "interval|deadline"),
        ({"deadline": "9999-06-01T00:00Z"}, "no deadline can be at"),
    ],
)
def test_Q5_a_deadline_that_is_none_is_refused_by_sql(db: Db, options: dict[str, Any], words: str) -> None:
    with pytest.raises(psycopg.Error, match=words):
        by_sql(db, **options)
    assert db.one("SELECT count(*) FROM holdfast.task") == 0


def test_M2_a_deadline_counts_from_the_statement_not_from_the_transaction(db: Db) -> None:
    db.clock.resume()
    other = db.connect()
    other.execute(b"BEGIN")
    other.execute(b"SELECT pg_sleep(0.1)")
    task = new("k", deadline=HOUR)
    follow(db, task, via=other)
    [(began, deadline)] = db.sql("SELECT pg_catalog.now(), deadline FROM holdfast.task", via=other)
    assert deadline - began >= HOUR + timedelta(milliseconds=100)


def test_Q5_replace_brings_its_own_deadline(db: Db) -> None:
    id: UUID = db.enqueue(key="k", deadline=HOUR)
    follow(db, new(deadline=2 * HOUR), "replace")
    assert db.task(id)["deadline"] == NOW + 2 * HOUR
    follow(db, new(), "replace")
    assert db.task(id)["deadline"] is None
    by_sql(db, key="k", deadline="3h", on_conflict="replace")
    assert db.task(id)["deadline"] == NOW + 3 * HOUR


# --- claimed or not


@pytest.mark.parametrize("crashes", [0, 1])
def test_M18_what_has_passed_its_deadline_is_not_claimed(db: Db, worker: UUID, crashes: int) -> None:
    """In both branches of the claim; a suspect without an attempt can only be made by hand."""
    id = db.enqueue(deadline=HOUR)
    db.sql("UPDATE holdfast.task SET crashes = $1::int", crashes)
    db.clock.advance("59m")
    with db.connection.transaction(force_rollback=True):
        assert ids(db.claim(worker, 10)) == [id]
    assert db.run(db.queries.due("default", KNOWN)) is True
    db.clock.advance("1m")
    assert db.claim(worker, 10) == []
    assert db.run(db.queries.due("default", KNOWN)) is False, "a draining worker does not wait for it"
    assert db.run(db.queries.obstacles("default", -1, KNOWN)).higher is None, "nobody makes room for it"
    assert db.run(db.queries.unclaimable("default", KNOWN))[0] == 1, "it lies in the way"


@pytest.mark.parametrize("outcome", ["retried", "snoozed", "released"])
def test_M18_a_task_that_was_started_never_expires(db: Db, worker: UUID, outcome: str) -> None:
    task = db.claimed(worker, deadline=HOUR)
    assert task.deadline == NOW + HOUR
    db.run(db.stay(worker, [task], outcome, error=BOOM, errors=1, delay=10))
    db.clock.advance("2h")
    assert expire(db) == set()
    assert db.run(db.queries.due("default", KNOWN)) is True
    assert ids(db.claim(worker)) == [task.id]


def test_M18_a_move_or_a_lost_worker_does_not_bring_the_deadline_back(db: Db, worker: UUID) -> None:
    moved, lost = db.claimed(worker, deadline=HOUR), db.claimed(worker, deadline=HOUR)
    db.run(db.advance(worker, [moved]))
    db.clock.advance("2h")
    assert db.reap() == {lost.id: "ready"}
    assert expire(db) == set()
    assert set(ids(db.claim(worker, 10))) == {moved.id, lost.id}


def test_M18_a_parked_task_can_be_retried_after_its_deadline(db: Db, worker: UUID) -> None:
    id = db.parked(deadline=HOUR)
    db.clock.advance("2h")
    assert expire(db) == set() and db.retry(id) == "ready" and expire(db) == set()
    assert ids(db.claim(worker)) == [id]


def test_Q5_a_task_that_has_expired_cannot_be_retried(db: Db) -> None:
    id = db.enqueue(deadline=HOUR)
    assert db.retry(id) == "ready"
    db.clock.advance("1h")
    with pytest.raises(psycopg.Error, match=f"cannot retry task {id}: it is expired"):
        db.retry(id)


# --- archived


def test_Q5_expired_tasks_are_archived_with_a_reason(utc: Db) -> None:
    db = utc
    gone = db.enqueue(deadline=HOUR, key="k", headers=b'{"h": "x"}', priority=3)
    kept = [db.enqueue(deadline=2 * HOUR), db.enqueue(), db.enqueue(queue="other", deadline=HOUR)]
    db.clock.advance("1h")
    assert expire(db) == {gone}
    row = db.archived(gone)
    assert (row["state"], row["outcome"], row["key"], row["priority"], row["attempt"]) == ("expired", None, "k", 3, 0)
    assert row["error"] == {
        "type": "expired",
        "message": "it was not started before its deadline, 2031-05-20 13:00:00+00",
    }
    assert [db.state(id) for id in kept] == ["ready"] * 3
    assert follow(db, new()).how == "created", "its key is free"


def test_Q5_the_sweep_is_bounded_and_takes_the_earliest_first(db: Db) -> None:
    made = [db.enqueue(deadline=timedelta(seconds=n)) for n in (3, 1, 2)]
    db.clock.advance("1h")
    assert [expire(db, 2), expire(db, 2), expire(db, 2)] == [{made[1], made[2]}, {made[0]}, set()]


def test_Q5_the_sweep_enters_its_index(db: Db) -> None:
    db.sql(
        "INSERT INTO holdfast.task (id, kind, step) SELECT gen_random_uuid(), 'k', 'm' FROM generate_series(1, 2000)"
    )
    db.sql("ANALYZE holdfast.task")
    plan = db.explain(db.queries.expire("default", 1000))
    assert "task_deadline" in plan and "Sort" not in plan, plan


def test_Q5_before_it_is_archived_it_is_shown_and_told_as_expired(utc: Db) -> None:
    db = utc
    register(db)
    id = db.enqueue(deadline=HOUR)
    assert explained(db, id).endswith("; it will expire at 2031-05-20 13:00:00+00 unless it is started before.")
    later = db.enqueue(deadline=2 * HOUR, delay=HOUR)
    assert "not due until" in explained(db, later) and "will expire at 2031-05-20 14:00:00+00" in explained(db, later)
    db.clock.advance("1h")
    info = db.run(insights.task(db.queries, id))
    assert info is not None and (info.state, info.phase) == ("ready", "expired")
    assert explained(db, id) == (
        "It is expired: it was not started before its deadline, 2031-05-20 13:00:00+00; "
        "any live worker of queue default will archive it."
    )
    expire(db)
    assert explained(db, id) == (
        "It was expired at 2031-05-20 13:00:00+00: it was not started before its deadline, 2031-05-20 13:00:00+00."
    )


@pytest.mark.parametrize("rule", ["skip", "raise", "replace"])
@pytest.mark.parametrize("by", ["python", "sql"])
def test_Q5_the_holder_of_a_key_that_has_expired_is_no_answer(db: Db, rule: Any, by: str) -> None:
    """It will never run: a reference to it would lose the task, though nobody has swept it yet."""
    old = db.enqueue(key="k", deadline=HOUR, args='{"n": 1}')
    db.clock.advance("1h")
    id = follow(db, new(args=b'{"n": 2}'), rule).id if by == "python" else by_sql(db, key="k", on_conflict=rule)
    assert db.state(id) == "ready" and db.task(id)["deadline"] is None
    assert (id == old) is (rule == "replace")
    if rule != "replace":
        assert db.state(old) == "expired"


# --- expire and claim, both orders (PROTOCOL B7)


def test_M18_an_expiry_then_a_claim(db: Db, worker: UUID) -> None:
    id = db.enqueue(deadline=HOUR)
    first, second = db.connect(), db.connect()
    db.clock.advance("1h")
    first.execute(b"BEGIN")
    assert expire(db, via=first) == {id}
    assert db.claim(worker, via=second) == [], "neither waited for nor claimed"
    first.execute(b"ROLLBACK")
    assert db.claim(worker, via=second) == [] and expire(db) == {id}


def test_M18_a_claim_then_an_expiry(db: Db, worker: UUID) -> None:
    id = db.enqueue(deadline=HOUR)
    first, second = db.connect(), db.connect()
    first.execute(b"BEGIN")
    assert ids(db.claim(worker, via=first)) == [id]
    db.clock.advance("1h")
    assert expire(db, via=second) == set(), "passed over, not waited for"
    first.execute(b"COMMIT")
    assert expire(db, via=second) == set() and db.state(id) == "running"


def test_M18_a_claim_that_rolls_back_leaves_it_to_the_sweep(db: Db, worker: UUID) -> None:
    id = db.enqueue(deadline=HOUR)
    first = db.connect()
    first.execute(b"BEGIN")
    db.claim(worker, via=first)
    db.clock.advance("1h")
    first.execute(b"ROLLBACK")
    assert db.claim(worker) == [] and expire(db) == {id}


def test_Q5_an_expiry_then_a_replace(db: Db) -> None:
    old = db.enqueue(key="k", deadline=HOUR)
    db.clock.advance("1h")
    first, second = db.connect(), db.connect()
    first.execute(b"BEGIN")
    expire(db, via=first)
    task = new(args=b'{"n": 2}')
    replacing = db.blocked(second, partial(follow, db, task, "replace", via=second))
    first.execute(b"COMMIT")
    assert (replacing.result(20).id, replacing.result(20).how) == (task.id, "created")
    assert db.state(old) == "expired" and db.state(task.id) == "ready"


def test_Q5_a_replace_then_an_expiry(db: Db) -> None:
    id = db.enqueue(key="k", deadline=HOUR)
    db.clock.advance("1h")
    first = db.connect()
    first.execute(b"BEGIN")
    assert follow(db, new(deadline=2 * HOUR), "replace", via=first).how == "replaced"
    assert expire(db) == set(), "passed over"
    first.execute(b"COMMIT")
    assert expire(db) == set() and db.state(id) == "ready"
