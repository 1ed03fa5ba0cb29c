"""Two writers of the same row, in both orders, each held at a chosen point (PROTOCOL B7)."""

from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request

from .support import LEASE, Db
from .test_keys import follow, new


@pytest.fixture
def first(db: Db) -> Connection[Any]:
    """A connection with an open transaction."""
    connection = db.connect()
    connection.execute(b"BEGIN")
    return connection


@pytest.fixture
def second(db: Db) -> Connection[Any]:
    return db.connect()


def commit(connection: Connection[Any]) -> None:
    connection.execute(b"COMMIT")


# --- claim and cancel


def test_a_claim_then_a_cancel(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.enqueue()
    db.claim(worker, via=first)
    cancelling = db.blocked(second, partial(db.cancel, id, second))
    commit(first)
    assert cancelling.result(20) == "cancelling", "the task that was ready when it was asked is running now"
    assert (db.task(id)["state"], db.task(id)["cancel_at"] is not None) == ("running", True)


def test_a_cancel_then_a_claim(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.enqueue()
    assert db.cancel(id, first) == "cancelled"
    assert db.claim(worker, 10, via=second) == [], "passed over, not waited for"
    commit(first)
    assert db.claim(worker, 10, via=second) == [] and db.state(id) == "cancelled"


# --- settle and reap

SETTLING = ["finish", "advance", "keep", "retried", "failed", "snoozed", "released", "cancel"]


@pytest.mark.parametrize("name", SETTLING)
def test_a_settle_then_a_reap(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    assert list(db.run(db.settling(worker, [task])[name], first)) == [task.id]
    assert db.reap(via=second) == {}, "passed over, not waited for"
    commit(first)
    assert db.reap(via=second) == {}
    assert "lost" not in [outcome for _, _, outcome in db.log(task.id)]


@pytest.mark.parametrize("name", SETTLING)
def test_a_reap_then_a_settle(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    assert db.reap(via=first) == {task.id: "ready"}
    settling = db.blocked(second, partial(db.run, db.settling(worker, [task])[name], second))
    commit(first)
    assert settling.result(20) == {}
    assert (db.state(task.id), db.log(task.id)) == ("ready", [(1, "ReadName", "lost")])


def test_a_reap_that_rolls_back_leaves_the_settle_its_row(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    db.reap(via=first)
    settling = db.blocked(second, partial(db.run, db.finish(worker, [task]), second))
    first.execute(b"ROLLBACK")
    assert settling.result(20) == {task.id: None} and db.log(task.id) == [(1, "ReadName", "done")]


# --- settle and beat


@pytest.mark.parametrize("name", SETTLING)
def test_a_settle_then_a_beat(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str) -> None:
    task = db.claimed(worker)
    db.run(db.settling(worker, [task])[name], first)
    beat = db.queries.beat("default", worker, [task.id], LEASE)
    assert db.run(beat, second) == [], "locked by the settle: passed over"
    commit(first)
    answer = db.run(beat, second)
    assert [(b.id, b.attempt) for b in answer] == ([(task.id, 2)] if name == "keep" else [])


@pytest.mark.parametrize("name", SETTLING)
def test_a_beat_then_a_settle(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str) -> None:
    task = db.claimed(worker)
    assert db.run(db.queries.beat("default", worker, [task.id], LEASE), first)
    settling = db.blocked(second, partial(db.run, db.settling(worker, [task])[name], second))
    commit(first)
    assert list(settling.result(20)) == [task.id]


def test_a_beat_then_a_reap(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    db.run(db.queries.beat("default", worker, [task.id], LEASE), first)
    assert db.reap(via=second) == {}
    commit(first)
    assert db.reap(via=second) == {} and db.state(task.id) == "running"


# --- settle and cancel, advance and cancel


@pytest.mark.parametrize("name", [n for n in SETTLING if n not in ("finish", "cancel")])
def test_a_cancel_then_a_settle_that_would_go_on(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str
) -> None:
    task = db.claimed(worker)
    assert db.cancel(task.id, first) == "cancelling"
    settling = db.blocked(second, partial(db.run, db.settling(worker, [task])[name], second))
    commit(first)
    assert settling.result(20) == {}
    fence = db.run(db.queries.fences("default", [task.id]))[task.id]
    assert (fence.worker_id, fence.attempt, fence.cancelled) == (worker, 1, True), "ours still, to be cancelled"


@pytest.mark.parametrize(("name", "state"), [("finish", "done"), ("cancel", "cancelled")])
def test_a_cancel_then_a_settle_that_ends_the_task(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str, state: str
) -> None:
    task = db.claimed(worker)
    db.cancel(task.id, first)
    settling = db.blocked(second, partial(db.run, db.settling(worker, [task])[name], second))
    commit(first)
    assert list(settling.result(20)) == [task.id] and db.state(task.id) == state


@pytest.mark.parametrize(
    ("name", "answer"),
    [("advance", "cancelled"), ("keep", "cancelling"), ("retried", "cancelled"), ("failed", "cancelled"),
     ("snoozed", "cancelled"), ("released", "cancelled")],
)  # fmt: skip
def test_a_settle_then_a_cancel(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any], name: str, answer: str
) -> None:
    task = db.claimed(worker)
    db.run(db.settling(worker, [task])[name], first)
    cancelling = db.blocked(second, partial(db.cancel, task.id, second))
    commit(first)
    assert cancelling.result(20) == answer
    assert db.claim(worker, 10, known=["greeter.ReadName", "greeter.SayHello"]) == []
    if name == "keep":
        assert db.task(task.id)["cancel_at"] is not None
    else:
        assert db.state(task.id) == "cancelled"
    logged = [outcome for _, _, outcome in db.log(task.id)]
    assert logged == {"advance": ["advanced"], "keep": ["advanced", None]}.get(name, [name])


def test_a_finish_then_a_cancel(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    task = db.claimed(worker)
    db.run(db.finish(worker, [task]), first)
    cancelling = db.blocked(second, partial(db.cancel, task.id, second))
    commit(first)
    with pytest.raises(psycopg.Error, match="it is already done") as caught:
        cancelling.result(20)
    assert caught.value.sqlstate == "HF409"


# --- finish and enqueue(key)


def test_a_finish_then_an_enqueue_with_its_key(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker, key="k")
    db.run(db.finish(worker, [task]), first)
    made = new("k")
    enqueuing = db.blocked(second, lambda: follow(db, made, via=second))
    commit(first)
    answer = enqueuing.result(20)
    assert (answer.id, answer.how) == (made.id, "created")


def test_a_finish_that_rolls_back_keeps_its_key(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker, key="k")
    db.run(db.finish(worker, [task]), first)
    enqueuing = db.blocked(second, lambda: follow(db, new("k"), via=second))
    first.execute(b"ROLLBACK")
    assert enqueuing.result(20).id == task.id


def test_an_enqueue_with_its_key_then_a_finish(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker, key="k")
    assert follow(db, new("k"), via=first).id == task.id
    assert db.run(db.finish(worker, [task]), second) == {task.id: None}, "an enqueue that was skipped holds no lock"
    commit(first)
    assert db.state(task.id) == "done"


# --- retry(id) and discard


def test_a_retry_then_a_discard(db: Db, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.parked()
    db.retry(id, first)
    discarding = db.blocked(second, partial(db.discard, id, second))
    commit(first)
    with pytest.raises(psycopg.Error, match=f"cannot discard task {id}: it is ready"):
        discarding.result(20)
    assert db.state(id) == "ready"


def test_a_discard_then_a_retry(db: Db, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.parked()
    db.discard(id, first)
    retrying = db.blocked(second, partial(db.retry, id, second))
    commit(first)
    with pytest.raises(psycopg.Error, match=f"cannot retry task {id}: it is already discarded"):
        retrying.result(20)
    assert db.state(id) == "discarded"


# --- replace and claim


def test_a_replace_then_a_claim(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.enqueue(args='{"n": 1}', key="k")
    answer = follow(db, new("k", b'{"n": 2}'), "replace", via=first)
    assert (answer.id, answer.how) == (id, "replaced")
    assert db.claim(worker, 10, via=second) == [], "passed over: never the old args"
    commit(first)
    assert [row.args for row in db.claim(worker, 10, via=second)] == [b'{"n": 2}']


def test_a_claim_then_a_replace(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    id = db.enqueue(args='{"n": 1}', key="k")
    db.claim(worker, via=first)
    replacement = Request(uuid7(), "default", "greeter", "ReadName", b'{"n": 2}', key="k")
    replacing = db.blocked(second, lambda: follow(db, replacement, "replace", via=second))
    commit(first)
    answer = replacing.result(20)
    assert (answer.id, answer.how) == (id, "running")
    assert (db.task(id)["args"], db.state(id)) == ({"n": 1}, "running")


def test_a_claim_that_rolls_back_then_a_replace(
    db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    id = db.enqueue(args='{"n": 1}', key="k")
    db.claim(worker, via=first)
    replacing = db.blocked(second, lambda: follow(db, new("k", b'{"n": 2}'), "replace", via=second))
    first.execute(b"ROLLBACK")
    assert replacing.result(20).id == id
    assert db.one("SELECT count(*) FROM holdfast.task") == 1


# --- release and claim


def test_a_release_then_a_claim(
    db: Db, worker: UUID, other_worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "released"), first)
    assert db.claim(other_worker, via=second) == []
    commit(first)
    [again] = db.claim(other_worker, via=second)
    assert (again.id, again.attempt) == (task.id, 2)


def test_a_claim_then_a_release_of_an_older_attempt(
    db: Db, worker: UUID, other_worker: UUID, first: Connection[Any], second: Connection[Any]
) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    db.reap()
    db.claim(other_worker, via=first)
    # Its own snapshot still says ready and unfenced, so there is nothing to wait for either.
    assert db.run(db.stay(worker, [task], "released"), second) == {}
    commit(first)
    assert db.run(db.stay(worker, [task], "released"), second) == {}
    assert db.task(task.id)["worker_id"] == other_worker


# --- ensure-partition and finish


def test_a_new_partition_then_a_finish(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    db.sql("SELECT holdfast.ensure_partition('2044-05-01')", via=first)
    task = db.claimed(worker)
    assert db.run(db.finish(worker, [task]), second) == {task.id: None}
    first.execute(b"ROLLBACK")


def test_a_finish_then_a_new_partition(db: Db, worker: UUID, first: Connection[Any], second: Connection[Any]) -> None:
    task = db.claimed(worker)
    db.run(db.finish(worker, [task]), first)
    second.execute(b"BEGIN")
    db.sql("SELECT holdfast.ensure_partition('2044-05-01')", via=second)
    second.execute(b"ROLLBACK")
    commit(first)
    assert db.state(task.id) == "done"
