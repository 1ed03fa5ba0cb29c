"""What is declared while a worker runs: by a module that is loaded later, or at a prompt."""

import pytest

from holdfast import Every, Tasks
from holdfast.testing import Harness

from .support import running, sql, until


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return Tasks()


async def test_T14_a_task_that_is_declared_after_the_worker_began_is_taken_up(holdfast: Harness) -> None:
    included = Tasks()
    holdfast.app._include(included)

    @holdfast.app.task
    async def early() -> str:
        return "early"

    async with running(holdfast.worker()):
        assert await (await early.enqueue()).result(timeout="60s") == "early"

        @included.task
        async def late() -> str:
            return "late"

        assert await (await late.enqueue()).result(timeout="60s") == "late"
        assert sql(holdfast.url, "SELECT 'late.main' = ANY (steps), kinds ? 'late' FROM holdfast.worker") == [
            (True, True)
        ]
        assert sql(holdfast.url, "SELECT count(*) FROM holdfast.kind WHERE name = 'late'") == [(1,)]


async def test_S1_a_schedule_that_is_declared_after_the_worker_began_is_taken_up(holdfast: Harness) -> None:
    came: list[str] = []

    @holdfast.app.task
    async def report(name: str) -> None:
        came.append(name)

    async with running(holdfast.worker()):
        holdfast.app.schedule("late", Every("1s"), report.bind("late"))
        await until(lambda: bool(came), "for the schedule")
    assert came[0] == "late"
    assert sql(holdfast.url, "SELECT schedules FROM holdfast.worker") == [(["late"],)]


async def test_W7_what_was_left_to_others_stays_so(holdfast: Harness) -> None:
    @holdfast.app.task
    async def mine() -> None: ...

    async with running(holdfast.worker(only=["mine"])):

        @holdfast.app.task
        async def others() -> None: ...

        ref = await others.enqueue()
        await until(lambda: sql(holdfast.url, "SELECT count(*) FROM holdfast.kind") == [(2,)], "for it to be told")
        await (await mine.enqueue()).result(timeout="60s")
        assert (await ref.info()).state == "ready"
