"""M13: partitions come without stopping anybody."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from uuid import UUID

import psycopg
import pytest

from holdfast._db.errors import is_missing_partition

from .support import NOW, Db

DAY = date(2044, 2, 28)


def partitions(db: Db) -> set[str]:
    rows = db.sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent IN ('holdfast.archive'::regclass, 'holdfast.attempt'::regclass)"
    )
    return {row[0] for row in rows}


def ensure(db: Db, day: date, via: psycopg.Connection[object] | None = None) -> None:
    db.sql("SELECT holdfast.ensure_partition($1)", day, via=via)


def test_M13_ensure_partition_is_idempotent(own_db: Db) -> None:
    before = partitions(own_db)
    for _ in range(3):
        ensure(own_db, DAY)
    assert partitions(own_db) - before == {"archive_p20440228", "attempt_p20440228"}


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_M13_days_are_those_of_UTC_in_every_time_zone(own_db: Db, zone: str) -> None:
    far = own_db.connect(options=f"-c timezone={zone}")
    ensure(own_db, DAY, far)
    ensure(own_db, DAY + timedelta(days=1), far)
    own_db.sql("SET timezone = 'UTC'")
    [(bound,)] = own_db.sql("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'archive_p20440228'")
    assert bound == "FOR VALUES FROM ('2044-02-28 00:00:00+00') TO ('2044-02-29 00:00:00+00')"


def test_M13_days_ahead_are_made_from_yesterday_on(own_db: Db) -> None:
    own_db.clock.set(datetime(2044, 3, 1, 0, 30, tzinfo=UTC))
    own_db.run(own_db.queries.ensure_partitions())
    days = {date(2044, 3, 1) + timedelta(days=n) for n in range(-1, 15)}
    assert {f"{t}_p{d:%Y%m%d}" for d in days for t in ("archive", "attempt")} <= partitions(own_db)


def test_M13_two_makers_at_once_wait_for_each_other_and_both_succeed(own_db: Db) -> None:
    first, second = own_db.connect(), own_db.connect()
    first.execute(b"BEGIN")
    ensure(own_db, DAY, first)
    waiting = own_db.blocked(second, partial(ensure, own_db, DAY, second))
    first.execute(b"COMMIT")
    waiting.result(20)
    assert "archive_p20440228" in partitions(own_db)


def test_M13_a_maker_that_rolls_back_leaves_the_work_to_the_next(own_db: Db) -> None:
    first, second = own_db.connect(), own_db.connect()
    first.execute(b"BEGIN")
    ensure(own_db, DAY, first)
    waiting = own_db.blocked(second, partial(ensure, own_db, DAY, second))
    first.execute(b"ROLLBACK")
    waiting.result(20)
    assert "archive_p20440228" in partitions(own_db)


def test_M13_a_partition_left_unattached_is_attached(own_db: Db) -> None:
    own_db.sql(
        "CREATE TABLE holdfast.archive_p20440228 (LIKE holdfast.archive INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    ensure(own_db, DAY)
    assert {"archive_p20440228", "attempt_p20440228"} <= partitions(own_db)


def test_M13_neither_readers_nor_finishes_stand_in_the_way_of_a_new_partition(own_db: Db, worker: UUID) -> None:
    reader, writer, maker = (own_db.connect(options="-c lock_timeout=2s") for _ in range(3))
    reader.execute(b"BEGIN")
    own_db.sql("SELECT count(*) FROM holdfast.archive", via=reader)
    own_db.sql("SELECT count(*) FROM holdfast.attempts", via=reader)
    writer.execute(b"BEGIN")
    first = own_db.claimed(worker)
    own_db.run(own_db.finish(worker, [first]), writer)
    maker.execute(b"BEGIN")
    ensure(own_db, DAY, maker)  # neither the open reader nor the open finish holds it up
    second = own_db.claimed(worker)
    assert own_db.run(own_db.finish(worker, [second])) == {second.id: None}, "nor does it hold up a finish meanwhile"
    assert own_db.one("SELECT count(*) FROM holdfast.archive", via=reader) == 1
    for connection in (maker, writer, reader):
        connection.execute(b"COMMIT")
    assert (own_db.state(first.id), own_db.state(second.id)) == ("done", "done")


def test_M13_the_naive_form_waits_for_every_reader(own_db: Db) -> None:
    """CREATE TABLE … PARTITION OF takes a lock that one open reader withholds, and finishes queue up behind it."""
    reader = own_db.connect()
    reader.execute(b"BEGIN")
    own_db.sql("SELECT count(*) FROM holdfast.archive", via=reader)
    maker = own_db.connect(options="-c lock_timeout=100ms")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        own_db.sql(
            "CREATE TABLE holdfast.archive_naive PARTITION OF holdfast.archive"
            " FOR VALUES FROM ('2044-02-28 00:00+00') TO ('2044-02-29 00:00+00')",
            via=maker,
        )


def without_partition(db: Db) -> None:
    """Moves time to a day for which nobody has made partitions."""
    day = NOW + timedelta(days=30)
    db.sql(
        "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
        f" AS $$ SELECT '{day.isoformat()}'::timestamptz $$"
    )


@pytest.mark.parametrize("name", ["finish", "advance", "retried", "failed", "snoozed", "released", "cancel"])
def test_M13_a_day_without_partition_is_recognised_and_can_be_made(own_db: Db, worker: UUID, name: str) -> None:
    task = own_db.claimed(worker)
    without_partition(own_db)
    query = own_db.settling(worker, [task])[name]
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        own_db.run(query)
    assert is_missing_partition(caught.value)
    assert own_db.state(task.id) == "running"
    own_db.run(own_db.queries.ensure_partitions())
    assert list(own_db.run(query)) == [task.id]


def test_M13_another_check_violation_is_not_taken_for_a_missing_partition(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.run(db.stay(worker, [task], "failed"))
    assert not is_missing_partition(caught.value)


def test_M13_verbs_of_people_make_the_partition_they_need(own_db: Db) -> None:
    parked, ready = own_db.parked(), own_db.enqueue()
    without_partition(own_db)
    assert own_db.discard(parked) == "discarded"
    assert own_db.cancel(ready) == "cancelled"
    assert own_db.state(parked) == "discarded"


def test_M13_there_is_no_default_partition(db: Db) -> None:
    assert db.sql("SELECT relname FROM pg_class WHERE pg_get_expr(relpartbound, oid) = 'DEFAULT'") == []


def test_M13_partitions_serve_look_ups_by_id(own_db: Db) -> None:
    ensure(own_db, DAY)
    indexes = own_db.sql(
        "SELECT tablename FROM pg_indexes WHERE tablename IN ('archive_p20440228', 'attempt_p20440228')"
    )
    assert sorted(set(indexes)) == [("archive_p20440228",), ("attempt_p20440228",)]
