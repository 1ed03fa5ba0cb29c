"""Many tasks in one call, by COPY (Q12, M2, M17)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import EnqueueRefused, Entry, HoldfastError, KeyTaken, Tasks
from holdfast._db import pool
from holdfast._db.driver.connection import run
from holdfast._model.enqueue import request
from holdfast._sql import copy_format as copying
from holdfast._sql import plans
from holdfast.testing import Harness

from .support import rows

tasks = Tasks()
MANY = plans.COPIED + 100


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(*, value: Any) -> Any:
    return value


@tasks.task(queue="mail", priority=3)
async def mail(*, value: Any) -> Any:
    return value


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each COPY from here on."""
    seen: list[str] = []

    def notice(name: str) -> None:
        pieces = getattr(copying, name)

        def noticed(*arguments: Any) -> Any:
            seen.append("COPY")
            return pieces(*arguments)

        monkeypatch.setattr(plans, name, noticed)

    notice("pieces")
    notice("bare_pieces")
    return seen


def count(holdfast: Harness) -> int:
    return int(holdfast.sql("SELECT count(*) FROM holdfast.task")[0][0])


async def test_Q12_100_000_in_one_call(holdfast: Harness, copies: list[str]) -> None:
    refs = await holdfast.app.enqueue_many(store.bind(value=n) for n in range(100_000))
    assert copies == ["COPY"]
    stored = dict(holdfast.sql("SELECT id, (args -> 'value')::int FROM holdfast.task"))
    assert [stored[ref.id] for ref in refs] == list(range(100_000))
    assert holdfast.sql("SELECT count(DISTINCT xmin::text), count(DISTINCT run_at) FROM holdfast.task") == [(1, 1)]


async def test_Q12_what_is_claimed_together_lies_together(holdfast: Harness, copies: list[str]) -> None:
    """In the table and in its key: a claim of a thousand finds it in a few pages."""
    refs = await holdfast.app.enqueue_many(Entry(store.bind(value=n), priority=n % 10) for n in range(MANY))
    assert copies == ["COPY"]
    stored = holdfast.sql("SELECT id, priority, (args -> 'value')::int FROM holdfast.task ORDER BY ctid")
    assert [row[1:] for row in stored] == [(p, n) for p in range(9, -1, -1) for n in range(p, MANY, 10)]
    assert [row[0] for row in stored] == sorted(row[0] for row in stored)
    values = {row[0]: row[2] for row in stored}
    assert [values[ref.id] for ref in refs] == list(range(MANY))


ODD = ["", "\\", "\\n", "\n\t\r", "\\N", '"', "ä€😀", "\\\\.", "{}", "a\\tb", "\u2028", "\x7f", "'", "\\."]


async def enqueue_many(holdfast: Harness, calls: list[Any], *, blocking: bool) -> list[Any]:
    if blocking:
        return list(await asyncio.to_thread(holdfast.app.sync.enqueue_many, calls))
    return list(await holdfast.app.enqueue_many(calls))


def odd_entries() -> list[Any]:
    made: list[Any] = [Entry(store.bind(value=text), headers={"h": text, text: "x"}) for text in ODD]
    made += [Entry(mail.bind(value=n), delay=n, priority=n % 10) for n in range(20)]
    at = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    made += [Entry(store.bind(value=n), at=at + timedelta(days=n), queue="q.1-x") for n in range(20)]
    made += [store.bind(value={"deep": [1, 2.5, None, True, "x" * 500]})] * (MANY - len(made))
    return made


