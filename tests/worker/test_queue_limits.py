"""Queues with their own concurrency (W7), and many queues in one worker that do not starve each other (W9)."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Done, Tasks
from holdfast._engine.run.attempt import Attempt
from holdfast.testing import Harness

from .support import running, sql, until

tasks = Tasks()
walk = tasks.kind("walk", result=int)
gate = asyncio.Event()
now: Counter[str] = Counter()
most: Counter[str] = Counter()
order: list[str] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    global gate
    gate = asyncio.Event()
    for each in (now, most, order):
        each.clear()
    return tasks


async def busy_in(queue: str, pause: float) -> None:
    now[queue] += 1
    now["all"] += 1
    for name in (queue, "all"):
        most[name] = max(most[name], now[name])
    await asyncio.sleep(pause)
    now[queue] -= 1
    now["all"] -= 1


@tasks.task
async def busy(queue: str, pause: float) -> None:
    await busy_in(queue, pause)


@tasks.task
async def hold() -> None:
    await gate.wait()


@tasks.task
async def note(name: str) -> None:
    order.append(name)


@tasks.task
async def slow_note(name: str) -> None:
    order.append(name)
    await asyncio.sleep(0.3)  # too long to be claimed ahead


@walk.step
@dataclass
class Start:
    n: int

    async def run(self) -> "End":
        await busy_in("mail", 0.002)
        return End(self.n)


@walk.step
@dataclass
class End:
    n: int

    async def run(self) -> Done[int]:
        await busy_in("mail", 0.002)
        return Done(self.n)


def left(holdfast: Harness, where: str = "true") -> int:
    return int(sql(holdfast.url, f"SELECT count(*) FROM holdfast.task WHERE {where}")[0][0])


def claims(worker: Any) -> list[list[str]]:
    """What a worker claims from now on, claim by claim, as names of queues."""
    made: list[list[str]] = []
    take = worker.claimer._claimed

    def claimed(attempts: list[Attempt]) -> None:
        made.append([attempt.queue for attempt in attempts])
        take(attempts)

    worker.claimer._claimed = claimed
    return made


@pytest.mark.parametrize(("pause", "count"), [(0.0, 300), (0.02, 60), (0.25, 8)])
async def test_W7_a_queue_with_a_limit_runs_no_more_at_once(holdfast: Harness, pause: float, count: int) -> None:
    for queue in ("mail", "other"):
        await holdfast.app.enqueue_many([busy.bind(queue, pause) for _ in range(count)], queue=queue)
    async with running(holdfast.worker(queues="mail:2,other", concurrency=6)):
        await until(lambda: left(holdfast) == 0, "for all")
    assert most["mail"] == 2
    assert most["all"] <= 6
    assert most["other"] > 2, "the others are not limited"


async def test_W7_a_limit_is_not_claimed_beyond(holdfast: Harness) -> None:
    for queue in ("mail", "other"):
        await holdfast.app.enqueue_many([hold.bind() for _ in range(20)], queue=queue)
    worker = holdfast.worker(queues={"mail": 2, "other": None}, concurrency=6, poll=600)
    async with running(worker):
        await until(lambda: worker.roster.busy == 6 or None, "for all slots")
        assert Counter(a.queue for a in worker.roster.held.values()) == {"mail": 2, "other": 4}
        assert left(holdfast, "state = 'running'") == 6
        gate.set()
        await until(lambda: left(holdfast) == 0, "for all: a free slot of the queue is enough to go on")


async def test_W7_the_limit_of_the_only_queue(holdfast: Harness) -> None:
    await holdfast.app.enqueue_many([busy.bind("mail", 0.001) for _ in range(100)], queue="mail")
    async with running(holdfast.worker(queues="mail:2", concurrency=6, poll=600)):
        await until(lambda: left(holdfast) == 0, "for all")
    assert most["mail"] == 2


async def test_W7_moves_count_too(holdfast: Harness) -> None:
    await holdfast.app.enqueue_many([Start(n) for n in range(60)], queue="mail")
    worker = holdfast.worker(queues="mail:3,other:5")
    assert worker.roster.slots == 8
    async with running(worker):
        await until(lambda: left(holdfast) == 0, "for all")
    assert most["mail"] <= 3
    lane = worker.roster.lanes["mail"]
    assert (lane.busy, lane.waiting, lane.continuing) == (0, 0, 0)


async def test_W7_Q13_a_full_queue_is_told(holdfast: Harness) -> None:
    refs = [await holdfast.app.enqueue(hold.bind(), queue="mail") for _ in range(3)]
    worker = holdfast.worker(queues="mail:2,other", concurrency=6)
    async with running(worker):
        await until(lambda: worker.roster.busy == 2, "for the slots of mail")
        said = await holdfast.app.explain(refs[2].id)
        assert "1 live worker with 2 slots for this queue can claim it and holds 2 tasks now: all are busy" in said
        told = sql(holdfast.url, "SELECT queues, limits::text, slots FROM holdfast.worker")
        assert told == [(["mail", "other"], '{"mail": 2}', 6)]
        gate.set()
        await until(lambda: left(holdfast) == 0, "for all")


# --- W9


async def test_W9_slow_steps_of_one_queue_leave_the_others_their_share(holdfast: Harness) -> None:
    """Nothing ends here: whoever had been claimed for all slots would keep the others waiting for ever."""
    for queue in ("a", "b", "c"):
        await holdfast.app.enqueue_many([hold.bind() for _ in range(50)], queue=queue)
    worker = holdfast.worker(queues=["a", "b", "c"], concurrency=6)
    async with running(worker):
        await until(lambda: worker.roster.busy == 6, "for all slots")
        assert Counter(a.queue for a in worker.roster.held.values()) == {"a": 2, "b": 2, "c": 2}
        gate.set()
        await until(lambda: left(holdfast) == 0, "for all")


async def test_W9_what_a_queue_does_not_use_goes_to_the_others(holdfast: Harness) -> None:
    await holdfast.app.enqueue_many([hold.bind() for _ in range(50)], queue="a")
    await holdfast.app.enqueue(hold.bind(), queue="b")
    worker = holdfast.worker(queues=["a", "b", "c"], concurrency=6)
    async with running(worker):
        await until(lambda: worker.roster.busy == 6, "for all slots")
        assert Counter(a.queue for a in worker.roster.held.values()) == {"a": 5, "b": 1}
        gate.set()
        await until(lambda: left(holdfast) == 0, "for all")


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_W9_a_few_tasks_beside_a_huge_backlog_come_with_the_next_claims(
    holdfast: Harness, concurrency: int
) -> None:
    await holdfast.app.enqueue_many([note.bind("backlog") for _ in range(6000)], queue="a")
    worker = holdfast.worker(queues=["a", "b"], concurrency=concurrency)
    made = claims(worker)
    async with running(worker):
        await until(lambda: len(made) > 5, "for the worker to be in its stride")
        await holdfast.app.enqueue_many([note.bind("few") for _ in range(3)], queue="b")
        since = len(made)  # they may even have been claimed before we are told that they are enqueued
        await until(lambda: sum(claim.count("b") for claim in made) == 3, "for the few")
        first = next(n for n, claim in enumerate(made) if "b" in claim)
        # One claim may have been under way, and with one slot they come in turns.
        assert first - since <= 2 + 2 * (concurrency == 1)
        assert left(holdfast, "queue = 'a'") > 0, "the backlog had ended before: nothing was shown"
        worker.stop()


async def test_W9_two_backlogs_come_in_turns(holdfast: Harness) -> None:
    for queue in ("a", "b"):
        await holdfast.app.enqueue_many([slow_note.bind(queue) for _ in range(5)], queue=queue)
    async with running(holdfast.worker(queues=["a", "b"], concurrency=1)):
        await until(lambda: left(holdfast) == 0, "for all")
    assert [sorted(order[n : n + 2]) for n in range(0, 10, 2)] == [["a", "b"]] * 5
