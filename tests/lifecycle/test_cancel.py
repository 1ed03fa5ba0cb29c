"""Cancel: at once unless it is running; then every way back to ready is shut, and only finish wins (M11, Q8)."""

from uuid import UUID

import psycopg
import pytest

from holdfast._db.errors import explained
from holdfast._model.enqueue.ids import uuid7
from holdfast.errors import TaskNotFound, WrongState

from .support import BOOM, LEASE, NOW, Db, ids


def changes(db: Db, id: UUID) -> list[tuple[str, str, str | None]]:
    return [(r[0], r[1], r[2]) for r in db.run(db.queries.task_changes(id))]


def test_M11_Q8_ready_is_archived_at_once(db: Db, worker: UUID) -> None:
    id = db.enqueue(key="k")
    assert db.cancel(id, by="ann", why="a typo") == "cancelled"
    row = db.archived(id)
    assert (row["state"], row["outcome"], row["attempt"], row["key"]) == ("cancelled", None, 0, "k")
    assert row["error"] == {"type": "cancelled", "message": "cancelled by ann: a typo", "causes": []}
    assert row["finished_at"] == NOW
    assert db.sql("SELECT id FROM holdfast.task") == [] and db.claim(worker) == [] and db.log(id) == []
    assert changes(db, id) == [("cancel", "ann", "a typo")]


def test_M11_Q8_waiting_is_archived_at_once(db: Db) -> None:
    id = db.enqueue()
    db.sql("UPDATE holdfast.task SET state = 'waiting'")
    assert db.cancel(id) == "cancelled"
    role = db.one("SELECT session_user")
    assert db.archived(id)["error"]["message"] == f"cancelled by {role}"
    assert changes(db, id) == [("cancel", role, None)]


def test_M11_parked_is_archived_at_once_with_its_error_as_the_cause(db: Db) -> None:
    id = db.parked()
    assert db.cancel(id, by="ann") == "cancelled"
    assert db.archived(id)["error"] == {"type": "cancelled", "message": "cancelled by ann", "causes": [BOOM]}
    assert db.log(id) == [(1, "ReadName", "failed")], "its attempt is in the log once"


