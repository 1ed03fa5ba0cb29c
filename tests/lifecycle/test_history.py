"""A4, M13: old days are dropped and queues that keep less are deleted from, without holding anybody up."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import psycopg
import pytest

from holdfast._db.link import Link
from holdfast._db.trouble import is_missing_partition
from holdfast._engine import history as chores
from holdfast._engine.maintenance import CHORES, Maintenance
from holdfast._model.names import uuid7
from holdfast._sql import history

from .support import NOW, Db, with_text

T = TypeVar("T")
DAY = timedelta(days=1)


def pass_of(db: Db, **options: Any) -> list[str]:
    """Passes of maintenance until nothing is left to do: what they did, but for the days before the test's own."""

    async def passes() -> list[str]:
        made = Maintenance(Link(db.url, db.queries, "holdfast maintain"), db.queries, **options)
        told: list[str] = []
        more = True
        while more:
            done, failures = await made.once()
            assert not failures, failures
            told, more = told + done.what, done.more
        return [each for each in told if "history of 20" not in each or "history of 203" in each]

    return asyncio.run(passes())


def with_link(db: Db, use: Callable[[Link], Awaitable[T]]) -> T:
    async def opened() -> T:
        link = Link(db.url, db.queries, "holdfast maintain")
        try:
            return await use(link)
        finally:
            await link.close()

    return asyncio.run(opened())


def finished(db: Db, worker: UUID, queue: str = "default", *, at: datetime = NOW) -> UUID:
    """A task that ended then, after one error: a row in archive and one in attempt."""
    db.clock.set(at)
    task = db.claimed(worker, queue=queue)
    ids, ended = [task.id], {"outcome": "retried", "error": {"type": "E"}, "errors": 1, "delay": 0}
    assert db.run(db.queries.stay(queue, worker, ids, _one(task.id, 1, **ended)))
    db.claim(worker, 100, queue=queue)
    assert db.run(db.queries.finish(queue, worker, ids, _one(task.id, 2)))
    return task.id


def _one(id: UUID, attempt: int, **values: Any) -> bytes:
    return json.dumps({str(id): {"attempt": attempt, **values}}).encode()


def known(db: Db, *ids: UUID) -> list[tuple[int, int]]:
    """For each task, how many rows there are in archive and in attempt."""
    return [
        (
            db.one("SELECT count(*) FROM holdfast.archive WHERE id = $1", id),
            db.one("SELECT count(*) FROM holdfast.attempt WHERE task_id = $1", id),
        )
        for id in ids
    ]


def tables(db: Db) -> set[str]:
    """All tables that look like partitions, attached or not."""
    rows = db.sql(
        "SELECT relname FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'holdfast'::regnamespace AND relname ~ '_p\\d{8}$'"
    )
    return {row[0] for row in rows}


def set_queue(db: Db, name: str, **options: Any) -> Any:
    return json.loads(db.run(db.queries.set_queue(name, json.dumps(options).encode())))


def set_default(db: Db, **options: Any) -> Any:
    return json.loads(db.run(db.queries.set_default(json.dumps(options).encode())))


# --- days


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/Los_Angeles"])
def test_A4_days_older_than_the_retention_are_dropped_and_no_others(own_db: Db, worker: UUID, zone: str) -> None:
    own_db.sql(f"ALTER DATABASE {own_db.connection.info.dbname} SET timezone = '{zone}'")
    old = finished(own_db, worker, at=datetime(2031, 5, 12, 23, 59, tzinfo=UTC))
    young = finished(own_db, worker, at=datetime(2031, 5, 13, 0, 1, tzinfo=UTC))
    own_db.clock.set(datetime(2031, 5, 19, 23, 59, tzinfo=UTC))
    pass_of(own_db)
    assert known(own_db, old, young) == [(1, 1), (1, 1)]
    own_db.clock.set(datetime(2031, 5, 20, 0, 0, tzinfo=UTC))
    [told] = [each for each in pass_of(own_db) if "2031-05-12" in each]
    assert told.startswith("dropped the history of 2031-05-12 (") and told.endswith(" kB)")
    assert known(own_db, old, young) == [(0, 0), (1, 1)]
    assert {"archive_p20310513", "attempt_p20310513"} <= tables(own_db)
    assert not {"archive_p20310512", "attempt_p20310512"} & tables(own_db)
    assert own_db.sql("SELECT * FROM holdfast.partition") == []


