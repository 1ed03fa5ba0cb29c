"""Stopping: by signal, by SQL, within the grace time, twice, and with the database away."""

import asyncio
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast import App, Context, Later, Tasks
from holdfast._engine import worker as engine
from holdfast._engine.run.attempt import Interruption
from holdfast.embedded import Server
from holdfast.testing import Harness

from . import crew as crew_module
from .crew import Leave, nap
from .support import attempts, check_log, crew, read_lines, row, running, sql, until


@pytest.fixture
def app(holdfast_url: str) -> App:
    crew_module.app._url, crew_module.app._database = holdfast_url, None
    return crew_module.app


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return Tasks()


def _wrote(log: Path, lines: int) -> bool:
    return len(read_lines(log)) > lines


async def test_W4_sigterm_finishes_what_runs_within_the_grace_time(app: App, holdfast_url: str, log: Path) -> None:
    refs = await app.enqueue_many([nap.bind(1.0) for _ in range(3)], headers={"log": str(log)})
    more = await app.enqueue_many([nap.bind(60) for _ in range(3)], headers={"log": str(log)})
    with crew(holdfast_url, log, concurrency=3, grace=30) as [member]:
        await until(lambda: len(read_lines(log)) == 3, "for the steps")
        member.signal(signal.SIGTERM)
        assert await member.ended() == 0
    for ref in refs:
        assert attempts(holdfast_url, ref.id) == [(1, "main", "done")]
    for ref in more:
        assert row(holdfast_url, ref.id)["state"] == "ready"
        assert row(holdfast_url, ref.id)["crashes"] == 0
    stopped = sql(holdfast_url, "SELECT stopping_at IS NOT NULL, stopped_at >= stopping_at FROM holdfast.worker")
    assert stopped == [(True, True)]
    await app.close()


async def test_W4_what_does_not_finish_within_the_grace_time_is_released_uncharged(
    app: App, holdfast_url: str, log: Path
) -> None:
    refs = await app.enqueue_many([nap.bind(600) for _ in range(3)], headers={"log": str(log)})
    with crew(holdfast_url, log, concurrency=3, grace=0.3) as [member]:
        await until(lambda: len(read_lines(log)) == 3, "for the steps")
        member.signal(signal.SIGTERM)
        assert await member.ended() == 0
    for ref in refs:
        assert attempts(holdfast_url, ref.id) == [(1, "main", "released")]
        found = row(holdfast_url, ref.id)
        assert (found["state"], found["errors"], found["crashes"]) == ("ready", 0, 0)
    await app.close()


async def test_W4_a_second_signal_stops_at_once(app: App, holdfast_url: str, log: Path) -> None:
    ref = await app.enqueue(nap.bind(600), headers={"log": str(log)})
    with crew(holdfast_url, log, grace=600) as [member]:
        await until(lambda: read_lines(log), "for the step")
        member.signal(signal.SIGTERM)
        await until(lambda: sql(holdfast_url, "SELECT 1 FROM holdfast.worker WHERE stopping_at IS NOT NULL"), "to stop")
        assert member.process.poll() is None
        member.signal(signal.SIGINT)
        assert await member.ended() == 0
    assert attempts(holdfast_url, ref.id) == [(1, "main", "released")]
    await app.close()


