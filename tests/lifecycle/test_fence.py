"""L1 and L4: the row defends itself, and a late writer changes nothing."""

from uuid import UUID

import psycopg
import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.rows import Claimed

from .support import LEASE, Db, with_text

SETTLING = ["finish", "advance", "keep", "retried", "failed", "snoozed", "released", "cancel"]


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 'ready'", "task_lease"),
        ("state = 'parked', error = '{}'", "task_lease"),
        ("state = 'waiting'", "task_lease"),
        ("worker_id = NULL", "task_lease"),
        ("lease_expires_at = NULL", "task_lease"),
        ("worker_id = NULL, lease_expires_at = NULL", "task_lease"),
        ("state = 'ready', worker_id = NULL", "task_lease"),
        ("state = 'done', worker_id = NULL, lease_expires_at = NULL", "task_state"),
        ("state = 'READY', worker_id = NULL, lease_expires_at = NULL", "task_state"),
        ("state = NULL", "state"),
        ("priority = 10", "task_priority"),
        ("priority = -1", "task_priority"),
        ("args = '[]'", "task_args"),
        ("args = 'null'", "task_args"),
        ("run_at = 'infinity'", "task_run_at"),
        ("run_at = '0001-01-01 BC'", "task_run_at"),
        ("state = 'parked', worker_id = NULL, lease_expires_at = NULL", "task_parked_error"),
        ("queue = 'No'", "queue_name"),
        ("kind = 'No'", "kind_name"),
        ("step = 'no no'", "step_name"),
    ],
)
def test_L1_a_wrong_update_by_hand_is_refused(db: Db, worker: UUID, change: str, constraint: str) -> None:
    db.claimed(worker)
    before = db.snapshot()
    with pytest.raises(psycopg.errors.IntegrityError, match=constraint):
        db.sql(f"UPDATE holdfast.task SET {change}")
    assert db.snapshot() == before


@pytest.mark.parametrize("state", ["ready", "waiting"])
def test_L1_a_lease_on_a_task_that_is_not_running_is_refused(db: Db, worker: UUID, state: str) -> None:
    db.enqueue()
    db.sql("UPDATE holdfast.task SET state = $1", state)
    for change in (
        "worker_id = $1::uuid",
        "lease_expires_at = now()",
        "worker_id = $1::uuid, lease_expires_at = now()",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="task_lease"):
            db.sql(f"UPDATE holdfast.task SET {change}", *([worker] if "$1" in change else []))


@pytest.mark.parametrize(
    ("table", "change"),
    [("archive", "state = 'ready'"), ("attempt", "outcome = 'done'"), ("attempt", "outcome = 'crashed'")],
)
def test_L1_the_history_takes_only_the_words_it_knows(db: Db, worker: UUID, table: str, change: str) -> None:
    task = db.claimed(worker)
    db.run(db.advance(worker, [task], keep=True))
    db.run(db.finish(worker, [task._replace(attempt=2)]))
    with pytest.raises(psycopg.errors.CheckViolation):
        db.sql(f"UPDATE holdfast.{table} SET {change}")


def wrong_fences(db: Db, worker: UUID) -> dict[str, tuple[UUID, Claimed]]:
    """Writers that do not hold the lease, and what they believe to hold."""
    held = db.claimed(worker)
    reaped = db.claimed(worker)
    again = db.claimed(worker)
    db.clock.advance(LEASE.total_seconds() + 1)
    db.run(db.queries.beat("default", worker, [held.id], LEASE))
    assert set(db.reap()) == {reaped.id, again.id}
    # The second one is claimed anew, by the same worker: only the attempt tells the two apart.
    db.sql("UPDATE holdfast.task SET run_at = '2050-01-01' WHERE id = $1", reaped.id)
    [new] = db.claim(worker, 10)
    assert new.id == again.id and new.attempt == 2
    return {
        "another worker": (uuid7(), held),
        "an older attempt": (worker, held._replace(attempt=0)),
        "a newer attempt": (worker, held._replace(attempt=2)),
        "a reaped row": (worker, reaped),
        "a reaped row, claimed again": (worker, again),
        "a row that never was": (worker, held._replace(raw_id=uuid7().bytes)),
    }


@pytest.mark.parametrize("name", SETTLING)
def test_L4_a_wrong_fence_changes_nothing(db: Db, worker: UUID, name: str) -> None:
    writers = wrong_fences(db, worker)
    before = db.snapshot()
    for who, (by, task) in writers.items():
        query = db.settling(by, [task])[name]
        assert db.run(query) == {}, who
        assert db.run(db.queries.skip_locked(query)) == {}, who
    assert db.snapshot() == before


@pytest.mark.parametrize("name", SETTLING)
def test_L4_a_wrong_fence_does_not_hold_up_the_others_of_its_batch(db: Db, worker: UUID, name: str) -> None:
    stale, good = db.claimed(worker)._replace(attempt=7), db.claimed(worker)
    assert list(db.run(db.settling(worker, [stale, good])[name])) == [good.id]


@pytest.mark.parametrize("name", SETTLING)
def test_L4_the_finisher_comes_first_then_the_reaper(db: Db, worker: UUID, name: str) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    assert list(db.run(db.settling(worker, [task])[name])) == [task.id], "late, but nobody took it"
    after = db.snapshot()
    assert db.reap() == {}
    assert db.snapshot() == after
    assert len({number for number, _, _ in db.log(task.id)}) == len(db.log(task.id))


@pytest.mark.parametrize("name", SETTLING)
def test_L4_the_reaper_comes_first_then_the_finisher(db: Db, worker: UUID, name: str) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    assert db.reap() == {task.id: "ready"}
    after = db.snapshot()
    assert db.run(db.settling(worker, [task])[name]) == {}
    assert db.snapshot() == after
    assert db.log(task.id) == [(1, "ReadName", "lost")]


@pytest.mark.parametrize("name", SETTLING)
def test_L4_an_outcome_is_recorded_once_however_often_it_is_sent(db: Db, worker: UUID, name: str) -> None:
    task = db.claimed(worker)
    query = db.settling(worker, [task])[name]
    assert db.run(query) != {}
    after = db.snapshot()
    assert db.run(query) == {}
    assert db.snapshot() == after


def test_L4_without_the_attempt_in_the_fence_an_old_outcome_would_be_taken(db: Db, worker: UUID) -> None:
    """The naive form: the same worker got the task again, and its first, late attempt ends the second one."""
    task = db.claimed(worker)
    db.clock.advance("1h")
    db.reap()
    db.claim(worker)
    query = db.finish(worker, [task])
    assert db.run(query) == {}
    fence = next(line for line in query.statement.text.splitlines() if "'attempt')" in line)
    assert db.run(with_text(query, fence, fence.replace("=", ">=", 1))) == {task.id: None}


def test_L4_one_number_for_a_whole_batch_is_the_same_fence(db: Db, worker: UUID) -> None:
    """All ended in their first attempt, says the worker; one of them has meanwhile had a second one."""
    late = db.claimed(worker)
    db.clock.advance("1h")
    db.reap()
    again, other = db.claim(worker)[0], db.claimed(worker)
    assert (again.id, again.attempt, other.attempt) == (late.id, 2, 1)
    query = db.queries.finish("default", worker, [late.id, other.id], None, attempt=1)
    assert db.run(query) == {other.id: None}
    assert db.task(late.id)["state"] == "running"
    assert db.run(db.queries.finish("default", worker, [late.id], None, attempt=2)) == {late.id: None}
