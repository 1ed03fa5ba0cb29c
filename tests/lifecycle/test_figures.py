"""Figures: every attempt of the log is counted once, whoever counts and however late it comes."""

import asyncio
import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg import Connection

from holdfast import insights
from holdfast._db.driver.connection import connect_sync, with_database
from holdfast._db.driver.session import Link
from holdfast._engine.maintain.maintenance import CHORES, Maintenance
from holdfast._model.read.figures import BUCKETS, Figures
from holdfast._model.time.duration import seconds
from holdfast._sql import figures
from holdfast._sql.figures import Place, Rolled
from holdfast._sql.plans import drive_sync

from .support import NOW, Db

MINUTE = timedelta(minutes=1)
ENDED = """
    INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                                  claimed_at, outcome, created_at, finished_at)
    SELECT gen_random_uuid(), $1, $2, 'main', '{}', 'done', 0, n.at - $4::interval - $5::interval, 0, 1, 0, 0,
           n.at - $4::interval, 'done', n.at, n.at
    FROM unnest($3::timestamptz[]) AS n(at)
"""
LOGGED = """
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, claimed_at, finished_at, outcome)
    SELECT gen_random_uuid(), 'default', 'greeter', 'ReadName', '{}', 0, 1, $2 - interval '1 second', $2, $1
"""
ALL = "done + advanced + snoozed + retried + failed + lost + cancelled + released"
IN_THE_LOG = "SELECT count(*) FROM holdfast.attempts WHERE outcome IS NOT NULL"


@pytest.fixture
def counting(db: Db) -> Db:
    """A database whose figures begin now."""
    begin(db, NOW)
    return db


def begin(db: Db, at: datetime) -> None:
    db.sql("DELETE FROM holdfast.figure_place")
    db.sql("INSERT INTO holdfast.figure_place (settled, until, seen_at, looked_at) VALUES ($1, $1, $1, $1)", at)
    db.run(db.queries.ensure_partitions())


def ended(
    db: Db,
    *times: datetime,
    took: float = 1.5,
    waited: float = 0.003,
    queue: str = "default",
    kind: str = "greeter",
    via: Connection[Any] | None = None,
) -> None:
    """Attempts that finished their tasks."""
    db.sql(ENDED, queue, kind, list(times), timedelta(seconds=took), timedelta(seconds=waited), via=via)


def logged(db: Db, at: datetime, outcome: str = "retried", via: Connection[Any] | None = None) -> None:
    """An attempt that did not."""
    db.sql(LOGGED, outcome, at, via=via)


def roll(db: Db, via: Connection[Any] | None = None) -> Rolled:
    """One piece of counting, as a worker does it."""
    connection = via or db.connection
    connection.execute(b"BEGIN")
    rolled = drive_sync(figures.roll_up(db.queries), lambda query: db.run(query, connection))
    connection.execute(b"COMMIT")
    return rolled


def roll_all(db: Db) -> None:
    """Counts until there is nothing more to count: notes what is open, then finds that it has ended."""
    for _ in range(2):
        while roll(db).more:
            pass


def place(db: Db) -> tuple[datetime, datetime]:
    ((settled, until),) = db.sql("SELECT settled, until FROM holdfast.figure_place")
    return settled, until


def counted(db: Db) -> int:
    return int(db.one(f"SELECT coalesce(sum({ALL}), 0)::bigint FROM holdfast.figure"))


def read(db: Db, since: str = "1h", step: str | None = "1m", **selection: Any) -> Figures:
    return db.run(insights.figures(db.queries, since, step, **selection))


def assert_whole(db: Db) -> None:
    in_the_log = db.one(IN_THE_LOG)
    assert [read(db, "2d", step).total.attempts for step in ("1m", "15m", "1h")] == [in_the_log] * 3