async def test_W4_stop_workers_for_all_and_for_one(app: App, holdfast_url: str, log: Path) -> None:
    with crew(holdfast_url, log, 3, lease=30, beat=10) as members:
        for member in members:
            await member.started()
        one = sql(holdfast_url, "SELECT id FROM holdfast.worker WHERE pid = $1", members[0].pid)[0][0]
        # The notification tells them, long before the next beat.
        await asyncio.sleep(0.5)
        assert await app.stop_workers(one) == 1
        assert await members[0].ended() == 0
        assert [member.process.poll() for member in members[1:]] == [None, None]
        assert await asyncio.to_thread(app.sync.stop_workers) == 2
        assert [await member.ended() for member in members] == [0, 0, 0]
    assert sql(holdfast_url, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == [(0,)]
    app.sync.close()
    await app.close()


async def test_M20_three_step_tasks_survive_one_stop_after_another(app: App, holdfast_url: str, log: Path) -> None:
    await app.enqueue_many([Leave(n, 0.02) for n in range(100)], headers={"log": str(log)})
    lease = {"lease": 60}  # nothing may wait for a lease to run out
    for _ in range(3):
        with crew(holdfast_url, log, 1, **lease) as [member]:
            seen = len(read_lines(log))
            await until(partial(_wrote, log, seen + 60), "for work")
            member.signal(signal.SIGTERM)
            assert await member.ended() == 0
        assert sql(holdfast_url, "SELECT count(*) FROM holdfast.task WHERE state = 'running'") == [(0,)]
    with crew(holdfast_url, log, 1, **lease):
        await until(lambda: not sql(holdfast_url, "SELECT 1 FROM holdfast.task LIMIT 1"), "for all tasks")
    outcomes = check_log(holdfast_url, log)
    assert (outcomes["done"], outcomes["lost"]) == (100, 0)
    await app.close()


async def test_M20_a_stop_ends_even_when_the_database_is_away(
    own_server: Server, own_url: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LAST_FLUSH", 1.0)
    monkeypatch.setattr(engine, "LAST_WORDS", 1.0)
    app = App(own_url)
    begun = asyncio.Event()

    @app.task
    async def long() -> None:
        begun.set()
        await asyncio.sleep(600)

    await long.enqueue()
    worker = app.make_worker(lease=5, grace=0.1, poll=0.1)
    running_worker = asyncio.create_task(worker.run())
    await asyncio.wait_for(begun.wait(), 60)
    await app.close()
    await asyncio.to_thread(own_server.stop, "immediate")
    try:
        worker.stop()
        await asyncio.wait_for(running_worker, 60)
    finally:
        await asyncio.to_thread(own_server.restart)


async def test_T4_a_stopping_worker_does_not_wait_for_a_later_step(holdfast: Harness) -> None:
    slow = holdfast.app.kind("slow")

    @slow.step
    class Wait:
        __dataclass_fields__ = {}  # type: ignore[var-annotated]

        async def run(self) -> "Later[Wait]":
            return Later(Wait(), "1h")

    ref = await slow.enqueue(Wait())
    async with running(holdfast.worker(grace=600)):
        await until(lambda: row(holdfast.url, ref.id)["moves"] == 1, "for the move")
    assert row(holdfast.url, ref.id)["state"] == "ready"


async def test_W4_ctx_stopping_tells_a_step_and_a_thread_is_given_up_after_the_grace_time(holdfast: Harness) -> None:
    told, end = threading.Event(), threading.Event()

    @holdfast.app.task
    def stubborn(ctx: Context) -> None:
        while not end.wait(0.01):
            if ctx.stopping:
                told.set()

    ref = await stubborn.enqueue()
    worker = holdfast.worker(grace=0.5)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
    assert told.is_set()
    end.set()
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released")]


class Careful:
    """A `def` step that, at its first attempt, goes on until it may end, and looks whether it should."""

    def __init__(self, app: App, end: str) -> None:
        self.begun, self.told, self.end = threading.Event(), threading.Event(), threading.Event()

        @app.task
        def careful(ctx: Context) -> int:
            self.begun.set()
            while ctx.attempt == 1 and not self.end.wait(0.01):
                if end != "unaware" and ctx.cancelled:
                    self.told.set()
            if ctx.attempt == 1 and end == "raises":
                raise RuntimeError("broken off")
            return ctx.attempt

        self.task = careful


@pytest.mark.parametrize("end", ["returns", "raises", "unaware"])
async def test_I5_L5_an_interrupted_thread_is_given_back_when_it_has_ended(holdfast: Harness, end: str) -> None:
    """Given back before, its task would be executed twice at once. What it returns when it is told may be no result."""
    careful = Careful(holdfast.app, end)
    ref = await careful.task.enqueue()
    worker = holdfast.worker()
    async with running(worker):
        await until(careful.begun.is_set, "for the step")
        worker.dispatcher.lose_contact()
        if end != "unaware":
            await until(careful.told.is_set, "for the thread to be told")
        await worker.settler.settled()
        assert row(holdfast.url, ref.id)["attempt"] == 1
        assert row(holdfast.url, ref.id)["state"] == "running"
        careful.end.set()
        assert await ref.result() == (1 if end == "unaware" else 2)
    again = [(1, "main", "released"), (2, "main", "done")]
    assert attempts(holdfast.url, ref.id) == ([(1, "main", "done")] if end == "unaware" else again)


async def test_Q8_W8_a_thread_that_does_not_end_after_an_outage_can_be_cancelled(holdfast: Harness) -> None:
    careful = Careful(holdfast.app, "returns")
    ref = await careful.task.enqueue()
    worker = holdfast.worker()
    async with running(worker):
        await until(careful.begun.is_set, "for the step")
        worker.dispatcher.lose_contact()
        await until(careful.told.is_set, "for the thread to be told")
        await holdfast.app.cancel(ref.id)
        await until(lambda: attempts(holdfast.url, ref.id) == [(1, "main", "cancelled")], "for the cancellation")
        assert worker.roster.stuck == 1
        careful.end.set()


async def test_W4_a_transaction_does_not_outlive_its_worker(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of a step that was given up may go on, without the locks that it holds."""
    monkeypatch.setattr(engine, "LAST_WORDS", 0.1)
    begun, end = threading.Event(), threading.Event()

    @holdfast.app.task(transactional=True)
    def stubborn(ctx: Context) -> None:
        ctx.tx_sync.execute("SELECT pg_advisory_xact_lock(4711)")
        begun.set()
        end.wait(600)

    ref = await stubborn.enqueue()
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"
    try:
        async with running(holdfast.worker(grace=0)):
            await until(begun.is_set, "for the step")
        await until(lambda: sql(holdfast.url, held) == [(0,)], "for the transaction to end", patience=20)
    finally:
        end.set()
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released")]


async def test_W4_an_error_of_being_interrupted_is_not_charged(holdfast: Harness) -> None:
    @holdfast.app.task
    async def clumsy() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            raise RuntimeError("the connection is gone") from None

    ref = await clumsy.enqueue()
    worker = holdfast.worker(grace=0.1)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released")]
    assert row(holdfast.url, ref.id)["errors"] == 0


async def test_M20_attempts_that_have_not_begun_are_released_at_a_stop_at_once(holdfast: Harness) -> None:
    """Interrupted before its first line, an attempt must neither vanish nor keep its slot."""

    @holdfast.app.task
    async def never() -> None:
        raise AssertionError("must not begin")

    ref = await never.enqueue()
    worker = holdfast.worker(lease=60)
    claimed = worker.claimer._claimed

    def claim_then_stop(given: object) -> None:
        claimed(given)  # type: ignore[arg-type]
        for attempt in worker.roster.held.values():
            worker.dispatcher.executor.interrupt(attempt, Interruption.STOP)
        worker.stop()

    worker.claimer._claimed = claim_then_stop  # type: ignore[assignment]
    await asyncio.wait_for(worker.run(), 60)
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released")]
    assert worker.roster.busy == 0
