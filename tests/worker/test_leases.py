"""Leases: renewed while a step runs, lost when taken over, and what the handler is told."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import ConfigError, Context, Ref, Tasks
from holdfast._db.driver.session import Link
from holdfast._engine import worker as engine
from holdfast._engine.lease.reaper import Reaper
from holdfast._engine.settings import WorkerSettings
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.query import Query, Statement
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()
gate = threading.Event()
ended: dict[int, str] = {}


@pytest.fixture
def holdfast_tasks() -> Iterator[Tasks]:
    gate.clear()
    ended.clear()
    yield tasks
    gate.set()


@tasks.task
async def hold(ctx: Context) -> str:
    try:
        while not gate.is_set():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        ended[ctx.attempt] = "cancelled"
        raise
    ended[ctx.attempt] = "finished"
    return "held"


@tasks.task
def hold_thread(ctx: Context) -> str:
    while not gate.wait(0.01):
        if ctx.cancelled:
            ended[ctx.attempt] = "told"
            return "gave up"
    ended[ctx.attempt] = "finished"
    return "held"


@tasks.task
async def quick(n: int) -> int:
    return n


BOTH = pytest.mark.parametrize(("what", "word"), [(hold, "cancelled"), (hold_thread, "told")], ids=["async", "thread"])


def take_over(url: str, id: Any) -> None:
    """What a reaper and another worker's claim do to the row."""
    sql(
        url,
        "UPDATE holdfast.task SET attempt = attempt + 1, worker_id = gen_random_uuid(), crashes = crashes + 1,"
        " lease_expires_at = holdfast.now() + interval '1 hour' WHERE id = $1",
        id,
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lease": 0}, "lease must be a duration of at least 1s"),
        ({"lease": "10ms"}, "lease must be a duration of at least 1s, .*, not '10ms'"),
        ({"lease": 10, "beat": 0}, "beat must be a duration of at least 50ms"),
        ({"lease": 10, "beat": "1ms"}, "beat must be a duration of at least 50ms"),
        ({"lease": -5}, "lease"),
        ({"lease": 30, "beat": 11}, "too seldom"),
        ({"poll": 0}, "poll"),
        ({"poll": timedelta(milliseconds=1)}, "poll must be a duration of at least 50ms"),
        ({"reap": 0}, "reap"),
        ({"reap": 0.01}, "reap must be a duration of at least 50ms"),
        ({"grace": -1}, "grace"),
        ({"blocked": 0}, "blocked: 0 is shorter than 100ms"),
        ({"retention": "23h"}, "retention must be a duration of at least 1d"),
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": -1}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 2.5}, "concurrency"),
        ({"queues": []}, "queue"),
        ({"queues": "Bad Name"}, "queue"),
    ],
)
def test_L2_W1_settings_that_cannot_work_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        WorkerSettings.of(**settings)


def test_L2_the_defaults() -> None:
    chosen = WorkerSettings.of()
    assert (chosen.lease, chosen.beat, chosen.poll, chosen.concurrency, chosen.grace) == (30, 10, 1, 10, 30)
    assert WorkerSettings.of(lease=3).beat == 1


async def test_L1_a_running_task_has_a_worker_and_a_lease(holdfast: Harness) -> None:
    ref = await hold.enqueue()
    worker = holdfast.worker(lease=20)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        found = row(holdfast.url, ref.id)
        assert (found["state"], found["worker_id"]) == ("running", worker.claimer.worker_id)
        [(length,)] = sql(
            holdfast.url, "SELECT extract(epoch FROM lease_expires_at - claimed_at)::float8 FROM holdfast.task"
        )
        assert length == 20  # L7: both by the database's clock, in one statement
        gate.set()
        await ref.result(timeout=60)
    with pytest.raises(psycopg.errors.CheckViolation):
        sql(
            holdfast.url,
            "INSERT INTO holdfast.task (id, kind, step, state) VALUES (holdfast.new_id(), 'a', 'b', 'running')",
        )


async def test_L3_long_tasks_are_renewed_in_one_statement_and_short_ones_never(holdfast: Harness) -> None:
    refs = [await hold.enqueue() for _ in range(3)]
    worker = holdfast.worker(lease=1.5, beat=0.3)
    beats: list[int] = []
    beat = worker.shared.queries.beat

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(worker.shared.queries, name)

        def beat(self, queue: str, id: Any, ids: list[Any], lease: Any, **more: Any) -> Any:
            beats.append(len(ids))
            return beat(queue, id, ids, lease, **more)

    async with running(worker):
        worker.heartbeat._queries = Watched()  # type: ignore[assignment]
        await until(lambda: worker.roster.busy == 3, "for the steps")
        first = row(holdfast.url, refs[0].id)["lease_expires_at"]
        await until(lambda: row(holdfast.url, refs[0].id)["lease_expires_at"] > first, "for a renewal")
        await until(lambda: beats.count(3) >= 3, "for more renewals")
        before = len(beats)
        short = [await quick.enqueue(n) for n in range(20)]
        assert [await ref.result(timeout=60) for ref in short] == list(range(20))
        assert max(beats[before:], default=0) <= 3
        gate.set()
        assert [await ref.result(timeout=60) for ref in refs] == ["held"] * 3
    for ref in refs:
        assert attempts(holdfast.url, ref.id) == [(1, "main", "done")]