def test_M11_Q8_running_is_only_marked_and_the_first_mark_stays(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    assert db.cancel(task.id, by="ann", why="why not") == "cancelling"
    db.clock.advance(5)
    assert db.cancel(task.id, by="bob") == "cancelling"
    row = db.task(task.id)
    assert (row["state"], row["worker_id"]) == ("running", worker)
    assert (row["cancel_at"], row["cancel_by"]) == (NOW, "cancelled by ann: why not")
    assert [by for _, by, _ in changes(db, task.id)] == ["ann", "bob"]
    assert db.run(db.queries.fences("default", [task.id]))[task.id].cancelled is True


def test_a_cancelled_task_that_is_enqueued_again_takes_over_a_key_that_is_held_for_longer(db: Db) -> None:
    id = db.one('SELECT holdfast.enqueue(\'greeter.ReadName\', \'{}\', \'{"key": "k", "unique_for": "1 hour"}\')')
    db.cancel(id)
    new = db.run(db.queries.again(id, b'{"by": "ann"}'))
    assert db.sql("SELECT key, task_id FROM holdfast.key") == [("k", new)]
    assert (db.task(new)["key"], db.task(new)["headers"]) == ("k", {"holdfast-again": str(id)})
    assert changes(db, id)[-1] == ("again", "ann", None)
    with pytest.raises(psycopg.Error, match="it has not ended"):
        db.run(db.queries.again(new, b"{}"))


@pytest.mark.parametrize("name", ["advance", "keep", "retried", "failed", "snoozed", "released"])
def test_M11_whatever_would_go_on_respects_the_cancellation(db: Db, worker: UUID, name: str) -> None:
    task, other = db.claimed(worker), db.claimed(worker)
    db.cancel(task.id, by="ann")
    before = db.task(task.id)
    assert list(db.run(db.settling(worker, [task, other])[name])) == [other.id]
    assert db.task(task.id) == before and db.log(task.id) == [(1, "ReadName", None)]
    # This is what the settler sends then.
    assert list(db.run(db.end_cancelled(worker, [task], reason=""))) == [task.id]
    row = db.archived(task.id)
    assert (row["state"], row["outcome"], row["worker_id"], row["attempt"]) == ("cancelled", "cancelled", worker, 1)
    assert row["error"] == {"type": "cancelled", "message": "cancelled by ann"}
    assert db.log(task.id) == [(1, "ReadName", "cancelled")]


def test_M11_the_reaper_never_reruns_a_cancelled_task(db: Db, worker: UUID) -> None:
    task, crashed = db.claimed(worker), db.claimed(worker)
    db.cancel(task.id, by="ann")
    db.clock.advance(LEASE.total_seconds() + 1)
    assert [r.id for r in db.run(db.queries.reap("default", 10))] == [crashed.id]
    assert db.state(task.id) == "running"
    assert db.run(db.queries.reap_cancelled("default", 10)) == {task.id}
    row = db.archived(task.id)
    assert (row["state"], row["outcome"], row["crashes"]) == ("cancelled", "lost", 0)
    assert row["error"]["message"] == "cancelled by ann"
    assert db.log(task.id) == [(1, "ReadName", "lost")]


def test_M11_reaping_of_cancelled_tasks_is_bounded_and_waits_for_the_lease(db: Db, worker: UUID) -> None:
    for task in [db.claimed(worker) for _ in range(3)]:
        db.cancel(task.id)
    assert db.run(db.queries.reap_cancelled("default", 10)) == set()
    db.clock.advance("1h")
    assert [len(db.run(db.queries.reap_cancelled("default", 2))) for _ in range(3)] == [2, 1, 0]


def test_Q8_cancel_wins_over_a_crash_loop(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    db.reap()
    db.claim(worker)
    db.cancel(task.id)
    db.clock.advance("1h")
    assert db.reap() == {task.id: "cancelled"}
    assert db.claim(worker, 10) == [] and [o for _, _, o in db.log(task.id)] == ["lost", "lost"]


def test_M11_finish_wins_over_cancel(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.cancel(task.id)
    assert db.run(db.finish(worker, [task], result=1)) == {task.id: None}
    assert (db.state(task.id), db.log(task.id)) == ("done", [(1, "ReadName", "done")])


def test_a_step_may_cancel_its_own_task(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.run(db.end_cancelled(worker, [task], reason="nothing to do"))
    assert db.archived(task.id)["error"] == {"type": "cancelled", "message": "nothing to do"}


@pytest.mark.parametrize("verb", ["cancel", "retry", "discard"])
def test_T12_Q8_a_verb_on_a_task_that_ended_or_never_was(db: Db, worker: UUID, verb: str) -> None:
    call = getattr(db, verb)
    task = db.claimed(worker)
    db.run(db.finish(worker, [task]))
    with pytest.raises(psycopg.Error, match=f"cannot {verb} task {task.id}: it is already done") as ended:
        call(task.id)
    assert isinstance(explained(ended.value, "holdfast"), WrongState)
    nobody = uuid7()
    with pytest.raises(psycopg.Error, match=f"there is no task {nobody}") as missing:
        call(nobody)
    found = explained(missing.value, "holdfast")
    assert isinstance(found, TaskNotFound) and "right database" in str(found)
    assert db.one("SELECT count(*) FROM holdfast.change") == 0


def test_cancelling_ends_only_the_one_task(db: Db, worker: UUID) -> None:
    tasks = [db.enqueue() for _ in range(3)]
    db.cancel(tasks[1])
    assert ids(db.claim(worker, 10)) != [] and [db.state(t) for t in tasks] == ["running", "cancelled", "running"]
