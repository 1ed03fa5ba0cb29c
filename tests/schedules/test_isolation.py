"""S11: what one schedule says, and whatever comes of it, concerns that schedule alone."""

import asyncio
import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Cron, Every
from worker.support import until

from .conftest import NOON, Planner
from .test_planning import declare

WRITTEN: list[tuple[str, Any]] = [
    ("options", 5),
    ("options", [1]),
    ("options", {"headers": 5}),
    ("options", {"headers": [1]}),
    ("options", {"priority": "high"}),
    ("args", [1]),
    ("step", 7),
    ("scopes", 7),
    ("scopes", [{}]),
    ("start", "soon"),
    ("start", "0001-01-01T00:00:00+14:00"),
    ("end", "9999-12-31T23:59:59-12:00"),
    ("catch_up_window", 1e300),
    ("start_delay", "soon"),
    ("timing", "often"),
    ("timing", {"every": 1e300}),
    ("timing", {"every": 60, "anchor": "0001-01-01T00:00:00+14:00"}),
    ("timing", {"times": ["9999-12-31T23:59:59-12:00"]}),
]


@pytest.mark.parametrize(("field", "value"), WRITTEN)
async def test_S11_whatever_is_written_by_hand(planner: Planner, field: str, value: Any) -> None:
    """The worker goes on, the others are planned, it is told why, and it can still be listed."""
    declare(planner.app)
    scheduler = await planner.scheduler()
    planner.sql(
        "INSERT INTO holdfast.schedule (name, definition) SELECT 'odd', definition || $1::jsonb FROM holdfast.schedule",
        json.dumps({field: value}),
    )
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == ["20 13:00"]
    assert planner.row("odd")["error"] is not None
    assert datetime.fromisoformat(planner.row("odd")["next_at"]) > planner.clock.now(), "and it does not spin"
    assert [(info.name, bool(info.words)) for info in await planner.app.schedules.all()] == [
        ("nightly", True),
        ("odd", True),
    ]


async def test_S1_a_start_long_ago(planner: Planner) -> None:
    declare(planner.app, start=datetime(1, 1, 1, tzinfo=UTC))
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    await scheduler.round()
    assert planner.times() == ["20 13:00"]


async def test_S11_a_key_that_somebody_holds_for_long(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._engine.maintain.scheduler.LOCK_TIMEOUT", "100ms")
    declare(planner.app)
    declare(planner.app, name="keyed", key="one")
    scheduler = await planner.scheduler()
    planner.clock.advance("1h")
    async with await psycopg.AsyncConnection.connect(planner.url) as other:
        await other.execute("""SELECT holdfast.enqueue('report', '{}', '{"key": "one"}')""")
        await scheduler.round()
        assert planner.times() == ["20 13:00"], "the other one does not wait for it"
        assert "lock" in planner.row("keyed")["error"]
        await other.rollback()
    planner.clock.advance("1m")
    await scheduler.round()
    assert planner.times("keyed") == ["20 13:00"], "and it is not lost"


async def test_S8_more_than_the_limit_behind_an_unfinished_one_does_not_spin(planner: Planner) -> None:
    declare(planner.app, Every("1m", anchor=NOON), overlap="queue", catch_up="all", catch_up_limit=2)
    scheduler = await planner.scheduler()
    planner.clock.advance("10m")
    for _ in range(3):
        await scheduler.round()
    assert planner.times() == ["20 12:01"]
    assert datetime.fromisoformat(planner.row()["next_at"]) > planner.clock.now()


@pytest.mark.parametrize("tz", ["Europe/Berlin", "America/New_York"])
def test_S11_the_next_time_is_found_without_walking_through_the_day_before(tz: str) -> None:
    """Counted, not timed: a line with seconds is asked for its next time every second."""
    every_second = Cron("* * * * * *", tz=tz)
    asked: list[datetime] = []
    offset = every_second._offset

    def counted(instant: datetime) -> timedelta:
        asked.append(instant)
        return offset(instant)

    every_second._offset = counted  # type: ignore[method-assign]
    for moment in (NOON, datetime(2031, 10, 26, 12, tzinfo=UTC)):  # also on the day when the clocks are set
        assert next(every_second.after(moment)) == moment + timedelta(seconds=1)
    assert len(asked) < 20


async def test_S11_scopes_that_take_long_hold_up_nobody(planner: Planner) -> None:
    """Neither by a function nor by a query; and they are planned when they are there."""
    goes_on = threading.Event()
    calls = 0

    def slow() -> list[str]:
        nonlocal calls
        calls += 1
        assert goes_on.wait(300)
        return ["late"]

    declare(planner.app)
    declare(planner.app, name="by-function", scopes=slow)
    declare(planner.app, name="by-query", scopes="SELECT 'late' FROM pg_advisory_xact_lock(77)")
    async with await psycopg.AsyncConnection.connect(planner.url) as other:
        await other.execute("SELECT pg_advisory_xact_lock(77)")
        scheduler = await planner.scheduler()
        for _ in range(2):
            planner.clock.advance("1h")
            await scheduler.round()
        assert planner.times() == ["20 13:00", "20 14:00"]
        assert (planner.times("by-function"), planner.times("by-query"), calls) == ([], [], 1)
        goes_on.set()
    running = asyncio.create_task(scheduler.run())
    await until(lambda: planner.times("by-function") == planner.times("by-query") == ["20 14:00"])
    running.cancel()
    await asyncio.wait([running])


class Odd(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit, Odd])
@pytest.mark.parametrize("how", ["def", "async def"])
async def test_S11_a_scope_function_that_raises_what_is_no_exception(
    planner: Planner, error: type[BaseException], how: str
) -> None:
    def find() -> list[str]:
        raise error("no")

    async def find_async() -> list[str]:
        return find()

    declare(planner.app)
    declare(planner.app, name="odd", scopes=find if how == "def" else find_async)
    scheduler = await planner.scheduler()
    for hour in ("13", "14"):
        planner.clock.advance("1h")
        await scheduler.round()
        assert planner.times()[-1] == f"20 {hour}:00"
    assert planner.row("odd")["error"].startswith(error.__name__)


APP = """
import time
from pathlib import Path
from holdfast import App, Every

app = App({url!r})

@app.task
async def report() -> None:
    pass

def scopes():
    Path("called").touch()
    time.sleep(100_000)

app.schedule("slow", Every("1s"), report.bind(), scopes=scopes)
app.schedule("quick", Every("1s"), report.bind())
"""


async def test_S11_a_scope_function_that_never_ends_does_not_keep_a_worker(planner: Planner, tmp_path: Path) -> None:
    planner.clock.resume()
    (tmp_path / "app.py").write_text(APP.format(url=planner.url))
    command = [sys.executable, "-m", "holdfast.cli", "worker", "app:app"]
    worker = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": "."})
    try:
        await until((tmp_path / "called").exists)
        await until(lambda: planner.plans("quick"), "for the other schedule")
        worker.terminate()
        async with asyncio.timeout(60):
            assert await worker.wait() == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
