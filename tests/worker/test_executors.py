"""Where steps run, what they may raise, and what happens when they take too long."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from holdfast import Context, Retry, Tasks, current_context
from holdfast._engine.run.threads import Threads
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()
RAISED: list[type[BaseException]] = [
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    StopIteration,
]
end = threading.Event()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    end.clear()
    return tasks


@tasks.task
def in_thread() -> tuple[int, str]:
    return os.getpid(), threading.current_thread().name


@tasks.task
async def on_loop() -> tuple[int, str]:
    return os.getpid(), threading.current_thread().name


@tasks.task(executor="process")
def in_process(ctx: Context) -> tuple[int, str]:
    assert current_context.get() is ctx
    return os.getpid(), ctx.idempotency_key


@tasks.task
def raise_in_thread(n: int) -> None:
    raise RAISED[n]("from a thread")


@tasks.task
async def raise_on_loop(n: int) -> None:
    raise RAISED[n]("from the loop")


@tasks.task(executor="process")
def raise_in_process(n: int) -> None:
    raise RAISED[n]("from a process")


@tasks.task(executor="process")
def leave_process() -> None:
    os._exit(3)


@tasks.task(executor="process", timeout="3s")
def too_long_in_process(ctx: Context) -> None:
    time.sleep(0 if ctx.attempt > 1 else 600)


@tasks.task(timeout="200ms", retry=Retry(1, delay=0.1, jitter=0))
async def too_long_on_loop(ctx: Context) -> int:
    if ctx.attempt == 1:
        await asyncio.sleep(600)
    return ctx.attempt


@tasks.task(timeout="200ms", retry=Retry(1, delay=0.05, jitter=0))
def too_long_in_thread(ctx: Context) -> int:
    while not end.wait(0.01):
        pass
    return ctx.attempt


def _parked(url: str, id: UUID) -> bool:
    return bool(row(url, id)["state"] == "parked")


async def test_T16_sync_in_threads_async_on_the_loop_process_elsewhere(holdfast: Harness) -> None:
    async with running(holdfast.worker()):
        pid, thread = await (await in_thread.enqueue()).result(timeout=60)
        assert (pid, thread != "MainThread") == (os.getpid(), True)
        assert await (await on_loop.enqueue()).result(timeout=60) == (os.getpid(), "MainThread")
        ref = await in_process.enqueue()
        pid, key = await ref.result(timeout=60)
        assert pid != os.getpid()
        assert key == f"{ref.id}:0"
        again, _ = await (await in_process.enqueue()).result(timeout=60)
        assert again == pid  # used again


@pytest.mark.parametrize("where", [raise_in_thread, raise_on_loop, raise_in_process], ids=lambda w: str(w.name))
async def test_T16_whatever_a_step_raises_fails_the_attempt_and_not_the_worker(holdfast: Harness, where: Any) -> None:
    refs = [await where.enqueue(n) for n in range(len(RAISED))]
    async with running(holdfast.worker()) as workers:
        for ref, kind in zip(refs, RAISED, strict=True):
            await until(partial(_parked, holdfast.url, ref.id), f"for {kind.__name__}")
            info = await ref.info()
            assert info.error is not None
            assert kind.__name__ in info.error["type"] + info.error["message"] + str(info.error["causes"])
        assert not workers[0].done()
        await (await on_loop.enqueue()).result(timeout=60)


async def test_T16_a_process_that_exits_fails_the_attempt(holdfast: Harness) -> None:
    ref = await leave_process.enqueue()
    async with running(holdfast.worker()):
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked", "for the attempt")
        info = await ref.info()
        assert info.error is not None
        assert "exit code 3" in info.error["message"]
        assert (await (await in_process.enqueue()).result(timeout=60))[0] != os.getpid()


async def test_T16_args_whose_class_exits_fail_the_attempt(holdfast: Harness) -> None:
    exiting = holdfast.app.kind("exiting")

    @exiting.step
    @dataclass
    class Boom:
        calm: bool = False

        def __post_init__(self) -> None:
            if not self.calm:
                raise SystemExit("no")

        async def run(self) -> None: ...

    ref = await exiting.enqueue(Boom(calm=True))
    sql(holdfast.url, "UPDATE holdfast.task SET args = '{}' WHERE id = $1", ref.id)
    async with running(holdfast.worker()) as workers:
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked" or workers[0].done(), "for the attempt")
        assert not workers[0].done()
        await (await on_loop.enqueue()).result(timeout=60)


async def test_W8_a_timeout_cancels_async_code_and_counts_as_an_error(holdfast: Harness) -> None:
    ref = await too_long_on_loop.enqueue()
    async with running(holdfast.worker()):
        assert await ref.result(timeout=60) == 2
    assert attempts(holdfast.url, ref.id) == [(1, "main", "retried"), (2, "main", "done")]
    [(error,)] = sql(holdfast.url, "SELECT error ->> 'message' FROM holdfast.attempts WHERE attempt = 1")
    assert "did not end within its timeout of 0.2 s" in error


async def test_W8_a_timeout_kills_a_process(holdfast: Harness) -> None:
    ref = await too_long_in_process.enqueue()
    worker = holdfast.worker()
    async with running(worker):
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked", "for the timeout")
        assert worker.dispatcher.executor._processes._all == set()
        await holdfast.app.retry(ref.id)
        await ref.result(timeout=60)


async def test_W8_a_thread_that_cannot_be_stopped_keeps_its_slot_and_is_reported(holdfast: Harness) -> None:
    ref = await too_long_in_thread.enqueue()
    worker = holdfast.worker(concurrency=1, lease=1)
    async with running(worker):
        await until(lambda: worker.roster.stuck == 1, "for the timeout")
        other = await on_loop.enqueue()
        await until(lambda: sql(holdfast.url, "SELECT 1 FROM holdfast.worker WHERE stuck = 1"), "for the report")
        assert (await other.info()).state == "ready"
        assert worker.roster.busy == 1
        end.set()
        await other.result(timeout=60)
        assert await ref.result(timeout=60) > 1
        assert worker.roster.stuck == 0
        await until(lambda: worker.roster.busy == 0, "for the slots")


async def test_W8_a_middleware_that_lingers_does_not_free_a_slot_twice(holdfast: Harness) -> None:
    """The thread ends while the middleware around it still winds up: one slot, freed once."""

    @holdfast.app.middleware
    async def slow_end(ctx: Context, proceed: Callable[[], Any]) -> Any:
        try:
            return await proceed()
        finally:
            if ctx.kind == "too_long_in_thread":
                end.set()
                await asyncio.sleep(0.3)

    try:
        ref = await too_long_in_thread.enqueue()
        worker = holdfast.worker(concurrency=1)
        async with running(worker):
            await ref.result(timeout=60)
            await until(lambda: worker.roster.taken == 0, "for the slot")
            assert worker.roster.busy == 0
    finally:
        tasks._middleware.clear()


async def test_T16_F15b_work_waits_for_a_thread_if_the_system_gives_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory, or at a limit of the system, a step that has not begun is not charged for that."""
    threads, gate, begun = Threads(), threading.Event(), threading.Event()

    def hold(n: int) -> int:
        begun.set()
        assert gate.wait(60)
        return n

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            threads.run(partial(hold, 0))
    first = threads.run(partial(hold, 1))
    assert await asyncio.to_thread(begun.wait, 60)
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refused)
        others = [threads.run(partial(hold, n)) for n in (2, 3)]
    gate.set()
    assert await asyncio.wait_for(asyncio.gather(first, *others), 60) == [1, 2, 3]
    assert await asyncio.wait_for(asyncio.gather(*(threads.run(partial(hold, n)) for n in (4, 5))), 60) == [4, 5]
    threads.close()
