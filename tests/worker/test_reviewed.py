"""Faults that a reading of the engine found: each of these ended a worker, a process or an innocent task."""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast import App, Context, EnqueueRefused, Entry, Failure, KeyTaken, Retry, Snooze, named
from holdfast._db.driver.connection import DriverError, connect_sync
from holdfast._engine.lease.heartbeat import Heartbeat
from holdfast._engine.loops import Pulse
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.executor import Executor
from holdfast._model.declare.step import Step
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._model.run.context import Offers
from holdfast._model.run.outcome import Released
from holdfast._model.run.tracing import Tracing
from holdfast._sql.query import Query
from holdfast._sql.rows import Claimed
from holdfast.testing import Harness

from .support import running, until


def locked(url: str, id: object) -> Any:
    """A connection that holds a task's row."""
    connection = connect_sync(url)
    connection.execute(b"BEGIN")
    connection.execute(b"SELECT FROM holdfast.task WHERE id = $1 FOR UPDATE", [id])
    return connection


@pytest.mark.parametrize("before", range(6))
async def test_M6_a_locked_row_never_costs_the_connection_its_mind(
    holdfast: Harness, before: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After a failed pipeline the driver took skipped statements for prepared: the next flush ended the worker."""
    gate = asyncio.Event()

    @holdfast.app.task
    async def wait(n: int) -> None:
        if n >= 0:
            await gate.wait()

    worker = holdfast.worker(queues="default")
    running = asyncio.create_task(worker.run())
    for _ in range(before):
        await (await wait.enqueue(-1)).result("30s")
    refs = [await wait.enqueue(n) for n in range(3)]
    await until(lambda: worker.roster.busy == 3)
    holder = locked(holdfast.url, refs[0].id)
    gate.set()
    await refs[1].result("30s")
    await refs[2].result("30s")
    holder.execute(b"ROLLBACK")
    holder.close()
    await refs[0].result("30s")
    assert not running.done()
    assert "recording is interrupted" not in caplog.text
    worker.stop()
    await running


@pytest.mark.direct("nothing is prepared there")
async def test_M6_a_connection_is_not_used_again_after_a_failed_pipeline(holdfast: Harness) -> None:
    """What the driver believes to be prepared on it, the server may have skipped."""
    link = holdfast.worker(queues="default")._links["settle"]
    queries = holdfast.app._queries
    refused: Query[Any] = queries.enqueue(Request(uuid7(), "default", "greeter", "ReadName", b"no JSON"))
    await link.transact([queries.schema_version()])
    used = link._connection
    with pytest.raises(DriverError):
        await link.transact([refused, refused])
    await link.transact([queries.schema_version()])
    assert link._connection is not used
    await link.close()


async def test_M6_a_locked_row_and_a_refused_value_in_one_flush(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    monkeypatch.setattr("holdfast._model.run.outcome.LATEST", datetime.max.replace(tzinfo=UTC))

    @holdfast.app.task
    async def step(n: int) -> None:
        await gate.wait()
        if n == 0:
            raise Snooze(at=datetime(9999, 6, 1, tzinfo=UTC))  # the database refuses it

    refs = [await step.enqueue(n) for n in range(3)]
    worker = holdfast.worker(queues="default")
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.roster.busy == 3)
    holder = locked(holdfast.url, refs[1].id)
    gate.set()
    await refs[2].result("30s")
    holder.execute(b"ROLLBACK")
    holder.close()
    await refs[1].result("30s")
    await until(lambda: holdfast.sql("SELECT state FROM holdfast.task") == [("parked",)])
    assert not running.done()
    worker.stop()
    await running


async def test_W5_an_introduction_that_failed_is_made_again(holdfast: Harness) -> None:
    worker = holdfast.worker(queues="default")
    introduce, tries = worker.claimer._identify, []

    async def fail_once(worker_id: Any) -> None:
        tries.append(worker_id)
        if len(tries) == 1:
            raise ConnectionError("away")
        await introduce(worker_id)

    worker.claimer._identify = fail_once
    running = asyncio.create_task(worker.run())
    await until(lambda: holdfast.sql("SELECT count(*) FROM holdfast.worker") == [(1,)])
    worker.stop()
    await running


async def test_W1_a_freed_slot_is_filled_although_others_are_busy(holdfast: Harness) -> None:
    """Nobody waits until half of the slots are free."""
    gates = [asyncio.Event() for _ in range(8)]
    started: list[int] = []

    @holdfast.app.task
    async def step(n: int) -> None:
        started.append(n)
        await gates[n].wait()

    await holdfast.app.enqueue_many([step.bind(n) for n in range(8)])
    worker = holdfast.worker(queues="default", concurrency=4, poll=600)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(started) == 4)
    gates[started[0]].set()
    await until(lambda: len(started) == 5)
    for gate in gates:
        gate.set()
    worker.stop()
    await running


@pytest.mark.direct("it needs notifications")
async def test_M11_a_notification_alone_cancels_nothing(holdfast: Harness) -> None:
    gate = asyncio.Event()

    @holdfast.app.task
    async def step() -> str:
        await gate.wait()
        return "done"

    ref = await step.enqueue()
    worker = holdfast.worker(queues="default")
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.roster.busy == 1 and worker.listener.listening.is_set())
    looked: list[object] = []
    look = worker.messages._check_cancelled

    async def looking(attempt: Any) -> None:
        await look(attempt)
        looked.append(attempt)

    worker.messages._check_cancelled = looking  # type: ignore[method-assign]
    holdfast.sql("SELECT pg_notify('holdfast', $1)", f"cancel {ref.id}")
    await until(lambda: bool(looked))
    gate.set()
    assert await ref.result("30s") == "done"
    worker.stop()
    await running


async def test_T19_a_hook_that_blocks_does_not_hold_the_stop_for_ever(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._engine.observe.failure_hooks.HOOK_SECONDS", 0.2)
    blocked = threading.Event()

    @holdfast.app.on_failure
    def hook(failure: Failure) -> None:
        threads.append(threading.current_thread())
        blocked.wait(60)

    @holdfast.app.task
    async def doomed() -> None:
        raise RuntimeError

    threads: list[threading.Thread] = []
    await doomed.enqueue()
    await holdfast.drain()
    assert [t.daemon for t in threads] == [True], "it must not keep the process from ending"
    blocked.set()


async def test_a_worker_that_was_silent_for_long_is_taken_for_dead_and_revived_by_a_beat(holdfast: Harness) -> None:
    worker = holdfast.worker(queues="default")
    await worker.registration.introduce(worker.claimer.worker_id)
    holdfast.clock.advance("4m")
    await worker.reaper.reap()
    assert holdfast.sql("SELECT stopped_at IS NULL FROM holdfast.worker") == [(True,)]
    holdfast.clock.advance("2m")
    await worker.reaper.reap()
    assert holdfast.sql("SELECT stopped_at IS NULL FROM holdfast.worker") == [(False,)]
    assert not await worker.registration.asked_to_stop(0)
    assert holdfast.sql("SELECT stopped_at IS NULL FROM holdfast.worker") == [(True,)]
    await worker.reaper._link.close()


def test_M19_a_machine_that_slept_has_no_wedged_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases go on while the machine sleeps; the loop rightly stands still."""

    async def check() -> None:
        beat = Heartbeat.__new__(Heartbeat)
        beat._wedged_after, beat._blocked_after, beat._warned = 300.0, 1.0, False
        beat._pulse = Pulse()
        beat.tick()
        monkeypatch.setattr("holdfast._engine.lease.heartbeat.now", lambda: 1e12)
        monkeypatch.setattr("os._exit", lambda code: pytest.fail("the process would have ended"))
        beat._check_loop()

    asyncio.run(check())


async def test_Q2_on_conflict_raise_is_all_or_nothing_in_bulk(holdfast: Harness) -> None:
    @holdfast.app.task
    async def step(n: int) -> None: ...

    await holdfast.app.enqueue(step.bind(0), key="taken")
    entries = [Entry(step.bind(n), key="taken" if n == 5 else f"k{n}", on_conflict="raise") for n in range(10)]
    with pytest.raises(KeyTaken):
        await holdfast.app.enqueue_many(entries)
    with pytest.raises(KeyTaken):
        await asyncio.to_thread(holdfast.app.sync.enqueue_many, entries)
    assert holdfast.enqueued(step) == 1


async def test_T8_a_kind_of_several_steps_needs_the_name_of_one(holdfast: Harness) -> None:
    holdfast.sql("INSERT INTO holdfast.kind VALUES ('many', 'q', 3, NULL, '{}'), ('one', 'q', 3, 'Only', '{}')")
    with pytest.raises(EnqueueRefused, match="several steps"):
        await holdfast.app.enqueue(named("many", {}))
    with pytest.raises(Exception, match="several steps"):
        holdfast.sql("SELECT holdfast.enqueue('many')")
    ref = await holdfast.app.enqueue(named("one", {}))
    info = await ref.info()
    assert (info.queue, info.priority, info.step) == ("q", 3, "Only")


async def test_T16_a_child_that_died_while_idle_is_not_used_again(holdfast_url: str) -> None:
    from .steps_in_a_process import pid_of, tasks

    app = App(holdfast_url, include=[tasks])
    async with app, app.worker():
        first = await (await pid_of.enqueue()).result("60s")
        os.kill(first, signal.SIGKILL)
        await until(lambda: not _alive(first))
        second = await (await pid_of.enqueue()).result("60s")
    assert second not in (first, os.getpid())


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_what_cannot_be_told_to_a_step_is_an_error_of_its_attempt(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And costs no slot."""

    def untold(attempt: Attempt, offers: Offers) -> Context:
        if attempt.number == 1:
            raise ValueError("not to be told")
        return Context(attempt, offers)

    monkeypatch.setattr("holdfast._engine.run.executor.Context", untold)

    @holdfast.app.task(retry=Retry(1, delay=0.01))
    async def hear() -> str:
        return "heard"

    worker = holdfast.worker(concurrency=1)
    async with running(worker):
        ref = await hear.enqueue()
        assert await ref.result("30s") == "heard"
        await until(lambda: not worker.roster.busy and not worker.roster.held)
    assert (await ref.info()).attempt == 2


def test_headers_that_are_no_text_are_none() -> None:
    row = Claimed(uuid7().bytes, "k", "main", b"{}", 1, 0, 0, 0, 0, 0.0, 0.0, None, b'{"a": "\xe9"}', None)
    assert Attempt(*row, "default", uuid7(), cast(Step, None), 0.0).strings() == {}


async def test_an_attempt_that_we_fail_to_execute_is_given_back(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.app.task
    async def work() -> str:
        return "worked"

    async def faulty(execution: Executor, attempt: Attempt) -> Any:
        if attempt.number == 1:
            raise RuntimeError("a fault of ours")
        return await execute(execution, attempt)

    execute = Executor.execute
    monkeypatch.setattr(Executor, "execute", faulty)
    monkeypatch.setattr("holdfast._engine.run.dispatcher._UNEXECUTED", Released())
    worker = holdfast.worker(concurrency=1)
    async with running(worker):
        ref = await work.enqueue()
        assert await ref.result("30s") == "worked"
        await until(lambda: not worker.roster.busy and not worker.roster.held)
    assert ((await ref.info()).attempt, (await ref.info()).errors) == (2, 0)
    assert "is given back" in caplog.text and "a fault of ours" in caplog.text


async def test_a_step_that_ended_before_its_tracer_failed_is_not_executed_again(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    @holdfast.app.task
    async def pay() -> str:
        ran.append("paid")
        return "paid"

    class Tracer:
        @contextmanager
        def attempting(self, attempt: Attempt) -> Iterator[Callable[[Any], None]]:
            yield lambda outcome: None
            raise RuntimeError("the exporter is gone")

    worker = holdfast.worker(concurrency=1)
    async with running(worker):
        worker.dispatcher.tracing = cast(Tracing, Tracer())
        ref = await pay.enqueue()
        assert await ref.result("30s") == "paid"
        await until(lambda: not worker.roster.busy and not worker.roster.held)
    assert (ran, (await ref.info()).attempt) == (["paid"], 1)
    assert "has ended, and that is recorded" in caplog.text and "the exporter is gone" in caplog.text
