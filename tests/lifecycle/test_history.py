"""A4, M13: old days are dropped, without holding anybody up."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_missing_partition
from holdfast._engine.maintain.chores import drop_old_days
from holdfast._engine.maintain.maintenance import Maintenance
from holdfast._sql import history

from .days import DAY, finished, known, pass_of, set_default, set_queue, tables
from .support import NOW, Db

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
            left = "SELECT name FROM holdfast.history WHERE drop_after <= holdfast.now()"
            if own_db.sql(f"{left} UNION ALL SELECT name FROM holdfast.partition") == []:
                break  # nothing is attached, and nothing is detached and not yet dropped
        return told

    told = asyncio.run(all_at_once())
    assert known(own_db, *tasks) == [(0, 0)] * 6
    # A day has two tables, and two may have dropped one each.
    assert all(1 <= sum(f"{NOW - n * DAY:%Y-%m-%d}" in each for each in told) <= 2 for n in range(20, 26)), told
    assert own_db.sql("SELECT * FROM holdfast.partition") == []
    assert not [name for name in tables(own_db) if name < "archive_p20310512"]


def _passing(error: Exception) -> bool:
    return isinstance(error, psycopg.errors.LockNotAvailable)


async def test_M13_who_is_ended_for_a_deadlock_drops_old_days_soon(own_db: Db, worker: UUID) -> None:
    """Another one that detaches a day waits for all who look at it, and they for him: the server ends one of them."""
    finished(own_db, worker, at=NOW - 20 * DAY)
    own_db.clock.set(NOW)
    link = Link(own_db.url, own_db.queries, "m")
    run = link.run

    async def ended_once(query: Any) -> Any:
        if query.statement.name == "to_drop":
            link.run = run  # type: ignore[method-assign]
            raise psycopg.errors.DeadlockDetected("deadlock detected")
        return await run(query)

    link.run = ended_once  # type: ignore[method-assign]
    chores = {"dropping old history": drop_old_days}
    done, failures = await Maintenance(link, own_db.queries).once(chores)
    assert (done.what, done.more, failures) == ([], True, {})
    done, failures = await Maintenance(link, own_db.queries).once(chores)
    assert any(f"{NOW - 20 * DAY:%Y-%m-%d}" in each for each in done.what)
    assert failures == {}


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
