"""Deadlines and keys that outlive their task, through the app and by workers (Q3, Q4, Q5, M18)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Context, Entry, Retry, TaskExpired, Tasks
from holdfast.testing import Harness

from .support import running, sql, until

tasks = Tasks()
seen: list[datetime | None] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    seen.clear()
    return tasks


@tasks.task(retry=Retry(1, delay="1h"))
async def send(ctx: Context, n: int, fails: bool = False) -> int:
    seen.append(ctx.deadline)
    if fails and not ctx.errors:
        raise ValueError("not yet")
    return n


@tasks.task
async def parent(ctx: Context, n: int, options: dict[str, Any]) -> str:
    ref = ctx.enqueue(send.bind(n), **options)
    return f"{ref.id}"


@tasks.task(transactional=True)
async def parent_in_a_transaction(ctx: Context, n: int, options: dict[str, Any]) -> None:
    ctx.enqueue(send.bind(n), **options)


async def test_Q5_workers_archive_what_has_expired_and_whoever_waits_is_told(holdfast: Harness) -> None:
    ref = await send.enqueue(0)
    late = await holdfast.app.enqueue(send.bind(1), deadline="1h")
    holdfast.clock.advance("1h")
    async with running(holdfast.worker(reap=0.05)):
        assert await ref.result(timeout=60) == 0
        with pytest.raises(TaskExpired, match="not started before its deadline"):
            await late.result(timeout=60)
        await until(lambda: not sql(holdfast.url, "SELECT 1 FROM holdfast.task"), "for the sweep")
    assert seen == [None], "it was never started"
    info = await late.info()
    assert info.state == "expired" and info.error is not None and "deadline" in info.error["message"]
    with pytest.raises(TaskExpired):
        await late.result(timeout=60)


async def test_Q5_without_any_worker_a_result_is_not_waited_for(holdfast: Harness) -> None:
    """Nobody has archived it, but it is known that it will never run."""
    refs = await holdfast.app.enqueue_many([Entry(send.bind(1)), Entry(send.bind(2), deadline="2h")], deadline="1h")
    sync = await asyncio.to_thread(holdfast.app.sync.enqueue, send.bind(3), deadline=timedelta(hours=1))
    holdfast.clock.advance("1h")
    with pytest.raises(TaskExpired, match="is expired: it was not started before its deadline"):
        async with asyncio.timeout(60):  # without a time of its own there is no last look
            await refs[0].result()
    with pytest.raises(TaskExpired):
        await asyncio.to_thread(sync.result, 60)
    await holdfast.drain()
    assert await refs[1].result(timeout=60) == 2
    assert (await refs[0].info()).state == "expired", "drain() sweeps, as a worker does"


async def test_Q5_the_step_is_told_its_deadline_and_a_retry_comes_after_it(holdfast: Harness) -> None:
    deadline = datetime.now(UTC) + timedelta(minutes=30)
    ref = await holdfast.app.enqueue(send.bind(1, fails=True), deadline=deadline)
    await holdfast.drain()
    holdfast.clock.advance("2h")
    await holdfast.drain()
    assert await ref.result(timeout=60) == 1
    assert seen == [deadline, deadline]


@pytest.mark.parametrize("start", [parent, parent_in_a_transaction])
async def test_T18_children_with_deadlines_and_all_forms_of_keys(holdfast: Harness, start: Any) -> None:
    forms: list[dict[str, Any]] = [
        {"deadline": "1h"},
        {"deadline": "1h", "key": "k"},
        {"unique": True},
        {"unique": True, "unique_for": "1h"},
        {"key": "held", "unique_for": "1h"},
    ]
    for n, options in enumerate(forms):
        await start.enqueue(n, {**options, "delay": "30m"})
        await start.enqueue(n, {**options, "delay": "30m"})
    before = holdfast.clock.now()
    await holdfast.drain()
    rows = sql(
        holdfast.url,
        "SELECT (args ->> 'n')::int, count(*), count(DISTINCT key), min(deadline) > $1 FROM holdfast.task"
        " WHERE kind = 'send' GROUP BY 1 ORDER BY 1",
        before,
    )
    assert rows == [(0, 2, 0, True), (1, 1, 1, True), (2, 1, 1, None), (3, 1, 1, None), (4, 1, 1, None)]
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.key") == [(2,)]
    holdfast.clock.advance("30m")
    await holdfast.drain()
    for n in (3, 4):
        await start.enqueue(n, forms[n])
    await holdfast.drain()
    ends = sql(
        holdfast.url, "SELECT args ->> 'n', count(*) FROM holdfast.archive WHERE kind = 'send' GROUP BY 1 ORDER BY 1"
    )
    assert ends == [("0", 2), ("1", 1), ("2", 1), ("3", 1), ("4", 1)], "the keys of 3 and 4 still hold"


async def test_Q2_a_reference_says_what_came_of_the_enqueue(holdfast: Harness) -> None:
    app = holdfast.app
    first = await app.enqueue(send.bind(1), unique=True, unique_for="1h")
    assert (first.enqueued, first.created) == ("created", True)
    again = await app.enqueue(send.bind(1), unique=True)
    assert (again.id, again.enqueued, again.created) == (first.id, "existing", False)
    replaced = await asyncio.to_thread(app.sync.enqueue, send.bind(1), unique=True, on_conflict="replace")
    assert (replaced.id, replaced.enqueued, replaced.created) == (first.id, "replaced", False)
    await holdfast.drain()
    [ended] = await app.enqueue_many([send.bind(1)], unique=True)
    assert (ended.id, ended.enqueued) == (first.id, "ended")
    assert await ended.result(timeout=60) == 1, "the earlier task, archived by now"


async def test_a_large_unique_task_is_enqueued(holdfast: Harness) -> None:
    """Its parameters travel in arrays: larger than what is sent in one go with the wake-up."""

    @holdfast.app.task
    async def large(text: str) -> int:
        return len(text)

    refs = [await large.enqueue("x" * 900_000), await holdfast.app.enqueue(large.bind("x" * 900_000), unique=True)]
    again = await holdfast.app.enqueue(large.bind("x" * 900_000), unique=True)
    assert again.enqueued == "existing" and again.id == refs[1].id


async def test_Q4_workers_sweep_keys(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(send.bind(1), key="k", unique_for="1h")
    await holdfast.drain()
    assert await ref.result(timeout=60) == 1
    assert sql(holdfast.url, "SELECT key FROM holdfast.key") == [("k",)]
    holdfast.clock.advance("1h")
    done, failures = await holdfast.worker().maintenance.once()
    assert not failures and "swept 1 keys that hold no longer" in done.what
    assert sql(holdfast.url, "SELECT key FROM holdfast.key") == []