def test_minutes_are_counted_when_they_are_complete(counting: Db) -> None:
    ended(counting, NOW + timedelta(seconds=1))
    logged(counting, NOW + timedelta(seconds=59, microseconds=999_999))
    ended(counting, NOW + timedelta(seconds=60))
    counting.clock.set(NOW + timedelta(seconds=69))
    roll_all(counting)
    assert counted(counting) == 0  # too early: a clock may be behind
    counting.clock.set(NOW + timedelta(seconds=70))
    roll_all(counting)
    assert place(counting) == (NOW + MINUTE, NOW + MINUTE)
    rows = counting.sql("SELECT minute, queue, kind, step, done, retried FROM holdfast.figure ORDER BY step")
    assert rows == [
        (NOW, "default", "greeter", "ReadName", 0, 1),
        (NOW, "default", "greeter", "main", 1, 0),
    ]
    roll_all(counting)
    assert counted(counting) == 2


def test_times_are_put_into_the_buckets_that_python_knows(counting: Db) -> None:
    assert tuple(counting.one("SELECT holdfast.buckets()")) == BUCKETS
    spans = [0.0, 0.0009, 0.001, 0.0049, 0.005, 1.0, 1.999, 99_999.0, 100_000.0, 5_000_000.0]
    for span in spans:
        ended(counting, NOW + timedelta(seconds=30), took=span, waited=span)
    logged(counting, NOW + timedelta(seconds=30), "retried")  # nobody knows when it was due
    logged(counting, NOW + timedelta(seconds=30), "lost")
    expected = Counter(sum(bound <= span for bound in BUCKETS) for span in spans)
    counting.clock.set(NOW + 2 * MINUTE)
    roll_all(counting)
    ((wait, run, wait_seconds, run_seconds),) = counting.sql(
        "SELECT wait, run, wait_seconds, run_seconds FROM holdfast.figure WHERE done > 0"
    )
    assert wait == run == [expected[bucket] for bucket in range(len(BUCKETS) + 1)]
    assert wait_seconds == pytest.approx(sum(spans)) and run_seconds == pytest.approx(sum(spans))
    ((retried, lost, wait, run),) = counting.sql("SELECT retried, lost, wait, run FROM holdfast.figure WHERE done = 0")
    assert (retried, lost) == (1, 1) and (sum(wait), sum(run)) == (0, 1)


def test_what_is_read_is_whole_at_every_moment(counting: Db) -> None:
    """Counted or not yet counted: each attempt of the log is there once."""
    chance = random.Random(8)
    at = NOW
    for _ in range(40):
        at += timedelta(seconds=chance.choice([1, 7, 40, 95, 400]))
        counting.clock.set(at)
        for _ in range(chance.randrange(4)):
            if chance.random() < 0.5:
                ended(counting, at)
            else:
                logged(counting, at)
        if chance.random() < 0.7:
            roll(counting)
        assert_whole(counting)
    counting.clock.set(at + timedelta(hours=1))
    for _ in range(2):
        roll_all(counting)
    assert counted(counting) > 20 and counting.one("SELECT count(*) FROM holdfast.figure_hour") > 0
    assert_whole(counting)


def test_two_workers_do_not_count_at_once(counting: Db) -> None:
    ended(counting, NOW)
    counting.clock.set(NOW + 2 * MINUTE)
    roll(counting)
    first, second = counting.connect(), counting.connect()
    first.execute(b"BEGIN")
    plan = figures.roll_up(counting.queries)
    assert drive_sync(plan, lambda query: counting.run(query, first)).figures == 1
    assert roll(counting, second) == Rolled(0, False)  # it does not wait, either
    first.execute(b"COMMIT")
    roll_all(counting)
    assert counted(counting) == 1