@BOTH
async def test_L4_L6_a_late_finisher_overwrites_nothing_and_the_handler_is_told(
    holdfast: Harness, what: Any, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    ref = await what.enqueue()
    worker = holdfast.worker(lease=1.5, beat=0.2)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        take_over(holdfast.url, ref.id)
        taken = row(holdfast.url, ref.id)
        await until(lambda: ended.get(1) == word, "for the handler to be told")
        await until(lambda: worker.roster.busy == 0, "for the slot")
        await (await quick.enqueue(1)).result(timeout=60)
    assert row(holdfast.url, ref.id) == taken
    [record] = [r for r in caplog.records if "the lease of" in r.message]
    assert record.levelno == logging.WARNING
    fields = {name: getattr(record, name) for name in ("task_id", "kind", "step", "attempt", "queue", "worker")}
    assert fields == {
        "task_id": str(ref.id),
        "kind": what.name,
        "step": "main",
        "attempt": 1,
        "queue": "default",
        "worker": str(worker.claimer.worker_id),
    }


async def test_L4_a_finish_after_the_takeover_is_dropped_with_a_warning(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    ref = await hold.enqueue()
    worker = holdfast.worker(lease=60)  # no beat comes before the end
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        take_over(holdfast.url, ref.id)
        taken = row(holdfast.url, ref.id)
        gate.set()
        await until(lambda: not worker.roster.held, "for the end")
    assert ended == {1: "finished"}
    assert row(holdfast.url, ref.id) == taken
    assert "was lost before the end of attempt 1 was recorded" in caplog.text


@BOTH
@pytest.mark.direct("it needs notifications")
async def test_Q8_M11_cancel_of_a_running_task(holdfast: Harness, what: Any, word: str) -> None:
    ref = await what.enqueue()
    worker = holdfast.worker(lease=60)  # told by notification, not by a beat
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        await until(worker.listener.listening.is_set, "for the listener")
        assert await ref.cancel("no longer wanted")
        await until(lambda: ended.get(1) == word, "for the handler to be told")
        await until(lambda: not sql(holdfast.url, "SELECT 1 FROM holdfast.task"), "for the archive")
        await until(lambda: worker.roster.busy == 0, "for the slot")
    info = await ref.info()
    assert info.state == "cancelled"
    assert attempts(holdfast.url, ref.id) == [(1, "main", "cancelled")]
    assert not await ref.cancel()


async def test_Q8_M11_a_beat_tells_of_a_cancel_when_notifications_fail(holdfast: Harness) -> None:
    ref = await hold.enqueue()
    worker = holdfast.worker(lease=1.5, beat=0.2)
    worker.listener._notified = lambda payload: None
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        assert await ref.cancel()
        await until(lambda: ended.get(1) == "cancelled", "for the handler to be told")
    assert (await ref.info()).state == "cancelled"


async def test_Q8_cleanup_after_a_cancel_is_not_cancelled_again(holdfast: Harness) -> None:
    cleaned = []

    @holdfast.app.task
    async def careful() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(1)  # several beats long
            cleaned.append(True)

    ref = await careful.enqueue()
    worker = holdfast.worker(lease=1, beat=0.1)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the step")
        assert await ref.cancel()
        await until(lambda: worker.roster.busy == 0, "for the end")
    assert cleaned == [True]


async def test_M1_a_reaper_that_was_stopped_waits_a_lease_before_it_reaps(holdfast: Harness) -> None:
    """Only lower bounds are checked: a slow machine cannot make this fail."""
    worker = holdfast.worker(queues="default", lease=1.0, reap=0.05)
    shared, link = worker.shared, Link(holdfast.url, worker.shared.queries, "test")
    reaped_at: list[float] = []
    run = link.run

    async def watched(query: Any) -> Any:
        if query.statement.name == "reap":
            reaped_at.append(time.monotonic())
        answer = await run(query)
        return answer._replace(leases=True) if query.statement.name == "overdue" else answer

    link.run = watched  # type: ignore[method-assign]
    reaper = Reaper(shared, link, worker.consequences)
    loop = asyncio.create_task(reaper.run())
    try:
        begun = time.monotonic()
        await until(lambda: reaped_at, "for the first reap")
        assert reaped_at[0] - begun >= 1.0
        await asyncio.sleep(0)
        time.sleep(1.0)  # as SIGSTOP would: nothing moves in this process
        seen, resumed = len(reaped_at), time.monotonic()
        await until(lambda: len(reaped_at) > seen + 1, "for the next reaps")
        # At most one was already on its way.
        assert reaped_at[seen + 1] - resumed >= 0.9
    finally:
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await link.close()


async def test_M1_what_runs_out_while_a_reaper_is_held_up_is_not_taken(holdfast: Harness) -> None:
    """Between its two statements the network falls silent for everybody: when the second arrives, leases are old."""
    reaper = holdfast.worker(lease=30).reaper
    ref, lost = [await holdfast.app.enqueue(hold.bind()) for _ in range(2)]
    taken = "UPDATE holdfast.task SET state = 'running', attempt = 1, worker_id = $1, lease_expires_at = holdfast.now()"
    sql(holdfast.url, f"{taken} + interval '1h'", uuid7())
    sql(holdfast.url, f"{taken} - interval '1h' WHERE id = $2", uuid7(), lost.id)
    run = reaper._link.run

    async def silence(query: Any) -> Any:
        answer = await run(query)
        if query.statement.name == "overdue":
            sql(holdfast.url, "UPDATE holdfast.task SET lease_expires_at = holdfast.now() WHERE id = $1", ref.id)
        return answer

    await run(holdfast.app._queries.server())
    reaper._link.contact_since = -math.inf
    reaper._link.run = silence  # type: ignore[method-assign]
    await reaper.reap_if_allowed()
    assert row(holdfast.url, lost.id)["state"] == "ready"
    assert row(holdfast.url, ref.id)["state"] == "running"
    reaper._link.run = run  # type: ignore[method-assign]
    await reaper.reap_if_allowed()
    assert row(holdfast.url, ref.id)["state"] == "ready"
    assert row(holdfast.url, ref.id)["crashes"] == 1
    await reaper._link.close()


async def test_M1_nobody_is_reaped_before_all_was_well_for_a_lease(holdfast: Harness) -> None:
    """With a full disk the server answers, but nobody can renew: that is no contact."""
    worker = holdfast.worker(lease=30)
    reaper, ref = worker.reaper, await _held_by_a_dead_worker(holdfast)
    await reaper._link.run(holdfast.app._queries.server())
    reaper._link.contact_since = -math.inf
    for well in (None, time.monotonic()):
        worker.contact.well_since = well
        await reaper.reap_if_allowed()
        assert row(holdfast.url, ref.id)["state"] == "running"
    worker.contact.well_since = -math.inf
    await reaper.reap_if_allowed()
    assert row(holdfast.url, ref.id)["state"] == "ready"
    await reaper._link.close()


async def test_M1_a_worker_knows_since_when_all_is_well(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = holdfast.worker(lease=30, beat=0.05)
    async with running(worker):
        since = await until(lambda: worker.contact.all_well_since, "for a beat")
        assert since is not None and since <= time.monotonic()
        # A statement finds the disk full.
        starved = worker._links["settle"]
        full = Query(Statement("full", "", "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$", ()), (), list)
        before = time.monotonic()
        with pytest.raises(psycopg.errors.DiskFull):
            await starved.run(full)
        assert (worker.contact.all_well_since or 0) >= before
        # Beats are refused.
        sql(holdfast.url, _FULL)
        sql(holdfast.url, "CREATE TRIGGER f BEFORE UPDATE ON holdfast.worker EXECUTE FUNCTION public.full()")
        await until(lambda: worker.contact.all_well_since is None, "for a beat that fails")
        sql(holdfast.url, "DROP TRIGGER f ON holdfast.worker")
        assert await until(lambda: worker.contact.all_well_since, "for a beat") > since


_FULL = """
CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$
"""


async def test_M1_a_step_of_the_servers_clock_charges_nobody(holdfast: Harness) -> None:
    """All leases seem to be over at once, and nobody could renew his so soon."""
    reaper, ref = holdfast.worker(lease=30).reaper, await _held_by_a_dead_worker(holdfast, "1h")
    await reaper.reap_if_allowed()
    reaper._link.contact_since = -math.inf
    holdfast.clock.advance("2h")
    await reaper.reap_if_allowed()
    assert row(holdfast.url, ref.id)["state"] == "running"
    assert reaper._link.contact_since is None
    await reaper.reap_if_allowed()
    assert row(holdfast.url, ref.id)["state"] == "running"
    reaper._link.contact_since = -math.inf
    holdfast.clock.advance("1s")  # as time goes by
    await reaper.reap_if_allowed()
    assert row(holdfast.url, ref.id)["state"] == "ready"
    await reaper._link.close()


async def _held_by_a_dead_worker(holdfast: Harness, lease: str = "-1s") -> Ref[str]:
    ref = await holdfast.app.enqueue(hold.bind())
    taken = "UPDATE holdfast.task SET state = 'running', attempt = 1, worker_id = $1, lease_expires_at = holdfast.now()"
    sql(holdfast.url, f"{taken} + $2::interval", uuid7(), lease)
    return ref


async def test_L9_the_beat_marks_what_has_begun_of_what_was_claimed_ahead(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "UNSTARTED", 600.0)
    await holdfast.app.enqueue_many([hold.bind() for _ in range(3)])
    worker = holdfast.worker(concurrency=1, lease=30, beat=0.1)
    worker.claimer._budget.share = lambda queue: 3  # type: ignore[method-assign]
    limits = "SELECT max_crashes FROM holdfast.task ORDER BY max_crashes"
    async with running(worker):
        await until(lambda: (worker.roster.busy, len(worker.roster.ready)) == (1, 2), "for the claim")
        await until(lambda: sql(holdfast.url, limits) == [(-4,), (-4,), (3,)], "for a beat")
        gate.set()
