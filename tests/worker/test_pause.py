"""Pausing a queue or a kind: nothing more of it is claimed, what runs may end, and it survives restarts (Q7)."""

import asyncio
from dataclasses import dataclass

import pytest

from holdfast import Done, Tasks, named
from holdfast.testing import Harness

from .support import attempts, running, sql, until

tasks = Tasks()
walk = tasks.kind("walk", result=str)
gates: dict[str, asyncio.Event] = {}


@pytest.fixture
def holdfast_tasks() -> Tasks:
    gates.update(begun=asyncio.Event(), go=asyncio.Event())
    return tasks


@tasks.task
async def plain(n: int) -> int:
    return n


@tasks.task(queue="other")
async def elsewhere(n: int) -> int:
    return n


@tasks.task(was=["mail"])
async def mailer() -> str:
    return "sent"


@walk.step
@dataclass
class Start:
    async def run(self) -> "End":
        gates["begun"].set()
        await gates["go"].wait()
        return End()


@walk.step
@dataclass
class End:
    async def run(self) -> Done[str]:
        return Done("there")


def pause(holdfast: Harness, name: str) -> None:
    assert sql(holdfast.url, "SELECT holdfast.pause($1)", name) == [("paused",)]


def resume(holdfast: Harness, name: str) -> None:
    assert sql(holdfast.url, "SELECT holdfast.resume($1)", name) == [("resumed",)]


async def test_Q7_a_paused_queue_is_left_alone_until_it_is_resumed(holdfast: Harness) -> None:
    refs = [await plain.enqueue(n) for n in range(3)]
    pause(holdfast, "default")
    await holdfast.drain()
    other = await elsewhere.enqueue(7)
    async with running(holdfast.worker(queues=["default", "other"])):
        assert await other.result(timeout=60) == 7
        assert [(await ref.info()).attempt for ref in refs] == [0, 0, 0]
        resume(holdfast, "default")
        assert [await ref.result(timeout=60) for ref in refs] == [0, 1, 2]


@pytest.mark.parametrize("name", ["default", "walk"])
async def test_Q7_a_running_step_may_end_but_its_task_goes_no_further(holdfast: Harness, name: str) -> None:
    ref = await walk.enqueue(Start())
    async with running(holdfast.worker(queues=["default"])):
        await asyncio.wait_for(gates["begun"].wait(), 60)
        pause(holdfast, name)
        gates["go"].set()
        await until(lambda: attempts(holdfast.url, ref.id) == [(1, "Start", "advanced")], "for the move")
    async with running(holdfast.worker(queues=["default", "other"])):  # another worker, after a restart
        assert await (await elsewhere.enqueue(1)).result(timeout=60) == 1
        info = await ref.info()
        assert (info.state, info.step, info.phase) == ("ready", "End", "paused")
        resume(holdfast, name)
        assert await ref.result(timeout=60) == "there"


async def test_Q7_many_paused_tasks_in_front_do_not_hide_the_others(holdfast: Harness) -> None:
    async with running(holdfast.worker(queues=["default"])):  # declares the kinds
        pass
    pause(holdfast, "plain")
    await holdfast.app.enqueue_many(plain.bind(n) for n in range(3000))
    async with running(holdfast.worker(queues=["default"], concurrency=5)):
        gates["go"].set()
        assert await (await walk.enqueue(Start())).result(timeout=60) == "there"
        assert sql(holdfast.url, "SELECT max(attempt) FROM holdfast.task WHERE kind = 'plain'") == [(0,)]
        resume(holdfast, "plain")
        await until(lambda: not holdfast.enqueued(plain), "for the paused tasks")


async def test_Q7_T20_a_pause_holds_for_rows_under_an_old_name_of_the_kind(holdfast: Harness) -> None:
    async with running(holdfast.worker(queues=["default"])):  # declares the kinds
        pass
    pause(holdfast, "mailer")
    ref = await holdfast.app.enqueue(named("mail", {}))
    async with running(holdfast.worker(queues=["default"])) as _:
        assert await (await plain.enqueue(1)).result(timeout=60) == 1
        info = await ref.info()
        assert (info.kind, info.state, info.attempt, info.phase) == ("mail", "ready", 0, "paused")
        assert "kind mailer is paused" in await holdfast.app.explain(ref.id)
        resume(holdfast, "mailer")
        assert await ref.result(timeout=60) == "sent"