def test_a_worker_opens_its_connection_only_if_there_is_a_minute_to_count(own_db: Db) -> None:
    begin(own_db, NOW)
    ended(own_db, NOW)
    looks = "SELECT looked_at FROM holdfast.figure_place"
    noted = "SELECT seen_at FROM holdfast.figure_place"
    passes: list[tuple[datetime, datetime]] = []

    class Watched(Maintenance):
        async def once(self, chores: Any = CHORES) -> Any:
            passes.append(place(own_db))
            return await super().once(chores)

    async def at(seconds: float, what: str) -> datetime:
        moment = NOW + timedelta(seconds=seconds)
        own_db.clock.set(moment)
        async with asyncio.timeout(20):
            while own_db.one(what) != moment:
                await asyncio.sleep(0.01)
        return moment

    async def work() -> None:
        glance = Link(own_db.url, own_db.queries, "glance")
        made = Watched(Link(own_db.url, own_db.queries, "m"), own_db.queries, glance=glance)
        made.first, made.count = 1000.0, 0.02
        task = asyncio.create_task(made.run())
        try:
            await at(69, looks)  # the minute is not over for sure
            assert own_db.one(noted) == NOW
            await at(70, noted)  # now it waits for those whose transactions are open
            assert place(own_db) == (NOW, NOW) and not passes
            await at(71, noted)  # it has counted, and noted them again
            assert place(own_db) == (NOW + MINUTE, NOW + MINUTE) and len(passes) == 1
            await at(129, looks)
            assert own_db.one(noted) == NOW + timedelta(seconds=71) and len(passes) == 1
        finally:
            task.cancel()
            await asyncio.gather(task, glance.close(), return_exceptions=True)

    asyncio.run(work())
    assert counted(own_db) == 1


def test_who_has_looked_lately_is_relied_upon(counting: Db) -> None:
    def look(seconds: float) -> Place | None:
        counting.clock.set(NOW + timedelta(seconds=seconds))
        return counting.run(figures.look(counting.queries, timedelta(seconds=10)))

    assert look(9.9) is None
    assert look(10) is not None
    assert look(19.9) is None
    assert look(9) is not None  # the clock was set back
    assert look(10) is None
    ahead = look(-1)
    assert ahead is not None and ahead.is_to_count
    assert look(300) is not None


def test_a_transaction_that_is_open_is_not_noted_anew(counting: Db) -> None:
    counting.clock.set(NOW + timedelta(seconds=70))
    other = counting.connect()
    other.execute(b"BEGIN")
    counting.sql("SELECT 1", via=other)
    counting.run(figures.note_open(counting.queries))
    for after, is_to_count in [(90, False), (179, False), (180, True)]:
        counting.clock.set(NOW + timedelta(seconds=after))
        found = counting.run(figures.look(counting.queries, timedelta()))
        assert found is not None and (found.is_to_note, found.is_to_count) == (False, is_to_count)
    other.execute(b"ROLLBACK")
    found = counting.run(figures.look(counting.queries, timedelta()))
    assert found is not None and found.is_to_count and found.end == NOW + MINUTE


def test_a_worker_that_dies_while_counting_leaves_it_to_the_next(counting: Db) -> None:
    ended(counting, NOW)
    counting.clock.set(NOW + 2 * MINUTE)
    roll(counting)
    dying = counting.connect()
    dying.execute(b"BEGIN")
    assert drive_sync(figures.roll_up(counting.queries), lambda query: counting.run(query, dying)).figures == 1
    dying.execute(b"ROLLBACK")
    assert counted(counting) == 0
    roll_all(counting)
    assert counted(counting) == 1


@pytest.mark.parametrize("written", ["before", "afterwards"])
def test_an_attempt_whose_transaction_commits_late_is_counted_once(counting: Db, written: str) -> None:
    """In a transaction of its own that stays open; with `afterwards`, its statement waits before it writes anything."""
    late = counting.connect()
    late.execute(b"BEGIN")
    late.execute(b"SELECT 1")
    if written == "before":
        logged(counting, NOW + timedelta(seconds=5), via=late)
    ended(counting, NOW + timedelta(seconds=6))
    counting.clock.set(NOW + 2 * MINUTE)
    roll_all(counting)
    assert counted(counting) == 0  # somebody may still add to that minute
    counting.clock.set(NOW + 4 * MINUTE)
    roll_all(counting)
    assert place(counting) == (NOW, NOW + 3 * MINUTE)
    assert counted(counting) == 1  # for the time being
    assert read(counting).total.attempts == 1
    if written == "afterwards":
        logged(counting, NOW + timedelta(seconds=5), via=late)
    roll_all(counting)
    late.execute(b"COMMIT")
    ended(counting, NOW + timedelta(seconds=200))
    counting.clock.set(NOW + 5 * MINUTE)
    roll_all(counting)
    roll_all(counting)
    assert place(counting) == (NOW + 4 * MINUTE, NOW + 4 * MINUTE)
    assert counted(counting) == 3 == counting.one(IN_THE_LOG)
    assert read(counting).total.outcomes == {"done": 2, "retried": 1}


