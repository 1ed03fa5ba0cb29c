"""T19, the part that is there: hooks on failures are told about parked tasks, by attempt and by reaper."""

from holdfast import Fail, Failure
from holdfast.testing import Harness


async def test_T19_a_hook_is_told_about_a_parked_task(holdfast: Harness) -> None:
    told: list[Failure] = []

    @holdfast.app.on_failure
    async def hook(failure: Failure) -> None:
        told.append(failure)

    @holdfast.app.on_failure
    def broken(failure: Failure) -> None:
        raise RuntimeError("a hook that fails must not matter")

    @holdfast.app.task
    async def doomed(n: int) -> None:
        raise Fail("no way")

    ref = await doomed.enqueue(7)
    await holdfast.drain()
    assert [f.task.id for f in told] == [ref.id]
    assert told[0].task.state == "parked"
    assert told[0].task.args == {"n": 7}
    assert told[0].task.error is not None and told[0].task.error["message"] == "no way"


async def test_T19_a_hook_is_told_when_the_reaper_parks(holdfast: Harness) -> None:
    told: list[Failure] = []

    @holdfast.app.on_failure
    def hook(failure: Failure) -> None:
        told.append(failure)

    @holdfast.app.task(on_lost="fail")
    async def once() -> None: ...

    ref = await once.enqueue()
    with holdfast.crash_after():
        await holdfast.drain()
    holdfast.clock.advance("31s")
    worker = holdfast.worker()
    await worker.reaper.reap()
    await worker.hooks.finish()
    await worker.reaper._link.close()
    assert [(f.task.id, f.task.state) for f in told] == [(ref.id, "parked")]