async def test_Q12_a_copy_writes_what_statements_write(
    holdfast: Harness, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.clock.set(datetime(2030, 1, 1, 0, 0, 0, 654321, tzinfo=UTC))
    copied = await holdfast.app.enqueue_many(odd_entries())
    blocking = await asyncio.to_thread(holdfast.app.sync.enqueue_many, odd_entries())
    assert copies == ["COPY", "COPY"]
    monkeypatch.setattr(plans, "COPIED", 10**9)
    written = await holdfast.app.enqueue_many(odd_entries())
    assert copies == ["COPY", "COPY"]
    stored = rows(holdfast.url)
    for ours, others, theirs in zip(copied, blocking, written, strict=True):
        expected = stored[theirs.id] | {"id": None}
        assert stored[ours.id] | {"id": None} == expected
        assert stored[others.id] | {"id": None} == expected


@pytest.mark.parametrize("blocking", [False, True])
async def test_Q12_a_copy_of_bare_tasks_writes_what_statements_write(
    holdfast: Harness, copies: list[str], monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """Nothing is said of their times: the table's defaults must come to the same."""
    holdfast.clock.set(datetime(2030, 1, 1, 0, 0, 0, 654321, tzinfo=UTC))
    calls: list[Any] = [store.bind(value=text) for text in ODD] + [mail.bind(value=n) for n in range(MANY)]
    copied: Any = (
        await asyncio.to_thread(holdfast.app.sync.enqueue_many, calls)
        if blocking
        else await holdfast.app.enqueue_many(calls)
    )
    assert copies == ["COPY"]
    monkeypatch.setattr(plans, "COPIED", 10**9)
    written = await holdfast.app.enqueue_many(calls)
    assert copies == ["COPY"]
    stored = rows(holdfast.url)
    for ours, theirs in zip(copied, written, strict=True):
        assert stored[ours.id] | {"id": None} == stored[theirs.id] | {"id": None}


@pytest.mark.parametrize("blocking", [False, True])
async def test_Q12_each_of_many_gets_a_reference_of_its_own(
    holdfast: Harness, copies: list[str], blocking: bool
) -> None:
    calls = [*(store.bind(value=n) for n in range(MANY)), mail.bind(value={"last": True})]
    refs: Any = (
        await asyncio.to_thread(holdfast.app.sync.enqueue_many, calls)
        if blocking
        else await holdfast.app.enqueue_many(calls)
    )
    assert copies == ["COPY"]
    ids = [ref.id for ref in refs]
    assert ids == sorted(set(ids)) and len(ids) == len(calls)
    assert {(ref.kind, ref.enqueued) for ref in refs} == {("store", "created"), ("mail", "created")}
    await holdfast.drain(queues=["default", "mail"])
    results = [await asyncio.to_thread(refs[n].result) if blocking else await refs[n].result() for n in (0, 7, -1)]
    assert results == [0, 7, {"last": True}]


@pytest.mark.parametrize("blocking", [False, True])
async def test_Q12_all_or_none(holdfast: Harness, copies: list[str], blocking: bool) -> None:
    holdfast.sql("ALTER TABLE holdfast.task ADD CHECK (args ->> 'value' <> '250')")
    calls = [store.bind(value=n) for n in range(MANY)]
    with pytest.raises(HoldfastError, match="the database refused this"):
        await asyncio.to_thread(holdfast.app.sync.enqueue_many, calls) if blocking else await holdfast.app.enqueue_many(
            calls
        )
    assert copies == ["COPY"]
    assert count(holdfast) == 0
    await holdfast.app.enqueue_many(calls[:250])
    assert count(holdfast) == 250


async def test_Q12_an_id_that_exists_is_a_clear_error(
    holdfast: Harness, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = await store.enqueue(value=0)
    monkeypatch.setattr(request, "uuid7s", lambda count: [taken.id] * count)
    with pytest.raises(EnqueueRefused, match=f"already a task with one of these ids.*{taken.id}"):
        await holdfast.app.enqueue_many([store.bind(value=1)] * MANY)
    assert copies == ["COPY"]
    assert count(holdfast) == 1


async def test_Q12_keys_are_looked_after_row_by_row(holdfast: Harness, copies: list[str]) -> None:
    held = await holdfast.app.enqueue(store.bind(value=-1), key="3")
    entries: list[Any] = [Entry(store.bind(value=n), key=str(n // 2)) for n in range(20)]
    entries += [store.bind(value=n) for n in range(20, MANY + 20)]
    refs = await holdfast.app.enqueue_many(entries)
    assert copies == ["COPY"]
    assert [ref.created for ref in refs[:20]] == [n % 2 == 0 and n != 6 for n in range(20)]
    assert refs[6].id == refs[7].id == held.id
    assert refs[0].id == refs[1].id
    assert all(ref.created for ref in refs[20:])
    assert count(holdfast) == 10 + MANY
    with pytest.raises(KeyTaken):
        await holdfast.app.enqueue_many([Entry(entries[0].what, key="3", on_conflict="raise"), *entries[20:]])
    assert count(holdfast) == 10 + MANY


@pytest.mark.parametrize("commit", [True, False])
async def test_Q12_in_the_callers_transaction(holdfast: Harness, copies: list[str], commit: bool) -> None:
    calls = [store.bind(value=n) for n in range(MANY)]
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        await holdfast.app.enqueue_many(calls, conn=conn)
        assert count(holdfast) == 0
        await (conn.commit() if commit else conn.rollback())
    with psycopg.connect(holdfast.url) as blocking:
        holdfast.app.sync.enqueue_many(calls, conn=blocking)
        blocking.commit() if commit else blocking.rollback()
    assert copies == ["COPY", "COPY"]
    assert count(holdfast) == (2 * MANY if commit else 0)


async def test_Q12_in_a_pipeline_of_the_caller_nothing_is_copied(holdfast: Harness, copies: list[str]) -> None:
    calls = [store.bind(value=n) for n in range(MANY)]
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn, conn.pipeline():
        await holdfast.app.enqueue_many(calls, conn=conn)
    assert copies == []
    assert count(holdfast) == MANY


async def test_M2_the_delay_of_a_copy_counts_from_the_call_not_from_the_transaction(
    holdfast: Harness, copies: list[str]
) -> None:
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        await conn.execute("SELECT pg_sleep(0.3)")
        await holdfast.app.enqueue_many([store.bind(value=1)] * MANY, conn=conn, delay=0.2)
        cursor = await conn.execute("SELECT min(run_at) - now(), min(run_at - created_at) FROM holdfast.task")
        assert copies == ["COPY"]
        [(due, delay)] = await cursor.fetchall()
    assert due >= timedelta(seconds=0.5)  # the transaction is 0.3 s older
    assert delay == timedelta(seconds=0.2)


async def test_Q12_a_delay_that_no_time_can_hold_is_refused(holdfast: Harness, copies: list[str]) -> None:
    with pytest.raises(HoldfastError):
        await holdfast.app.enqueue_many([store.bind(value=1)] * MANY, delay=timedelta(days=999_999_999))
    assert count(holdfast) == 0


async def test_Q12_a_bulk_that_goes_on_may_take_longer_than_a_call(
    holdfast: Harness, copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second for each of them, whose size is beyond what lies between us and the server."""
    monkeypatch.setattr(pool, "CALL_TIMEOUT", 5.0)
    monkeypatch.setattr(copying, "AT_ONCE", 1)
    monkeypatch.setattr(plans, "COPIED", 1)
    holdfast.sql(
        "CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$;"
        "CREATE TRIGGER slowly BEFORE INSERT ON holdfast.task FOR EACH ROW EXECUTE FUNCTION slowly()"
    )
    await holdfast.app.enqueue_many([store.bind(value="x" * 900_000)] * 14)
    assert copies == ["COPY"]
    assert count(holdfast) == 14


@pytest.mark.direct("it needs notifications")
async def test_Q12_workers_are_told_of_each_queue(holdfast: Harness, copies: list[str]) -> None:
    holdfast.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '1', '{default,mail}', '{}', 1, true)"
    )
    async with await psycopg.AsyncConnection.connect(holdfast.url, autocommit=True) as listening:
        await listening.execute("LISTEN holdfast")
        await holdfast.app.enqueue_many([store.bind(value=1), mail.bind(value=1)] * MANY)
        told: set[str] = set()
        async for note in listening.notifies(timeout=60):
            told.add(note.payload)
            if len(told) == 2:
                break
    assert copies == ["COPY"]
    assert told == {"queue default", "queue mail"}


async def test_Q12_the_clock_is_read_to_the_microsecond(holdfast: Harness) -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 999999, tzinfo=UTC)
    holdfast.clock.set(moment)
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        assert await run(conn, holdfast.app._queries.clock()) == moment


async def test_Q12_a_caller_that_goes_away_leaves_nothing(holdfast: Harness, copies: list[str]) -> None:
    with psycopg.connect(holdfast.url) as other:
        other.execute("LOCK TABLE holdfast.task IN EXCLUSIVE MODE")
        calling = asyncio.create_task(holdfast.app.enqueue_many([store.bind(value=1)] * MANY))
        while not copies:
            await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        other.rollback()
    await store.enqueue(value=1)
    assert count(holdfast) == 1
