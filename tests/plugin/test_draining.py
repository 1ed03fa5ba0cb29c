"""Running tasks in a test: drain, run_all, crashes and inline mode."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import App, Context, Done, Retry, TaskParked, Tasks
from holdfast.testing import Harness

tasks = Tasks()
order = tasks.kind("order", result=str)
ran: list[str] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    ran.clear()
    return tasks


@order.step
@dataclass
class Charge:
    card: str

    async def run(self, ctx: Context) -> "Ship":
        ran.append(f"charge {ctx.attempt}")
        return Ship(self.card)


@order.step
@dataclass
class Ship:
    card: str

    def run(self) -> Done[str]:
        ran.append("ship")
        return Done(f"shipped to {self.card}")


@tasks.task
async def add(a: int, b: int) -> int:
    ran.append("add")
    return a + b


@tasks.task(queue="other")
def broken(what: str) -> None:
    if what == "exit":
        raise SystemExit(3)
    raise KeyError(what)


@tasks.task(retry=Retry(1, delay="1h", jitter=0))
async def flaky(ctx: Context) -> str:
    if ctx.errors == 0:
        raise OSError("not yet")
    return "at last"


@tasks.task(transactional=True)
async def books(ctx: Context) -> None:
    await ctx.tx.execute("CREATE TABLE IF NOT EXISTS book (n int)")
    await ctx.tx.execute("INSERT INTO book VALUES (1)")


@tasks.task
async def fan_out(ctx: Context) -> None:
    ctx.enqueue(add.bind(1, 2))
    ctx.enqueue(broken.bind("child"))


@tasks.task
async def for_ever(ctx: Context) -> None:
    ctx.enqueue(for_ever.bind(), delay="1h")


# --- drain


async def test_a_drain_tells_what_it_did(holdfast: Harness) -> None:
    assert str(await holdfast.drain()) == "nothing ran"
    await order.enqueue(Charge("4242"))
    await flaky.enqueue()
    bad = await broken.enqueue("x")
    drained = await holdfast.drain()
    assert drained.counts == {"advanced": 1, "done": 1, "retried": 1, "failed": 1}
    [failed] = drained.failed
    assert (failed.task_id, failed.queue, failed.kind, failed.attempt) == (bad.id, "other", "broken", 1)
    assert isinstance(failed.exception, KeyError)
    assert "broken (task" in str(drained) and "KeyError: 'x'" in str(drained)
    with pytest.raises(KeyError, match="x") as told:
        drained.raise_failures()
    assert str(bad.id) in told.value.__notes__[0]


async def test_failures_are_raised_where_asked_for(holdfast: Harness) -> None:
    await add.enqueue(1, 2)
    await holdfast.drain(raises=True)
    await flaky.enqueue()
    await holdfast.drain(raises=True)  # it will be tried again: no failure
    await broken.enqueue("x")
    with pytest.raises(KeyError):
        await holdfast.drain(raises=True)
    await broken.enqueue("y")
    await broken.enqueue("z")
    with pytest.raises(ExceptionGroup, match="2 tasks were parked"):
        await holdfast.run_all(raises=True)


async def test_what_would_end_more_than_the_test_is_wrapped(holdfast: Harness) -> None:
    await broken.enqueue("exit")
    with pytest.raises(TaskParked, match="SystemExit: 3"):
        await holdfast.drain(raises=True)


async def test_queues_that_come_up_meanwhile_are_drained_too(holdfast: Harness) -> None:
    await fan_out.enqueue()
    drained = await holdfast.drain()
    assert drained.counts == {"done": 2, "failed": 1}


async def test_run_all_moves_time_and_ends_also_with_what_never_ends(holdfast: Harness) -> None:
    ref = await flaky.enqueue()
    assert (await holdfast.run_all()).counts == {"retried": 1, "done": 1}
    assert await ref.result() == "at last"
    await for_ever.enqueue()
    with pytest.raises(AssertionError, match=r"(?s)moved time on 5 times.*renew itself.*for_ever"):
        await holdfast.run_all(limit=5)


def test_a_def_test_drains_too(holdfast: Harness) -> None:
    ref = holdfast.app.sync.enqueue(Charge("1"))
    assert holdfast.drain_sync().counts == {"advanced": 1, "done": 1}
    assert ref.result() == "shipped to 1"
    holdfast.app.sync.enqueue(flaky.bind())
    assert holdfast.run_all_sync().counts == {"retried": 1, "done": 1}
    holdfast.app.sync.enqueue(broken.bind("x"))
    with pytest.raises(KeyError):
        holdfast.drain_sync(raises=True)


async def test_drain_sync_works_where_a_loop_runs(holdfast: Harness) -> None:
    """A Flask view that is called from an async test."""
    ref = await add.enqueue(1, 2)
    assert holdfast.drain_sync().counts == {"done": 1}
    assert await ref.result() == 3


# --- crashes


async def test_a_crash_after_a_step_repeats_it_and_only_it(holdfast: Harness) -> None:
    ref = await order.enqueue(Charge("4242"))
    with holdfast.crash_after(Charge):
        drained = await holdfast.drain()
        assert drained.crashed and not drained.attempts
        assert (await ref.info()).state == "running"  # its lease goes on, as in life
    assert ran == ["charge 1"]
    drained = await holdfast.drain()
    assert drained.counts == {"lost": 1, "advanced": 1, "done": 1}
    assert ran == ["charge 1", "charge 2", "ship"]
    assert await ref.result() == "shipped to 4242"


async def test_a_crash_before_a_step_leaves_it_undone(holdfast: Harness) -> None:
    ref = await order.enqueue(Charge("4242"))
    with holdfast.crash_before("order.Ship"):
        assert (await holdfast.drain()).counts == {"advanced": 1}
    assert ran == ["charge 1"]
    await holdfast.drain()
    assert ran == ["charge 1", "ship"]
    assert (await ref.info()).state == "done"


async def test_crashes_are_chosen(holdfast: Harness) -> None:
    await add.enqueue(1, 2)
    with holdfast.crash_after(order), holdfast.crash_after(add, when=lambda ctx: ctx.attempt > 1):
        drained = await holdfast.drain()
    assert not drained.crashed and drained.counts == {"done": 1}
    with pytest.raises(TypeError, match="without args"), holdfast.crash_after(Charge("x")):
        pass


async def test_a_crash_in_a_transactional_step_rolls_it_back(holdfast: Harness) -> None:
    await books.enqueue()
    with holdfast.crash_after(books):
        assert (await holdfast.drain()).crashed
    assert holdfast.sql("SELECT to_regclass('book')") == [(None,)]
    await holdfast.drain(raises=True)
    assert holdfast.sql("SELECT count(*) FROM book") == [(1,)]


async def test_the_lease_of_a_crashed_worker_is_respected_within_the_block(holdfast: Harness) -> None:
    await add.enqueue(1, 2)
    with holdfast.crash_after(add):
        await holdfast.drain()
        assert not (await holdfast.drain()).crashed
        holdfast.clock.advance("31s")
        assert (await holdfast.drain()).crashed
    assert ran == ["add", "add"]


async def test_a_crash_loop_is_parked_and_told(holdfast: Harness) -> None:
    ref = await add.enqueue(1, 2)
    for _ in range(4):
        with holdfast.crash_before():
            await holdfast.drain()
    drained = await holdfast.drain()
    [failed] = drained.failed
    assert (failed.outcome, failed.task_id) == ("lost", ref.id)
    with pytest.raises(TaskParked, match="lost"):
        drained.raise_failures()


# --- inline


async def test_inline_a_task_has_run_when_enqueue_comes_back(holdfast: Harness) -> None:
    with holdfast.inline():
        ref = await order.enqueue(Charge("4242"))
        assert ran == ["charge 1", "ship"]
        assert (await ref.info()).state == "done"
        assert await ref.result() == "shipped to 4242"
        assert await (await add.enqueue(1, 2)).result() == 3
        assert [await each.result() for each in await holdfast.app.enqueue_many([add.bind(1, 1)] * 2)] == [2, 2]
        later = await holdfast.app.enqueue(add.bind(5, 5), delay="1h")
        assert (await later.info()).state == "ready"
    after = await add.enqueue(3, 4)
    assert (await after.info()).state == "ready"


async def test_inline_errors_are_raised_to_the_caller_as_they_were(holdfast: Harness) -> None:
    with holdfast.inline():
        with pytest.raises(KeyError, match="x") as told:
            await broken.enqueue("x")
        assert "raised in broken.main" in told.value.__notes__[0]
        with pytest.raises(OSError, match="not yet"):
            await flaky.enqueue()
        with pytest.raises(KeyError, match="child"):
            await fan_out.enqueue()
    assert holdfast.enqueued(flaky) == 1  # as always: it will be tried again


def test_inline_for_blocking_callers(holdfast: Harness) -> None:
    with holdfast.inline():
        assert holdfast.app.sync.enqueue(add.bind(1, 2)).result() == 3
        with pytest.raises(KeyError):
            holdfast.app.sync.enqueue(broken.bind("x"))


async def test_inline_a_step_may_enqueue_and_wait(holdfast: Harness) -> None:
    @holdfast.app.task
    async def outer() -> int:
        return await (await add.enqueue(1, 2)).result(timeout=60)

    @holdfast.app.task
    def outer_sync() -> int:
        return holdfast.app.sync.enqueue(add.bind(2, 3)).result(timeout=60)

    with holdfast.inline():
        assert await (await outer.enqueue()).result() == 3
        assert await (await outer_sync.enqueue()).result() == 5


async def test_inline_what_a_step_enqueues_fails_for_itself(holdfast: Harness) -> None:
    @holdfast.app.task
    async def outer() -> str:
        await broken.enqueue("x")
        return "fine"

    with holdfast.inline(), pytest.raises(KeyError, match="x"):
        await outer.enqueue()
    assert holdfast.sql("SELECT state, result::text FROM holdfast.archive") == [("done", '"fine"')]


async def test_inline_in_a_callers_transaction_waits_for_the_next_drain(holdfast: Harness) -> None:
    with holdfast.inline():
        async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
            ref = await holdfast.app.enqueue(add.bind(1, 2), conn=conn)
            assert ran == []
        assert (await ref.info()).state == "ready"
        await holdfast.drain()
        assert await ref.result() == 3


async def test_inline_ends_with_its_block(holdfast: Harness) -> None:
    before = App.enqueue
    with pytest.raises(KeyError), holdfast.inline():
        await broken.enqueue("x")
    assert holdfast.app.enqueue.__func__ is before  # type: ignore[attr-defined]
    assert "enqueue" not in vars(holdfast.app.sync)


@pytest.mark.parametrize("until", ["10s", 10, timedelta(seconds=10)])
async def test_draining_until_takes_any_duration(holdfast: Harness, until: Any) -> None:
    soon = await holdfast.app.enqueue(Ship("a"), delay="9s")
    late = await holdfast.app.enqueue(Ship("b"), delay="1h")
    await holdfast.drain(until=until)
    assert ((await soon.info()).state, (await late.info()).state) == ("done", "ready")
    await holdfast.drain(until=datetime.now() + timedelta(hours=2))
    assert (await late.info()).state == "done"
