"""Worker processes under faults, one at a time: what a fault does to one task. Many at once: `tests/faults`."""

import asyncio
import signal
from pathlib import Path

import pytest

from holdfast import App
from holdfast.embedded import Server

from . import crew as crew_module
from .crew import Leave, dig, kill_worker, nap, pay
from .support import Crew, attempts, check_log, crew, read_lines, row, sql, until

QUICK = {"lease": 1.5, "reap": 0.3, "poll": 0.2}


@pytest.fixture
def app(own_url: str) -> App:
    """The crew's app, on this test's database."""
    crew_module.app._url, crew_module.app._database = own_url, None
    return crew_module.app


def unfinished(url: str) -> int:
    return int(sql(url, "SELECT count(*) FROM holdfast.task")[0][0])


async def enqueue_trips(app: App, log: Path, count: int, pause: float = 0.01) -> None:
    await app.enqueue_many([Leave(n, pause) for n in range(count)], headers={"log": str(log)})


async def test_L8_a_killed_workers_task_is_lost_and_counted_and_runs_elsewhere(
    app: App, own_url: str, log: Path
) -> None:
    ref = await app.enqueue(nap.bind(30), headers={"log": str(log)})
    with crew(own_url, log, 1, **QUICK) as members:
        await until(lambda: read_lines(log), "for the first attempt")
        members[0].kill()
        first = members[0].pid
        members.append(Crew(own_url, log, QUICK))
        await until(lambda: len(read_lines(log)) == 2, "for the second attempt")
        assert read_lines(log)[1].pid != first
        assert row(own_url, ref.id)["crashes"] == 1
        assert row(own_url, ref.id)["errors"] == 0
    assert attempts(own_url, ref.id) == [(1, "main", "lost"), (2, "main", None)]
    await app.close()


async def test_L9_the_task_that_kills_its_workers_is_found_and_its_neighbours_are_not_parked(
    app: App, own_url: str, log: Path
) -> None:
    headers = {"log": str(log)}
    await app.enqueue_many([nap.bind(0.4) for _ in range(6)], headers=headers)
    culprit = await app.enqueue(kill_worker.bind(), headers=headers)
    await app.enqueue_many([nap.bind(0.4) for _ in range(6)], headers=headers)
    with crew(own_url, log, 1, **QUICK) as members:
        deadline = asyncio.get_running_loop().time() + 120
        while unfinished(own_url) > 1 or row(own_url, culprit.id)["state"] != "parked":
            assert asyncio.get_running_loop().time() < deadline, "the culprit was not found"
            if members[-1].process.poll() is not None:
                members.append(Crew(own_url, log, QUICK))
            await asyncio.sleep(0.1)
    assert "may be what kills the workers" in str(row(own_url, culprit.id)["error"])
    rows = sql(own_url, "SELECT state, max(crashes) FROM holdfast.archive WHERE kind = 'nap' GROUP BY state")
    assert len(rows) == 1 and rows[0][0] == "done" and rows[0][1] <= 2, rows
    await app.close()


async def test_L10_on_lost_fail_is_parked_and_not_rerun(app: App, own_url: str, log: Path) -> None:
    ref = await app.enqueue(pay.bind(30), headers={"log": str(log)})
    with crew(own_url, log, 1, **QUICK) as members:
        await until(lambda: read_lines(log), "for the first attempt")
        members[0].kill()
        members.append(Crew(own_url, log, QUICK))
        await until(lambda: row(own_url, ref.id)["state"] == "parked", "for the reaper")
    info = await ref.info()
    assert info.error is not None
    assert "on_lost" in info.error["message"]
    assert len(read_lines(log)) == 1
    await app.close()