def test_a_transaction_that_never_ends_is_waited_for_a_day(counting: Db) -> None:
    late = counting.connect()
    late.execute(b"BEGIN")
    logged(counting, NOW, via=late)
    counting.clock.set(NOW + 2 * MINUTE)
    roll_all(counting)
    counting.clock.set(NOW + timedelta(days=1, minutes=3))
    roll_all(counting)
    assert place(counting)[0] > NOW
    late.execute(b"ROLLBACK")


def test_a_clock_that_was_set_back_counts_again_what_comes_again(counting: Db) -> None:
    for minute in range(0, 180, 20):
        ended(counting, NOW + minute * MINUTE)
    counting.clock.set(NOW + 200 * MINUTE)
    for _ in range(3):
        roll_all(counting)
    assert counted(counting) == 9
    counting.clock.set(NOW + 50 * MINUTE)
    roll_all(counting)
    assert place(counting)[1] <= NOW + 50 * MINUTE
    ended(counting, NOW + 55 * MINUTE)
    for minutes in (60, 120, 200, 201):
        counting.clock.set(NOW + minutes * MINUTE)
        roll_all(counting)
    assert counted(counting) == 10
    for step in ("1m", "1h"):
        assert read(counting, "1d", step).total.attempts == 10


def test_counting_goes_on_after_a_long_time_without_workers_in_pieces(counting: Db) -> None:
    ended(counting, NOW)
    counting.clock.set(NOW + timedelta(hours=5, minutes=1))
    roll(counting)
    pieces = 0
    while roll(counting).more:
        pieces += 1
    assert pieces == 29  # ten minutes each
    assert counted(counting) == 1 and place(counting)[0] == NOW + timedelta(hours=5)


def test_days_without_anything_are_passed_over_at_once(counting: Db) -> None:
    ended(counting, NOW, NOW + 2 * MINUTE)
    counting.clock.set(NOW + 13 * MINUTE)
    roll_all(counting)
    years_later = NOW + timedelta(days=1500)
    counting.clock.set(years_later)
    counting.run(counting.queries.ensure_partitions())
    ended(counting, years_later)
    counting.clock.set(years_later + 2 * MINUTE)
    pieces = 0
    for _ in range(2):
        while roll(counting).more:
            pieces += 1
            assert pieces < 500
    assert place(counting)[0] == years_later + MINUTE
    assert counting.one(f"SELECT sum({ALL})::int FROM holdfast.figure_hour") == 2, "the hour that was left is whole"
    assert counted(counting) == 3


def test_transactions_of_other_databases_are_not_waited_for(counting: Db) -> None:
    with connect_sync(with_database(counting.url, "postgres")) as elsewhere:
        elsewhere.execute(b"BEGIN")
        elsewhere.execute(b"SELECT pg_current_xact_id()")
        ended(counting, NOW)
        counting.clock.set(NOW + 2 * MINUTE)
        roll_all(counting)
        assert place(counting)[0] == NOW + MINUTE
        elsewhere.execute(b"ROLLBACK")


def test_selections_and_groups(counting: Db) -> None:
    for minute, queue, kind in [(0, "mail", "greeter"), (1, "mail", "greeter"), (1, "default", "other")]:
        ended(counting, NOW + minute * MINUTE, queue=queue, kind=kind)
    logged(counting, NOW + MINUTE, "failed")
    logged(counting, NOW + MINUTE, "released")
    counting.clock.set(NOW + timedelta(minutes=3, seconds=30))
    roll_all(counting)
    found = read(counting, "3m", by="kind")
    assert found.since == NOW and found.until == NOW + timedelta(seconds=210)
    assert {name: total.attempts for name, total in found.totals.items()} == {"greeter": 3, "other": 1}
    assert [point.figure.attempts for point in found.groups["greeter"]] == [1, 2, 0, 0]
    assert [point.at for point in found.points] == [NOW + n * MINUTE for n in range(4)]
    assert found.total.attempts == 4 and found.total.errors == 1 and found.total.error_rate == 0.25
    assert found.total.outcomes["released"] == 1 and found.total.run.count == 4
    assert set(read(counting, by="step").groups) == {"greeter.main", "greeter.ReadName", "other.main"}
    assert set(read(counting, by="queue").groups) == {"mail", "default"}
    assert read(counting, queue="mail").total.attempts == 2
    assert read(counting, kind="other").total.attempts == 1
    assert read(counting, kind="greeter", at_step="ReadName").total.attempts == 1
    assert read(counting, kind="nobody").total.attempts == 0


