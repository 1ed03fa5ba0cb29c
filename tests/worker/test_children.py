"""What a step enqueues with `ctx.enqueue` becomes real exactly if its outcome is recorded (T18, M7)."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest

from holdfast import Context, Done, EnqueueRefused, Later, Retry, Snooze, TaskParked, Tasks, named
from holdfast._db.driver.connection import connect_sync
from holdfast._db.driver.session import Link
from holdfast.testing import Harness, context

from . import steps_in_a_process
from .support import attempts, running, sql, until

tasks = Tasks()
tasks_of_a_process = steps_in_a_process.tasks
chain = tasks.kind("chain", result=str)
gates: dict[str, asyncio.Event] = {}
references: list[Any] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    gates.clear()
    references.clear()
    if tasks not in tasks_of_a_process._included_by:
        tasks._include(tasks_of_a_process)
    return tasks


@tasks.task(queue="small")
async def child(n: int) -> int:
    return n


@tasks.task(retry=Retry(1, delay="10ms"))
async def parent(ctx: Context, count: int, how: str = "", key: str = "", on_conflict: str = "") -> str:
    options: Any = {"key": key} if key else {}
    if on_conflict:
        options["on_conflict"] = on_conflict
    references[:] = [ctx.enqueue(child.bind(n), **options) for n in range(count)]
    match how:
        case "fails once" if not ctx.errors:
            raise ValueError("not yet")
        case "snoozes" if ctx.attempt == 1:
            raise Snooze("100ms")
        case "waits":
            gates["begun"].set()
            await gates["go"].wait()
    return "done"


@tasks.task
def in_a_thread(ctx: Context) -> None:
    ctx.enqueue(child.bind(1), priority=7, delay="1h", headers={"a": "b"})


@tasks.task
async def renewing(ctx: Context, left: int) -> None:
    if left:
        ctx.enqueue(renewing.bind(left - 1), key="only-one")


@tasks.task
async def wrong(ctx: Context) -> None:
    ctx.enqueue(cast(Any, "child"))


@tasks.task
async def by_name(ctx: Context, what: str) -> None:
    ctx.enqueue(named(what, {"n": 1}))


@chain.step
@dataclass
class First:
    later: bool = False

    async def run(self, ctx: Context) -> "Second | Later[Second]":
        ctx.enqueue(child.bind(1))
        return Later(Second(), "1h") if self.later else Second()


@chain.step
@dataclass
class Second:
    async def run(self, ctx: Context) -> Done[str]:
        ctx.enqueue(child.bind(2))
        return Done("two")


def children(holdfast: Harness) -> list[int]:
    """The `n` of every child there is, finished or not."""
    return sorted(
        row[0] for row in sql(holdfast.url, "SELECT (args ->> 'n')::int FROM holdfast.tasks WHERE kind = 'child'")
    )


async def test_T18_children_come_with_the_end_of_the_task(holdfast: Harness) -> None:
    ref = await parent.enqueue(250)
    async with running(holdfast.worker(queues=["default", "small"])):
        assert await ref.result(timeout=60) == "done"
        assert [await made.result(timeout=60) for made in references] == list(range(250))
    assert children(holdfast) == list(range(250))


async def test_T18_children_come_with_each_move(holdfast: Harness) -> None:
    await chain.enqueue(First())
    await chain.enqueue(First(later=True))
    await holdfast.drain(queues=["default"])
    assert children(holdfast) == [1, 1, 2]
    holdfast.clock.advance("1h")
    await holdfast.drain(queues=["default"])
    assert children(holdfast) == [1, 1, 2, 2]


async def test_T18_options_arrive(holdfast: Harness) -> None:
    await in_a_thread.enqueue()
    await holdfast.drain(queues=["default"])
    text = "SELECT queue, priority, run_at - created_at, headers FROM holdfast.task WHERE kind = 'child'"
    assert sql(holdfast.url, text) == [("small", 7, timedelta(hours=1), b'{"a": "b"}')]


async def test_T18_an_attempt_that_fails_or_snoozes_enqueues_nothing(holdfast: Harness) -> None:
    for how in ("fails once", "snoozes"):
        ref = await parent.enqueue(3, how)
        async with running(holdfast.worker(queues=["default"])):
            assert await ref.result(timeout=60) == "done"
        assert len(attempts(holdfast.url, ref.id)) == 2
        assert children(holdfast) == [0, 1, 2]
        sql(holdfast.url, "DELETE FROM holdfast.task")


@pytest.mark.parametrize("key", ["", "a-key"])
async def test_T18_a_lost_lease_drops_the_children(holdfast: Harness, key: str) -> None:
    gates.update(begun=asyncio.Event(), go=asyncio.Event())
    ref = await parent.enqueue(1, "waits", key)
    worker = holdfast.worker(queues=["default"])
    async with running(worker):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        sql(holdfast.url, "UPDATE holdfast.task SET attempt = attempt + 1 WHERE id = $1", ref.id)
        gates["go"].set()
        await until(lambda: not worker.roster.held, "for the worker to notice")
    assert children(holdfast) == []


async def test_T18_a_cancelled_task_enqueues_nothing_unless_it_had_finished(holdfast: Harness) -> None:
    gates.update(begun=asyncio.Event(), go=asyncio.Event())
    ref = await parent.enqueue(1, "waits")
    async with running(holdfast.worker(queues=["default"], beat=0.5)):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        await ref.cancel("enough")
        await until(lambda: sql(holdfast.url, "SELECT 1 FROM holdfast.archive WHERE id = $1", ref.id))
    assert (await ref.info()).state == "cancelled"
    assert children(holdfast) == []


async def test_T18_from_a_process(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(steps_in_a_process.enqueues.bind(4))
    async with running(holdfast.worker()):
        id = await ref.result(timeout=60)
        assert await holdfast.app.ref(id).result(timeout=60) > 0
    assert sql(holdfast.url, "SELECT priority FROM holdfast.archive WHERE id = $1", UUID(id)) == [(4,)]


async def test_M7_a_task_that_renews_itself_under_its_own_key_is_not_swallowed(holdfast: Harness) -> None:
    await holdfast.app.enqueue(renewing.bind(3), key="only-one")
    await holdfast.drain()
    rows = sql(holdfast.url, "SELECT (args ->> 'left')::int FROM holdfast.archive WHERE key = 'only-one' ORDER BY id")
    assert rows == [(3,), (2,), (1,), (0,)]


async def test_M7_a_taken_key_is_passed_over_replaced_or_an_error(holdfast: Harness) -> None:
    holder = await holdfast.app.enqueue(child.bind(9), key="taken", delay="1h")

    skipped = await parent.enqueue(1, key="taken")
    await holdfast.drain(queues=["default"])
    assert (await skipped.info()).state == "done"
    assert children(holdfast) == [9]

    refused = await parent.enqueue(1, key="taken", on_conflict="raise")
    async with running(holdfast.worker(queues=["default"])):
        with pytest.raises(TaskParked, match="already holds the key 'taken'"):
            await refused.result(timeout=60)
    assert [outcome for _, _, outcome in attempts(holdfast.url, refused.id)] == ["retried", "failed"]
    assert children(holdfast) == [9]

    await parent.enqueue(1, key="taken", on_conflict="replace")
    await holdfast.drain(queues=["default"])
    assert children(holdfast) == [0]
    assert (await holder.info()).args == {"n": 0}


async def test_M7_a_key_in_an_open_transaction_holds_up_nobody_else(holdfast: Harness) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        with connect_sync(holdfast.url) as other:
            other.execute(b"BEGIN")
            other.execute(b"""SELECT holdfast.enqueue('child', '{"n": 5}', '{"queue": "small", "key": "held"}')""")
            waiting = await parent.enqueue(1, key="held")
            async with running(holdfast.worker(queues=["default"])) as (running_worker,):
                others = [await parent.enqueue(0) for _ in range(20)]
                assert [await each.result(timeout=60) for each in others] == ["done"] * 20
                assert (await waiting.info()).state == "running"
                other.execute(end.encode())
                assert await waiting.result(timeout=60) == "done"
                assert not running_worker.done()
        assert children(holdfast) == ([5] if end == "COMMIT" else [0])
        sql(holdfast.url, "DELETE FROM holdfast.task")


async def test_T18_by_name_into_the_queue_that_its_workers_declared(holdfast: Harness) -> None:
    ref = await by_name.enqueue("child")
    several = await by_name.enqueue("chain")
    await holdfast.drain(queues=["default"])
    assert (await ref.info()).state == "done"
    assert sql(holdfast.url, "SELECT queue FROM holdfast.task WHERE kind = 'child'") == [("small",)]
    info = await several.info()
    assert info.state == "parked" and info.error is not None and "has several steps" in info.error["message"]


async def test_T18_what_cannot_be_enqueued_is_the_steps_error_at_once(holdfast: Harness) -> None:
    ref = await wrong.enqueue()
    await holdfast.drain()
    error = (await ref.info()).error
    assert error is not None and "named('child'" in error["message"]
    with pytest.raises(EnqueueRefused, match="a string cannot be enqueued"):
        context().enqueue(cast(Any, "child"))


class LostAnswers:
    """The settling link loses its connection around a statement, before or after its commit."""

    def __init__(self, link: Link, method: str, *, executed: bool) -> None:
        self.met = 0
        call = getattr(link, method)

        async def faulty(what: Any, **options: Any) -> Any:
            if self.met:
                return await call(what, **options)
            self.met += 1
            if executed:
                await call(what, **options)
            await link.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        setattr(link, method, faulty)


@pytest.mark.parametrize("executed", [True, False], ids=["executed", "never sent"])
@pytest.mark.parametrize(("key", "method"), [("", "transact"), ("a-key", "follow")])
async def test_M7_children_of_an_outcome_whose_answer_was_lost_come_once(
    holdfast: Harness, key: str, method: str, executed: bool
) -> None:
    worker = holdfast.worker(queues=["default"])
    faults = LostAnswers(worker._links["settle"], method, executed=executed)
    ref = await parent.enqueue(1, key=key)
    async with running(worker):
        assert await ref.result(timeout=60) == "done"
        await until(lambda: not worker.roster.held, "for the worker to know")
    assert faults.met == 1
    assert children(holdfast) == [0]


@tasks.task
async def awaits(ctx: Context, how: str) -> str:
    ref = await ctx.enqueue(child.bind(7))  # type: ignore[misc]  # its type says that nothing waits
    references[:] = [ref]
    if how == "result":
        await ref.result()
    return str(ref.id)


async def test_T18_what_a_step_enqueues_may_be_awaited(holdfast: Harness) -> None:
    ref = await awaits.enqueue("")
    await holdfast.drain(raises=True)
    assert await ref.result() == str(references[0].id)
    assert await references[0].result() == 7


async def test_T18_its_result_cannot_be_had_in_the_same_step(holdfast: Harness) -> None:
    ref = await awaits.enqueue("result")
    await holdfast.drain()
    error = (await ref.info()).error
    assert error is not None and "awaits.main waits for the result of child" in error["message"]