async def test_L4_a_worker_stopped_for_longer_than_its_lease_changes_nothing(app: App, own_url: str, log: Path) -> None:
    refs = await app.enqueue_many([nap.bind(2.5) for _ in range(4)], headers={"log": str(log)})
    with crew(own_url, log, 1, **QUICK) as members:
        await until(lambda: len(read_lines(log)) == 4, "for the first attempts")
        members[0].signal(signal.SIGSTOP)
        members.append(Crew(own_url, log, QUICK))
        lost = "SELECT count(*) FROM holdfast.attempts WHERE outcome = 'lost'"
        await until(lambda: sql(own_url, lost) == [(4,)], "for the takeover")
        members[0].signal(signal.SIGCONT)
        results = [await ref.result(timeout=60) for ref in refs]
        assert results == ["rested"] * 4
        assert members[0].process.poll() is None
        # It lives and works on.
        members[1].kill()
        ref = await app.enqueue(nap.bind(0), headers={"log": str(log)})
        assert await ref.result(timeout=60) == "rested"
    outcomes = check_log(own_url, log)
    assert outcomes["lost"] == 4
    assert outcomes["done"] == 5
    await app.close()


async def test_M1_a_lone_worker_stopped_for_longer_than_its_lease_charges_nobody(
    app: App, own_url: str, log: Path
) -> None:
    refs = await app.enqueue_many([nap.bind(2) for _ in range(4)], headers={"log": str(log)})
    with crew(own_url, log, 1, **{**QUICK, "reap": 0.05}) as members:
        await until(lambda: len(read_lines(log)) == 4, "for the first attempts")
        members[0].signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)  # longer than the lease
        members[0].signal(signal.SIGCONT)
        assert [await ref.result(timeout=60) for ref in refs] == ["rested"] * 4
    assert check_log(own_url, log)["lost"] == 0
    await app.close()


async def test_W5_all_sessions_terminated_again_and_again(app: App, own_url: str, log: Path) -> None:
    await enqueue_trips(app, log, 200, 0.05)
    with crew(own_url, log, 2, **QUICK, concurrency=5) as members:
        for member in members:
            await member.started()
        ended = 0
        while unfinished(own_url):
            ended += len(
                sql(
                    own_url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()",
                )
            )
            await asyncio.sleep(0.3)
        assert ended > 0
        assert [member.process.poll() for member in members] == [None, None]
    outcomes = check_log(own_url, log)
    assert outcomes["done"] == 200
    assert outcomes["lost"] == 0
    await app.close()


@pytest.mark.parametrize("down", [0.0, 2.5], ids=["at once", "after longer than a lease"])
async def test_L12_M1_postgres_restarts_under_two_workers(
    app: App, own_server: Server, own_url: str, log: Path, down: float
) -> None:
    await enqueue_trips(app, log, 60, 0.2)
    naps = await app.enqueue_many([nap.bind(4) for _ in range(4)], headers={"log": str(log)})
    with crew(own_url, log, 2, **QUICK, concurrency=6) as members:
        for member in members:
            await member.started()
        await until(lambda: len(read_lines(log)) > 20, "for work")
        await app.close()
        for _ in range(2 if down == 0 else 1):
            await asyncio.to_thread(own_server.stop, "immediate")
            await asyncio.sleep(down)
            await asyncio.to_thread(own_server.restart, "immediate")
            await asyncio.sleep(1)
        await until(lambda: unfinished(own_url) == 0, "for all tasks")
        assert [member.process.poll() for member in members] == [None, None]
        assert [await ref.result(timeout=60) for ref in naps] == ["rested"] * 4
    outcomes = check_log(own_url, log)
    assert outcomes["done"] == 64
    assert outcomes["lost"] == 0
    assert outcomes["failed"] == 0
    await app.close()


async def test_X7_M19_process_children_die_with_their_killed_worker(app: App, own_url: str, log: Path) -> None:
    await app.enqueue(dig.bind(5), headers={"log": str(log)})
    with crew(own_url, log, 1, lease=60) as members:
        child = (await until(lambda: read_lines(log), "for the child"))[0].pid
        assert child != members[0].pid
        members[0].kill()
        await until(lambda: not Path(f"/proc/{child}").exists() or "Z" in _state_of(child), "for the orphan's end")
    assert [line.word for line in read_lines(log)] == ["begin"]
    await app.close()


def _state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
