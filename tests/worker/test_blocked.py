"""A blocked event loop is told early and by name; what only looks like one is left alone."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast._db.driver.session import Link
from holdfast._engine.lease import watchdog as blocked
from holdfast._engine.lease.heartbeat import Heartbeat
from holdfast._engine.loops import Pulse
from holdfast._engine.observe.progress import ProgressLog
from holdfast._engine.run.roster import Roster
from holdfast._sql.queries import queries
from holdfast.testing import Harness

from .support import PATIENCE, attempts, running, until


def block_until(condition: Callable[[], object]) -> None:
    """Blocks whoever calls it."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "blocked in vain"
        time.sleep(0.01)


def in_module(name: str) -> Callable[[Callable[[], object]], None]:
    """The same function, as if it were written in another module."""
    there: dict[str, Any] = {"__name__": name, "block_until": block_until}
    exec("def block(condition):\n    block_until(condition)\n", there)
    block: Callable[[Callable[[], object]], None] = there["block"]
    return block


async def test_M19_who_blocks_the_loop_is_told_with_the_place(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.worker")

    def warnings() -> list[logging.LogRecord]:
        return [each for each in caplog.records if "the event loop is blocked" in each.getMessage()]

    @holdfast.app.task
    async def innocent() -> None:
        await asyncio.sleep(0.01)

    @holdfast.app.task
    async def culprit() -> None:
        block_until(warnings)

    worker = holdfast.worker(queues="default", blocked=0.7)
    async with running(worker):
        first = await culprit.enqueue()
        for _ in range(3):
            await innocent.enqueue()
        await first.result(timeout=PATIENCE)
        await until(lambda: "the event loop moves again" in caplog.text)
    [warning] = warnings()
    text = warning.getMessage()
    assert f"by culprit ({__file__}:" in text
    assert "innocent" not in text
    assert "Write def instead of async def" in text
    assert getattr(warning, "task_id", None) == str(first.id)


async def test_M19_F4_a_loop_that_no_step_blocks_renews_nothing_after_a_lease(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.app.task
    async def held(n: int) -> int:
        await asyncio.sleep(0 if n else 3600)
        return n

    def expired() -> list[Any]:
        return holdfast.sql("SELECT 1 FROM holdfast.task WHERE lease_expires_at < clock_timestamp()")

    def loop_is_late() -> list[Any]:
        return holdfast.sql("SELECT 1 FROM holdfast.worker WHERE 'loop' = ANY (late)")

    worker = holdfast.worker(queues="default", lease=1.5, blocked=0.5, grace=0)
    async with running(worker):
        ref = await holdfast.app.enqueue(held.bind(0))
        await until(lambda: worker.roster.busy == 1, "for the step")

        async def stand_still() -> None:
            time.sleep(1)  # what is seen first is this line
            block_until(lambda: expired() and loop_is_late())

        await asyncio.create_task(stand_still(), name="holdfast claim")
        # Its attempt is given up, and somebody else's begins.
        await until(lambda: attempts(holdfast.url, ref.id), "for the reaper")
        assert await (await holdfast.app.enqueue(held.bind(1))).result(timeout=PATIENCE) == 1
    assert "the event loop has stood still for" in caplog.text
    assert f"{__file__}:" in caplog.text and "no step is why" in caplog.text
    assert "is blocked for" not in caplog.text


async def test_M19_F4_a_step_that_blocks_the_loop_keeps_its_lease(holdfast: Harness) -> None:
    @holdfast.app.task
    async def blocking() -> str:
        block_until(lambda: renewed() > 3)
        return "done"

    def renewed() -> int:
        expires = holdfast.sql("SELECT lease_expires_at FROM holdfast.task")[0][0]
        if expires not in seen:
            seen.append(expires)
        return len(seen)

    seen: list[Any] = []
    worker = holdfast.worker(queues="default", lease=1.5, blocked=0.5)
    async with running(worker):
        ref = await holdfast.app.enqueue(blocking.bind())
        assert await ref.result(timeout=PATIENCE) == "done"
    assert attempts(holdfast.url, ref.id) == [(1, "main", "done")]


async def test_M19_a_loop_under_a_debugger_is_not_blocked(
    holdfast: Harness, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[blocked.Blocked] = []
    seen: list[blocked.Blocked] = []
    real = blocked.snapshot

    def look(*given: Any) -> blocked.Blocked:
        looks.append(real(*given))
        return looks[-1]

    monkeypatch.setattr(blocked, "snapshot", look)
    monkeypatch.setattr("os._exit", lambda code: pytest.fail("the process would have ended"))

    @holdfast.app.task
    async def debugged() -> str:
        looks.clear()  # the machine may have been slow before
        in_module("pdb")(lambda: len(looks) > 5)
        seen.extend(looks)
        return "continued"

    worker = holdfast.worker(queues="default", blocked=0.2)
    async with running(worker):
        worker.heartbeat._wedged_after = 0.4
        assert await (await debugged.enqueue()).result(timeout=PATIENCE) == "continued"
        worker.heartbeat._wedged_after = 300
    assert seen and all(each.is_debugged for each in seen)
    assert "debugged" not in caplog.text


async def test_M19_a_loop_that_waits_is_not_blocked(holdfast: Harness) -> None:
    """As of a worker that is ending: nobody ticks any more, but the loop is free."""
    loop = asyncio.get_running_loop()
    thread, roster = threading.get_ident(), holdfast.worker(queues="default").roster
    await asyncio.to_thread(block_until, lambda: blocked.snapshot(loop, thread, roster).is_idle)
    assert not blocked.snapshot(loop, thread, roster).is_idle


def test_M19_a_process_that_was_stopped_as_a_whole_has_no_wedged_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z: the thread that watches stood still itself."""
    clock = 1000.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += 3600

    monkeypatch.setattr("holdfast._engine.lease.heartbeat.time", SimpleNamespace(monotonic=lambda: clock))
    monkeypatch.setattr("holdfast._engine.lease.heartbeat.asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("holdfast._engine.lease.heartbeat.now", lambda: clock)
    monkeypatch.setattr("os._exit", lambda code: pytest.fail("the process would have ended"))
    beat = Heartbeat.__new__(Heartbeat)
    beat._wedged_after, beat._blocked_after, beat._warned, beat._end = 300.0, 10.0, False, threading.Event()
    beat._progress, beat._pulse = ProgressLog(queries("holdfast"), Roster(1)), Pulse()
    beat.tick()
    asyncio.run(beat._pause(Link("", queries("holdfast"), "nowhere"), 10))
