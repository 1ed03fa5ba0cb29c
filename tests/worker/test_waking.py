"""Enqueues that wake workers: after their commit, or along with it (M14)."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from holdfast import Tasks
from holdfast._db import coalescer as coalesce
from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._sql.queries import Queries
from holdfast.embedded import Server
from holdfast.testing import Harness

from .support import sql, until, values, waiting

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(*, value: Any) -> Any:
    return value


@tasks.task(queue="mail")
async def mail(*, value: Any) -> Any:
    return value


@pytest.mark.direct("it needs notifications")
async def test_M14_after_a_batch_each_of_its_queues_is_told_of(holdfast: Harness) -> None:
    holdfast.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '1', '{default,mail}', '{}', 1, true)"
    )
    async with await psycopg.AsyncConnection.connect(holdfast.url, autocommit=True) as listening:
        await listening.execute("LISTEN holdfast")
        await asyncio.gather(*(what.enqueue(value=n) for n in range(5) for what in (store, mail)))
        told = set()
        async for note in listening.notifies(timeout=60):
            told.add(note.payload)
            if told == {"queue default", "queue mail"}:
                break
    assert told == {"queue default", "queue mail"}


@contextmanager
def listening_for(holdfast: Harness, *, idle: bool) -> Iterator[Callable[[], list[str]]]:
    """A worker, and what it has been told: an answered statement brings all that was committed before."""
    holdfast.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        f" VALUES (gen_random_uuid(), 'w', 'h', 1, '1', '{{default}}', '{{}}', 1, {idle})"
    )
    with psycopg.connect(holdfast.url, autocommit=True) as connection:
        connection.execute("LISTEN holdfast")

        def heard() -> list[str]:
            connection.execute("SELECT 1")
            return [note.payload for note in connection.notifies(timeout=0)]

        yield heard


def put_off_wake_ups(monkeypatch: pytest.MonkeyPatch, seconds: float = 3600.0) -> None:
    """All but the first enqueue are taken for a stream, however slow this machine is."""
    monkeypatch.setattr(coalesce, "QUIET", 3600.0)
    monkeypatch.setattr(coalesce, "STREAM", 1)
    monkeypatch.setattr(coalesce, "PUT_OFF", seconds)


def told_within_a_minute(heard: Callable[[], list[str]], count: int) -> list[str]:
    """So much of what was told, while the event loop stands still."""
    told = heard()
    end = time.monotonic() + 60
    while len(told) < count and time.monotonic() < end:
        time.sleep(0.01)
        told += heard()
    return told


@contextmanager
def commits_held_up(holdfast: Harness) -> Iterator[None]:
    """Whoever writes tasks comes to the commit, and no further until the body ends."""
    holdfast.sql(
        "CREATE FUNCTION hold_up() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END'"
    )
    holdfast.sql(
        "CREATE CONSTRAINT TRIGGER hold_up AFTER INSERT ON holdfast.task DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION hold_up()"
    )
    with psycopg.connect(holdfast.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(1)")
        yield
        other.rollback()


def replace_statement(holdfast: Harness, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    statements = holdfast.app._queries._statements
    changed = {**statements, name: statements[name].with_text(text)}
    monkeypatch.setattr(holdfast.app._queries, "_statements", changed)


@pytest.mark.direct("it needs notifications")
async def test_M14_one_of_few_is_told_of_by_its_own_transaction(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_statement(holdfast, monkeypatch, "notify_if_idle", "SELECT FROM (SELECT $1::text) AS q WHERE false")
    with listening_for(holdfast, idle=True) as heard:
        for n in range(3):
            await asyncio.sleep(coalesce.QUIET * 2)
            ref = await store.enqueue(value=n)
            assert heard() == [f"queue default {ref.id}"], "a worker at rest need not look for it"


@pytest.mark.direct("it needs notifications")
async def test_M14_nobody_is_told_twice(holdfast: Harness) -> None:
    with listening_for(holdfast, idle=True) as heard:
        ref = await store.enqueue(value=1)
        await holdfast.app.close()
        assert heard() == [f"queue default {ref.id}"]


@pytest.mark.direct("it needs notifications")
async def test_M14_enqueues_that_follow_each_other_are_told_of_together_as_soon_as_there_is_a_pause(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off_wake_ups(monkeypatch)
    with listening_for(holdfast, idle=True) as heard:
        refs = [await store.enqueue(value=n) for n in range(20)]
        told = heard()
        while len(told) < 2:
            await asyncio.sleep(0.01)
            told += heard()
        await holdfast.app.close()
        assert told + heard() == [f"queue default {refs[0].id}", "queue default"]


@pytest.mark.direct("it needs notifications")
def test_M14_a_loop_that_ends_right_after_an_enqueue_has_told_of_it(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off_wake_ups(monkeypatch)

    async def script() -> None:
        for n in range(3):
            await store.enqueue(value=n)

    with listening_for(holdfast, idle=True) as heard:
        asyncio.run(script())
        assert told_within_a_minute(heard, 2)[1:] == ["queue default"]


@pytest.mark.direct("it needs notifications")
async def test_M14_a_few_that_follow_each_other_are_told_of_even_if_the_loop_then_stands_still(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalesce, "QUIET", 3600.0)
    with listening_for(holdfast, idle=True) as heard:
        refs = [await store.enqueue(value=n) for n in range(5)]
        told = told_within_a_minute(heard, 5)  # nothing else runs meanwhile
    assert told == [f"queue default {refs[0].id}", *["queue default"] * 4]


@pytest.mark.direct("it needs notifications")
async def test_M14_an_enqueue_that_others_follow_without_end_is_told_of_all_the_same(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off_wake_ups(monkeypatch, 0.2)
    with listening_for(holdfast, idle=True) as heard:
        told: list[str] = []
        end = time.monotonic() + 60
        enqueued = 0
        while told.count("queue default") < 2 and time.monotonic() < end:
            await store.enqueue(value=enqueued)
            enqueued += 1
            told += heard()  # without a pause for the event loop
    assert told.count("queue default") == 2
    assert len(told) < enqueued


@pytest.mark.direct("it needs notifications")
async def test_M14_who_falls_asleep_before_the_commit_is_told_after_it(holdfast: Harness) -> None:
    """The enqueue's own transaction saw nobody asleep."""
    with listening_for(holdfast, idle=False) as heard:
        with commits_held_up(holdfast):
            enqueued = asyncio.create_task(store.enqueue(value=1))
            await waiting(holdfast, 1)
            holdfast.sql("UPDATE holdfast.worker SET idle = true")
        await enqueued
        await holdfast.app.close()
        assert heard() == ["queue default"]


