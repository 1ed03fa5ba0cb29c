"""A5: what steps tell of themselves, while they run and afterwards; M16: never on the rows of tasks."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import Context, Done, Fail, Progress, Retry, TaskInfo, insights
from holdfast._db.driver.session import Link
from holdfast._engine.maintain.maintenance import CHORES
from holdfast._engine.observe import progress as writing
from holdfast._engine.run.attempt import now
from holdfast.testing import Harness, SimulatedCrash

from .steps_in_a_process import tasks, tells
from .support import PATIENCE, attempts, row, running, sql, until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "WRITE_EVERY", 0.0)


def rows(holdfast: Harness) -> list[tuple[UUID, int, float | None, str]]:
    return sql(holdfast.url, "SELECT task_id, attempt, fraction, note FROM holdfast.progress")


def report(holdfast: Harness, id: UUID) -> list[tuple[int, object]]:
    return sql(
        holdfast.url, "SELECT attempt, report::text FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt", id
    )


async def told(holdfast: Harness, id: UUID, *, figures: bool = False) -> TaskInfo:
    """The task once its progress is known, or its figures are."""
    async with asyncio.timeout(PATIENCE):
        while True:
            info = await holdfast.app.info(id)
            if info.report if figures else info.progress is not None:
                return info
            await asyncio.sleep(0.01)


async def test_A5_progress_is_seen_while_the_step_runs_and_gone_afterwards(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def load(ctx: Context) -> str:
        ctx.report(rows=41)
        ctx.report(rows=42, file="a.csv", share=0.5)
        ctx.progress(0.4, "reading\x00 rows")
        await go.wait()
        return "done"

    ref = await load.enqueue()
    async with running(holdfast.worker()):
        info = await told(holdfast, ref.id)
        before = row(holdfast.url, ref.id)
        assert info.progress == Progress(0.4, "reading\\x00 rows")
        assert str(info.progress) == "40 % (reading\\x00 rows)"
        assert info.report == {"rows": 42, "file": "a.csv", "share": 0.5}
        assert info.duration is None
        explained = await holdfast.app.explain(ref.id)
        assert " at 40 % (reading\\x00 rows)" in explained
        assert row(holdfast.url, ref.id) == before, "M16: the row of the task is not touched"
        go.set()
        assert await ref.result("60s") == "done"
    info = await ref.info()
    assert info.progress is None
    assert info.report == {"rows": 42, "file": "a.csv", "share": 0.5}
    assert info.duration is not None and info.duration > timedelta(0)
    assert rows(holdfast) == []
    (attempt,) = await holdfast.app._run(insights.attempts(holdfast.app._queries, ref.id))
    assert attempt.report == info.report and attempt.progress is None


async def test_A5_a_report_is_kept_however_the_attempt_ends(holdfast: Harness) -> None:
    walk = holdfast.app.kind("walk")

    @walk.step
    @dataclass
    class First:
        async def run(self, ctx: Context) -> "Second":
            ctx.report(step=1)
            return Second()

    @walk.step(retry=Retry(1, delay=0))
    @dataclass
    class Second:
        async def run(self, ctx: Context) -> Done[None]:
            ctx.report(step=2, error=ctx.errors)
            raise ValueError if ctx.errors == 0 else Fail("no way")

    ref = await walk.enqueue(First())
    await holdfast.drain()
    assert [outcome for _, _, outcome in attempts(holdfast.url, ref.id)] == ["advanced", "retried", "failed"]
    assert report(holdfast, ref.id) == [
        (1, '{"step": 1}'),
        (2, '{"step": 2, "error": 0}'),
        (3, '{"step": 2, "error": 1}'),
    ]
    assert (await ref.info()).report == {"step": 2, "error": 1}
    assert rows(holdfast) == []


async def test_A5_the_report_of_a_cancelled_attempt_is_kept(holdfast: Harness) -> None:
    @holdfast.app.task
    async def endless(ctx: Context) -> None:
        ctx.report(rows=7)
        await asyncio.sleep(3600)

    ref = await endless.enqueue()
    async with running(holdfast.worker()):
        await told(holdfast, ref.id, figures=True)
        await ref.cancel()
        await until(lambda: not sql(holdfast.url, "SELECT 1 FROM holdfast.task"), "for the cancellation")
    assert report(holdfast, ref.id) == [(1, '{"rows": 7}')]


async def test_A5_what_a_lost_worker_told_is_kept_with_the_lost_attempt(holdfast: Harness) -> None:
    @holdfast.app.task
    async def load(ctx: Context) -> None:
        ctx.report(rows=ctx.attempt)
        ctx.progress(0.5)
        if ctx.attempt == 1:
            await asyncio.sleep(3600)

    ref = await load.enqueue()
    worker = holdfast.worker()
    dying = asyncio.create_task(worker.run())
    await told(holdfast, ref.id)
    worker.progress.write = lost  # type: ignore[method-assign, assignment]
    worker.vanish(SimulatedCrash("as by kill -9"))
    with pytest.raises(SimulatedCrash):
        await dying
    assert rows(holdfast) == [(ref.id, 1, 0.5, "")], "its worker died"
    holdfast.clock.advance("31s")
    await holdfast.drain()
    sweep = CHORES["sweeping progress left behind"]
    await sweep(link := Link(holdfast.url, holdfast.app._queries, "chores"), holdfast.app._queries)
    await link.close()
    assert rows(holdfast) == []
    assert report(holdfast, ref.id) == [(1, '{"rows": 1}'), (2, '{"rows": 2}')]


async def lost(*_: object) -> None: ...


async def test_A5_threads_tell_too(holdfast: Harness) -> None:
    seen = threading.Event()

    @holdfast.app.task
    def load(ctx: Context) -> None:
        threads = [threading.Thread(target=lambda n=n: ctx.report(**{f"part{n}": n})) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ctx.progress(1, "all parts")
        seen.wait(60)

    ref = await load.enqueue()
    async with running(holdfast.worker()):
        info = await told(holdfast, ref.id)
        seen.set()
        await ref.result("60s")
    assert info.progress == Progress(1.0, "all parts")
    assert (await ref.info()).report == {f"part{n}": n for n in range(8)}


async def test_A5_steps_in_processes_tell_too(holdfast: Harness, tmp_path: Path) -> None:
    holdfast.app._include(tasks)
    seen = tmp_path / "seen"
    ref = await holdfast.app.enqueue(tells.bind(str(seen)))
    async with running(holdfast.worker()):
        info = await told(holdfast, ref.id)
        assert info.progress is not None and info.progress.note == "in a child"
        seen.touch()
        await ref.result("60s")
    assert (await ref.info()).report == {"rows": 3}


async def test_A5_a_late_attempt_does_not_write_over_a_newer_one(holdfast: Harness) -> None:
    app, id = holdfast.app, UUID(int=7)
    for attempt, fraction in ((2, 0.5), (1, 0.9)):
        one = b'[{"task_id": "%s", "queue": "q", "attempt": %d, "fraction": %f, "note": "", "report": null}]'
        await app._run(app._queries.progress(one % (str(id).encode(), attempt, fraction)))
    assert rows(holdfast) == [(id, 2, 0.5, "")]
    await app._run(app._queries.forget_progress(b'{"%s": 1}' % str(id).encode()))
    assert len(rows(holdfast)) == 1
    await app._run(app._queries.forget_progress(b'{"%s": 2}' % str(id).encode()))
    assert rows(holdfast) == []


async def test_A5_the_sweep_takes_only_what_no_longer_runs_and_is_bounded(holdfast: Harness) -> None:
    app = holdfast.app
    go = asyncio.Event()

    @app.task
    async def load(ctx: Context) -> None:
        ctx.progress(0.5)
        await go.wait()

    ref = await load.enqueue()
    async with running(holdfast.worker()):
        await told(holdfast, ref.id)
        sql(
            holdfast.url,
            "INSERT INTO holdfast.progress (task_id, queue, attempt)"
            " SELECT holdfast.new_id(), 'q', 1 FROM generate_series(1, 5)",
        )
        assert await app._run(app._queries.sweep_progress(3)) == 3
        assert await app._run(app._queries.sweep_progress(3)) == 2
        assert [each[0] for each in rows(holdfast)] == [ref.id]
        go.set()


async def test_A5_what_cannot_be_written_does_not_stop_the_beat(holdfast: Harness) -> None:
    go = asyncio.Event()

    @holdfast.app.task
    async def load(ctx: Context) -> None:
        ctx.report(rows=1)
        await go.wait()

    sql(holdfast.url, "ALTER TABLE holdfast.progress RENAME TO elsewhere")
    ref = await load.enqueue()
    worker = holdfast.worker(lease=3, beat=0.2)
    async with running(worker):
        await until(lambda: worker.progress._failing, "for a write to fail")
        accepted = worker.contact.accepted_at
        await until(lambda: worker.contact.accepted_at > accepted, "for another beat")
        assert not worker.contact.failing
        sql(holdfast.url, "ALTER TABLE holdfast.elsewhere RENAME TO progress")
        assert (await told(holdfast, ref.id, figures=True)).report == {"rows": 1}
        go.set()
        await ref.result("60s")


async def test_A5_nothing_is_kept_or_written_for_steps_that_tell_nothing(holdfast: Harness) -> None:
    @holdfast.app.task
    async def silent(ctx: Context) -> None:
        assert ctx._about.told is None

    ref = await silent.enqueue()
    worker = holdfast.worker()
    async with running(worker):
        await ref.result("60s")
        assert not worker.progress.is_due
    assert report(holdfast, ref.id) == [(1, None)]


async def test_A5_a_wrong_report_is_an_error_of_the_step_that_names_it(holdfast: Harness) -> None:
    @holdfast.app.task
    async def wrong(ctx: Context) -> None:
        ctx.report(rows=float("nan"))

    ref = await wrong.enqueue()
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked" and info.error is not None
    assert info.error["message"] == "ctx.report: rows is nan, which is no figure"


def test_A5_writes_are_a_second_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert writing.WRITE_EVERY == 1.0
    log = writing.ProgressLog(None, None)  # type: ignore[arg-type]
    assert not log.is_due
    log._changed[b"id"] = None  # type: ignore[assignment]
    log._wrote_at = now()
    assert not log.is_due
    log._wrote_at -= 1.1
    assert log.is_due
