"""A3: results come by notification, with looks behind it; their errors are typed."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import (
    App,
    DatabaseUnreachable,
    Done,
    Fail,
    ResultTimeout,
    Retry,
    TaskCancelled,
    TaskDiscarded,
    TaskParked,
    embedded,
    insights,
)
from holdfast._db import results as watching
from holdfast._db.driver.connection import connect, connect_sync
from holdfast._engine.observe import notifications as news
from holdfast._model.enqueue.ids import made_at, uuid7
from holdfast.testing import Harness
from pgbouncer import Way

from .support import PATIENCE, running, sql, until

FOR_EVER = 3600.0


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch, way: Way) -> None:
    """Nobody looks by itself: what is found was told."""
    if way.pooled:
        pytest.skip("not through a pooler: it needs notifications")
    monkeypatch.setattr(watching, "PAUSES", (FOR_EVER,))
    monkeypatch.setattr(insights, "result_or_too_late", lambda ref, *_: pytest.fail(f"nobody was told of {ref}"))


async def is_listening(holdfast: Harness) -> None:
    """Waits until somebody who waits has told the workers so."""
    await until(lambda: any(wait.announced_at > 0 for wait in holdfast.app._watch._waits.values()), "for a watch")


@pytest.mark.usefixtures("no_polls")
async def test_A3_the_end_of_a_task_is_told_to_whoever_waits(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def double(n: int) -> int:
        await go.wait()
        return 2 * n

    async with running(worker := holdfast.worker()):
        ref = await double.enqueue(21)
        waiting = asyncio.create_task(ref.result(PATIENCE))
        await until(lambda: ref.id.int in worker.notifications.awaited, "for the worker to hear of it")
        go.set()
        assert await waiting == 42
    assert worker.notifications.awaited == {}


@pytest.mark.usefixtures("no_polls")
async def test_A3_parked_cancelled_and_discarded_are_told_too(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def doomed() -> None:
        await go.wait()
        raise Fail("no way")

    @holdfast.app.task
    async def endless() -> None:
        await asyncio.sleep(FOR_EVER)

    async with running(worker := holdfast.worker()):
        refs = [await doomed.enqueue(), await endless.enqueue()]
        parked, cancelled = [asyncio.create_task(ref.result(PATIENCE)) for ref in refs]
        await until(
            lambda: {ref.id.int for ref in refs} <= worker.notifications.awaited.keys(),
            "for the worker to hear of them",
        )
        await until(lambda: len(worker.roster.held) == 2, "for both to run")
        go.set()
        with pytest.raises(TaskParked, match="no way"):
            await parked
        assert await refs[1].cancel("enough")
        with pytest.raises(TaskCancelled, match="enough"):
            await cancelled
    with pytest.raises(TaskParked):
        await refs[0].result(PATIENCE)
    await holdfast.app.discard(refs[0].id)
    with pytest.raises(TaskDiscarded):
        await refs[0].result(PATIENCE)


@pytest.mark.usefixtures("no_polls")
async def test_A3_a_cancellation_in_SQL_is_told(holdfast: Harness) -> None:
    @holdfast.app.task
    async def later() -> None: ...

    ref = await holdfast.app.enqueue(later.bind(), delay="1h")
    waiting = asyncio.create_task(ref.result(PATIENCE))
    await is_listening(holdfast)
    sql(holdfast.url, "SELECT holdfast.cancel($1)", ref.id)
    with pytest.raises(TaskCancelled):
        await waiting


@pytest.mark.usefixtures("no_polls")
async def test_A3_what_the_reaper_parks_or_ends_is_told(holdfast: Harness) -> None:
    @holdfast.app.task(on_lost="fail")
    async def once() -> None: ...

    @holdfast.app.task
    async def again() -> None: ...

    refs = [await once.enqueue(), await again.enqueue()]
    with holdfast.crash_after():
        await holdfast.drain()
    await holdfast.app.cancel(refs[1].id)
    parked, cancelled = [asyncio.create_task(ref.result(PATIENCE)) for ref in refs]
    await is_listening(holdfast)
    holdfast.clock.advance("31s")
    worker = holdfast.worker()
    worker.notifications.hear([ref.id for ref in refs])
    await worker.reaper.reap()
    with pytest.raises(TaskParked):
        await parked
    with pytest.raises(TaskCancelled):
        await cancelled
    await worker.notifications.all_sent()
    await worker.reaper._link.close()


async def test_A3_without_notifications_looking_finds_it(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def deaf(*_: Any) -> None:
        raise ConnectionError("a pooler in between")

    monkeypatch.setattr("holdfast._db.driver.notifications.connect", deaf)

    @holdfast.app.task
    async def double(n: int) -> int:
        return 2 * n

    ref = await double.enqueue(21)
    waiting = asyncio.create_task(ref.result(PATIENCE))
    sync = holdfast.app.sync.ref(ref.id)
    blocking = asyncio.create_task(asyncio.to_thread(sync.result, PATIENCE))
    await until(lambda: holdfast.app._watch._waits, "for the wait")
    await holdfast.drain()
    assert await waiting == await blocking == 42
    holdfast.app.sync.close()


@pytest.mark.usefixtures("no_polls")
async def test_A3_blocking_callers_are_told_too(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def double(n: int) -> int:
        await go.wait()
        return 2 * n

    async with running(worker := holdfast.worker()):
        ref = await asyncio.to_thread(lambda: holdfast.app.sync.enqueue(double.bind(21)))
        waiting = [asyncio.create_task(asyncio.to_thread(ref.result, PATIENCE)) for _ in range(3)]
        await until(lambda: ref.id.int in worker.notifications.awaited, "for the worker to hear of it")
        go.set()
        assert await asyncio.gather(*waiting) == [42, 42, 42]
    watch = [thread for thread in threading.enumerate() if thread.name == "holdfast-watch"]
    assert len(watch) == 1
    holdfast.app.sync.close()
    assert not watch[0].is_alive()


@pytest.mark.usefixtures("no_polls")
async def test_A3_a_thousand_wait_over_one_connection(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def double(n: int) -> int:
        await go.wait()
        return 2 * n

    refs = await holdfast.app.enqueue_many(double.bind(n) for n in range(1000))
    waiting = [asyncio.create_task(ref.result(PATIENCE)) for ref in refs]
    worker = holdfast.worker(concurrency=1000)
    async with running(worker):
        await until(lambda: len(holdfast.app._watch._waits) == 1000, "for all to wait")
        await is_listening(holdfast)
        await until(worker.listener.listening.is_set, "for the worker to listen")
        # A worker that started later does not know of them: they are told again when their time has come.
        for wait in holdfast.app._watch._waits.values():
            wait.announced_at = float("-inf")
            holdfast.app._watch._check_soon(wait.id)
        await until(lambda: len(worker.notifications.awaited) == 1000, "for the worker to hear of all")
        listening = sql(
            holdfast.url,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'holdfast listen'",
        )
        assert listening == [(2,)], "one of the worker, one of those who wait"
        go.set()
        assert await asyncio.gather(*waiting) == [2 * n for n in range(1000)]


@pytest.mark.direct("it needs notifications")
async def test_A3_nobody_listens_for_what_has_ended_and_the_last_who_waits_closes(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LINGER", 0.0)
    opened: list[Any] = []

    async def counted(*args: Any) -> Any:
        opened.append(connection := await connect(*args))
        return connection

    monkeypatch.setattr("holdfast._db.driver.notifications.connect", counted)

    @holdfast.app.task
    async def double(n: int) -> int:
        return 2 * n

    ref = await double.enqueue(21)
    await holdfast.drain()
    opened.clear()
    assert await ref.result(PATIENCE) == 42
    await until(lambda: holdfast.app._watch._watching is None, "for the watch to end")
    assert opened == []
    waiting = asyncio.create_task(holdfast.app.ref(uuid7()).result(PATIENCE))
    await until(lambda: opened, "for a connection that listens")
    waiting.cancel()
    await until(lambda: opened[0].closed, "for it to be closed")
    assert holdfast.app._watch._waits == {}


async def test_B2_a_task_that_is_not_committed_yet_is_waited_for(holdfast: Harness) -> None:
    @holdfast.app.task
    async def double(n: int) -> int:
        return 2 * n

    async with running(holdfast.worker()):
        connection = await connect(holdfast.url)
        async with connection.transaction():
            ref = await holdfast.app.enqueue(double.bind(21), conn=connection)
            waiting = asyncio.create_task(ref.result(PATIENCE))
            await until(lambda: holdfast.app._watch._answered_at is not None, "for a look")
            assert not waiting.done()
        assert await waiting == 42
        await connection.close()


@pytest.mark.parametrize("made", [uuid4, uuid7])
async def test_B2_any_id_is_found_whatever_time_it_says(holdfast: Harness, made: Any) -> None:
    """Also one that ended days before it was made, by clocks that were moved."""
    id: UUID = made()
    sql(holdfast.url, "SELECT holdfast.ensure_partition((holdfast.now() AT TIME ZONE 'UTC')::date - 3)")
    sql(
        holdfast.url,
        "INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors,"
        " crashes, created_at, finished_at, result) SELECT $1, 'default', 'k', 'main', '{}', 'done', 0, now(), 0, 1, 0,"
        " 0, now(), holdfast.now() - interval '3 days', '7'",
        id,
    )
    assert await asyncio.wait_for(holdfast.app.ref(id).result(), PATIENCE) == 7


def test_B2_the_time_inside_an_id() -> None:
    made = made_at(uuid7())
    assert made is not None and made.year >= 2024
    assert made_at(uuid4()) is None
    assert made_at(UUID("ffffffff-ffff-7fff-bfff-ffffffffffff")) is None


async def test_A3_too_late_says_how_it_stands(holdfast: Harness) -> None:
    @holdfast.app.task
    async def never() -> None: ...

    ref = await never.enqueue()
    with pytest.raises(ResultTimeout, match=r"within 0.01 s: never.main is unroutable"):
        await ref.result("10ms")
    with pytest.raises(ResultTimeout, match="there is no such task so far"):
        await holdfast.app.ref(uuid7()).result("10ms")
    blocking = holdfast.app.sync.ref(ref.id)
    with pytest.raises(ResultTimeout, match="unroutable"):
        await asyncio.to_thread(blocking.result, "10ms")
    holdfast.app.sync.close()


async def test_A3_a_result_that_is_there_is_given_even_without_time(holdfast: Harness) -> None:
    @holdfast.app.task
    async def double(n: int) -> int:
        return 2 * n

    ref = await double.enqueue(21)
    await holdfast.drain()
    assert await ref.result(0) == 42


async def test_A3_results_are_typed(holdfast: Harness) -> None:
    @dataclass
    class Sum:
        total: int

    @holdfast.app.task
    async def add(a: int, b: int) -> Sum:
        return Sum(a + b)

    summing = holdfast.app.kind("summing", result=Sum)

    @summing.step
    @dataclass
    class Add:
        a: int
        b: int

        async def run(self) -> Done[Sum]:
            return Done(Sum(self.a + self.b))

    by_function, by_kind = await add.enqueue(1, 2), await summing.enqueue(Add(3, 4))
    await holdfast.drain()
    assert await by_function.result(PATIENCE) == Sum(3)
    assert await by_kind.result(PATIENCE) == Sum(7)
    assert await holdfast.app.ref(by_function.id, add).result(PATIENCE) == Sum(3)
    assert await holdfast.app.ref(str(by_kind.id), summing).result(PATIENCE) == Sum(7)
    assert await holdfast.app.ref(by_kind.id).result(PATIENCE) == {"total": 7}
    assert holdfast.app.sync.ref(by_kind.id, summing)._ref._decode_result is not None


async def test_A3_a_restart_of_the_database_is_waited_out(own_url: str, own_server: Any) -> None:
    app = App(own_url)

    @app.task(retry=Retry(3))
    async def double(n: int) -> int:
        return 2 * n

    async with app:
        ref = await double.enqueue(21)
        waiting = asyncio.create_task(ref.result(PATIENCE))
        await until(lambda: app._watch._answered_at is not None, "for a look")
        await asyncio.to_thread(own_server.stop, "immediate")
        await asyncio.to_thread(embedded.start, own_server.folder, durable=False)
        async with app.worker():
            assert await waiting == 42


async def test_A3_a_database_that_was_never_there_is_told_at_once() -> None:
    async with App("postgresql://nobody@127.0.0.1:1/none") as app:
        with pytest.raises(DatabaseUnreachable):
            await app.ref(uuid7()).result(PATIENCE)


def test_A3_a_worker_remembers_a_bounded_number_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    told = news.Notifications(None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(news, "REMEMBERED", 3)
    ids = [uuid7() for _ in range(5)]
    told.hear(ids)
    assert list(told.awaited) == [id.int for id in ids[2:]]
    monkeypatch.setattr(news, "monotonic", lambda: FOR_EVER * 1e6)
    told.hear(ids[:1])
    assert list(told.awaited) == [ids[0].int]


async def test_M14_the_looks_of_those_who_wait_use_indexes_and_few_days(holdfast: Harness) -> None:
    plan = insights.ended(holdfast.app._queries, [uuid7()])
    next(plan)
    query = plan.send([])
    with connect_sync(holdfast.url) as connection:
        connection.execute("SET enable_seqscan = off")
        text = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {query.statement.text}"
        shown = "\n".join(row[0] for row in connection.execute(text.encode(), query.parameters).fetchall())
    days = shown.count(" on archive_p")
    assert 1 <= days <= 4, shown
    assert shown.count("Index Scan using archive_p") == days, shown
