"""S7, S11, S12: what an occurrence's task is told, and how it fares."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, Cron, Every, Retry
from holdfast.testing import Harness
from worker.support import running, until

from .conftest import NOON


@pytest.fixture
def noon(holdfast: Harness) -> Harness:
    holdfast.clock.set(NOON)
    return holdfast


async def test_S7_the_handler_is_told_its_plan_time_scope_and_schedule(noon: Harness) -> None:
    seen: list[tuple[datetime | None, str | None, str | None, int]] = []

    @noon.app.task(retry=Retry(3, delay="7m", jitter=0, backoff=1))
    async def report(ctx: Context) -> str:
        seen.append((ctx.plan_time, ctx.scope, ctx.schedule, ctx.errors))
        if ctx.errors < 2:
            raise OSError("not yet")
        return "done"

    noon.app.schedule(
        "nightly", Cron("*/5 * * * *"), report.bind(), scopes=["berlin"], end=NOON + timedelta(minutes=10)
    )
    await noon.drain(until=NOON + timedelta(minutes=40))
    plans = [NOON + timedelta(minutes=m) for m in (5, 10)]
    assert sorted(seen) == [(plan, "berlin", "nightly", errors) for plan in plans for errors in (0, 1, 2)]
    states = noon.sql("SELECT plan_time, state, attempts FROM holdfast.occurrences ORDER BY 1")
    assert states == [(plan, "done", 3) for plan in plans], "newer plans do not strand an older one"


async def test_S12_on_lost_fail(noon: Harness) -> None:
    @noon.app.task(on_lost="fail")
    async def pay() -> None:
        pass

    noon.app.schedule("payday", Every("1h"), pay.bind(), end=NOON + timedelta(hours=1))
    await noon.drain()
    noon.clock.advance("1h")
    with noon.crash_after():
        await noon.drain()
    noon.clock.advance("5m")
    await noon.drain()
    assert noon.sql("SELECT state FROM holdfast.occurrences") == [("parked",)]


async def test_S11_a_slow_handler_delays_no_schedule(holdfast: Harness) -> None:
    release = asyncio.Event()

    @holdfast.app.task
    async def slow() -> None:
        await release.wait()

    @holdfast.app.task
    async def quick() -> None:
        pass

    holdfast.app.schedule("slow", Every("1s"), slow.bind())
    holdfast.app.schedule("quick", Every("1s"), quick.bind())
    async with running(holdfast.worker(queues=["default"], concurrency=2)):
        counts: Any = lambda: holdfast.sql("SELECT count(*) FROM holdfast.occurrence WHERE schedule = 'quick'")[0][0]  # noqa: E731
        await until(lambda: counts() >= 3, "for three occurrences although all slots are taken")
        release.set()
    assert holdfast.sql("SELECT count(*) FROM holdfast.worker WHERE schedules = '{quick,slow}'") == [(1,)]


async def test_S1_a_worker_hears_of_a_new_schedule_at_once(holdfast: Harness) -> None:
    @holdfast.app.task
    async def quick() -> str:
        return "there"

    async with running(holdfast.worker(queues=["default"])) as _:
        await holdfast.app.schedules.set("quick", Every("1s"), quick.bind())
        await until(lambda: holdfast.sql("SELECT id FROM holdfast.archive"), "for its first occurrence to be done")


async def test_a_worker_may_leave_schedules_alone(holdfast: Harness) -> None:
    @holdfast.app.task
    async def quick() -> None:
        pass

    holdfast.app.schedule("quick", Every("1s"), quick.bind())
    async with running(holdfast.worker(queues=["default"], schedules=False)):
        await asyncio.sleep(0)
    assert holdfast.sql("SELECT name FROM holdfast.schedule") == []
