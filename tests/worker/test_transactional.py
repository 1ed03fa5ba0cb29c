"""Transactional steps: their own writes and the record of their outcome commit together or not at all (T17, M16)."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from holdfast import Context, DeclarationError, Done, Fail, Later, Retry, Snooze, TaskParked, Tasks
from holdfast._db.transactions import StepTransaction
from holdfast.testing import Harness, context

from .support import attempts, row, running, sql, until

tasks = Tasks()
ledger = tasks.kind("ledger", result=int, transactional=True, retry=Retry(2, delay="50ms"))
gates: dict[str, asyncio.Event] = {}
wait_in_thread = threading.Event()
ran: list[int] = []
opened: list[Any] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    gates.update(begun=asyncio.Event(), go=asyncio.Event())
    wait_in_thread.clear()
    ran.clear()
    return tasks


@pytest.fixture
def book(holdfast: Harness) -> Harness:
    """A database with a table of the user's own."""
    sql(
        holdfast.url,
        "CREATE TABLE book (n int, CONSTRAINT few CHECK (n < 100), once int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    )
    return holdfast


def written(harness: Harness) -> list[int]:
    return [n for (n,) in sql(harness.url, "SELECT n FROM book ORDER BY n")]


@ledger.step
@dataclass
class Write:
    n: int
    how: str = ""

    async def run(self, ctx: Context) -> "Add | Later[Add]":
        ran.append(ctx.attempt)
        await ctx.tx.execute("INSERT INTO book VALUES (%s)", [self.n])
        match self.how:
            case "fails once" if not ctx.errors:
                raise ValueError("not yet")
            case "snoozes" if ctx.attempt == 1:
                raise Snooze("100ms")
            case "gives up":
                raise Fail("no")
            case "waits":
                gates["begun"].set()
                await gates["go"].wait()
            case "commits":
                await ctx.tx.commit()
            case "swallows":
                with pytest.raises(psycopg.Error):
                    await ctx.tx.execute("SELECT 1/0")
            case "leaves a savepoint open":
                opened.append(ctx.tx.transaction())
                await opened[-1].__aenter__()
            case "raises in a savepoint":
                await ctx.tx.transaction().__aenter__()
                raise ValueError("inside")
            case "twice":
                await ctx.tx.execute("INSERT INTO book VALUES (%s, 1), (%s, 1)", [self.n, self.n])
            case "later":
                return Later(Add(self.n), "1h")
        ctx.enqueue(plain.bind(self.n))
        return Add(self.n)


@ledger.step
@dataclass
class Add:
    n: int
    how: str = ""

    def run(self, ctx: Context) -> Done[int]:
        ctx.tx_sync.execute("INSERT INTO book VALUES (%s)", [self.n + 1])
        if self.how == "waits":
            wait_in_thread.wait(60)
            ctx.tx_sync.execute("INSERT INTO book VALUES (%s)", [self.n + 2])
        return Done(self.n + 1)


@tasks.task
async def plain(n: int) -> int:
    return n


@tasks.task(transactional=True)
async def leaves_traces(ctx: Context) -> str:
    """What the step before has left, and something for the next."""
    rows: Any = await (await ctx.tx.execute("SELECT current_setting('search_path')")).fetchone()
    await ctx.tx.execute("SET search_path = tenant")
    ctx.tx.row_factory = dict_row
    return str(rows[0])


@tasks.task(transactional=True)
def leaves_traces_in_a_thread(ctx: Context) -> str:
    rows: Any = ctx.tx_sync.execute("SELECT current_setting('search_path')").fetchone()
    ctx.tx_sync.execute("SET search_path = tenant")
    ctx.tx_sync.row_factory = dict_row
    return str(rows[0])


@tasks.task(transactional=True)
async def longer_than_a_beat(ctx: Context) -> None:
    ran.append(ctx.attempt)
    await ctx.tx.execute("INSERT INTO book VALUES (1)")
    await asyncio.sleep(1)


@tasks.task(transactional=True)
async def tomorrow(ctx: Context) -> None:
    ctx.enqueue(plain.bind(1), delay="1d")


@tasks.task
async def no_transaction(ctx: Context) -> None:
    await ctx.tx.execute("SELECT 1")


@tasks.task(transactional=True)
def sync_asks_for_async(ctx: Context) -> None:
    ctx.tx.execute("SELECT 1")  # type: ignore[unused-coroutine]


@tasks.task(transactional=True, timeout="200ms")
def slow(ctx: Context, n: int) -> None:
    wait_in_thread.wait(60)
    ctx.tx_sync.execute("INSERT INTO book VALUES (%s)", [n])


@tasks.task(transactional=True)
async def counts(ctx: Context) -> None:
    """Reads, then writes what it read: two of these at once meet each other under serializable isolation."""
    ran.append(ctx.attempt)
    await ctx.tx.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
    (n,) = await (await ctx.tx.execute("SELECT count(*) FROM book")).fetchone() or (0,)
    if len(ran) < 3:
        gates["begun"].set() if len(ran) == 2 else None
        await gates["begun"].wait()
    await ctx.tx.execute("INSERT INTO book VALUES (%s)", [n])


async def test_T17_writes_and_moves_commit_together(book: Harness) -> None:
    ref = await ledger.enqueue(Write(1))
    async with running(book.worker()):
        assert await ref.result(timeout=60) == 2
        await until(lambda: not book.enqueued(plain), "for the child")
    assert written(book) == [1, 2]
    assert attempts(book.url, ref.id) == [(1, "Write", "advanced"), (2, "Add", "done")]
    assert sql(book.url, "SELECT count(*) FROM holdfast.archive WHERE kind = 'plain'") == [(1,)]


@pytest.mark.parametrize(("how", "outcome"), [("fails once", "retried"), ("snoozes", "snoozed")])
async def test_T17_what_an_attempt_wrote_goes_with_it(book: Harness, how: str, outcome: str) -> None:
    ref = await ledger.enqueue(Write(1, how))
    async with running(book.worker()):
        assert await ref.result(timeout=60) == 2
    assert written(book) == [1, 2]
    assert [o for _, _, o in attempts(book.url, ref.id)] == [outcome, "advanced", "done"]


async def test_T17_a_parked_step_wrote_nothing(book: Harness) -> None:
    ref = await ledger.enqueue(Write(1, "gives up"))
    async with running(book.worker()):
        with pytest.raises(TaskParked):
            await ref.result(timeout=60)
    assert written(book) == []


async def test_T17_a_later_step_waits_with_the_writes_committed(book: Harness) -> None:
    ref = await ledger.enqueue(Write(1, "later"))
    async with running(book.worker()):
        await until(lambda: row(book.url, ref.id)["step"] == "Add", "for the move")
    assert written(book) == [1]


@pytest.mark.parametrize("step", [Write(1, "waits"), Add(1, "waits")], ids=["async", "sync"])
async def test_T17_a_lost_lease_rolls_both_back(book: Harness, step: Any) -> None:
    ref = await ledger.enqueue(step)
    worker = book.worker()
    async with running(worker):
        await until(
            lambda: row(book.url, ref.id)["attempt"] == 1 and any(a.transaction for a in worker.roster.held.values())
        )
        sql(book.url, "UPDATE holdfast.task SET attempt = attempt + 1 WHERE id = $1", ref.id)
        gates["go"].set()
        wait_in_thread.set()
        await until(lambda: not worker.roster.held, "for the worker to notice")
    assert written(book) == []
    assert row(book.url, ref.id)["step"] == type(step).__name__


async def test_T17_a_task_cancelled_meanwhile_writes_nothing(book: Harness) -> None:
    ref = await ledger.enqueue(Write(1, "waits"))
    async with running(book.worker(beat=0.5)):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        await ref.cancel("enough")
        await until(lambda: sql(book.url, "SELECT 1 FROM holdfast.archive WHERE id = $1", ref.id))
    assert (await ref.info()).state == "cancelled"
    assert written(book) == []


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("commits", "forbidden"),
        ("swallows", "current transaction is aborted"),
        ("twice", "duplicate key"),
        ("leaves a savepoint open", "transaction"),
        ("raises in a savepoint", "inside"),
    ],
)
async def test_T17_a_transaction_that_cannot_commit_is_the_steps_error(book: Harness, how: str, says: str) -> None:
    ref = await ledger.enqueue(Write(1, how))
    async with running(book.worker()):
        with pytest.raises(TaskParked, match=f"(?i){says}"):
            await ref.result(timeout=60)
    assert [o for _, _, o in attempts(book.url, ref.id)] == ["retried", "retried", "failed"]
    assert written(book) == []