@pytest.mark.parametrize(
    ("since", "step"),
    [("30s", "1m"), ("1h", "1m"), ("12h", "12m"), ("13h", "1h"), ("60h", "1h"), ("61h", "2h"), ("30d", "12h")],
)
def test_steps_of_time_are_made_for_the_span(counting: Db, since: str, step: str) -> None:
    assert read(counting, since, None).step == timedelta(seconds=seconds(step))


def test_figures_are_kept_longer_than_the_log(counting: Db) -> None:
    ended(counting, NOW)
    counting.clock.set(NOW + timedelta(hours=2))
    roll_all(counting)
    roll_all(counting)
    counting.sql("DELETE FROM holdfast.archive")
    counting.clock.set(NOW + timedelta(days=4))
    assert counting.run(figures.forget(counting.queries, 1000)) == 1
    assert counting.sql("SELECT * FROM holdfast.figure") == []
    found = read(counting, "5d", "10m")
    assert found.step == timedelta(hours=1) and found.total.done == 1
    counting.sql('SELECT holdfast.set_default(\'{"figures": "5 days"}\')')
    assert counting.run(figures.forget(counting.queries, 1000)) == 0
    counting.clock.set(NOW + timedelta(days=5, hours=1))
    assert counting.run(figures.forget(counting.queries, 1000)) == 1
    ((old, new),) = counting.sql("SELECT old, new FROM holdfast.change WHERE action = 'set'")
    assert (old, new) == (b'{"figures": null}', b'{"figures": "5 days"}')


def test_what_nobody_has_counted_for_long_is_said_to_be_missing(counting: Db) -> None:
    ended(counting, NOW + MINUTE)
    counting.clock.set(NOW + timedelta(hours=3))
    ended(counting, NOW + timedelta(hours=3) - MINUTE)
    found = read(counting, "6h")
    assert found.missing_since == NOW and found.total.attempts == 1
    for _ in range(3):
        roll_all(counting)
    found = read(counting, "6h")
    assert found.missing_since is None and found.total.attempts == 2


@pytest.mark.direct("it reads the statistics of its own session")
def test_a_days_log_is_not_read_to_count_a_minute_of_it(own_db: Db) -> None:
    """Whatever is known about the tables: with no statistics, and after an ANALYZE."""
    db = own_db
    begin(db, NOW)
    ended(db, *(NOW - timedelta(seconds=n / 10) for n in range(50_000, 0, -1)))
    db.sql("SELECT holdfast.summarize_log()")
    span = (NOW - 2 * MINUTE, NOW - MINUTE)
    scans = (
        "SELECT sum(seq_scan)::bigint, sum(idx_tup_fetch)::bigint FROM pg_stat_xact_user_tables"
        " WHERE relname ~ '^(archive|attempt)_p'"
    )
    for prepare in ("SELECT 1", "ANALYZE"):
        db.sql(prepare)
        fresh = db.connect()  # its statistics are its own
        fresh.execute(b"BEGIN")
        seen = db.one(f"SELECT sum({ALL})::bigint FROM holdfast.count_log($1, $2)", *span, via=fresh)
        assert db.run(insights.figures(db.queries, "10m"), fresh).total.attempts == 0
        ((sequential, fetched),) = db.sql(scans, via=fresh)
        fresh.execute(b"ROLLBACK")
        assert seen == 600
        assert sequential == 0 and fetched < 10_000
