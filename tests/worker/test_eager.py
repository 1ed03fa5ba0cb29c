"""Steps that never wait are run without a Task of their own: nobody may notice, but for the speed."""

import asyncio
import gc
import time
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from holdfast import Context, Retry, current_context
from holdfast._engine.run import inline
from holdfast.testing import Harness

from .support import running, sql, until

tenant: ContextVar[str] = ContextVar("tenant")


async def test_W1_what_a_step_sets_in_its_context_is_not_seen_by_the_next(holdfast: Harness) -> None:
    seen: list[tuple[str | None, bool]] = []

    @holdfast.app.task
    async def step(ctx: Context, wait: bool) -> None:
        before = tenant.get(None)
        tenant.set(str(ctx.id))
        if wait:
            await asyncio.sleep(0)
        seen.append((before, tenant.get() == str(ctx.id) and current_context.get() is ctx))

    await holdfast.app.enqueue_many(step.bind(wait=n % 3 == 0) for n in range(30))
    await holdfast.drain()
    assert seen == [(None, True)] * 30


async def test_W1_a_step_that_waits_has_a_task_of_its_own(holdfast: Harness) -> None:
    tasks: dict[int, asyncio.Task[object] | None] = {}
    go = asyncio.Event()

    @holdfast.app.task
    async def step(n: int) -> None:
        tasks[n] = asyncio.current_task()
        if n % 2:
            await go.wait()
            assert asyncio.current_task() is tasks[n]

    await holdfast.app.enqueue_many(step.bind(n) for n in range(10))
    async with running(holdfast.worker(concurrency=10)):
        await until(lambda: len(tasks) == 10)
        waiting = [tasks[n] for n in range(10) if n % 2]
        assert None not in waiting
        assert len(set(waiting)) == 5
        go.set()
    await holdfast.drain()


async def test_W8_a_timeout_inside_a_step_ends_that_step_alone(holdfast: Harness) -> None:
    ended: list[str] = []

    @holdfast.app.task
    async def slow() -> None:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(60)
        except TimeoutError:
            ended.append("slow")

    @holdfast.app.task
    async def quick() -> None:
        async with asyncio.timeout(60):
            ended.append("quick")

    for task in (slow, quick, slow, quick):
        await task.enqueue()
    await holdfast.drain()
    assert sorted(ended) == ["quick", "quick", "slow", "slow"]


async def test_a_step_that_cancels_itself_harms_no_other(holdfast: Harness) -> None:
    ran: list[int] = []

    @holdfast.app.task
    async def step(n: int) -> None:
        ran.append(n)
        if n == 3:
            this = asyncio.current_task()
            assert this is not None
            this.cancel()
        elif n > 3:
            await asyncio.sleep(0)

    await holdfast.app.enqueue_many(step.bind(n) for n in range(20))
    drained = await holdfast.drain()
    assert sorted(ran) == list(range(20)), "each of them once"
    assert {each.outcome for each in drained.attempts} == {"done"}


async def test_steps_that_wait_do_not_suffer_for_what_others_do_to_their_task(holdfast: Harness) -> None:
    """Who has waited once gets a Task of its own from then on, and not one in which others have been."""

    @holdfast.app.task
    async def waits() -> None:
        await asyncio.sleep(0)

    @holdfast.app.task
    async def meddles() -> None:
        this = asyncio.current_task()
        assert this is not None
        asyncio.get_running_loop().call_soon(this.cancel)

    worker = holdfast.worker(concurrency=20)
    first = await waits.enqueue()
    async with running(worker):
        await first.result(timeout=60)
        await holdfast.app.enqueue_many([meddles.bind(), meddles.bind(), waits.bind()] * 200)
        await until(lambda: not sql(holdfast.url, "SELECT 1 FROM holdfast.task LIMIT 1"), "for all")
    ended = sql(holdfast.url, "SELECT attempt, count(*) FROM holdfast.archive WHERE kind = 'waits' GROUP BY attempt")
    assert ended == [(1, 201)]


async def test_others_have_their_turn_while_steps_run_that_never_wait(holdfast: Harness) -> None:
    turns = 0
    seen: list[int] = []

    @holdfast.app.task
    async def busy() -> None:
        time.sleep(0.002)
        seen.append(turns)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await holdfast.app.enqueue_many(busy.bind() for _ in range(30))
    beside = asyncio.create_task(others())
    try:
        await holdfast.drain()
    finally:
        beside.cancel()
    assert len(set(seen)) == 30


async def test_what_a_coroutine_waits_for_and_is_thrown_reaches_it() -> None:
    said: list[object] = []

    async def ends() -> None:
        said.append("ended")

    async def waits(future: "asyncio.Future[str]") -> None:
        said.append(await future)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            said.append("cancelled")
            await asyncio.sleep(0)
            raise

    async def raises() -> None:
        raise LookupError("at once")

    def each() -> Generator[Any, Any, None]:
        while True:
            yield from (yield inline.ENDED)().__await__()

    runner = inline.InlineRunner[Callable[[], Awaitable[None]]](each())
    assert runner.begin(ends) is None
    assert runner.begin(ends) is None, "one after another"
    with pytest.raises(LookupError):
        runner.begin(raises)
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def begun() -> None:
        rest = inline.InlineRunner[Callable[[], Awaitable[None]]](each()).begin(partial(waits, future))
        assert rest is not None
        await rest

    task = asyncio.create_task(begun())
    await asyncio.sleep(0)
    future.set_result("answer")
    await until(lambda: said[-1:] == ["answer"])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["ended", "ended", "answer", "cancelled"]


async def test_one_that_is_given_up_with_its_task_takes_it_for_its_end() -> None:
    said: list[object] = []

    def each() -> Generator[Any, Any, None]:
        while True:
            one = yield inline.ENDED
            try:
                yield from asyncio.sleep(60).__await__()
            except BaseException as error:
                said.append((one, type(error)))

    async def begun() -> None:
        rest = inline.InlineRunner[str](each()).begin("first")
        assert rest is not None
        await rest

    coroutine = begun()
    coroutine.send(None)
    coroutine.close()
    assert said == [("first", GeneratorExit)]


async def test_an_attempt_is_not_kept_until_the_next_one_comes(holdfast: Harness) -> None:
    class Large: ...

    held: list[weakref.ref[Large]] = []

    @holdfast.app.task(retry=Retry(0))
    async def fails() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise ValueError("with all that it holds")

    worker = holdfast.worker(concurrency=1)
    async with running(worker):
        ref = await fails.enqueue()
        await until(lambda: bool(held) and not worker.roster.held)
        gc.collect()
        assert held[0]() is None
    assert (await ref.info()).state == "parked"
