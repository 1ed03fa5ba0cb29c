"""Item by item, each (schedule, scope, plan time) exactly once and none missing, whatever happens to the planners."""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faults.places import NotHere, with_clock
from holdfast import App, Cron, Every
from holdfast.embedded import Server
from worker.conftest import own_server as own_server
from worker.conftest import own_url as own_url
from worker.support import sql, until

from .conftest import NOON, Planner

TESTS = Path(__file__).parents[1]


def planned(app: App, **options: Any) -> App:
    @app.task
    async def report() -> None:
        pass

    app.schedule("nightly", Cron("*/10 * * * *"), report.bind(), **options)
    return app


async def test_S2_five_at_once_after_three_hours_of_downtime(planner: Planner) -> None:
    planned(planner.app, catch_up="all", scopes=["a", "b", "c"])
    five = [await planner.scheduler() for _ in range(5)]
    planner.clock.advance("3h")
    await asyncio.gather(*(each.round() for each in five))
    await asyncio.gather(*(each.round() for each in five))
    expected = [NOON + n * timedelta(minutes=10) for n in range(1, 19) for _ in "abc"]
    assert planner.plans() == expected
    assert planner.tasks() == len(expected)
    tasks = planner.sql(
        "SELECT count(DISTINCT (headers ->> 'holdfast-scope', headers ->> 'holdfast-plan-time')) FROM holdfast.task"
    )
    assert tasks == [(len(expected),)]


async def test_S2_many_schedules_and_many_planners(planner: Planner) -> None:
    planned(planner.app)
    for n in range(250):
        report: Any = planner.app._kinds["report"]
        await planner.app.schedules.set(f"customer-{n}", Every("1m", anchor=NOON), report.bind())
    five = [await planner.scheduler() for _ in range(5)]
    for each in five * 3:
        await each.round()
    planner.clock.advance("1m")
    for _ in range(4):
        await asyncio.gather(*(each.round() for each in five))
    made = planner.sql("SELECT schedule, count(*) FROM holdfast.occurrence WHERE schedule LIKE 'customer-%' GROUP BY 1")
    assert len(made) == 250 and {count for _, count in made} == {1}


# --- real processes

Fault = Callable[["Planners"], Any]


class Planners:
    """Processes that plan, and the means to disturb them."""

    def __init__(self, url: str, server: Server | None = None) -> None:
        self.url = url
        self.server = server
        self.chosen = random.Random(7)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, **more: str) -> None:
        command = [sys.executable, "-m", "schedules.planning_process", self.url]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONWARNINGS": "ignore", **more}
        self.running.append(
            subprocess.Popen(command, cwd=TESTS, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )

    def kill_one(self) -> None:
        victim = self.running.pop(self.chosen.randrange(len(self.running)))
        victim.kill()
        victim.wait()
        self.start()

    def count(self) -> int:
        with suppress(Exception):  # the server may be away
            return int(sql(self.url, "SELECT count(*) FROM holdfast.occurrence")[0][0])
        return 0

    def end(self) -> None:
        """Asks them to end; kills those that do not."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.clear()


def kill_one(planners: Planners) -> None:
    planners.kill_one()


def end_sessions(planners: Planners) -> None:
    sql(
        planners.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


def restart_server(planners: Planners) -> None:
    assert planners.server is not None
    planners.server.restart("immediate")


@pytest.fixture
def planners(own_url: str, own_server: Server) -> Iterator[Planners]:
    # A plan that takes a while: so that faults come in the middle of it.
    sql(
        own_url,
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.1); RETURN new; END'",
    )
    sql(own_url, "CREATE TRIGGER slow BEFORE INSERT ON holdfast.occurrence FOR EACH ROW EXECUTE FUNCTION slow()")
    made = Planners(own_url, own_server)
    yield made
    made.end()


def check_each_once(planners: Planners) -> None:
    rows = sql(planners.url, "SELECT plan_time, task_id FROM holdfast.occurrence ORDER BY plan_time")
    plans = [plan for plan, _ in rows]
    assert plans == [plans[0] + n * timedelta(seconds=1) for n in range(len(plans))], "none is missing"
    tasks = sql(planners.url, "SELECT id, headers ->> 'holdfast-plan-time' FROM holdfast.task")
    assert sorted(task for task, _ in tasks) == sorted(task for _, task in rows), (
        "each has its task, and no task is left over"
    )
    assert len({plan for _, plan in tasks}) == len(tasks)


@pytest.mark.parametrize(("fault", "faults"), [(kill_one, 6), (end_sessions, 6), (restart_server, 3)])
async def test_S2_planners_under_faults(planners: Planners, fault: Fault, faults: int) -> None:
    for _ in range(3):
        planners.start()
    for _ in range(faults):
        before = planners.count()
        await until(lambda before=before: planners.count() > before, "for another occurrence")  # type: ignore[misc]
        await asyncio.sleep(planners.chosen.uniform(0, 1))
        await asyncio.to_thread(fault, planners)
    before = planners.count()
    await until(lambda: planners.count() > before + 1, "for more")
    planners.end()
    check_each_once(planners)


async def test_S3_clocks_that_are_wrong_by_an_hour(planners: Planners) -> None:
    # Not by the program faketime, which starts its command as a child: whoever ended it would leave the child alone.
    try:
        planners.start(**with_clock("+1h"))
        planners.start(**with_clock("-1h"))
    except NotHere as reason:
        pytest.skip(str(reason))
    await until(lambda: planners.count() > 4, "for occurrences")
    planners.end()
    check_each_once(planners)
    assert sql(planners.url, "SELECT count(*) FROM holdfast.occurrence WHERE plan_time > holdfast.now()") == [(0,)]
    late = sql(planners.url, "SELECT max(created_at - plan_time) < interval '30 min' FROM holdfast.occurrence")
    assert late == [(True,)]
