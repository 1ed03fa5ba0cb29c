"""A2, A4, M13: workers keep the history small while they work, and a day without partitions stops nobody."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, Context
from holdfast._engine.worker import Worker
from holdfast.testing import Harness

from . import crew as crew_module
from .crew import Leave
from .support import check_log, crew, read_lines, running, sql, until

NO_PARTITIONS = """
    CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT pg_catalog.statement_timestamp() + interval '{} days' $$
"""
OLD = "SELECT count(*) FROM holdfast.history WHERE drop_after <= holdfast.now()"

app = App()


@app.task
async def wait(ctx: Context) -> str:
    while not ctx.headers.get("ends"):
        await asyncio.sleep(0.05)
    return "ended"


@app.task
async def quick(n: int) -> int:
    return n


@pytest.fixture
def holdfast_tasks() -> App:
    return app


def maintaining(worker: Worker, *, first: float = 0.01, every: float = 0.05) -> Worker:
    worker.maintenance.first, worker.maintenance.every, worker.maintenance.soon = first, every, 0.01
    return worker


def at_a_distance(url: str, days: int) -> None:
    """Moves time, and makes no partitions."""
    sql(url, NO_PARTITIONS.format(days))


@pytest.mark.parametrize("cancelled", [False, True], ids=["reap", "reap_cancelled"])
async def test_M13_reaping_makes_the_partitions_of_a_day_that_has_none(holdfast: Harness, cancelled: bool) -> None:
    ref = await holdfast.app.enqueue(wait.bind())
    lost = holdfast.worker()
    async with running(lost):
        await until(lambda: lost.roster.busy, "for the first attempt")
        if cancelled:
            sql(holdfast.url, "UPDATE holdfast.task SET cancel_at = now(), cancel_by = 'a test'")
        at_a_distance(holdfast.url, 300)  # the lease is over, and the day has no partitions
        reaper = holdfast.worker().reaper
        try:
            await reaper.reap()
        finally:
            await reaper._link.close()
        logged = sql(holdfast.url, "SELECT outcome FROM holdfast.attempts WHERE task_id = $1 AND attempt = 1", ref.id)
        assert logged == [("lost",)]
        sql(holdfast.url, "DELETE FROM holdfast.task")


async def test_A4_workers_drop_old_days_while_they_work(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "holdfast.worker")
    old = await holdfast.app.enqueue(quick.bind(1))
    await holdfast.drain()
    assert (await old.info()).state == "done"
    at_a_distance(holdfast.url, 20)
    workers = [maintaining(holdfast.worker()) for _ in range(3)]
    async with running(*workers):
        refs = await holdfast.app.enqueue_many([quick.bind(n) for n in range(200)])
        assert [await ref.result(timeout=60) for ref in refs] == list(range(200))
        await until(lambda: sql(holdfast.url, OLD) == [(0,)], "for the old days to be dropped")
    assert sql(holdfast.url, "SELECT 1 FROM holdfast.archive WHERE id = $1", old.id) == []
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.archive") == [(200,)]
    assert any(each.startswith("dropped the history of ") for each in caplog.messages)


async def test_A4_a_setting_of_the_worker_counts_if_nobody_has_said_it(holdfast: Harness) -> None:
    worker = maintaining(holdfast.worker(retention="30d", queues=["default"]))
    async with running(worker):
        await until(lambda: sql(holdfast.url, "SELECT retention FROM holdfast.setting"), "for the setting")
    assert await holdfast.app.retention() == timedelta(days=30)
    await holdfast.app.set_default(retention="8d")
    await holdfast.app.set_queue("mail", retention=timedelta(days=2))
    assert [await holdfast.app.retention(q) for q in ("mail", "default")] == [timedelta(days=2), timedelta(days=8)]
    await holdfast.app.set_queue("mail", retention="default")
    assert await asyncio.to_thread(holdfast.app.sync.retention, "mail") == timedelta(days=8)


async def test_A4_a_chore_that_cannot_be_done_is_told_once_and_the_worker_works_on(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.worker")
    sql(holdfast.url, "DROP TABLE holdfast.partition")
    worker = maintaining(holdfast.worker(queues=["default"]), every=0.01)
    once, passes = worker.maintenance.once, []

    async def counted(*chores: Any) -> Any:
        passes.append(answer := await once(*chores))
        return answer

    worker.maintenance.once = counted  # type: ignore[method-assign, assignment]
    async with running(worker):
        ref = await holdfast.app.enqueue(quick.bind(7))
        assert await ref.result(timeout=60) == 7
        await until(lambda: len(passes) > 3, "for some passes")
    assert len([each for each in caplog.messages if each.startswith("dropping old history fails: schema")]) == 1


async def test_A2_the_log_is_what_ran_with_maintenance_all_the_time(own_url: str, log: Path) -> None:
    """Workers that never rest from their chores, while old days are there to be dropped and one is killed."""
    made = crew_module.app
    made._url, made._database = own_url, None
    sql(own_url, "SELECT holdfast.ensure_partition(current_date - n) FROM generate_series(10, 30) AS n")
    sql(own_url, """SELECT holdfast.set_queue('other', '{"retention": "2 days"}')""")
    await made.enqueue_many([Leave(n, 0.02) for n in range(150)], headers={"log": str(log)})
    options = {"lease": 1.5, "reap": 0.3, "poll": 0.2, "maintain": 0.05}
    with crew(own_url, log, 3, **options) as members:
        await until(lambda: len(read_lines(log)) > 150, "for work")
        members[0].kill()
        await until(lambda: sql(own_url, "SELECT count(*) FROM holdfast.task") == [(0,)], "for all tasks")
        await until(lambda: sql(own_url, OLD) == [(0,)], "for the old days to be dropped")
        assert [member.process.poll() for member in members[1:]] == [None, None]
    outcomes = check_log(own_url, log)
    assert outcomes["done"] == 150
    assert outcomes["advanced"] == 300
    await made.close()
