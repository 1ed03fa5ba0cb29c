"""Beats and the reaper (L3, L4, L7, L8, L9, L10, M4, M5)."""

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.rows import Beaten

from .support import BOOM, KNOWN, LEASE, NOW, Db, ids

LATE = LEASE + timedelta(seconds=1)


def register(db: Db, worker: UUID) -> None:
    query = db.queries.register(
        worker, name="w", host="h", pid=1, version="0", queues=["default"], steps=["greeter.ReadName"], slots=1
    )
    db.run(query)


def lose(db: Db, worker: UUID, *, crash_limits: str = "{}") -> str:
    """Claims the one task that is due, lets its lease run out, reaps; says what became of it."""
    [task] = db.claim(worker, crash_limits=crash_limits)
    db.clock.advance(LATE)
    return db.reap()[task.id]


def test_L3_a_beat_renews_what_is_given_and_answers_cancellations(db: Db, worker: UUID) -> None:
    one, two, three = db.claimed(worker), db.claimed(worker), db.claimed(worker)
    foreign = db.claimed(uuid7())
    db.cancel(two.id)
    db.clock.advance(20)
    answer = db.run(db.queries.beat("default", worker, ids([one, two, foreign]), LEASE))
    assert sorted(answer) == sorted([Beaten(one.id, 1, False), Beaten(two.id, 1, True)])
    renewed = NOW + timedelta(seconds=20) + LEASE
    assert [db.task(t.id)["lease_expires_at"] for t in (one, two, three, foreign)] == [renewed] * 2 + [NOW + LEASE] * 2


def test_M1_a_reap_that_was_long_on_its_way_takes_only_what_had_expired_when_it_was_meant(db: Db, worker: UUID) -> None:
    lost, cancelled = db.claimed(worker), db.claimed(worker)
    db.cancel(cancelled.id)
    db.clock.advance(LATE)
    live, asked = db.claimed(worker), db.claimed(worker)
    db.cancel(asked.id)
    meant = db.run(db.queries.clock())
    db.clock.advance(LATE)  # an outage: nobody can beat
    assert [each.id for each in db.run(db.queries.reap("default", 10, meant))] == [lost.id]
    assert db.run(db.queries.reap_cancelled("default", 10, meant)) == {cancelled.id}
    assert db.task(live.id)["state"] == db.task(asked.id)["state"] == "running"
    assert db.reap() == {live.id: "ready", asked.id: "cancelled"}


