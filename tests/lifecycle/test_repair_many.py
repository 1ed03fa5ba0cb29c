"""One verb on many tasks by a filter: each once, in bounded batches, whoever else is at work (T12)."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from holdfast import verbs
from holdfast._db.errors import explained
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql import repair
from holdfast._sql.plans import drive_sync
from holdfast._sql.query import Query
from holdfast._sql.repair import Tally, Verb, in_batches
from holdfast.errors import ConfigError, FilterError, WrongState

from .support import BOOM, NOW, Db

Run = Callable[[Query[Any]], Any]


def act(db: Db, verb: Verb, filter: str, run: Run | None = None, **options: Any) -> Tally:
    return drive_sync(in_batches(db.queries, verbs.many(verb, filter, **options)), run or db.run)


def before(db: Db, name: str, happens: Callable[[], object]) -> Run:
    """Lets something happen just before each statement of that name, as others do."""

    def run(query: Query[Any]) -> Any:
        if query.statement.name == name:
            happens()
        return db.run(query)

    return run


def times(db: Db, ids: list[UUID]) -> list[timedelta]:
    return [db.task(id)["run_at"] - NOW for id in ids]


def locked(db: Db, id: UUID) -> Connection[Any]:
    """Another connection, in whose transaction a task is locked."""
    other = db.connect()
    other.execute(b"BEGIN")
    db.sql("SELECT FROM holdfast.task WHERE id = $1 FOR UPDATE", id, via=other)
    return other


def test_T12_who_and_why_are_kept_for_each_task(db: Db) -> None:
    parked, ready = [db.parked() for _ in range(3)], db.enqueue()
    tally = act(db, "retry", "kind:greeter", by="ada", why="the disk is back")
    assert (tally.matched, tally.done, tally.passed_over) == (3, {"ready": 3}, {})
    assert [db.state(id) for id in parked] == ["ready"] * 3
    told = db.sql("SELECT task_id, action, by, why FROM holdfast.change ORDER BY task_id")
    assert told == [(id, "retry", "ada", "the disk is back") for id in parked]
    assert db.task(ready)["run_at"] == NOW


def test_T12_batches_are_bounded_and_progress_is_told(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "BATCH", 2)
    parked = [db.parked() for _ in range(5)]
    told: list[int] = []
    tally = act(db, "discard", "state:parked", limit=4, progress=lambda so_far: told.append(so_far.done.total()))
    assert (told, tally.done) == ([2, 4], {"discarded": 4})
    assert db.state(parked[4]) == "parked"


def test_T12_what_progress_raises_ends_it_and_what_was_done_stays(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "BATCH", 2)
    parked = [db.parked() for _ in range(5)]

    def enough(so_far: Tally) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        act(db, "retry", "state:parked", progress=enough)
    assert [db.state(id) for id in parked] == ["ready"] * 2 + ["parked"] * 3


def test_T12_a_dry_run_counts_and_changes_nothing(db: Db) -> None:
    for make in (db.parked, db.parked, db.enqueue):
        make()
    before = db.snapshot()
    assert act(db, "retry", "kind:greeter", dry_run=True) == Tally(matched=2)
    assert act(db, "cancel", "kind:greeter", dry_run=True).matched == 3
    assert act(db, "discard", "kind:greeter", dry_run=True, limit=1).matched == 1
    assert db.snapshot() == before


def test_T12_what_is_locked_is_passed_over_and_told(db: Db) -> None:
    parked = [db.parked() for _ in range(2)]
    other = locked(db, parked[0])
    tally = act(db, "retry", "state:parked")
    other.execute(b"ROLLBACK")
    assert (tally.done, tally.passed_over) == ({"ready": 1}, {"locked by somebody else": 1})
    assert [db.state(id) for id in parked] == ["parked", "ready"]
    assert act(db, "retry", "state:parked").done == {"ready": 1}


def test_T12_what_changed_after_the_look_is_passed_over_with_the_reason(db: Db) -> None:
    parked = [db.parked() for _ in range(4)]

    def others() -> None:
        db.discard(parked[0])
        db.retry(parked[1])
        db.sql("DELETE FROM holdfast.task WHERE id = $1", parked[2])

    tally = act(db, "retry", "state:parked", before(db, "retry_many", others))
    assert tally.done == {"ready": 1}
    assert tally.passed_over == {"discarded by now": 1, "ready by now": 1, "not there any more": 1}


def test_T12_two_operators_retry_each_task_once(db: Db, worker: UUID) -> None:
    """Both looked before either acted. Those that wait for an attempt stay ready: nothing but what was seen tells."""
    parked = db.parked()
    waiting = db.claimed(worker)
    db.run(db.stay(worker, [waiting], "retried", error=BOOM, errors=1, delay=3600))
    first: list[Tally] = []

    def other() -> None:
        if not first:
            first.append(act(db, "retry", "state:parked,retrying", by="bob"))

    second = act(db, "retry", "state:parked,retrying", before(db, "retry_many", other), by="ann")
    assert first[0].done == {"ready": 2}
    assert (second.done, second.passed_over) == ({}, {"ready by now": 1, "changed by somebody else": 1})
    assert sorted(db.sql("SELECT task_id, by FROM holdfast.change")) == sorted([(parked, "bob"), (waiting.id, "bob")])


def test_T12_two_operators_at_the_same_time_share_the_tasks(db: Db) -> None:
    parked = [db.parked() for _ in range(250)]
    others = [db.connect(), db.connect()]
    with ThreadPoolExecutor() as threads:
        tallies = threads.map(lambda via: act(db, "retry", "state:parked", lambda query: db.run(query, via)), others)
        done = sum(tally.done.total() for tally in tallies)
    # What both saw locked is left for the next call, never done twice.
    done += act(db, "retry", "state:parked").done.total()
    assert done == len(parked)
    assert db.sql("SELECT count(*), count(DISTINCT task_id) FROM holdfast.change") == [(250, 250)]


def test_T12_tasks_that_come_meanwhile_are_left_alone(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "BATCH", 2)
    parked = [db.parked() for _ in range(3)]
    tally = act(db, "retry", "state:parked", before(db, "retry_many", lambda: db.parked(step="greeter.Other")))
    assert tally.done == {"ready": 3}
    assert [db.state(id) for id in parked] == ["ready"] * 3
    assert db.one("SELECT count(*) FROM holdfast.task WHERE state = 'parked'") == 2


def test_T12_a_rate_spaces_the_tasks_over_all_batches(db: Db, worker: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "BATCH", 2)
    parked = [db.parked() for _ in range(5)]
    other = locked(db, parked[1])
    tally = act(db, "retry", "state:parked", rate=0.5)
    other.execute(b"ROLLBACK")
    assert tally.done == {"ready": 4}
    del parked[1]  # whose place is not kept free
    assert times(db, parked) == [timedelta(seconds=n) for n in (0, 2, 4, 6)]
    assert [task.id for task in db.claim(worker, 10)] == parked[:1]
    told = db.one("SELECT new ->> 'run_at' FROM holdfast.change WHERE task_id = $1", parked[3])
    assert told == db.one("SELECT to_jsonb(run_at) #>> '{}' FROM holdfast.task WHERE id = $1", parked[3])


def test_T12_a_rate_is_kept_when_the_database_stood_still_meanwhile(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """No burst of what should have been due during the pause."""
    monkeypatch.setattr(repair, "BATCH", 2)
    parked = [db.parked() for _ in range(4)]
    calls = itertools.count()

    def stand_still() -> None:
        if next(calls) == 1:
            db.clock.advance("1h")

    act(db, "retry", "state:parked", before(db, "retry_many", stand_still), rate=1)
    assert [time.total_seconds() for time in times(db, parked)] == [0, 1, 3600, 3601]


def test_Q5_what_expired_holds_up_nobody(db: Db) -> None:
    db.enqueue(delay=timedelta(hours=2), deadline=timedelta(hours=1))
    waiting = db.enqueue(delay=timedelta(hours=2))
    db.clock.advance("90m")
    tally = act(db, "retry", "state:ready")
    assert (tally.done, tally.passed_over) == ({"ready": 1}, {"expired by now": 1})
    assert times(db, [waiting]) == [timedelta(minutes=90)]


def test_T12_without_a_rate_all_are_due_now(db: Db) -> None:
    parked = [db.parked() for _ in range(3)]
    db.clock.advance("1m")
    act(db, "retry", "state:parked")
    assert times(db, parked) == [timedelta(minutes=1)] * 3


def test_Q8_a_task_that_began_after_the_look_is_cancelled_all_the_same(db: Db, worker: UUID) -> None:
    ids = {db.enqueue(), db.enqueue()}
    tally = act(db, "cancel", "kind:greeter", before(db, "cancel_many", lambda: db.claim(worker)))
    assert tally.done == {"cancelled": 1, "cancelling": 1}
    again = act(db, "cancel", "kind:greeter")
    assert (again.done, again.passed_over) == ({}, {"already being cancelled": 1})
    assert db.one("SELECT count(*) FROM holdfast.change") == len(ids)


@pytest.mark.parametrize(
    ("filter", "options", "error", "said"),
    [
        ("", {}, FilterError, "an empty filter means every task. Say state:parked"),
        ("  ", {}, FilterError, "an empty filter"),
        ("stat:parked", {}, FilterError, "did you mean state"),
        ("state:parked", {"rate": 0}, ConfigError, "rate=0"),
        ("state:parked", {"rate": float("inf")}, ConfigError, "rate=inf"),
        ("state:parked", {"rate": float("nan")}, ConfigError, "rate=nan"),
        ("state:parked", {"limit": 0}, ConfigError, "limit=0"),
        ("state:parked", {"step": "no way"}, Exception, "no way"),
    ],
)
def test_T12_what_cannot_be_meant_is_refused(
    filter: str, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        verbs.many("retry", filter, **options)


def declare(db: Db) -> None:
    db.run(db.queries.declare_kind("greeter", "default", 0, None, b'{"ReadName": ["SayHello"], "SayHello": []}'))


def test_T12_a_step_that_nobody_knows_is_refused_with_those_that_are_known(db: Db) -> None:
    declare(db)
    parked = [db.parked(), db.parked()]
    with pytest.raises(psycopg.Error) as caught:
        act(db, "retry", "state:parked", step="SayHelo")
    refused = explained(caught.value, "holdfast")
    assert isinstance(refused, WrongState)
    assert "nobody knows the step greeter.SayHelo\nThe steps of greeter are: ReadName, SayHello." in str(refused)
    assert [db.state(id) for id in parked] == ["parked", "parked"]
    assert act(db, "retry", "state:parked", step="SayHelo", force=True, limit=1).done == {"ready": 1}
    assert act(db, "retry", "state:parked", step="SayHello").done == {"ready": 1}


def test_T12_a_step_that_only_a_live_worker_knows_is_known(db: Db, worker: UUID) -> None:
    id = db.parked()
    with pytest.raises(psycopg.Error, match="nobody knows the step") as caught:
        db.retry(id, step="New", strict=True)
    assert caught.value.diag.message_hint is not None
    assert caught.value.diag.message_hint.startswith("No worker has declared the kind greeter so far.")
    db.run(
        db.queries.register(
            uuid7(), name="w", host="h", pid=1, version="1", queues=["default"], steps=["greeter.New"], slots=1
        )
    )
    assert db.retry(id, step="New", strict=True) == "ready"


def test_T12_in_sql_a_step_that_nobody_knows_is_noticed(db: Db) -> None:
    declare(db)
    id = db.parked()
    said: list[str] = []
    db.connection.add_notice_handler(lambda notice: said.append(f"{notice.message_primary} {notice.message_hint}"))
    assert db.retry(id, step="SayHelo") == "ready"
    assert said == [
        "holdfast: nobody knows the step greeter.SayHelo The steps of greeter are: ReadName, SayHello."
        " The task waits there until a worker knows it."
    ]
    db.retry(id, step="SayHello")
    assert len(said) == 1


def test_T12_a_time_before_now_is_now(db: Db) -> None:
    id = db.parked()
    db.clock.advance("1h")
    db.retry(id, at="2001-01-01T00:00:00Z")
    assert times(db, [id]) == [timedelta(hours=1)]
    with pytest.raises(psycopg.Error, match="timestamp"):
        db.retry(id, at="soon")
