"""A day that nobody has made partitions for: whoever records an outcome makes them, and nobody is charged (M13)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast import Context, Done, Tasks
from holdfast._db.driver.connection import connect_sync
from holdfast._engine.settle import partitions
from holdfast._engine.worker import Worker
from holdfast.testing import Harness

from .support import attempts, running, sql, until

tasks = Tasks()
walk = tasks.kind("walk", result=str)
place: dict[str, str] = {}
gates: dict[str, asyncio.Event] = {}
waiting: list[int] = []


@pytest.fixture
def holdfast_tasks(holdfast_url: str) -> Tasks:
    gates.update(go=asyncio.Event())
    waiting.clear()
    place["url"] = holdfast_url
    return tasks


def drop_partitions(harness: Harness) -> None:
    """All of them, at once."""
    names = sql(
        harness.url,
        "SELECT string_agg(inhrelid::regclass::text, ', ') FROM pg_inherits"
        " WHERE inhparent IN ('holdfast.archive'::regclass, 'holdfast.attempt'::regclass)",
    )
    sql(harness.url, f"DROP TABLE {names[0][0]}")


def without_maintenance(worker: Worker) -> Worker:
    """A worker that does not happen to make the partitions just then."""
    worker.maintenance.first = 3600
    return worker


async def pause(ctx: Context) -> None:
    """Waits in the first attempt, until the partitions are gone."""
    waiting.append(ctx.attempt)
    await gates["go"].wait()


@tasks.task
async def child() -> None: ...


@tasks.task
async def plain(ctx: Context, key: str | None = None) -> str:
    await pause(ctx)
    if key is not None:
        ctx.enqueue(child.bind(), key=key)
    return "done"


@tasks.task(transactional=True)
async def transactional(ctx: Context) -> str:
    await pause(ctx)
    await ctx.tx.execute("CREATE TABLE written ()")
    return "done"


@walk.step
@dataclass
class Go:
    async def run(self, ctx: Context) -> Done[str]:
        await pause(ctx)
        async with await psycopg.AsyncConnection.connect(place["url"]) as mine:
            return await ctx.move(Done("done"), conn=mine)


@pytest.mark.parametrize(
    "what",
    [plain.bind(), plain.bind("a-key"), transactional.bind(), Go()],
    ids=["plain", "with a key", "transactional", "own move"],
)
async def test_M13_an_outcome_on_a_day_without_partition_is_recorded(
    holdfast: Harness, what: Any, caplog: pytest.LogCaptureFixture
) -> None:
    ref = await holdfast.app.enqueue(what)
    async with running(without_maintenance(holdfast.worker(queues=["default"], poll=0.1))):
        await until(lambda: waiting, "for the step to run")
        drop_partitions(holdfast)
        gates["go"].set()
        assert await ref.result(timeout=60) == "done"
    assert [outcome for _, _, outcome in attempts(holdfast.url, ref.id)] == ["done"]
    assert (await ref.info()).errors == 0
    assert "is refused by the database" not in caplog.text


async def test_M13_with_a_locked_row_in_the_same_flush(holdfast: Harness) -> None:
    refs = [await plain.enqueue() for _ in range(3)]
    async with running(without_maintenance(holdfast.worker(queues=["default"]))):
        await until(lambda: len(waiting) == 3, "for the steps to run")
        with connect_sync(holdfast.url) as other:
            drop_partitions(holdfast)
            other.execute(b"BEGIN")
            other.execute(b"SELECT FROM holdfast.task WHERE id = $1 FOR UPDATE", [refs[0].id])
            gates["go"].set()
            assert [await ref.result(timeout=60) for ref in refs[1:]] == ["done"] * 2
            other.execute(b"ROLLBACK")
        assert await refs[0].result(timeout=60) == "done"
    assert [attempts(holdfast.url, ref.id) for ref in refs] == [[(1, "main", "done")]] * 3


@pytest.mark.parametrize("what", [plain.bind(), transactional.bind()], ids=["plain", "transactional"])
async def test_M13_partitions_that_cannot_be_made_yet_are_waited_for(
    holdfast: Harness, what: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "TABLE_TIMEOUT", "10ms")
    ref = await holdfast.app.enqueue(what)
    worker = without_maintenance(holdfast.worker(queues=["default"], poll=0.1))
    missing, tries = worker.settler.recorder._settlement.partitions, list[None]()
    make = missing.make

    async def counting() -> None:
        tries.append(None)
        await make()

    monkeypatch.setattr(missing, "make", counting)
    async with running(worker):
        await until(lambda: waiting, "for the step to run")
        drop_partitions(holdfast)
        with connect_sync(holdfast.url) as other:
            other.execute(b"BEGIN")
            other.execute(b"SELECT pg_advisory_xact_lock(hashtextextended('holdfast partitions', 0))")
            gates["go"].set()
            await until(lambda: len(tries) >= 3, "for the worker to try again")
            other.execute(b"ROLLBACK")
        assert await ref.result(timeout=60) == "done"
    assert (await ref.info()).errors == 0
