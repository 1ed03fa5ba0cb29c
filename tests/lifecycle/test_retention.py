"""A4: queues that keep less are deleted from, what nobody asks for is forgotten, and the settings of retention."""

import asyncio
import json
import logging
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._db.driver.session import Link
from holdfast._engine.maintain import chores
from holdfast._engine.maintain.maintenance import CHORES, Maintenance
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql import history

from .days import DAY, finished, known, pass_of, set_default, set_queue, with_link
from .support import NOW, Db

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
    assert with_link(own_db, lambda link: chores.sweep_queues(link, own_db.queries)) == chores.ChoreResult()
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
    query = own_db.queries.sweep(
        "archive",
        since=day,
        until=day + DAY,
        first_block=4,
        below_block=8,
        named=["mail"],
        expired=["mail"],
        others=False,
    )
    plan = own_db.explain(query)
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
    assert set_default(db, retention="14 days", by="ann", why="audit") == {"retention": "14 days", "figures": None}
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
    async def broken(link: Link, queries: Any) -> chores.ChoreResult:
        raise RuntimeError("broken")

    async def last(link: Link, queries: Any) -> chores.ChoreResult:
        return chores.ChoreResult(["it was done"])

    monkeypatch.setitem(CHORES, "making partitions", broken)
    monkeypatch.setitem(CHORES, "the last", last)
    made = Maintenance(Link(own_db.url, own_db.queries, "m"), own_db.queries)
    done, failures = asyncio.run(made.once())
    assert done.what[-1] == "it was done"
    assert list(failures) == ["making partitions"]


def test_A4_an_outage_ends_the_pass_and_is_told_once(own_db: Db) -> None:
    made = Maintenance(Link("postgresql://127.0.0.1:1/none", own_db.queries, "m"), own_db.queries)
    done, failures = asyncio.run(made.once())
    assert (done, list(failures)) == (chores.ChoreResult(), ["counting figures"])
