"""retry= and timeout= of one enqueue."""

import asyncio
from typing import Any

import pytest

from holdfast import Context, EnqueueRefused, Entry, Retry, TaskParked, Tasks
from holdfast._model.enqueue.overrides import retry_of
from holdfast.errors import ConfigError
from holdfast.testing import Harness

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task(retry=Retry(1, delay="5s", jitter=0))
async def breaks() -> None:
    raise ValueError("always")


@tasks.task
async def hangs() -> None:
    await asyncio.Event().wait()


@tasks.task
def parent(ctx: Context) -> None:
    ctx.enqueue(breaks.bind(), retry=Retry(7, delay="1m"), timeout="2s")


async def test_its_own_budget_holds_instead_of_the_steps(holdfast: Harness) -> None:
    own = Retry(3, delay="20s", backoff=1, jitter=0)
    ref = await holdfast.app.enqueue(breaks.bind(), retry=own, headers={"a": "b"})
    assert (await ref.info()).headers == {"a": "b", "holdfast-retry": "3 delay=20s backoff=1 jitter=0"}
    holdfast.clock.advance(0)
    await holdfast.drain(raises=False)
    waits = holdfast.sql("SELECT run_at - holdfast.now() FROM holdfast.task WHERE id = $1", ref.id)
    assert waits[0][0].total_seconds() == 20
    assert "1 error at this step, of 4 that park it" in await holdfast.app.explain(ref.id)
    for _ in range(3):
        holdfast.clock.advance("20s")
        await holdfast.drain(raises=False)
    info = await ref.info()
    assert (info.state, info.errors) == ("parked", 4)


async def test_none_means_parked_at_once(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(breaks.bind(), retry=Retry(0))
    await holdfast.drain(raises=False)
    assert (await ref.info()).state == "parked"


async def test_its_own_time_out_holds(holdfast: Harness) -> None:
    [ref] = await holdfast.app.enqueue_many([Entry(hangs.bind(), timeout="10ms")])
    await holdfast.drain(raises=False)
    with pytest.raises(TaskParked, match=r"did not end within its timeout of 0\.01 s"):
        await ref.result(timeout=0)


async def test_of_a_step_that_enqueues(holdfast: Harness) -> None:
    await holdfast.app.enqueue(parent.bind())
    await holdfast.drain(raises=False)
    [(headers,)] = holdfast.sql("SELECT headers::text FROM holdfast.task WHERE kind = 'breaks'")
    assert '"holdfast-retry": "7 delay=1m"' in headers and '"holdfast-timeout": "2s"' in headers


@pytest.mark.parametrize("odd", ["", "x", "5 delay=", "5 on=ValueError", "-1", "9" * 5000, "٣"])
async def test_what_nobody_can_read_is_no_rule(holdfast: Harness, odd: str) -> None:
    headers = {"holdfast-retry": odd, "holdfast-timeout": odd}
    ref = await holdfast.app.enqueue(breaks.bind(), headers=headers)
    holdfast.clock.advance(0)
    await holdfast.drain(raises=False)
    assert (await ref.info()).phase == "retrying"
    await holdfast.app.explain(ref.id)
    with pytest.raises(ConfigError, match=r"write 5, or 5 delay=10s|is not a duration"):
        retry_of(odd)


@pytest.mark.parametrize(
    "options",
    [
        {"retry": 5},
        {"retry": [Retry(1)]},
        {"retry": Retry(1, on=ValueError)},
        {"retry": Retry(1, delay=lambda error, n: 1)},
        {"timeout": 0},
        {"timeout": "soon"},
    ],
)
async def test_what_cannot_be_kept_is_refused_at_once(holdfast: Harness, options: Any) -> None:
    with pytest.raises(EnqueueRefused, match=r"retry=|timeout"):
        await holdfast.app.enqueue(breaks.bind(), **options)


def test_a_retry_is_read_as_it_was_written() -> None:
    assert retry_of("5 delay=10s backoff=1 max_delay=2m jitter=0") == Retry(
        5, delay="10s", backoff=1, max_delay="2m", jitter=0
    )
