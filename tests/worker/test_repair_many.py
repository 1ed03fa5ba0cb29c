"""`app.retry_many` and its likes with a real worker: repaired in bulk, at a rate, by whom and why (T12)."""

import pytest

from holdfast import FilterError, Tally, TaskParked, WrongState
from holdfast.testing import Harness

from .support import running


async def test_T12_many_are_retried_at_a_rate_and_executed_in_turn(holdfast: Harness) -> None:
    broken, executed = True, []

    @holdfast.app.task
    async def call(n: int) -> int:
        if broken:
            raise ConnectionError("the service is down")
        executed.append(n)
        return n

    refs = await holdfast.app.enqueue_many([call.bind(n) for n in range(5)])
    await holdfast.drain()
    assert (await holdfast.app.retry_many("error:service", dry_run=True)).matched == 5
    broken = False
    told: list[int] = []
    tally = await holdfast.app.retry_many(
        "kind:call error:service", rate=1 / 60, by="ann", why="it is back", progress=lambda t: told.append(t.matched)
    )
    assert (tally.done, told) == ({"ready": 5}, [5])
    times = [run_at for ref in refs if (run_at := (await ref.info()).run_at) is not None]
    assert [(time - times[0]).total_seconds() for time in times] == [0, 60, 120, 180, 240]
    await holdfast.drain()
    assert executed == [0]
    assert [(await ref.info()).phase for ref in refs] == ["done"] + ["scheduled"] * 4
    holdfast.clock.advance("2m")
    await holdfast.drain()
    assert sorted(executed) == [0, 1, 2]


async def test_T12_a_step_that_nobody_knows_is_refused_in_python_too(holdfast: Harness) -> None:
    @holdfast.app.task
    async def call() -> None:
        raise ValueError("no")

    ref = await call.enqueue()
    async with running(holdfast.worker()):
        with pytest.raises(TaskParked):
            await ref.result(timeout=60)
        for attempt in (
            holdfast.app.retry(ref.id, step="mian"),
            holdfast.app.retry_many("kind:call", step="mian"),
        ):
            with pytest.raises(WrongState, match=r"nobody knows the step call\.mian\nThe steps of call are: main."):
                await attempt
        assert (await ref.info()).state == "parked"
    await holdfast.app.retry(ref.id, step="mian", force=True)
    assert (await ref.info()).step == "mian"


async def test_T12_cancel_and_discard_by_a_filter(holdfast: Harness) -> None:
    @holdfast.app.task
    async def call(n: int) -> None:
        raise ValueError("no")

    refs = await holdfast.app.enqueue_many([call.bind(n) for n in range(3)])
    await holdfast.drain()
    assert (await holdfast.app.discard_many("args.n:0", why="obsolete")).done == {"discarded": 1}
    assert (await holdfast.app.cancel_many("kind:call", limit=1)).done == {"cancelled": 1}
    assert [(await ref.info()).state for ref in refs] == ["discarded", "cancelled", "parked"]
    assert await holdfast.app.discard_many("args.n:77") == Tally()
    with pytest.raises(FilterError, match="an empty filter means every task"):
        await holdfast.app.discard_many("")
