"""`ctx.move`: the fenced move, written in the caller's own transaction (T22)."""

import asyncio
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from holdfast import Context, Done, Later, Retry, TaskParked, Tasks
from holdfast.testing import Harness, context

from .support import attempts, row, running, sql, until

tasks = Tasks()
trip = tasks.kind("trip", result=str, retry=Retry(1, delay="50ms"))
circle = tasks.kind("circle", max_moves=3)
back = tasks.kind("back", result=str)
gates: dict[str, asyncio.Event] = {}
going_on: list[int] = []
place: dict[str, str] = {}


@pytest.fixture
def holdfast_tasks(holdfast_url: str) -> Tasks:
    gates.update(begun=asyncio.Event(), go=asyncio.Event())
    place["url"] = holdfast_url
    sql(holdfast_url, "CREATE TABLE IF NOT EXISTS visited (place text)")
    return tasks


def visited(harness: Harness) -> list[str]:
    return [name for (name,) in sql(harness.url, "SELECT place FROM visited ORDER BY place")]


@tasks.task
async def postcard(n: int) -> None: ...


@trip.step
@dataclass
class Leave:
    how: str = ""

    async def run(self, ctx: Context) -> "Arrive | Later[Arrive] | None":
        async with await psycopg.AsyncConnection.connect(place["url"]) as mine:
            await mine.execute("INSERT INTO visited VALUES ('home')")
            ctx.enqueue(postcard.bind(1))
            if self.how == "loses its lease":
                gates["begun"].set()
                await gates["go"].wait()
            moved: Any = await ctx.move(Later(Arrive(), "1h") if self.how == "later" else Arrive(), conn=mine)
            match self.how:
                case "not committed":
                    await mine.rollback()
                case "twice":
                    await ctx.move(Arrive(), conn=mine)
                case "another":
                    await mine.rollback()
                    return None
                case "raises" if not ctx.errors:
                    raise ValueError("before the commit")
                case "enqueues after":
                    ctx.enqueue(postcard.bind(2))
                case "raises after":
                    await mine.commit()
                    raise ValueError("after the commit")
        return moved  # type: ignore[no-any-return]


@trip.step
@dataclass
class Arrive:
    def run(self, ctx: Context) -> "Rest":
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(place["url"]))
        with Session(engine) as session, session.begin():
            session.execute(text("INSERT INTO visited VALUES ('there')"))
            moved = ctx.move_sync(Rest(), conn=session)
        engine.dispose()
        return moved


@trip.step
@dataclass
class Rest:
    async def run(self, ctx: Context) -> Done[str]:
        engine = create_async_engine(
            "postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(place["url"])
        )
        async with engine.begin() as mine:
            await mine.execute(text("INSERT INTO visited VALUES ('bed')"))
            done = await ctx.move(Done("home again"), conn=mine)
        await engine.dispose()
        return done


@circle.step
@dataclass
class Round:
    async def run(self, ctx: Context) -> "Round":
        async with await psycopg.AsyncConnection.connect(place["url"]) as mine:
            return await ctx.move(Round(), conn=mine)


@back.step
@dataclass
class Try:
    async def run(self, ctx: Context) -> "Done[str] | Try":
        beside = list(going_on)
        going_on.append(ctx.attempt)
        try:
            if ctx.attempt > 1:
                return Done(f"beside {beside}" if beside else "alone")
            async with await psycopg.AsyncConnection.connect(place["url"]) as mine:
                moved = await ctx.move(Try(), conn=mine)
                await mine.rollback()
                gates["begun"].set()
                await asyncio.Event().wait()
            return moved
        finally:
            going_on.remove(ctx.attempt)


async def test_T22_moves_and_the_end_commit_with_the_users_own_transaction(holdfast: Harness) -> None:
    ref = await trip.enqueue(Leave())
    async with running(holdfast.worker(), holdfast.worker()):
        assert await ref.result(timeout=60) == "home again"
    assert visited(holdfast) == ["bed", "home", "there"]
    assert attempts(holdfast.url, ref.id) == [(1, "Leave", "advanced"), (2, "Arrive", "advanced"), (3, "Rest", "done")]
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.archive WHERE kind = 'postcard'") == [(1,)]


