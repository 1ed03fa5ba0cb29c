"""Transactional steps in trouble: what they meet is bounded, told, and leaves nothing behind (T17, M16)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Context, Retry, TaskParked, Tasks
from holdfast._db import transactions
from holdfast._engine.run import transactional
from holdfast._engine.run.transactional import RUNS
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()
moving = tasks.kind("moving", transactional=True)
ran: list[int] = []
place: dict[str, str] = {}


@pytest.fixture
def holdfast_tasks(holdfast_url: str) -> Tasks:
    ran.clear()
    place["url"] = holdfast_url
    sql(holdfast_url, "CREATE TABLE IF NOT EXISTS book (n int)")
    return tasks


def written(harness: Harness) -> list[int]:
    return [n for (n,) in sql(harness.url, "SELECT n FROM book ORDER BY n")]


@tasks.task(transactional=True, retry=Retry(1, delay="10ms"))
async def outlasts_a_beat(ctx: Context, times: int, level: str) -> None:
    """Reads under stricter isolation, and goes on until its lease was renewed."""
    ran.append(ctx.attempt)
    await ctx.tx.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    await ctx.tx.execute("INSERT INTO book VALUES (1)")
    if len(ran) <= times:
        before = row(place["url"], ctx.id)["lease_expires_at"]
        await until(lambda: row(place["url"], ctx.id)["lease_expires_at"] != before, "for a beat")


@tasks.task(transactional=True)
async def writes(ctx: Context, n: int) -> int:
    ran.append(ctx.attempt)
    await ctx.tx.execute("INSERT INTO book VALUES (%s)", [n])
    return n


@tasks.task(transactional=True)
def writes_in_a_thread(ctx: Context, n: int) -> int:
    ran.append(ctx.attempt)
    ctx.tx_sync.execute("INSERT INTO book VALUES (%s)", [n])
    return n


@moving.step
@dataclass
class Begin:
    async def run(self, ctx: Context) -> "End":
        ran.append(ctx.attempt)
        await ctx.tx.execute("INSERT INTO book VALUES (1)")
        return End()


@moving.step
@dataclass
class End:
    async def run(self) -> None: ...


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_M16_a_stricter_transaction_longer_than_a_beat_ends_as_an_error_that_says_why(
    holdfast: Harness, level: str
) -> None:
    ref = await outlasts_a_beat.enqueue(1000, level)
    async with running(holdfast.worker(lease=30, beat=0.1)):
        with pytest.raises(TaskParked, match=r"(?s)could not serialize.*isolation level.*longer than a beat"):
            await ref.result(timeout=60)
    assert ran == [1] * RUNS + [2] * RUNS
    assert [outcome for _, _, outcome in attempts(holdfast.url, ref.id)] == ["retried", "failed"]
    assert written(holdfast) == []


async def test_M16_one_that_met_a_beat_by_chance_runs_again_uncharged(holdfast: Harness) -> None:
    ref = await outlasts_a_beat.enqueue(RUNS - 1, "REPEATABLE READ")
    async with running(holdfast.worker(lease=30, beat=0.1)):
        # The last run is short, but a beat may come just then: that is another error, and another attempt.
        await ref.result(timeout=60)
    assert written(holdfast) == [1]
    assert ran[:RUNS] == [1] * RUNS


@pytest.mark.parametrize("step", [writes, writes_in_a_thread], ids=["async", "sync"])
async def test_T17_an_attempt_interrupted_while_its_transaction_begins(
    holdfast: Harness, step: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = holdfast.worker(concurrency=1)
    beginning, go = asyncio.Event(), asyncio.Event()

    def slowly(transaction: Any) -> Any:
        begin = transaction.begin

        async def after_a_while() -> None:
            beginning.set()
            await go.wait()
            await begin()

        transaction.begin = after_a_while
        return transaction

    async with running(worker):
        transactions = worker.dispatcher.transactional._transactions
        for name in ("for_loop", "for_thread"):
            make = getattr(transactions, name)

            async def made(make: Any = make) -> Any:
                return slowly(await make())

            monkeypatch.setattr(transactions, name, made)
        ref = await step.enqueue(1)
        await asyncio.wait_for(beginning.wait(), 60)
        await ref.cancel("enough")
        await until(lambda: all(a.interruption for a in worker.roster.held.values()), "for the interruption")
        go.set()
        await until(lambda: sql(holdfast.url, "SELECT 1 FROM holdfast.archive WHERE id = $1", ref.id))
        assert ran == []
        # Its connection is free for the next, and it is the only one.
        second = await step.enqueue(2)
        assert await second.result(timeout=60) == 2
        assert attempts(holdfast.url, second.id) == [(1, "main", "done")]
    assert (await ref.info()).state == "cancelled"
    assert written(holdfast) == [2]


@pytest.mark.parametrize(
    "when",
    [
        "while it is set up",
        pytest.param("while it is cleaned", marks=pytest.mark.direct("behind a pooler nothing is to be cleaned")),
    ],
)
async def test_T17_a_loop_can_end_while_a_connection_is_made_ready(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    begun = asyncio.Event()

    async def endless(*_: Any, **__: Any) -> bool:
        begun.set()
        await asyncio.Event().wait()
        return False

    before = asyncio.all_tasks()
    made = transactions.Transactions(holdfast.url, 1)
    transaction = await made.for_loop()
    if when == "while it is set up":
        monkeypatch.setattr(transactions, "detect_pooler", endless)
        caller = asyncio.create_task(transaction.begin())
    else:
        await transaction.begin()
        assert transaction.tx is not None
        monkeypatch.setattr(transaction.tx, "execute", endless)
        caller = asyncio.create_task(transaction.roll_back())
    await begun.wait()
    # As `asyncio.run` does at its end: everything is cancelled once, and waited for.
    left = asyncio.all_tasks() - before
    for each in left:
        each.cancel()
    _, pending = await asyncio.wait([*left, caller], timeout=10)
    for each in pending:
        each.cancel()
    assert not pending


async def _end_session(ctx: Context) -> None:
    """As an administrator would, or a server that restarts."""
    pid = ctx.tx.info.backend_pid
    sql(place["url"], "SELECT pg_terminate_backend($1)", pid)
    await until(lambda: not sql(place["url"], "SELECT 1 FROM pg_stat_activity WHERE pid = $1", pid), "for its end")


@tasks.task(transactional=True)
async def loses_its_session(ctx: Context, times: int, *, and_returns: bool) -> int:
    ran.append(ctx.attempt)
    await ctx.tx.execute("INSERT INTO book VALUES (1)")
    if len(ran) <= times:
        await _end_session(ctx)
    if not and_returns:
        await ctx.tx.execute("INSERT INTO book VALUES (2)")
    return len(ran)


@pytest.mark.direct("a pooler ends other sessions than it shows")
@pytest.mark.parametrize("and_returns", [True, False], ids=["noticed at its end", "noticed by the step"])
async def test_L12_T17_a_step_whose_session_ended_runs_again_uncharged(holdfast: Harness, and_returns: bool) -> None:
    ref = await loses_its_session.enqueue(1, and_returns=and_returns)
    async with running(holdfast.worker(lease=30)):
        assert await ref.result(timeout=60) == 2
    assert (await ref.info()).errors == 0
    assert written(holdfast) == ([1] if and_returns else [1, 2])


@pytest.mark.direct("a pooler ends other sessions than it shows")
@pytest.mark.parametrize("and_returns", [True, False], ids=["noticed at its end", "noticed by the step"])
async def test_T17_a_step_that_loses_every_session_ends_as_an_error(holdfast: Harness, and_returns: bool) -> None:
    """So does one that waits for longer than idle_in_transaction_session_timeout: it would never come to its end."""
    ref = await loses_its_session.enqueue(1000, and_returns=and_returns)
    async with running(holdfast.worker(lease=30)):
        with pytest.raises(TaskParked, match=rf"(?s)terminating connection.*Each of {RUNS} runs lost its connection"):
            await ref.result(timeout=60)
    assert ran == [1] * RUNS
    assert written(holdfast) == []


@tasks.task(transactional=True)
async def meets_a_full_disk(ctx: Context, what: str) -> None:
    ran.append(ctx.attempt)
    await ctx.tx.execute("INSERT INTO book VALUES (1)")
    if len(ran) < 3:
        await ctx.tx.execute(f"DO $$ BEGIN RAISE EXCEPTION '{what}' USING ERRCODE = '53100'; END $$".encode())


async def test_L12_F11_a_full_disk_is_no_error_of_the_step(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional, "REST_SECONDS", 0.01)
    ref = await meets_a_full_disk.enqueue("could not extend file")
    async with running(holdfast.worker()):
        await ref.result(timeout=60)
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released"), (2, "main", "released"), (3, "main", "done")]
    assert written(holdfast) == [1]


async def test_F11_a_disk_filled_by_the_step_itself_is_its_error(holdfast: Harness) -> None:
    """What it sorts or joins is too large: given back, it would fill the disk again and again."""
    ref = await meets_a_full_disk.enqueue('could not write to file "base/pgsql_tmp/pgsql_tmp1.0"')
    async with running(holdfast.worker()):
        with pytest.raises(TaskParked, match="pgsql_tmp"):
            await ref.result(timeout=60)
    assert ran == [1]