@pytest.mark.direct("it needs notifications")
async def test_M14_one_enqueue_at_a_time_notifies_before_its_commit_is_on_disk(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_statement(holdfast, monkeypatch, "notify_if_idle", "SELECT FROM (SELECT $1::text) AS q WHERE false")
    with listening_for(holdfast, idle=True) as heard, psycopg.connect(holdfast.url) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended(holdfast.channel() || ' along', 0))")
        await store.enqueue(value=1)
        assert heard() == []


@pytest.mark.direct("it needs notifications")
async def test_M14_where_commits_wait_for_a_standby_nobody_is_told_before(own_server: Server, own_url: str) -> None:
    """While a commit waits with its notification, nobody else on the whole server can notify."""
    along = Queries().notify_along("default")
    sql(
        own_url,
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        " VALUES (gen_random_uuid(), '', '', 0, '', '{default}', '{}', 1, true)",
    )

    def told() -> bool:
        with connect_sync(own_url) as connection, connection.transaction(force_rollback=True):
            return run_sync(connection, along)

    assert told()
    sql(own_server.url(), "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    try:
        sql(own_server.url(), "SELECT pg_reload_conf()")
        await until(lambda: sql(own_server.url(), "SHOW synchronous_standby_names") == [("nobody",)], "for the setting")
        assert not told()
    finally:
        sql(own_server.url(), "ALTER SYSTEM RESET synchronous_standby_names")
        sql(own_server.url(), "SELECT pg_reload_conf()")
        await until(lambda: sql(own_server.url(), "SHOW synchronous_standby_names") == [("",)], "for the setting")


@pytest.mark.direct("it needs notifications")
async def test_M14_an_enqueue_does_not_depend_on_its_wake_up(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_statement(holdfast, monkeypatch, "notify_along", "SELECT 1 / 0 FROM (SELECT $1::text) AS q")
    with listening_for(holdfast, idle=True) as heard:
        await store.enqueue(value=1)
        assert told_within_a_minute(heard, 1) == ["queue default"], "by another one, even if the loop stands still"
    assert values(holdfast) == [1]


@pytest.mark.direct("it needs notifications")
async def test_M14_a_wake_up_that_was_put_off_outlives_its_connection(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off_wake_ups(monkeypatch)
    with listening_for(holdfast, idle=True) as heard:
        await store.enqueue(value=1)
        await store.enqueue(value=2)
        coalescer = holdfast.app._pool._coalescer
        assert coalescer._pipeline is not None
        coalescer._pipeline.close()  # before the event loop has its turn
        heard()
        await store.enqueue(value=3)
        assert told_within_a_minute(heard, 1) == ["queue default"]


async def test_M14_a_commit_refused_with_its_wake_up_is_tried_without(holdfast: Harness) -> None:
    """As if the queue of notifications were full: the server refuses such a transaction at its very end."""
    holdfast.sql("CREATE SEQUENCE tries")
    holdfast.sql(
        "CREATE FUNCTION refuse_once() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF nextval('tries') = 1 THEN RAISE program_limit_exceeded; END IF; RETURN NULL; END $$"
    )
    holdfast.sql(
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON holdfast.task DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse_once()"
    )
    await store.enqueue(value=1)
    await store.enqueue(value=2)
    assert values(holdfast) == [1, 2]
    assert holdfast.sql("SELECT last_value FROM tries") == [(3,)]
