"""The claim that a resting worker has ready: sent by whoever wakes it, and answered for as any other."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from holdfast import Tasks
from holdfast._db.driver.session import Link
from holdfast._engine.claim.budget import LARGEST_CLAIM, ClaimBudget
from holdfast._engine.worker import Worker
from holdfast.testing import Harness

from .support import running, sql, until

pytestmark = pytest.mark.direct("it needs notifications, and prepares nothing behind a pooler")

tasks = Tasks()
order: list[int] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    order.clear()
    return tasks


@tasks.task
async def note(n: int) -> None:
    order.append(n)


@pytest.fixture
def before_answers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Link], Awaitable[None]]]:
    """What is done, once each, after a claim was sent ahead and before its answer is read."""
    first: list[Callable[[Link], Awaitable[None]]] = []
    answer, answer_now = Link.answer, Link.answer_now

    def not_now(link: Link, query: Any) -> Any:
        if first:
            raise LookupError
        return answer_now(link, query)

    async def late(link: Link, query: Any) -> Any:
        if first:
            await first.pop()(link)
        return await answer(link, query)

    monkeypatch.setattr(Link, "answer_now", not_now)
    monkeypatch.setattr(Link, "answer", late)
    return first


async def at_rest(worker: Worker) -> None:
    """Until its next claim is ready: it is once claims are prepared."""

    def ready() -> bool:
        worker.claimer.wake()
        return worker.claimer._prefetch.sent is not None

    await until(ready, "for a claim that is sent ahead")
    await until(lambda: worker.claimer._prefetch.ready is not None, "for the worker to rest again")


async def until_claimed(holdfast: Harness) -> None:
    await until(
        lambda: sql(holdfast.url, "SELECT count(*) FROM holdfast.task WHERE state = 'running'") == [(1,)],
        "for the claim to be committed",
    )


def outcomes(holdfast: Harness) -> list[str]:
    return [outcome for (outcome,) in sql(holdfast.url, "SELECT outcome FROM holdfast.attempts ORDER BY attempt")]


async def test_W3_what_comes_after_the_claim_was_sent_wakes_again(
    holdfast: Harness, before_answers: list[Callable[[Link], Awaitable[None]]]
) -> None:
    worker = holdfast.worker(poll=600)

    async def enqueue_another(_: Link) -> None:
        await until_claimed(holdfast)
        await holdfast.app.enqueue(note.bind(2))
        await until(lambda: worker.bell.rung, "for the notification")

    async with running(worker):
        await at_rest(worker)
        before_answers.append(enqueue_another)
        await holdfast.app.enqueue(note.bind(1))
        await until(lambda: order == [1, 2], "for both tasks")
    assert not before_answers


async def test_W5_a_worker_that_stops_gives_back_what_it_has_sent_for(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        sql(
            holdfast.url,
            "INSERT INTO holdfast.task (id, kind, step, args) VALUES (gen_random_uuid(), 'note', 'main', '{\"n\": 1}')",
        )
        worker.claimer.wake()
        assert worker.claimer._prefetch.sent is not None
        worker.life.flag.stopping = True
    assert order == []
    assert sql(holdfast.url, "SELECT state, worker_id, attempt FROM holdfast.task") == [("ready", None, 0)]
    assert outcomes(holdfast) == []


async def test_M2_a_claim_whose_answer_is_lost_is_given_back(
    holdfast: Harness, before_answers: list[Callable[[Link], Awaitable[None]]]
) -> None:
    worker = holdfast.worker(poll=600)

    async def lose(link: Link) -> None:
        await until_claimed(holdfast)
        assert link._connection is not None and link._direct._ahead is not None
        link._direct._ahead.results.clear()
        link._connection.pgconn.finish()

    async with running(worker):
        await at_rest(worker)
        before_answers.append(lose)
        await holdfast.app.enqueue(note.bind(1))
        await until(lambda: order == [1], "for the task, by its second attempt")
        await until(lambda: not sql(holdfast.url, "SELECT FROM holdfast.task"), "for its end")
    assert outcomes(holdfast) == ["released", "done"]


async def test_W1_nothing_is_sent_ahead_that_could_not_be_held(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600)
    async with running(worker):
        for state in ("unhealthy", "full"):
            await at_rest(worker)
            worker.contact.healthy = state != "unhealthy"
            worker.roster.continuing = int(state == "full")
            worker.claimer.wake()
            assert worker.claimer._prefetch.sent is None
            worker.contact.healthy, worker.roster.continuing = True, 0


async def test_W1_a_busy_worker_claims_by_its_pace_and_sends_nothing_ahead(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        monkeypatch.setattr(ClaimBudget, "share", lambda shares, queue: 1000)
        worker.claimer.wake()
        assert worker.claimer._prefetch.sent is not None and not worker.claimer.empty
        await until(lambda: worker.claimer.empty, "for the worker to rest again")
        assert worker.claimer._prefetch.ready is None


async def test_W3_a_word_that_comes_before_the_claimer_is_awake_is_heard(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = Link.run

    async def telling(link: Link, query: Any) -> Any:
        asked.append(query.statement.name)
        return await run(link, query)

    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        monkeypatch.setattr(Link, "run", telling)
        worker.claimer.wake()
        assert worker.claimer._prefetch.sent is not None
        worker.claimer.wake()
        await until(lambda: "claim" in asked, "for another claim")


async def test_W1_a_claim_sent_ahead_is_no_larger_than_others(holdfast: Harness) -> None:
    worker = holdfast.worker(concurrency=3 * LARGEST_CLAIM)
    async with running(worker):
        await at_rest(worker)
        assert worker.claimer._prefetch.ready is not None
        assert worker.claimer._prefetch.ready[0].limit == LARGEST_CLAIM


async def test_W3_a_worker_that_is_told_of_a_task_claims_that_one(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600, concurrency=1)
    async with running(worker):
        await at_rest(worker)
        first, second = (
            sql(
                holdfast.url,
                "INSERT INTO holdfast.task (id, kind, step, args) VALUES (gen_random_uuid(), 'note', 'main', $1)"
                " RETURNING id",
                f'{{"n": {n}}}',
            )[0][0]
            for n in (1, 2)
        )
        worker.claimer.wake(str(second))
        await until(lambda: order == [2], "for the second")
        assert not worker.claimer._marks["default"].set, "that it was there tells nothing of what lies before it"
        await until(lambda: worker.claimer._prefetch.ready is not None, "for the worker to rest again")
        assert order == [2]
        worker.claimer.wake(str(first))
        await until(lambda: order == [2, 1], "for the first")


async def test_W2_who_is_told_of_tasks_one_by_one_still_looks_for_all_others(holdfast: Harness) -> None:
    """Once in each poll interval: nobody was told of this one."""
    worker = holdfast.worker(poll=0.5)
    async with running(worker):
        await at_rest(worker)
        insert = "INSERT INTO holdfast.task (id, kind, step, args) SELECT gen_random_uuid(), 'note', 'main', $1"
        sql(holdfast.url, insert, '{"n": 1}')

        def found() -> bool:
            worker.claimer.wake("00000000-0000-0000-0000-000000000001")
            return order == [1]

        await until(found, "for the one that nobody tells of")


@pytest.mark.parametrize("past", ["_due_at", "_all_asked_at"])
async def test_W2_nobody_claims_one_task_when_others_may_be_due(holdfast: Harness, past: str) -> None:
    worker = holdfast.worker(poll=600)
    async with running(worker):
        for moment, by_id in ((time.monotonic() + 100, True), (0.0, False)):
            await at_rest(worker)
            if past == "_due_at":
                worker.claimer._due_at = moment
            else:
                worker.claimer._all_asked_at = moment - 600
            assert worker.claimer._prefetch.ready is not None
            any, one = worker.claimer._prefetch.ready
            worker.claimer.wake("00000000-0000-0000-0000-000000000001")
            assert worker.claimer._prefetch.sent is not None
            assert worker.claimer._prefetch.sent[0] is (one if by_id else any)


async def test_W2_what_became_due_since_the_last_claim_is_due(holdfast: Harness) -> None:
    """The claim has not seen it, and whoever asks what comes next must not pass over it."""
    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        claimer = worker.claimer
        insert = (
            "INSERT INTO holdfast.task (id, kind, step, queue, run_at)"
            " VALUES (gen_random_uuid(), 'unknown', 'main', 'default', holdfast.now() - interval '3 s')"
        )
        sql(holdfast.url, insert)
        for looked_ago, is_due in ((60.0, True), (0.0, False)):
            claimer._all_asked_at, claimer._ask_due_at = time.monotonic() - looked_ago, 0.0
            assert (await claimer._until_due() <= 0) is is_due


async def test_what_a_step_has_set_is_not_seen_by_those_that_it_lets_begin(holdfast: Harness) -> None:
    color: ContextVar[str] = ContextVar("color", default="none")
    seen: list[str] = []

    @holdfast.app.task
    async def look() -> None:
        seen.append(color.get())

    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        insert = "INSERT INTO holdfast.task (id, kind, step) SELECT gen_random_uuid(), 'look', 'main'"
        sql(holdfast.url, insert)
        context = copy_context()
        context.run(color.set, "red")
        context.run(worker.claimer.wake)
        assert worker.claimer._prefetch.sent is not None
        await until(lambda: bool(seen), "for the task")
    assert seen == ["none"]


@pytest.mark.parametrize("told", ["nonsense", "00", "0" * 31, "0" * 33, "zz" * 16, "é" * 16, " "])
async def test_W3_what_is_no_id_is_any_task(holdfast: Harness, told: str) -> None:
    """Anybody may notify anything."""
    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        insert = (
            "INSERT INTO holdfast.task (id, kind, step, args) VALUES (gen_random_uuid(), 'note', 'main', '{\"n\": 1}')"
        )
        sql(holdfast.url, insert)
        sql(holdfast.url, "SELECT pg_notify('holdfast', $1)", f"queue default {told}")
        await until(lambda: order == [1], "for the task")


async def test_W3_a_task_that_is_gone_is_none(holdfast: Harness) -> None:
    worker = holdfast.worker(poll=600)
    async with running(worker):
        await at_rest(worker)
        worker.claimer.wake("00000000-0000-0000-0000-000000000001")
        assert worker.claimer._prefetch.sent is not None
        await until(lambda: worker.claimer._prefetch.ready is not None, "for the worker to rest again")
        await holdfast.app.enqueue(note.bind(1))
        await until(lambda: order == [1], "for another")


async def test_a_fault_of_ours_in_taking_in_a_claim_is_not_passed_over(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = holdfast.worker(poll=600)

    met: list[str] = []

    def broken(*_: Any) -> None:
        met.append("it")
        raise LookupError("a fault of ours")

    with pytest.raises(LookupError, match="a fault of ours"):
        async with running(worker):
            await at_rest(worker)
            monkeypatch.setattr(worker.claimer._prefetch, "_hand_over", broken)
            await holdfast.app.enqueue(note.bind(1))
            await until(lambda: bool(met), "for the fault")
            await until(lambda: worker.claimer._prefetch._fault is None, "for the claimer to meet it")


async def test_W4_a_worker_that_drains_does_not_end_while_a_claim_is_on_its_way(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = holdfast.worker()
    run, looks = Link.run, 0

    async def look(link: Link, query: Any) -> Any:
        nonlocal looks
        answer = await run(link, query)
        if query.statement.name == "due":
            looks += 1
            if looks == 1:
                worker.claimer.empty = False  # as after a notification that came meanwhile
                worker.claimer.wake()
        return answer

    monkeypatch.setattr(Link, "run", look)
    await asyncio.wait_for(worker.run(until_idle=True), 60)
    assert looks > 1


async def test_W3_an_answer_of_which_nobody_is_told_is_looked_for(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may never come: whoever waits for it does so for a limited time."""
    monkeypatch.setattr("holdfast._engine.claim.prefetch.ANSWER_SECONDS", 0.05)
    worker = holdfast.worker(poll=600)
    worker.claimer._prefetch._arrived = lambda: None  # type: ignore[method-assign]
    async with running(worker):
        await at_rest(worker)
        await holdfast.app.enqueue(note.bind(1))
        await until(lambda: order == [1], "for the task")
