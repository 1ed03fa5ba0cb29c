"""T19: hooks on failures are told about parked tasks, by attempt and by reaper, and disturb nothing."""

import asyncio
import logging
import threading

import pytest

from holdfast import Fail, Failure
from holdfast.testing import Harness

from .support import row, running, until


async def test_T19_a_hook_is_told_about_a_parked_task(holdfast: Harness) -> None:
    told: list[Failure] = []

    @holdfast.app.on_failure
    async def hook(failure: Failure) -> None:
        told.append(failure)

    @holdfast.app.on_failure
    def broken(failure: Failure) -> None:
        raise RuntimeError("a hook that fails must not matter")

    @holdfast.app.task
    async def doomed(n: int) -> None:
        raise Fail("no way")

    ref = await doomed.enqueue(7)
    await holdfast.drain()
    assert [f.task.id for f in told] == [ref.id]
    assert told[0].task.state == "parked"
    assert told[0].task.args == {"n": 7}
    assert told[0].task.error is not None and told[0].task.error["message"] == "no way"


async def test_T19_a_hook_is_told_when_the_reaper_parks(holdfast: Harness) -> None:
    told: list[Failure] = []

    @holdfast.app.on_failure
    def hook(failure: Failure) -> None:
        told.append(failure)

    @holdfast.app.task(on_lost="fail")
    async def once() -> None: ...

    ref = await once.enqueue()
    with holdfast.crash_after():
        await holdfast.drain()
    await holdfast.drain()
    assert [(f.task.id, f.task.state) for f in told] == [(ref.id, "parked")]


async def test_T19_whatever_a_hook_raises_disturbs_nobody(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []
    errors = [RuntimeError("r"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
    left = list(errors)

    @holdfast.app.on_failure
    async def on_loop(failure: Failure) -> None:
        raise left[0]

    @holdfast.app.on_failure
    def in_thread(failure: Failure) -> None:
        raise left[0]

    @holdfast.app.on_failure
    async def last(failure: Failure) -> None:
        told.append(str(failure.task.id))

    @holdfast.app.task
    async def doomed() -> None:
        raise Fail("no way")

    @holdfast.app.task
    async def fine() -> int:
        return 1

    for number in range(len(errors)):
        ref, well = await doomed.enqueue(), await fine.enqueue()
        await holdfast.drain()
        assert told[number:] == [str(ref.id)]
        assert await well.result() == 1
        left.pop(0)
    said = [record for record in caplog.records if "a hook on failures failed itself" in record.message]
    assert len(said) == 2 * len(errors)
    assert all(record.levelno == logging.ERROR and record.exc_info for record in said)


async def test_T19_any_callable_is_a_hook_and_they_are_called_in_order(holdfast: Harness) -> None:
    told: list[str] = []

    async def notify(name: str) -> None:
        await asyncio.sleep(0)
        told.append(name)

    class Hook:
        async def __call__(self, failure: Failure) -> None:
            await notify("object")

    holdfast.app.on_failure(lambda failure: notify("lambda"))
    holdfast.app.on_failure(Hook())
    holdfast.app.on_failure(lambda failure: told.append(threading.current_thread().name))

    @holdfast.app.task
    async def doomed() -> None:
        raise Fail("no way")

    await doomed.enqueue()
    await holdfast.drain()
    assert told[:2] == ["lambda", "object"]
    assert told[2].startswith("holdfast-step")  # a def hook blocks no loop


async def test_T19_a_slow_hook_delays_nothing_and_a_stop_waits_for_it(holdfast: Harness) -> None:
    gate, ended = asyncio.Event(), asyncio.Event()

    @holdfast.app.on_failure
    async def slow(failure: Failure) -> None:
        await gate.wait()
        ended.set()

    @holdfast.app.task
    async def doomed() -> None:
        raise Fail("no way")

    @holdfast.app.task
    async def fine() -> int:
        return 1

    worker = holdfast.worker(queues=["default"])
    async with running(worker) as [task]:
        ref = await doomed.enqueue()
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked", "for the record")
        await until(lambda: worker.hooks.busy, "for the hook")
        assert await (await fine.enqueue()).result(timeout=60) == 1  # settled while the hook is under way
        worker.stop()
        stopping = "SELECT 1 FROM holdfast.worker WHERE stopping_at IS NOT NULL"
        await until(lambda: holdfast.sql(stopping), "for the stop to begin")
        assert not task.done()
        gate.set()
        await task
    assert ended.is_set()
    assert holdfast.sql("SELECT stopped_at IS NOT NULL FROM holdfast.worker") == [(True,)]


async def test_T19_a_hook_that_never_ends_is_given_up(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    cancelled = asyncio.Event()

    @holdfast.app.on_failure
    async def endless(failure: Failure) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    @holdfast.app.task
    async def doomed() -> None:
        raise Fail("no way")

    worker = holdfast.worker(queues=["default"])
    async with running(worker) as [task]:
        await doomed.enqueue()
        await until(lambda: worker.hooks.busy, "for the hook")
        worker.stop()
        worker.stop()  # at once: no wait for hooks either
        await task
    assert cancelled.is_set()
    assert "1 hooks on failures did not end in time" in caplog.text
    assert holdfast.sql("SELECT stopped_at IS NOT NULL FROM holdfast.worker") == [(True,)]
