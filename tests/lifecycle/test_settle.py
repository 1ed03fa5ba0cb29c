"""How attempts end: each settling statement, alone and in batches (T1, T3, T10, T11, Q9, M6, M10)."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.rows import Recorded

from .support import BOOM, LEASE, NOW, Db, ids, outcomes


def test_T1_finishing_moves_the_one_row_from_task_to_archive(db: Db, worker: UUID) -> None:
    id = db.enqueue(args='{"n": 1}', priority=2, key="k", headers=b'{"h": "1"}')
    assert db.sql("SELECT id FROM holdfast.tasks") == [(id,)]
    [task] = db.claim(worker)
    db.clock.advance(7)
    assert db.run(db.finish(worker, [task], result={"ok": True})) == {id: None}
    assert db.sql("SELECT id FROM holdfast.task") == db.sql("SELECT task_id FROM holdfast.attempt") == []
    row = db.archived(id)
    assert row == {
        "id": id, "queue": "default", "kind": "greeter", "step": "ReadName", "args": {"n": 1}, "state": "done",
        "priority": 2, "run_at": NOW, "moves": 0, "attempt": 1, "errors": 0, "crashes": 0, "worker_id": worker,
        "claimed_at": NOW, "outcome": "done", "key": "k", "error": None, "headers": {"h": "1"}, "created_at": NOW,
        "finished_at": NOW + timedelta(seconds=7), "result": {"ok": True}, "report": None,
    }  # fmt: skip


def test_a_done_task_has_no_error_and_its_earlier_one_stays_with_its_attempt(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    [task] = db.claim(worker)
    db.run(db.finish(worker, [task]))
    assert db.archived(task.id)["error"] is None
    assert db.one("SELECT error FROM holdfast.tasks") is None
    assert db.sql("SELECT attempt, outcome, error ->> 'message' FROM holdfast.attempts ORDER BY attempt") == [
        (1, "retried", "boom"),
        (2, "done", None),
    ]


@pytest.mark.parametrize("keep", [True, False])
def test_T3_a_move_is_one_write_with_fresh_budgets(db: Db, worker: UUID, keep: bool) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    db.sql("UPDATE holdfast.task SET crashes = 2")
    [task] = db.claim(worker)
    assert (task.attempt, task.errors, task.crashes) == (2, 1, 2)
    db.clock.advance(5)
    moved = db.run(db.advance(worker, [task], keep=keep, args={"greeting": "hi"}, max_crashes=1))
    now = NOW + timedelta(seconds=5)
    assert moved == {task.id: (now if keep else NOW).timestamp()}
    row = db.task(task.id)
    assert (row["step"], row["args"], row["moves"], row["run_at"]) == ("SayHello", {"greeting": "hi"}, 1, now)
    assert (row["errors"], row["crashes"], row["error"], row["max_crashes"]) == (0, 0, None, 1)
    if keep:
        assert (row["state"], row["worker_id"], row["attempt"]) == ("running", worker, 3)
        assert (row["claimed_at"], row["lease_expires_at"]) == (now, now + LEASE)
    else:
        assert (row["state"], row["worker_id"], row["attempt"]) == ("ready", None, 2)
        assert db.claim(uuid7())[0].attempt == 3, "any worker may go on"
    assert db.log(task.id) == [(1, "ReadName", "retried"), (2, "ReadName", "advanced"), (3, "SayHello", None)]
    logged = db.sql("SELECT moves, args, claimed_at, finished_at, worker_id FROM holdfast.attempt WHERE attempt = 2")
    assert logged == [(0, b'{"n": 1}', NOW, now, worker)], "with the step and args it ran with"


def test_T3_visits_in_a_loop_have_numbers_of_their_own(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    for step in ("SayHello", "ReadName", "ReadName"):
        db.run(db.advance(worker, [task], step=step))
        [task] = db.claim(worker)
    assert (task.step, task.moves, task.attempt) == ("ReadName", 3, 4)
    visits = db.sql("SELECT step, moves FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt", task.id)
    assert visits == [("ReadName", 0), ("SayHello", 1), ("ReadName", 2), ("ReadName", 3)]


@pytest.mark.parametrize("when", [{"delay": 90}, {"at": "2031-05-20T12:01:30Z"}])
def test_T4_a_later_step_waits_without_a_lease(db: Db, worker: UUID, when: dict[str, Any]) -> None:
    task = db.claimed(worker)
    db.run(db.advance(worker, [task], **when))
    row = db.task(task.id)
    assert (row["state"], row["worker_id"], row["run_at"]) == ("ready", None, NOW + timedelta(seconds=90))
    assert db.reap() == {} and db.claim(worker) == []
    db.clock.advance(90)
    assert db.claim(worker)[0].step == "SayHello"


def test_T10_while_retrying_it_is_ready_later_and_every_error_is_logged(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    for number in (1, 2):
        error = {**BOOM, "message": f"boom {number}"}
        assert db.run(db.stay(worker, [task], "retried", error=error, errors=1, delay=60))
        row = db.task(task.id)
        assert (row["state"], row["errors"], row["attempt"], row["error"]) == ("ready", number, number, error)
        assert row["run_at"] == db.clock.now() + timedelta(seconds=60)
        assert db.claim(worker) == []
        db.clock.advance("1m")
        [task] = db.claim(worker)
    logged = db.sql(
        "SELECT attempt, outcome, error ->> 'message', error #>> '{causes,0,message}', error ->> 'traceback',"
        " claimed_at, finished_at, worker_id FROM holdfast.attempt ORDER BY attempt"
    )
    later = NOW + timedelta(minutes=1)
    assert logged == [
        (1, "retried", "boom 1", "disk", "…", NOW, NOW, worker),
        (2, "retried", "boom 2", "disk", "…", later, later, worker),
    ]


def test_T11_parked_holds_the_whole_error_and_is_never_claimed(db: Db, worker: UUID) -> None:
    task = db.claimed(worker, at=NOW - timedelta(hours=1))
    db.run(db.stay(worker, [task], "failed", error=BOOM, errors=1))
    row = db.task(task.id)
    assert (row["state"], row["error"], row["errors"], row["worker_id"]) == ("parked", BOOM, 1, None)
    assert row["run_at"] == NOW - timedelta(hours=1)
    db.clock.advance("100d")
    assert db.claim(worker, 10) == [] and db.reap() == {}
    assert db.log(task.id) == [(1, "ReadName", "failed")]
    [(id, kind, message)] = db.sql("SELECT id, error_type, error_message FROM holdfast.parked")
    assert (id, kind, message) == (task.id, "ValueError", "boom")


def test_T11_parked_without_an_error_is_refused_by_the_table(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    with pytest.raises(psycopg.errors.CheckViolation, match="task_parked_error"):
        db.run(db.stay(worker, [task], "failed"))


@pytest.mark.parametrize("outcome", ["snoozed", "released"])
def test_T2_snoozed_and_released_leave_the_budgets_alone(db: Db, worker: UUID, outcome: str) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    [task] = db.claim(worker)
    before = db.task(task.id)
    db.run(db.stay(worker, [task], outcome, delay=10))
    row = db.task(task.id)
    same = ("step", "args", "errors", "crashes", "error", "moves", "attempt", "claimed_at", "headers")
    assert [row[name] for name in same] == [before[name] for name in same]
    assert (row["state"], row["run_at"]) == ("ready", NOW + timedelta(seconds=10))
    assert db.log(task.id)[-1] == (2, "ReadName", outcome)
    assert db.one("SELECT error FROM holdfast.attempt WHERE attempt = 2") is None


@pytest.mark.parametrize("attempts", [0, 1])
def test_W4_a_claim_that_never_began_leaves_no_trace(db: Db, worker: UUID, attempts: int) -> None:
    id = db.enqueue(deadline=timedelta(hours=1))
    if attempts:
        db.run(db.stay(worker, db.claim(worker), "retried", error=BOOM, errors=1, delay=0))
    before, log = db.task(id), db.log(id)
    [task] = db.claim(worker)
    assert list(db.run(db.stay(worker, [task], None))) == [id]
    assert (db.task(id), db.log(id)) == (before, log)
    assert db.run(db.stay(worker, [task], None)) == {}, "given back once"
    assert db.claim(uuid7())[0].attempt == attempts + 1


def test_Q9_success_at_the_last_allowed_attempt_is_done(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    for _ in range(5):
        db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
        [task] = db.claim(worker)
    db.sql("UPDATE holdfast.task SET crashes = max_crashes")
    db.run(db.finish(worker, [task], result=1))
    assert db.state(task.id) == "done"
    assert [outcome for _, _, outcome in db.log(task.id)] == ["retried"] * 5 + ["done"]
    assert db.claim(worker, 10) == []


def test_a_batch_takes_each_rows_own_values(db: Db, worker: UUID) -> None:
    tasks = [db.claimed(worker) for _ in range(3)]
    db.run(db.stay(worker, tasks[:1], "retried", error=BOOM, errors=1, delay=0))
    tasks[0] = db.claim(worker)[0]
    batch = b"{" + b",".join(outcomes([t], result=n)[1:-1] for n, t in enumerate(tasks)) + b"}"
    done = db.run(db.queries.finish("default", worker, ids(tasks), batch))
    assert set(done) == set(ids(tasks))
    assert [db.archived(t.id)["result"] for t in tasks] == [0, 1, 2]
    assert [db.archived(t.id)["attempt"] for t in tasks] == [2, 1, 1]


def test_M6_one_locked_row_stalls_a_plain_settle_and_not_the_one_that_passes_over_it(db: Db, worker: UUID) -> None:
    """The plain form is what a first flush sends, with a lock timeout; alone it would write nothing."""
    for _ in range(1000):
        db.enqueue()
    tasks = db.claim(worker, 1000)
    locker = db.connect()
    locker.execute(b"BEGIN")
    db.sql("SELECT id FROM holdfast.task WHERE id = $1 FOR UPDATE", tasks[500].id, via=locker)
    ours = db.connect(options="-c lock_timeout=100ms")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        db.run(db.finish(worker, tasks), ours)
    assert db.one("SELECT count(*) FROM holdfast.archive") == 0
    written = db.run(db.queries.skip_locked(db.finish(worker, tasks)), ours)
    assert set(written) == set(ids(tasks)) - {tasks[500].id}
    fences = db.run(db.queries.fences("default", [tasks[500].id]), ours)
    assert (fences[tasks[500].id].worker_id, fences[tasks[500].id].attempt) == (worker, 1), "the next flush's"
    locker.execute(b"COMMIT")
    assert db.run(db.finish(worker, [tasks[500]])) == {tasks[500].id: None}


def test_M6_every_settling_statement_has_a_form_that_passes_over_locked_rows(db: Db, worker: UUID) -> None:
    locker = db.connect()
    ours = db.connect(options="-c lock_timeout=100ms")
    for name in db.settling(worker, []):
        free, locked = db.claimed(worker), db.claimed(worker)
        plain = db.settling(worker, [free, locked])[name]
        locker.execute(b"BEGIN")
        db.sql("SELECT id FROM holdfast.task WHERE id = $1 FOR UPDATE", locked.id, via=locker)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            db.run(plain, ours)
        assert list(db.run(db.queries.skip_locked(plain), ours)) == [free.id], name
        locker.execute(b"ROLLBACK")


def test_M6_a_value_the_server_refuses_writes_nothing_of_its_batch(db: Db, worker: UUID) -> None:
    tasks = [db.claimed(worker) for _ in range(2)]
    before = db.snapshot()
    bad = outcomes(tasks, result="x").replace(b'"x"', b'"\\u0000"')
    with pytest.raises(psycopg.errors.UntranslatableCharacter) as caught:
        db.run(db.queries.finish("default", worker, ids(tasks), bad))
    assert (caught.value.sqlstate or "").startswith("22")
    assert db.snapshot() == before


def test_M6_what_was_recorded_can_be_read_back(db: Db, worker: UUID) -> None:
    moved, finished, lost, kept = [db.claimed(worker) for _ in range(4)]
    db.run(db.advance(worker, [moved]))
    db.run(db.finish(worker, [finished]))
    db.run(db.advance(worker, [kept], keep=True))
    found = db.run(db.queries.recorded(ids([moved, finished, lost, kept])))
    assert sorted(found) == sorted(
        [Recorded(moved.id, 1, "advanced"), Recorded(finished.id, 1, "done"), Recorded(kept.id, 1, "advanced")]
    )
    fences = db.run(db.queries.fences("default", ids([moved, finished, lost, kept])))
    assert finished.id not in fences
    assert (fences[lost.id].worker_id, fences[lost.id].attempt, fences[lost.id].moves) == (worker, 1, 0)
    assert (fences[kept.id].worker_id, fences[kept.id].attempt, fences[kept.id].moves) == (worker, 2, 1)
    assert (fences[moved.id].worker_id, fences[moved.id].state) == (None, "ready")
    db.clock.advance("25h")
    assert db.run(db.queries.recorded(ids([moved]))) == [], "only the last day is searched"