async def test_T17_a_thread_that_goes_on_after_its_timeout_finds_the_door_closed(book: Harness) -> None:
    ref = await slow.enqueue(7)
    worker = book.worker()
    async with running(worker):
        with pytest.raises(TaskParked, match="did not end within its timeout"):
            await ref.result(timeout=60)
        wait_in_thread.set()
        await until(lambda: not worker.roster.lingering, "for the thread")
    assert written(book) == []


async def test_M16_transactions_that_meet_run_again_uncharged(book: Harness) -> None:
    refs = [await counts.enqueue() for _ in range(2)]
    async with running(book.worker()):
        for ref in refs:
            await ref.result(timeout=60)
    assert written(book) == [0, 1]
    assert len(ran) == 3, "one of them ran twice"
    assert [attempts(book.url, ref.id) for ref in refs] == [[(1, "main", "done")]] * 2


@pytest.mark.parametrize("executed", [True, False], ids=["committed", "not committed"])
async def test_M16_a_commit_whose_answer_was_lost_is_neither_lost_nor_doubled(
    book: Harness, executed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = book.worker()
    lost: list[StepTransaction] = []

    def without_answer(transaction: Any) -> Any:
        commit = transaction.commit

        async def faulty() -> None:
            if lost:
                await commit()
                return
            lost.append(transaction)
            if executed:
                await commit()
            else:
                await transaction.roll_back(drop=True)
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        transaction.commit = faulty
        return transaction

    async with running(worker):
        transactions = worker.dispatcher.transactional._transactions
        for_loop = transactions.for_loop

        async def faulty_for_loop() -> Any:
            return without_answer(await for_loop())

        monkeypatch.setattr(transactions, "for_loop", faulty_for_loop)
        ref = await ledger.enqueue(Write(1))
        assert await ref.result(timeout=60) == 2
        await until(lambda: not worker.roster.held, "for the worker to know")
        assert (worker.roster.continuing, worker.roster.busy) == (0, 0)
    assert len(lost) == 1
    assert written(book) == [1, 2]


async def test_T17_a_transaction_where_there_is_none_is_told(book: Harness) -> None:
    for kind, says in ((no_transaction, "transactional=True"), (sync_asks_for_async, "use ctx.tx_sync here")):
        ref = await kind.enqueue()
        await book.drain()
        error = (await ref.info()).error
        assert error is not None and says in error["message"]
    with pytest.raises(DeclarationError, match="transactional=True"):
        context().tx_sync  # noqa: B018


async def test_T17_a_day_has_24_hours_in_a_transaction_too(book: Harness) -> None:
    """In Berlin the night of 26 March 2028 has an hour less."""
    name = book.sql("SELECT current_database()")[0][0]
    book.sql(f"ALTER DATABASE {name} SET TimeZone = 'Europe/Berlin'")
    book.clock.set(datetime(2028, 3, 25, 12, tzinfo=UTC))
    ref = await tomorrow.enqueue()
    await book.drain()
    assert (await ref.info()).state == "done"
    text = "SELECT run_at FROM holdfast.task WHERE kind = 'plain'"
    assert book.sql(text) == [(datetime(2028, 3, 26, 12, tzinfo=UTC),)]


@pytest.mark.parametrize("step", [leaves_traces, leaves_traces_in_a_thread], ids=["async", "sync"])
async def test_T17_what_a_step_has_set_does_not_meet_the_next(book: Harness, step: Any) -> None:
    async with running(book.worker(concurrency=1)):
        seen = [await (await step.enqueue()).result(timeout=60) for _ in range(3)]
    assert len(set(seen)) == 1 and "tenant" not in seen[0]


async def test_M16_our_own_beats_are_not_in_the_way_of_a_long_step(book: Harness) -> None:
    name = book.sql("SELECT current_database()")[0][0]
    book.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    ref = await longer_than_a_beat.enqueue()
    async with running(book.worker(lease=1, beat=0.2)):
        await ref.result(timeout=60)
    assert ran == [1] and written(book) == [1]
