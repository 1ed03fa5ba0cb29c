"""Event loops that come and go: connections go with them, whoever closes them or nobody."""

import asyncio
import gc
from collections.abc import Callable
from uuid import UUID

import pytest

from holdfast import App, DatabaseUnreachable, Ref, named
from holdfast._db.pool import Pool
from holdfast.testing import Harness

from .support import sql, until


def connections(url: str) -> int:
    """Those of apps and listeners."""
    return int(
        sql(
            url,
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name IN ('holdfast', 'holdfast listen') AND pid <> pg_backend_pid()",
        )[0][0]
    )


pytestmark = pytest.mark.direct("the connections of the server are counted, which are the pooler's")


def until_at_most(url: str, number: int) -> None:
    """PostgreSQL needs a moment to notice that a connection was closed."""

    async def wait() -> None:
        async with asyncio.timeout(30):
            while connections(url) > number:
                await asyncio.sleep(0.02)

    asyncio.run(wait())


async def use(app: App) -> None:
    """Enqueues, keyed and not, and waits for a result: a pool, a pipelined connection and a listener."""
    ref = await app.enqueue(named("a", {}), queue="default")
    await app.enqueue(named("a", {}), queue="default", unique=True)
    await asyncio.gather(*(app.explain(ref.id) for _ in range(5)))
    waiting = asyncio.create_task(ref.result())
    await until(lambda: (heard := app._watch._listener) is not None and heard.listening.is_set(), "for the listener")
    assert not waiting.done()


def test_loops_that_end_without_a_close_leave_no_connection(holdfast: Harness) -> None:
    app = App(holdfast.url)
    for _ in range(10):
        asyncio.run(use(app))
    until_at_most(holdfast.url, 11)  # those of the loop that has just ended are there until the next comes
    asyncio.run(app.explain(holdfast.sql("SELECT id FROM holdfast.task LIMIT 1")[0][0]))
    until_at_most(holdfast.url, 2)
    assert len(app._pools.loops) == 1
    assert app._watches.loops == []
    gc.collect()  # what was still open would be warned of here


global_app = App()
"""As most are: what belongs to a loop that was closed in the middle would complain when it goes."""


def test_a_loop_that_is_closed_in_the_middle_leaves_no_connection(holdfast: Harness) -> None:
    app = global_app.use(holdfast.url)
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(use(app))
        for task in asyncio.all_tasks(loop):
            if task.get_name() not in ("holdfast watch", "holdfast listen") and "pool-" not in task.get_name():
                task.cancel()  # the test's own
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        app._watches.abandon_ended()
        app._pools.abandon_ended()
        until_at_most(holdfast.url, 0)
        gc.collect()


MOMENTS: dict[str, Callable[[Pool], bool]] = {
    "before anything": lambda pool: True,
    "a pool is being opened": lambda pool: pool._opening.locked(),
    "the pool is there": lambda pool: pool._pool is not None,
    "a pipelined connection is being prepared": lambda pool: pool._coalescer._pipeline is not None,
    "tasks are on their way": lambda pool: not pool._coalescer._idle.is_set(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_close_and_an_opening_at_once_come_to_an_end_and_leave_no_connection(holdfast: Harness, moment: str) -> None:
    app = App(holdfast.url)
    told: list[UUID] = []

    async def race() -> None:
        asked = [asyncio.create_task(app.enqueue(named("a", {"n": n}), queue="default")) for n in range(3)]
        asked.append(asyncio.create_task(app.enqueue(named("a", {}), queue="default", key="k")))
        while not MOMENTS[moment](app._pool):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asyncio.gather(app.close(), app.close())
            answers = await asyncio.gather(*asked, return_exceptions=True)
            await app.close()  # whoever met the close may have asked again, on new connections
        for answer in answers:
            assert isinstance(answer, (Ref, DatabaseUnreachable)), answer
        told.extend(answer.id for answer in answers if isinstance(answer, Ref))

    asyncio.run(race())
    until_at_most(holdfast.url, 0)
    assert {id for (id,) in holdfast.sql("SELECT id FROM holdfast.task")} >= set(told)
    if moment == "tasks are on their way":
        assert len(told) >= 3  # a close waits for what is on its way


async def test_a_close_that_is_cancelled_leaves_no_connection(holdfast: Harness) -> None:
    app = App(holdfast.url)
    for turns in range(1, 8):
        await app.enqueue(named("a", {}), queue="default")
        closing = asyncio.create_task(app.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await asyncio.to_thread(until_at_most, holdfast.url, 0)
    await app.close()
