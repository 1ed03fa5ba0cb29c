"""Claiming: never more than the slots, never ahead of slow steps, woken at once, most urgent first."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast import Tasks
from holdfast._db.driver.session import Link
from holdfast._sql.queries import Queries
from holdfast.testing import Harness

from .support import running, sql, until

tasks = Tasks()
gate = asyncio.Event()
now = most = 0
order: list[int] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    global gate, now, most
    gate, now, most = asyncio.Event(), 0, 0
    order.clear()
    return tasks


@tasks.task
async def busy(pause: float) -> None:
    global now, most
    now += 1
    most = max(most, now)
    await asyncio.sleep(pause)
    now -= 1


@tasks.task
async def hold() -> None:
    await gate.wait()


@tasks.task
async def note(n: int) -> int:
    order.append(n)
    return n


def left(holdfast: Harness, state: str = "") -> int:
    where = f"WHERE state = '{state}'" if state else ""
    return int(sql(holdfast.url, f"SELECT count(*) FROM holdfast.task {where}")[0][0])


@pytest.mark.parametrize(("pause", "count"), [(0.0, 300), (0.02, 100), (0.25, 12)])
async def test_W1_concurrency_is_never_exceeded(holdfast: Harness, pause: float, count: int) -> None:
    await holdfast.app.enqueue_many([busy.bind(pause) for _ in range(count)])
    worker = holdfast.worker(concurrency=3)
    async with running(worker):
        await until(lambda: left(holdfast) == 0, "for all")
    assert 1 <= most <= 3


async def test_W1_no_claim_ahead_with_slow_steps(holdfast: Harness) -> None:
    # Quick ones first: the pace that they showed must not be believed for long.
    await holdfast.app.enqueue_many([note.bind(n) for n in range(200)])
    first, second = holdfast.worker(concurrency=2), holdfast.worker(concurrency=2)
    async with running(first):
        await until(lambda: left(holdfast) == 0, "for the quick ones")
        await holdfast.app.enqueue_many([hold.bind() for _ in range(8)])
        await until(lambda: first.roster.busy == 2, "for the slow ones")
        async with running(second):
            await until(lambda: second.roster.busy == 2, "for the second worker's share")
            gate.set()
            await until(lambda: left(holdfast) == 0, "for all")


@pytest.mark.parametrize("slots", [10, 50])
async def test_W1_steps_that_end_together_are_no_reason_to_claim_ahead(holdfast: Harness, slots: int) -> None:
    await holdfast.app.enqueue_many([busy.bind(0.25) for _ in range(slots * 8)])
    worker, taken = holdfast.worker(concurrency=slots), 0

    def all_done() -> bool:
        nonlocal taken
        taken = max(taken, worker.roster.taken)
        # Those that have ended stay leased until that is recorded.
        assert left(holdfast, "running") <= 2 * slots
        return left(holdfast) == 0

    async with running(worker):
        await until(all_done, "for all")
    assert taken == slots


@pytest.mark.direct("it needs notifications")
async def test_W2_W3_a_notification_wakes_long_before_the_poll_interval(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600, queues=["default"])
    async with running(worker):
        for n in range(3):
            await until(lambda: worker.claimer.empty and worker.listener.listening.is_set(), "for the worker to rest")
            ref = await note.enqueue(n)
            assert await ref.result(timeout=60) == n
        await until(lambda: worker.claimer.empty, "for the worker to rest")
        async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
            ref = await holdfast.app.enqueue(note.bind(9), conn=conn)
        assert await ref.result(timeout=60) == 9
        await until(lambda: worker.claimer.empty, "for the worker to rest")
        assert (await asyncio.to_thread(holdfast.app.sync.enqueue, note.bind(10))).id
        await until(lambda: 10 in order, "for the blocking enqueue")


async def test_W2_sleeps_until_the_nearest_time(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600, queues=["default"])
    ref = await holdfast.app.enqueue(note.bind(1), delay=0.5)
    async with running(worker):
        assert await ref.result(timeout=60) == 1


async def test_W2_what_becomes_due_right_after_a_claim_does_not_wait_for_the_poll(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600, queues=["default"])
    async with running(worker):
        for n in range(40):
            first = datetime.now(UTC) + timedelta(seconds=0.1)
            await holdfast.app.enqueue(note.bind(2 * n), at=first)
            await holdfast.app.enqueue(note.bind(2 * n + 1), at=first + timedelta(milliseconds=1 + n % 10))
            await until(lambda n=n: len(order) == 2 * n + 2, "for both", patience=10)  # type: ignore[misc]


async def test_W3_with_the_listener_dead_polling_finds_it(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = holdfast.worker(poll=0.3, queues=["default"])

    async def deaf() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(worker.listener, "run", deaf)
    async with running(worker):
        await until(lambda: worker.claimer.empty, "for the worker to rest")
        assert await (await note.enqueue(1)).result(timeout=60) == 1


@pytest.mark.direct("it needs notifications")
async def test_W3_a_killed_listener_is_replaced(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600, queues=["default"])
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'holdfast listen'"
    )
    async with running(worker):
        await until(worker.listener.listening.is_set, "for the listener")
        assert sql(holdfast.url, kill) == [(True,)]
        await until(lambda: not worker.listener.listening.is_set(), "for its end")
        await until(worker.listener.listening.is_set, "for the next one")
        await until(lambda: worker.claimer.empty, "for the worker to rest")
        assert await (await note.enqueue(1)).result(timeout=60) == 1


async def test_Q6_the_most_urgent_first_then_by_time(holdfast: Harness) -> None:
    enqueued: list[Any] = [(3, 0), (1, 5), (4, 0), (0, 9), (2, 5), (5, 0)]
    for n, priority in enqueued:
        await holdfast.app.enqueue(note.bind(n), priority=priority)
    await holdfast.drain(concurrency=1)
    assert order == [0, 1, 2, 3, 4, 5]


async def test_Q6_urgent_tasks_pass_waiting_ones_while_a_worker_runs(holdfast: Harness) -> None:
    for _ in range(3):
        await hold.enqueue()
    worker = holdfast.worker(concurrency=1)
    async with running(worker):
        await until(lambda: worker.roster.busy == 1, "for the slot to be taken")
        for n, priority in [(2, 0), (1, 3), (0, 9)]:
            await holdfast.app.enqueue(note.bind(n), priority=priority)
        gate.set()
        await until(lambda: len(order) == 3, "for all")
    assert order == [0, 1, 2]


async def test_W1_a_claim_that_fails_for_want_of_slots_is_no_sign_of_an_empty_queue(holdfast: Harness) -> None:
    """Else the worker would rest until its next poll, and no freed slot would wake it."""
    worker = holdfast.worker()
    worker.roster.busy = worker.roster.slots
    assert await worker.claimer._claim("default") is True
    worker.life.flag.stopping = True
    assert await worker.claimer._claim("default") is False


@pytest.mark.direct("it needs notifications")
async def test_W3_an_idle_worker_asks_little(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """At each turn it looks for work, and for nothing else: when the next task is due changes with a word only."""
    asked: Counter[str] = Counter()
    run = Link.run

    async def counting(link: Link, query: Any) -> Any:
        asked[query.statement.name] += 1
        return await run(link, query)

    monkeypatch.setattr(Link, "run", counting)
    async with running(holdfast.worker(poll=0.05, reap=0.05)):
        await until(lambda: asked["claim"] > 20, "for the worker to be idle")
        asked.clear()
        await until(lambda: asked["claim"] > 100 and asked["overdue"] > 10, "for the time to pass")
        assert asked["next_due"] <= 20  # one in half a minute, on however slow a machine
        assert not asked.keys() & {"reap", "reap_cancelled", "expire", "bury"}
        asked.clear()
        await holdfast.app.enqueue(note.bind(1), delay="200ms")
        await until(lambda: order == [1], "for the task")
        assert asked["next_due"] >= 1


@pytest.mark.direct("it needs notifications")
async def test_W3_a_step_begins_before_its_worker_asks_for_anything_else(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def told(ask: Callable[[Link, Any], Any]) -> Callable[[Link, Any], Any]:
        async def telling(link: Link, query: Any) -> Any:
            if link is worker._links["claim"]:
                said.append(f"{query.statement.name} {len(order)}")
            return await ask(link, query)

        return telling

    answer_now = Link.answer_now

    def telling_now(link: Link, query: Any) -> Any:
        said.append(f"{query.statement.name} {len(order)}")
        return answer_now(link, query)

    worker = holdfast.worker(poll=60)
    monkeypatch.setattr(Link, "run", told(Link.run))
    monkeypatch.setattr(Link, "answer_now", telling_now)
    async with running(worker):
        await until(lambda: worker.claimer.empty, "for the worker to be idle")
        said.clear()
        await holdfast.app.enqueue(note.bind(1))
        await until(lambda: worker.claimer.empty and order, "for the task")
    assert said[0] in ("claim 0", "claim_one 0")
    assert "next_due 1" in said and "next_due 0" not in said


@pytest.mark.direct("it needs notifications")
async def test_M15_a_claim_sent_ahead_leaves_suspects_to_the_next_one(holdfast: Harness) -> None:
    """Not to the next poll: they have waited for a lease already."""
    worker = holdfast.worker(poll=60)
    async with running(worker):
        await until(lambda: worker.claimer._prefetch.ready is not None, "for the worker to rest")
        assert worker.claimer._prefetch.ready is not None
        ahead, _ = worker.claimer._prefetch.ready
        assert ahead.query.statement.name == "claim_without_suspects"
        sql(
            holdfast.url,
            "INSERT INTO holdfast.task (id, kind, step, args, crashes)"
            """ VALUES (gen_random_uuid(), 'note', 'main', '{"n": 1}', 1)""",
        )
        await holdfast.app.enqueue(note.bind(2))
        await until(lambda: len(order) == 2, "for both tasks")
    assert order == [2, 1]


@pytest.mark.direct("it prepares nothing behind a pooler")
@pytest.mark.parametrize(
    "name", ["claim", "claim_without_suspects", "claim_one", "finish", "finish_counted", "advance", "stay", "beat"]
)
async def test_M10_what_is_prepared_while_there_are_few_tasks_finds_many_by_an_index(
    holdfast: Harness, name: str
) -> None:
    """A plan that no longer looks at its parameters, made for a small table, is kept until that is analyzed."""
    sql(holdfast.url, "INSERT INTO holdfast.task (id, kind, step) VALUES (gen_random_uuid(), 'small', 'main')")
    sql(holdfast.url, "ANALYZE holdfast.task")
    link = Link(holdfast.url, Queries(), "test", by_index=True)
    text = f"EXPLAIN (GENERIC_PLAN) {Queries()._statements[name].text}"
    try:
        cursor = await (await link._open()).execute(text.encode())
        plan = str([row[0] for row in await cursor.fetchall()])
    finally:
        await link.close()
    assert "Index" in plan
    assert "Seq Scan on task" not in plan