def test_A4_the_longest_retention_of_any_queue_decides_when_a_day_is_dropped(own_db: Db, worker: UUID) -> None:
    kept = finished(own_db, worker, "ledger", at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    set_queue(own_db, "ledger", retention="30 days")
    pass_of(own_db)
    assert known(own_db, kept) == [(1, 1)]
    set_queue(own_db, "ledger", retention="default")
    pass_of(own_db)
    assert known(own_db, kept) == [(0, 0)]


def test_A4_two_days_are_kept_whatever_the_settings_say(own_db: Db, worker: UUID) -> None:
    task = finished(own_db, worker, at=NOW - 2 * DAY)
    own_db.clock.set(NOW)
    set_default(own_db, retention="1 day")
    own_db.sql("UPDATE holdfast.setting SET retention = '1 second'")
    pass_of(own_db)
    assert known(own_db, task) == [(1, 1)]


def test_A4_parked_tasks_stay_and_explain_says_that_the_log_is_older(own_db: Db) -> None:
    parked = own_db.parked()
    before = own_db.one("SELECT holdfast.explain($1)", parked)
    assert "in the log" not in before
    own_db.clock.set(NOW + 40 * DAY)
    pass_of(own_db)
    assert own_db.state(parked) == "parked"
    assert own_db.log(parked) == []
    told = own_db.one("SELECT holdfast.explain($1)", parked)
    assert told.endswith(" Its first attempt is no longer in the log: history is kept for 7 d."), told
    assert own_db.retry(parked) == "ready"


def test_M13_partitions_are_made_14_days_ahead(own_db: Db) -> None:
    own_db.sql(
        "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
        " AS $$ SELECT '2044-03-01 12:00+00'::timestamptz $$"
    )
    pass_of(own_db)
    days = [datetime(2044, 3, 1) + n * DAY for n in range(-1, 15)]
    assert {f"{parent}_p{day:%Y%m%d}" for day in days for parent in ("archive", "attempt")} <= tables(own_db)


def test_M13_a_day_that_people_detached_to_keep_it_is_not_dropped(own_db: Db, worker: UUID) -> None:
    finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.sql("ALTER TABLE holdfast.archive DETACH PARTITION holdfast.archive_p20310430")
    own_db.clock.set(NOW)
    pass_of(own_db)
    assert own_db.one("SELECT count(*) FROM holdfast.archive_p20310430") == 1
    assert "attempt_p20310430" not in tables(own_db)


def test_M13_a_mark_is_taken_back_when_the_retention_grows(own_db: Db, worker: UUID) -> None:
    task = finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    for query in history.mark(own_db.queries):
        own_db.run(query)
    set_default(own_db, retention="90 days")
    pass_of(own_db)
    assert own_db.sql("SELECT * FROM holdfast.partition WHERE dropping_at IS NOT NULL") == []
    assert known(own_db, task) == [(1, 1)]


# --- without holding anybody up


@contextmanager
def reading(db: Db) -> Iterator[psycopg.Connection[Any]]:
    reader = db.connect()
    reader.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
    db.sql("SELECT count(*) FROM holdfast.archive", via=reader)
    db.sql("SELECT count(*) FROM holdfast.attempt", via=reader)
    yield reader
    reader.execute(b"COMMIT")


def test_M13_a_reader_holds_the_drop_up_and_the_drop_nobody(own_db: Db, worker: UUID) -> None:
    old = finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    writer = own_db.connect(options="-c lock_timeout=2s")
    with reading(own_db) as reader:
        for _ in range(2):
            assert pass_of(own_db) == []
            task = own_db.claimed(worker)
            assert own_db.run(own_db.finish(worker, [task]), writer) == {task.id: None}
        own_db.sql("SELECT holdfast.ensure_partition('2044-02-28')", via=writer)
        assert own_db.one("SELECT count(*) FROM holdfast.archive", via=reader) == 1, "it still sees what it saw"
    assert pass_of(own_db)
    assert known(own_db, old) == [(0, 0)]
    assert not {"archive_p20310430", "attempt_p20310430"} & tables(own_db)


def test_M13_finishes_go_on_while_a_detachment_waits(own_db: Db, worker: UUID) -> None:
    finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    detaching = own_db.connect()
    with reading(own_db):
        waiting = own_db.blocked(detaching, partial(_detach, own_db, detaching))
        task, other = own_db.claimed(worker), own_db.claimed(worker)
        writer = own_db.connect(options="-c lock_timeout=2s")
        assert own_db.run(own_db.finish(worker, [task]), writer) == {task.id: None}
        assert own_db.run(own_db.advance(worker, [other]), writer)
        assert own_db.one("SELECT count(*) FROM holdfast.archive", via=writer) == 1, "readers go on too"
        assert not waiting.done()
    waiting.result(20)


def test_M13_the_naive_drop_stops_every_finish(own_db: Db, worker: UUID) -> None:
    """DROP TABLE of a partition waits for one reader, and everybody waits for it."""
    finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    task = own_db.claimed(worker)
    dropping = own_db.connect()
    with reading(own_db):
        waiting = own_db.blocked(dropping, lambda: dropping.execute(b"DROP TABLE holdfast.archive_p20310430"))
        with pytest.raises(psycopg.errors.LockNotAvailable):
            own_db.run(own_db.finish(worker, [task]), own_db.connect(options="-c lock_timeout=200ms"))
    waiting.result(20)


def _detach(db: Db, via: psycopg.Connection[Any], name: str = "archive_p20310430") -> None:
    via.execute(f"ALTER TABLE holdfast.archive DETACH PARTITION holdfast.{name} CONCURRENTLY".encode())


@pytest.mark.direct("it ends a connection by its process")
def test_M13_a_detachment_whose_backend_was_killed_is_gone_on_with(own_db: Db, worker: UUID) -> None:
    old = finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    detaching = own_db.connect()
    with reading(own_db):
        waiting = own_db.blocked(detaching, partial(_detach, own_db, detaching))
        own_db.sql("SELECT pg_terminate_backend($1)", detaching.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            waiting.result(20)
        assert own_db.sql("SELECT name FROM holdfast.history WHERE detaching") == [("archive_p20310430",)]
        pass_of(own_db)  # the reader is still there
        assert own_db.sql("SELECT name FROM holdfast.history WHERE detaching AND parent = 'archive'")
    pass_of(own_db)
    assert known(own_db, old) == [(0, 0)]
    assert own_db.sql("SELECT name FROM holdfast.history WHERE detaching") == []


def test_M13_a_detached_day_is_dropped_by_whoever_comes_next(own_db: Db, worker: UUID) -> None:
    """The worker died between the two."""
    finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    for query in history.mark(own_db.queries):
        own_db.run(query)
    _detach(own_db, own_db.connection)
    assert "archive_p20310430" in tables(own_db)
    assert pass_of(own_db)
    assert not {"archive_p20310430", "attempt_p20310430"} & tables(own_db)


@pytest.mark.direct("it ends a connection by its process")
def test_M13_a_half_detached_day_that_is_not_old_is_finalised_and_kept(own_db: Db, worker: UUID) -> None:
    """Somebody began it by hand; another detachment cannot begin before it is over."""
    finished(own_db, worker)
    detaching = own_db.connect()
    with reading(own_db):
        waiting = own_db.blocked(detaching, partial(_detach, own_db, detaching, "archive_p20310520"))
        own_db.sql("SELECT pg_cancel_backend($1)", detaching.info.backend_pid)
        with pytest.raises(psycopg.errors.QueryCanceled):
            waiting.result(20)
    pass_of(own_db)
    assert own_db.sql("SELECT name FROM holdfast.history WHERE detaching") == []
    assert own_db.one("SELECT count(*) FROM holdfast.archive_p20310520") == 1


@pytest.mark.parametrize("first", ["finish", "drop"])
def test_B7_drop_and_finish_in_both_orders(own_db: Db, worker: UUID, first: str) -> None:
    """A finish into the very day that is dropped: its transaction is as old, or the clock was put back."""
    task = own_db.claimed(worker)
    late = NOW + 20 * DAY
    if first == "finish":
        writer = own_db.connect()
        writer.execute(b"BEGIN")
        own_db.run(own_db.finish(worker, [task]), writer)
        own_db.clock.set(late)
        pass_of(own_db)
        assert "archive_p20310520" in tables(own_db), "it waits for the finish, and gives up"
        writer.execute(b"COMMIT")
        pass_of(own_db)
        assert own_db.sql("SELECT state FROM holdfast.tasks WHERE id = $1", task.id) == []
    else:
        own_db.clock.set(late)
        pass_of(own_db)
        own_db.sql(  # back again, without the partitions that moving the clock makes
            "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
            f" AS $$ SELECT '{NOW.isoformat()}'::timestamptz $$"
        )
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            own_db.run(own_db.finish(worker, [task]))
        assert is_missing_partition(caught.value)
        own_db.run(own_db.queries.ensure_partitions())
        assert own_db.run(own_db.finish(worker, [task])) == {task.id: None}
    assert not {"archive_p20310515", "attempt_p20310515"} & tables(own_db)


def test_M13_five_at_once_drop_each_day_once(own_db: Db, worker: UUID) -> None:
    tasks = [finished(own_db, worker, at=NOW - n * DAY) for n in range(20, 26)]
    own_db.clock.set(NOW)

    async def all_at_once() -> list[str]:
        told: list[str] = []
        for _ in range(50):
            made = [Maintenance(Link(own_db.url, own_db.queries, "m"), own_db.queries) for _ in range(5)]
            for done, failures in await asyncio.gather(*(each.once() for each in made)):
                assert not [error for error in failures.values() if not _passing(error)], failures
                told += done.what
            if own_db.sql("SELECT 1 FROM holdfast.history WHERE drop_after <= holdfast.now()") == []:
                break
        return told

    told = asyncio.run(all_at_once())
    assert known(own_db, *tasks) == [(0, 0)] * 6
    # A day has two tables, and two may have dropped one each.
    assert all(1 <= sum(f"{NOW - n * DAY:%Y-%m-%d}" in each for each in told) <= 2 for n in range(20, 26)), told
    assert own_db.sql("SELECT * FROM holdfast.partition") == []
    assert not [name for name in tables(own_db) if name < "archive_p20310512"]


def _passing(error: Exception) -> bool:
    return isinstance(error, psycopg.errors.LockNotAvailable)


def test_M13_dropping_reads_no_rows(own_db: Db, worker: UUID) -> None:
    finished(own_db, worker, at=NOW - 20 * DAY)
    scans = "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'archive_p20310430'"
    own_db.clock.set(NOW)
    own_db.sql("SELECT pg_stat_force_next_flush()")
    before = own_db.one(scans)
    for query in history.mark(own_db.queries):
        own_db.run(query)
    _detach(own_db, own_db.connection)
    own_db.sql("SELECT pg_stat_force_next_flush()")
    assert own_db.one(scans) == before
    assert pass_of(own_db)


# --- queues that keep less


def test_A4_a_queue_with_a_shorter_retention_is_deleted_from_and_others_are_not(own_db: Db, worker: UUID) -> None:
    old = [finished(own_db, worker, queue, at=NOW - 4 * DAY) for queue in ("mail", "default", "other")]
    recent = finished(own_db, worker, "mail", at=NOW - DAY)
    own_db.clock.set(NOW)
    assert set_queue(own_db, "mail", retention="2 days") == {"retention": "2 days"}
    told = pass_of(own_db)
    assert told == ["deleted 1 rows from archive_p20310516", "deleted 1 rows from attempt_p20310516"]
    assert known(own_db, *old, recent) == [(0, 0), (1, 1), (1, 1), (1, 1)]
    assert pass_of(own_db) == [], "once is enough"


def test_A4_all_others_are_deleted_from_when_one_queue_keeps_more(own_db: Db, worker: UUID) -> None:
    old = [finished(own_db, worker, queue, at=NOW - 10 * DAY) for queue in ("ledger", "default", "mail")]
    own_db.clock.set(NOW)
    set_queue(own_db, "ledger", retention="60 days")
    pass_of(own_db)
    assert known(own_db, *old) == [(1, 1), (0, 0), (0, 0)]


def test_A4_days_are_looked_through_again_for_each_retention_that_ends(own_db: Db, worker: UUID) -> None:
    queues = ("short", "middle", "default")
    tasks = [finished(own_db, worker, queue) for queue in queues]
    set_queue(own_db, "short", retention="1 day")
    set_queue(own_db, "middle", retention="3 days")
    left = []
    for days in (1, 2, 3, 4, 7, 8):
        own_db.clock.set(NOW + days * DAY)
        pass_of(own_db)
        left.append([archived for archived, _ in known(own_db, *tasks)])
    assert left == [[1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]


def test_A4_a_retention_made_shorter_later_looks_through_all_days_again(own_db: Db, worker: UUID) -> None:
    tasks = [finished(own_db, worker, queue, at=NOW - 4 * DAY) for queue in ("mail", "news")]
    own_db.clock.set(NOW)
    set_queue(own_db, "mail", retention="2 days")
    pass_of(own_db)
    assert known(own_db, *tasks) == [(0, 0), (1, 1)]
    set_queue(own_db, "news", retention="2 days")
    pass_of(own_db)
    assert known(own_db, *tasks) == [(0, 0), (0, 0)]


def many(db: Db, rows: int, queue: str, at: datetime) -> None:
    db.sql(
        "INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors,"
        " crashes, created_at, finished_at) SELECT gen_random_uuid(), CASE WHEN n % 2 = 0 THEN $1 ELSE 'default' END,"
        " 'greeter', 'main', jsonb_build_object('text', repeat('x', 300)), 'done', 0, $2, 0, 1, 0, 0, $2, $2"
        " FROM generate_series(1, $3::integer) AS n",
        queue, at, rows,
    )  # fmt: skip


def test_A4_work_is_bounded_and_goes_on_where_it_stopped(own_db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    own_db.clock.set(NOW - 4 * DAY)
    many(own_db, 2000, "mail", NOW - 4 * DAY)
    own_db.clock.set(NOW)
    set_queue(own_db, "mail", retention="2 days")
    monkeypatch.setattr(chores, "SLICE", 4)
    monkeypatch.setattr(chores, "SLICES", 3)
    left, passes = [1000], 0
    while left[-1]:
        done = with_link(own_db, lambda link: chores.sweep_queues(link, own_db.queries))
        assert done.more
        left.append(own_db.one("SELECT count(*) FROM holdfast.archive WHERE queue = 'mail'"))
        passes += 1
    assert passes > 3 and left == sorted(left, reverse=True) and left[1] > 800
    assert own_db.one("SELECT count(*) FROM holdfast.archive") == 1000


def test_A4_two_sweepers_do_not_meet_and_settings_wait_for_a_slice(own_db: Db) -> None:
    many(own_db, 100, "mail", NOW - DAY)
    own_db.clock.set(NOW + 3 * DAY)
    set_queue(own_db, "mail", retention="2 days")
    first = own_db.connect()
    first.execute(b"BEGIN")
    plan = history.sweep(own_db.queries, 1000)
    answer = own_db.run(next(plan), first)
    setting = own_db.connect()
    options = json.dumps({"retention": "3 days"}).encode()
    waiting = own_db.blocked(setting, lambda: own_db.run(own_db.queries.set_queue("mail", options), setting))
    assert with_link(own_db, lambda link: chores.sweep_queues(link, own_db.queries)) == chores.Done()
    with pytest.raises(StopIteration) as ended:
        while True:
            answer = own_db.run(plan.send(answer), first)
    assert ended.value.value.rows == 50
    first.execute(b"COMMIT")
    waiting.result(20)
    assert own_db.sql("SELECT swept, block FROM holdfast.partition") == [(None, 0)], "what was swept counts no more"


def test_A4_a_slice_reads_only_its_blocks(own_db: Db) -> None:
    own_db.clock.set(NOW - 4 * DAY)
    many(own_db, 2000, "mail", NOW - 4 * DAY)
    day = (NOW - 4 * DAY).replace(hour=0, minute=0, second=0, microsecond=0)
    query = own_db.queries.read(
        "sweep",
        since=day,
        until=day + DAY,
        first="(4,0)",
        below="(8,0)",
        named=["mail"],
        expired=["mail"],
        others=False,
    )
    plan = own_db.explain(with_text(query, "/*parent*/archive", '"archive"'))
    assert "Tid Range Scan on archive_p20310516" in plan and "Seq Scan" not in plan


# --- workers and changes


def test_A4_stopped_workers_are_forgotten_and_living_ones_are_not(own_db: Db) -> None:
    insert = (
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, seen_at, stopped_at)"
        " VALUES ($1, 'w', 'h', 1, '', '{}', '{}', 1, $2, $3)"
    )
    old, recent, living = uuid7(), uuid7(), uuid7()
    own_db.sql(insert, old, NOW - 8 * DAY, NOW - 8 * DAY)
    own_db.sql(insert, recent, NOW - 6 * DAY, NOW - 6 * DAY)
    own_db.sql(insert, living, NOW - 40 * DAY, None)
    assert pass_of(own_db) == ["forgot 1 stopped workers"]
    assert {row[0] for row in own_db.sql("SELECT id FROM holdfast.worker")} == {recent, living}


def test_A4_changes_are_kept_for_30_days_and_as_long_as_their_task(own_db: Db) -> None:
    parked, gone = own_db.parked(), own_db.parked()
    for id in (parked, gone):
        own_db.retry(id, why="try again")
    own_db.cancel(gone)
    own_db.clock.set(NOW + 29 * DAY)
    pass_of(own_db)
    assert own_db.one("SELECT count(*) FROM holdfast.change") == 3
    own_db.clock.set(NOW + 31 * DAY)
    assert "forgot 2 old changes" in pass_of(own_db)
    assert own_db.sql("SELECT task_id FROM holdfast.change") == [(parked,)]


# --- settings


def test_A4_the_retention_is_7_days_unless_said(db: Db) -> None:
    assert db.one("SELECT holdfast.retention()") == 7 * DAY
    assert set_default(db, retention="14 days", by="ann", why="audit") == {"retention": "14 days"}
    set_queue(db, "mail", retention="2d")
    assert [db.one("SELECT holdfast.retention($1)", q) for q in ("mail", "other")] == [2 * DAY, 14 * DAY]
    assert db.sql("SELECT action, by, why, old, new FROM holdfast.change ORDER BY id")[0] == (
        "set", "ann", "audit", b'{"retention": null}', b'{"retention": "14 days"}',
    )  # fmt: skip
    set_queue(db, "mail", retention=None)
    assert db.one("SELECT holdfast.retention('mail')") == 14 * DAY


@pytest.mark.parametrize("wrong", ["1 hour", "-3 days", "soon", "", "200 years", 7, {"days": 7}, True])
def test_A4_a_retention_that_is_none_is_refused(db: Db, wrong: object) -> None:
    for verb in (partial(set_queue, db, "mail"), partial(set_default, db)):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="retention"):
            verb(retention=wrong)
    assert db.sql("SELECT * FROM holdfast.queue") == []
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="unknown option: retain"):
        set_queue(db, "mail", retain="1 day")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not the name of a queue"):
        set_queue(db, "*", retention="1 day")


def test_A4_a_worker_says_the_retention_only_if_nobody_has(own_db: Db, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        pass_of(own_db, retention=14 * 86400.0, by="first")
        assert own_db.one("SELECT holdfast.retention()") == 14 * DAY
        assert caplog.messages == []
        pass_of(own_db, retention=86400.0, by="second")
    assert own_db.one("SELECT holdfast.retention()") == 14 * DAY
    assert own_db.sql("SELECT by FROM holdfast.change") == [("first",)]
    assert caplog.messages == [
        "the retention in the database is 14d: this worker's setting of 1d changes nothing."
        " To change it: holdfast set --retention 1d"
    ]


# --- the loop


def test_A4_a_chore_that_fails_keeps_no_other_from_being_done(own_db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(link: Link, queries: Any) -> chores.Done:
        raise RuntimeError("broken")

    async def last(link: Link, queries: Any) -> chores.Done:
        return chores.Done(["it was done"])

    monkeypatch.setitem(CHORES, "making partitions", broken)
    monkeypatch.setitem(CHORES, "the last", last)
    made = Maintenance(Link(own_db.url, own_db.queries, "m"), own_db.queries)
    done, failures = asyncio.run(made.once())
    assert done.what[-1] == "it was done"
    assert list(failures) == ["making partitions"]


def test_A4_an_outage_ends_the_pass_and_is_told_once(own_db: Db) -> None:
    made = Maintenance(Link("postgresql://127.0.0.1:1/none", own_db.queries, "m"), own_db.queries)
    done, failures = asyncio.run(made.once())
    assert (done, list(failures)) == (chores.Done(), ["making partitions"])
