"""Processes that half live: a dead loop under a live beat, forked children, skewed clocks."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest

from faults.places import NotHere, with_clock
from holdfast import App
from holdfast._engine.lease.heartbeat import EXIT_WEDGED

from . import crew as crew_module
from .crew import fork, kill_at_once, nap, pay, wedge
from .support import Crew, attempts, crew, read_lines, row, sql, until


@pytest.fixture
def app(own_url: str) -> App:
    crew_module.app._url, crew_module.app._database = own_url, None
    return crew_module.app


async def test_M19_X7_a_worker_whose_loop_is_dead_ends_and_its_task_is_taken_over(
    app: App, own_url: str, log: Path
) -> None:
    ref = await app.enqueue(wedge.bind(600), headers={"log": str(log)})
    quick = {"lease": 1.5, "reap": 0.3}
    with crew(own_url, log, 1, **quick, wedged_after=2) as members:
        await until(lambda: read_lines(log), "for the step")
        members.append(Crew(own_url, log, quick))
        assert await members[0].ended() == EXIT_WEDGED
        assert await ref.result(timeout=60) == "free"
    assert attempts(own_url, ref.id) == [(1, "main", "lost"), (2, "main", "done")]
    await app.close()


async def test_W7_W9_a_full_queue_keeps_nobody_from_the_others(app: App, own_url: str, log: Path) -> None:
    """In a process of its own: a worker that stands still would take this test with it."""
    headers = {"log": str(log)}
    await app.enqueue_many([nap.bind(600) for _ in range(3)], queue="few", headers=headers)
    with crew(own_url, log, 1, queues=["many", "few:3"], concurrency=12, grace=0) as [member]:
        await until(lambda: len(read_lines(log)) == 3, "for the queue to be full")
        await app.enqueue_many([nap.bind(0.05) for _ in range(100)], queue="many", headers=headers)
        left = "SELECT count(*) FROM holdfast.task WHERE queue = 'many'"
        await until(lambda: sql(own_url, left) == [(0,)], "for the other queue")
        member.signal(signal.SIGTERM)
        assert await member.ended() == 0
    await app.close()


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.02])
async def test_L9_L10_what_has_not_begun_is_not_parked_with_its_worker(
    app: App, own_url: str, log: Path, pause: float
) -> None:
    count, slots = 3000, 10
    await app.enqueue_many([pay.bind(pause) for _ in range(count)], headers={"log": str(log)})
    quick = {"lease": 1.5, "reap": 0.3, "concurrency": slots}
    with crew(own_url, log, 1, **quick) as members:
        await until(lambda: len(read_lines(log)) >= 100, "for some to begin")
        members[0].kill()
        began = {UUID(line.task) for line in read_lines(log)}
        held = sql(own_url, "SELECT count(*) FROM holdfast.task WHERE state = 'running'")[0][0]
        members.append(Crew(own_url, log, quick))
        left = "SELECT count(*) FROM holdfast.task WHERE state <> 'parked'"
        await until(lambda: sql(own_url, left) == [(0,)], "for the others")
    parked = {id for (id,) in sql(own_url, "SELECT id FROM holdfast.task")}
    # One for each slot may have been about to begin: the database is told just before.
    never = parked - began
    assert len(never) <= slots, f"of {len(parked)} that were parked and {held} that were held"
    executed = Counter(line.task for line in read_lines(log) if line.word == "begin")
    assert (len(executed), max(executed.values())) == (count - len(never), 1), "every other one began once"
    await app.close()


async def test_L9_what_has_not_begun_is_not_charged_and_who_kills_workers_is_found(
    app: App, own_url: str, log: Path
) -> None:
    count, headers = 3000, {"log": str(log)}
    await app.enqueue_many([nap.bind(0) for _ in range(count)], headers=headers)
    culprit = await app.enqueue(kill_at_once.bind(), headers=headers)
    await app.enqueue_many([nap.bind(0) for _ in range(count)], headers=headers)
    deaths, left = 0, "SELECT count(*) FROM holdfast.task WHERE state <> 'parked'"
    slots = 10
    quick = {"lease": 1.5, "reap": 0.3, "concurrency": slots}
    with crew(own_url, log, 1, **quick) as members:
        while sql(own_url, left) != [(0,)]:
            if members[-1].process.poll() is not None:
                deaths += 1
                members.append(Crew(own_url, log, quick))
            charged = {str(id) for (id,) in sql(own_url, "SELECT id FROM holdfast.tasks WHERE crashes > 0")}
            begun = {line.task for line in read_lines(log)}
            # One for each slot may have been about to begin: the database is told just before.
            assert len(charged - begun) <= slots * deaths
            await asyncio.sleep(0.05)
    assert deaths in (4, 5), "the first one may pass for what had not begun"
    assert sql(own_url, "SELECT id FROM holdfast.task") == [(culprit.id,)]
    assert sql(own_url, "SELECT count(*) FROM holdfast.archive WHERE state = 'done'") == [(2 * count,)]
    await app.close()


@pytest.mark.direct("a cancel request that is broken off ends PgBouncer 1.18")
async def test_M19_X7_a_forked_child_does_not_go_on_as_its_parents_worker(app: App, own_url: str, log: Path) -> None:
    ref = await app.enqueue(fork.bind(), headers={"log": str(log)})
    with crew(own_url, log, 1, lease=3, link_timeout=2) as [member]:
        # The parent's answer is recorded; the child in its loop records nothing and ends.
        child = await ref.result(timeout=60)
        assert child != 0
        await until(lambda: not _alive(child), "for the child to end")
        again = await app.enqueue(nap.bind(0), headers={"log": str(log)})
        assert await again.result(timeout=60) == "rested"
        assert member.process.poll() is None
    assert attempts(own_url, ref.id) == [(1, "main", "done")]
    assert sql(own_url, "SELECT count(DISTINCT pid) FROM holdfast.worker") == [(1,)]
    await app.close()


def test_M19_a_forked_child_has_connections_of_its_own(app: App, own_url: str, log: Path) -> None:
    first = app.sync.enqueue(nap.bind(0), headers={"log": str(log)})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            app.sync.enqueue(nap.bind(1), headers={"log": str(log)})
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert app.sync.info(first.id).state == "ready"
    app.sync.enqueue(nap.bind(2), headers={"log": str(log)})
    assert sql(own_url, "SELECT count(*) FROM holdfast.task") == [(3,)]
    app.sync.close()


@pytest.mark.parametrize("skew", ["+1h", "-1h"])
async def test_L11_a_workers_clock_may_be_wrong(app: App, own_url: str, log: Path, skew: str) -> None:
    due = await app.enqueue(nap.bind(3), headers={"log": str(log)})
    later = await app.enqueue(nap.bind(0), headers={"log": str(log)}, delay="30m")
    with crew(own_url, log, 1, lease=1.5, reap=0.2) as members:
        wrong = Crew(own_url, log, {"lease": 1.5}, _with_clock(skew))
        members.append(wrong)
        await wrong.started()
        assert await due.result(timeout=60) == "rested"
        wrong.signal(signal.SIGTERM)  # killed, libfaketime would leave its semaphore behind
        assert await wrong.ended() == 0
    assert attempts(own_url, due.id) == [(1, "main", "done")]
    assert row(own_url, later.id)["attempt"] == 0
    await app.close()


def _with_clock(skew: str) -> dict[str, str]:
    # Not by the program faketime, which starts its command as a child: whoever killed it would leave the child alone.
    try:
        return with_clock(skew)
    except NotHere as reason:
        pytest.skip(str(reason))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