def test_L3_a_beat_after_the_end_of_the_lease_counts_if_nobody_took_the_task(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.clock.advance("1h")
    assert ids_of(db.run(db.queries.beat("default", worker, [task.id], LEASE))) == [task.id]
    assert db.reap() == {}
    db.clock.advance(LATE)
    assert db.reap() == {task.id: "ready"}
    assert db.run(db.queries.beat("default", worker, [task.id], LEASE)) == []
    assert db.task(task.id)["lease_expires_at"] is None


def ids_of(answer: list[Beaten]) -> list[UUID]:
    return [each.id for each in answer]


def test_L7_a_beat_counts_from_its_own_statement(db: Db, worker: UUID) -> None:
    db.clock.resume()
    task = db.claimed(worker)
    other = db.connect()
    other.execute(b"BEGIN")
    [(began, _)] = db.sql("SELECT now(), pg_sleep(0.1)", via=other)
    db.run(db.queries.beat("default", worker, [task.id], LEASE), other)
    other.execute(b"COMMIT")
    assert db.task(task.id)["lease_expires_at"] >= began + LEASE + timedelta(milliseconds=100)


def test_L8_a_lost_lease_is_logged_as_lost_and_counted_as_a_crash(db: Db, worker: UUID) -> None:
    task = db.claimed(worker, at=NOW - timedelta(minutes=5))
    db.clock.advance(LEASE)
    assert db.reap() == {}, "a lease holds until after its last instant"
    db.clock.advance(1)
    [reaped] = db.run(db.queries.reap("default", 10))
    assert reaped[:6] == (task.id, "greeter", "ReadName", "ready", 1, 1)
    row = db.task(task.id)
    assert (row["state"], row["crashes"], row["errors"], row["attempt"], row["worker_id"]) == ("ready", 1, 0, 1, None)
    assert (row["run_at"], row["error"]) == (NOW - timedelta(minutes=5), None)
    [(outcome, by, claimed, finished, kind, message)] = db.sql(
        "SELECT outcome, worker_id, claimed_at, finished_at, error ->> 'type', error ->> 'message'"
        " FROM holdfast.attempt"
    )
    assert (outcome, by, claimed, finished, kind) == ("lost", worker, NOW, NOW + LATE, "WorkerLost")
    assert str(worker) in message
    [again] = db.claim(uuid7())
    assert (again.attempt, again.crashes) == (2, 1)


def test_L8_reaping_is_bounded_and_goes_on_where_it_stopped(db: Db, worker: UUID) -> None:
    tasks = [db.claimed(worker) for _ in range(5)]
    db.clock.advance(LATE)
    assert [len(db.run(db.queries.reap("default", 2))) for _ in range(4)] == [2, 2, 1, 0]
    assert {db.state(t.id) for t in tasks} == {"ready"}


def test_L8_only_expired_leases_of_this_queue_are_reaped(db: Db, worker: UUID) -> None:
    fresh_later = db.enqueue()
    other = db.claimed(worker, "greeter.SayHello", queue="other")
    db.clock.advance(LATE)
    db.claim(worker)
    assert db.reap() == {}
    assert (db.state(fresh_later), db.state(other.id)) == ("running", "running")


def test_L9_more_crashes_than_allowed_park_the_task_and_say_so(db: Db, worker: UUID) -> None:
    id = db.enqueue()
    assert [lose(db, worker) for _ in range(4)] == ["ready", "ready", "ready", "parked"]
    row = db.task(id)
    assert (row["crashes"], row["errors"], row["error"]["type"]) == (4, 0, "WorkerLost")
    assert "lost 4 times at this step (max_crashes=3)" in row["error"]["message"]
    assert [outcome for _, _, outcome in db.log(id)] == ["lost"] * 4
    db.retry(id)
    assert [lose(db, worker, crash_limits='{"greeter.ReadName": 1}') for _ in range(2)] == ["ready", "parked"]


def test_L9_a_lost_attempt_keeps_the_last_error_of_the_visit(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    lose(db, worker)
    row = db.task(task.id)
    assert (row["error"], row["errors"], row["crashes"]) == (BOOM, 1, 1)


def test_L10_M5_a_step_that_must_not_be_rerun_is_parked_at_once(db: Db, worker: UUID) -> None:
    id = db.enqueue()
    assert lose(db, worker, crash_limits='{"greeter.ReadName": 0}') == "parked"
    row = db.task(id)
    assert row["crashes"] == 1 and 'on_lost="fail"' in row["error"]["message"]
    assert db.log(id) == [(1, "ReadName", "lost")]


@pytest.mark.parametrize("limit", [0, 3])
def test_L9_L10_what_was_claimed_ahead_and_has_not_begun_is_not_charged(db: Db, worker: UUID, limit: int) -> None:
    id = db.enqueue()
    ahead = f'{{"greeter.ReadName": {-1 - limit}}}'
    assert [lose(db, worker, crash_limits=ahead) for _ in range(5)] == ["ready"] * 5
    assert db.task(id)["crashes"] == 0
    assert [outcome for _, _, outcome in db.log(id)] == ["lost"] * 5
    assert "not known to have begun" in db.sql("SELECT error ->> 'message' FROM holdfast.attempt")[0][0]


@pytest.mark.parametrize("by", ["begin", "beat"])
@pytest.mark.parametrize(("limit", "state"), [(0, "parked"), (3, "ready")])
def test_L9_L10_what_was_claimed_ahead_is_charged_once_it_has_begun(
    db: Db, worker: UUID, by: str, limit: int, state: str
) -> None:
    task = db.claimed(worker, crash_limits=f'{{"greeter.ReadName": {-1 - limit}}}')
    waits = db.claimed(worker, crash_limits=f'{{"greeter.ReadName": {-1 - limit}}}')
    for _ in range(2):  # an answer may be lost, and then it is asked again
        if by == "begin":
            assert db.run(db.queries.begin("default", worker, task.id, task.attempt)) == {task.id}
        else:
            db.run(db.queries.beat("default", worker, ids([task, waits]), LEASE, begun=[task.id]))
    assert not db.run(db.queries.begin("default", worker, waits.id, waits.attempt + 1))
    assert not db.run(db.queries.begin("default", uuid7(), waits.id, waits.attempt))
    db.clock.advance(LATE)
    assert db.reap() == {task.id: state, waits.id: "ready"}
    assert (db.task(task.id)["crashes"], db.task(waits.id)["crashes"]) == (1, 0)


@pytest.mark.parametrize("stopped", [False, True])
def test_M5_a_lease_lost_by_a_stopping_worker_is_no_crash(db: Db, worker: UUID, stopped: bool) -> None:
    register(db, worker)
    id = db.enqueue()
    db.run(db.queries.stopping(worker))
    if stopped:
        db.run(db.queries.stopped(worker))
    for _ in range(6):
        assert lose(db, worker) == "ready"
    row = db.task(id)
    assert (row["crashes"], row["attempt"]) == (0, 6)
    assert [outcome for _, _, outcome in db.log(id)] == ["lost"] * 6


def test_M5_a_stopping_worker_does_not_excuse_the_crashes_of_others(db: Db, worker: UUID) -> None:
    register(db, worker)
    db.run(db.queries.stopping(worker))
    mine, theirs = db.claimed(worker), db.claimed(uuid7())
    db.clock.advance(LATE)
    db.reap()
    assert (db.task(mine.id)["crashes"], db.task(theirs.id)["crashes"]) == (0, 1)


def test_M5_what_must_not_be_rerun_is_parked_even_if_its_worker_was_stopping(db: Db, worker: UUID) -> None:
    register(db, worker)
    db.run(db.queries.stopping(worker))
    id = db.enqueue()
    assert lose(db, worker, crash_limits='{"greeter.ReadName": 0}') == "parked"
    assert db.task(id)["crashes"] == 0


def test_M5_a_move_brings_the_crash_limit_of_the_next_step(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.run(db.advance(worker, [task], keep=True, max_crashes=0))
    db.clock.advance(LATE)
    assert db.reap() == {task.id: "parked"}


def test_M5_no_worker_row_is_needed_for_the_truth(db: Db, worker: UUID) -> None:
    register(db, worker)
    task = db.claimed(worker)
    db.sql("DELETE FROM holdfast.worker")
    assert ids_of(db.run(db.queries.beat("default", worker, [task.id], LEASE))) == [task.id]
    assert db.run(db.finish(worker, [task])) == {task.id: None}


def test_M4_strays_are_what_a_lost_answer_left_behind(db: Db, worker: UUID) -> None:
    known, stray = db.claimed(worker), db.claimed(worker)
    db.claimed(uuid7())
    found = db.run(db.queries.strays("default", worker))
    assert sorted(found) == sorted([(known.id, 1), (stray.id, 1)])
    assert db.run(db.queries.strays("other", worker)) == []
    assert list(db.run(db.stay(worker, [stray], "released"))) == [stray.id]
    assert (db.task(stray.id)["crashes"], db.log(stray.id)) == (0, [(1, "ReadName", "released")])


def suspects(db: Db, count: int) -> list[UUID]:
    """Tasks whose worker was lost once."""
    lost = uuid7()
    made = [db.enqueue() for _ in range(count)]
    assert len(db.claim(lost, count)) == count
    db.clock.advance("31s")
    assert set(db.reap()) >= set(made)
    return made


def test_L9_M15_a_claim_takes_one_suspect_at_most_and_any_number_of_others(db: Db, worker: UUID) -> None:
    accused = suspects(db, 5)
    others = [db.enqueue(priority=n % 3) for n in range(5)]
    assert db.claim(worker, 10, suspects=0) and {db.state(id) for id in accused} == {"ready"}
    assert {db.state(id) for id in others} == {"running"}
    others = [db.enqueue() for _ in range(5)]
    claimed = {row.id for row in db.claim(worker, 10)}
    assert claimed == {accused[0], *others}
    assert [row.id for row in db.claim(worker, 1)] == [accused[1]], "never more than asked for"


def test_M15_many_suspects_in_front_do_not_hide_the_others(db: Db, worker: UUID) -> None:
    suspects(db, 300)
    other = db.enqueue()
    assert other in {row.id for row in db.claim(worker, 2)}
    assert db.run(db.queries.unclaimable("default", KNOWN))[0] == 299


def test_L9_a_move_or_a_retry_clears_the_suspicion(db: Db, worker: UUID) -> None:
    (id,) = suspects(db, 1)
    (task,) = db.claim(worker, 1)
    db.run(db.advance(worker, [task]))
    assert db.task(id)["crashes"] == 0
    assert [row.id for row in db.claim(worker, 1, suspects=0)] == [id]