async def test_T22_later_waits(holdfast: Harness) -> None:
    ref = await trip.enqueue(Leave("later"))
    async with running(holdfast.worker()):
        await until(lambda: row(holdfast.url, ref.id)["step"] == "Arrive", "for the move")
        assert row(holdfast.url, ref.id)["state"] == "ready"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("not committed", "not committed when the step ended"),
        ("twice", "called twice"),
        ("another", "returned something else"),
        ("enqueues after", "enqueue first"),
    ],
)
async def test_T22_a_move_that_was_not_committed_is_an_error(holdfast: Harness, how: str, says: str) -> None:
    ref = await trip.enqueue(Leave(how))
    worker = holdfast.worker(poll=0.05)
    async with running(worker):
        with pytest.raises(TaskParked, match=says):
            await ref.result(timeout=60)
        assert not worker.roster.held
    assert visited(holdfast) == []
    assert row(holdfast.url, ref.id)["step"] == "Leave"
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.tasks WHERE kind = 'postcard'") == [(0,)]


async def test_T22_a_step_that_raises_before_its_commit_is_retried(holdfast: Harness) -> None:
    ref = await trip.enqueue(Leave("raises"))
    async with running(holdfast.worker()):
        assert await ref.result(timeout=60) == "home again"
    assert [o for _, _, o in attempts(holdfast.url, ref.id)] == ["retried", "advanced", "advanced", "done"]
    assert visited(holdfast) == ["bed", "home", "there"]


async def test_T22_a_step_that_raises_after_its_commit_has_moved(holdfast: Harness) -> None:
    ref = await trip.enqueue(Leave("raises after"))
    async with running(holdfast.worker()):
        assert await ref.result(timeout=60) == "home again"
    assert [o for _, _, o in attempts(holdfast.url, ref.id)] == ["advanced", "advanced", "done"]


async def test_T22_a_lost_lease_writes_nothing(holdfast: Harness) -> None:
    ref = await trip.enqueue(Leave("loses its lease"))
    worker = holdfast.worker()
    async with running(worker):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        sql(holdfast.url, "UPDATE holdfast.task SET attempt = attempt + 1 WHERE id = $1", ref.id)
        gates["go"].set()
        await until(lambda: not worker.roster.held, "for the worker to notice")
    assert visited(holdfast) == []
    assert row(holdfast.url, ref.id)["step"] == "Leave"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The outcomes that the log tells of, and what is only a warning."""
    return [getattr(r, "outcome", "warning") for r in caplog.records if r.name == "holdfast.task"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("not committed", ["failed"]), ("another", ["failed"]), ("raises", ["retried"]), ("raises after", ["warning"])],
)
async def test_T22_what_came_of_an_own_move_is_told_once(
    holdfast: Harness, how: str, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.task")
    ref = await trip.enqueue(Leave(how))
    async with running(holdfast.worker(poll=0.05)):
        await until(lambda: state(holdfast, ref.id) in ("done", "parked"), "for its end")
    assert told(caplog) == expected


def state(harness: Harness, id: Any) -> str:
    ((found,),) = sql(harness.url, "SELECT state FROM holdfast.tasks WHERE id = $1", id)
    return str(found)


async def test_T21_a_task_that_has_made_all_its_moves_makes_none_by_itself(holdfast: Harness) -> None:
    ref = await circle.enqueue(Round())
    async with running(holdfast.worker(poll=0.05)):
        with pytest.raises(TaskParked, match="made 3 moves, and that is max_moves"):
            await ref.result(timeout=60)
    assert [o for _, _, o in attempts(holdfast.url, ref.id)] == ["advanced"] * 3 + ["failed"]


async def test_T22_a_move_that_was_rolled_back_lets_nobody_run_beside_it(holdfast: Harness) -> None:
    """Its lease is lost, and its own worker claims the task anew, while the first attempt still goes on."""
    ref = await back.enqueue(Try())
    async with running(holdfast.worker(poll=0.05)):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        sql(
            holdfast.url,
            "UPDATE holdfast.task SET state = 'ready', worker_id = NULL, lease_expires_at = NULL WHERE id = $1",
            ref.id,
        )
        assert await ref.result(timeout=60) == "alone"


async def test_T22_without_a_worker_it_says_so() -> None:
    with pytest.raises(Exception, match="needs a worker"):
        await context().move(Rest(), conn=None)


async def test_M13_a_move_on_a_day_without_partitions_makes_them(holdfast: Harness) -> None:
    """An error would end the user's transaction, and be the step's."""
    ref = await holdfast.app.enqueue(Leave("loses its lease"))
    async with running(holdfast.worker()):
        await until(lambda: gates["begun"].is_set(), "for the step")
        sql(
            holdfast.url,
            "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
            " AS $$ SELECT pg_catalog.statement_timestamp() + interval '300 days' $$",
        )
        gates["go"].set()
        await ref.result(timeout=60)
    assert attempts(holdfast.url, ref.id)[0] == (1, "Leave", "advanced")
