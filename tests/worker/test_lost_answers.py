"""Answers that are lost on the way: the statement was executed, or was not, and nobody can tell which."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast import Context, Done, Retry, Snooze, Tasks
from holdfast._db.driver.session import Link
from holdfast._engine import worker as engine
from holdfast._engine.lease.contact import Contact
from holdfast._model.json.codec import encode_result
from holdfast._model.run import outcome_of
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()
ran: Counter[tuple[str, int]] = Counter()
chain = tasks.kind("chain", result=int)


@pytest.fixture
def holdfast_tasks() -> Tasks:
    ran.clear()
    return tasks


@chain.step
@dataclass
class First:
    async def run(self, ctx: Context) -> "Second":
        ran[ctx.step, ctx.attempt] += 1
        return Second(1)


@chain.step
@dataclass
class Second:
    n: int

    async def run(self, ctx: Context) -> "Third":
        ran[ctx.step, ctx.attempt] += 1
        return Third(self.n + 1)


@chain.step
@dataclass
class Third:
    n: int

    async def run(self, ctx: Context) -> Done[int]:
        ran[ctx.step, ctx.attempt] += 1
        return Done(self.n + 1)


@tasks.task
async def plain(ctx: Context, n: int) -> Any:
    ran[ctx.step, ctx.attempt] += 1
    return n if n >= 0 else "bad"


@tasks.task(retry=Retry(3, delay=0.1, jitter=0))
async def failing(ctx: Context) -> int:
    ran[ctx.step, ctx.attempt] += 1
    if ctx.errors < 2:
        raise ValueError("not yet")
    return ctx.errors


@tasks.task
async def sleepy(ctx: Context) -> int:
    ran[ctx.step, ctx.attempt] += 1
    if ctx.attempt < 3:
        raise Snooze("100ms")
    return ctx.attempt


class Faults:
    """A link whose answers to certain statements are lost, the first `times` times."""

    def __init__(self, link: Link, name: str, *, executed: bool, times: int = 1) -> None:
        self.left = times
        self.met = 0
        run, transact = link.run, link.transact

        async def fail(executing: Any) -> None:
            self.left -= 1
            self.met += 1
            if executed:
                await executing()
            await link.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        async def faulty_run(query: Any) -> Any:
            if self.left and query.statement.name == name:
                await fail(lambda: run(query))
            return await run(query)

        async def faulty_transact(queries: Any, *, lock_timeout: str | None = None) -> Any:
            if self.left and any(q.statement.name == name for q in queries):
                await fail(lambda: transact(queries, lock_timeout=lock_timeout))
            return await transact(queries, lock_timeout=lock_timeout)

        link.run, link.transact = faulty_run, faulty_transact  # type: ignore[method-assign]


EXECUTED = pytest.mark.parametrize("executed", [True, False], ids=["executed", "never sent"])


@EXECUTED
async def test_M4_a_claim_whose_answer_was_lost_comes_back_uncharged(holdfast: Harness, executed: bool) -> None:
    worker = holdfast.worker(lease=60)
    faults = Faults(worker._links["claim"], "claim", executed=executed)
    refs = [await plain.enqueue(n) for n in range(5)]
    async with running(worker):
        assert [await ref.result(timeout=60) for ref in refs] == list(range(5))
    assert faults.met == 1
    for ref in refs:
        info = await ref.info()
        assert (info.errors, info.crashes) == (0, 0)
        expected = [(1, "main", "released"), (2, "main", "done")] if executed else [(1, "main", "done")]
        assert attempts(holdfast.url, ref.id) == expected
    assert sum(ran.values()) == 5


@EXECUTED
@pytest.mark.parametrize("times", [1, 3])
async def test_M6_a_finish_whose_answer_was_lost_is_recorded_once(
    holdfast: Harness, executed: bool, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    worker = holdfast.worker(lease=60)
    faults = Faults(worker._links["settle"], "finish_counted", executed=executed, times=times)
    refs = [await plain.enqueue(n) for n in range(5)]
    async with running(worker):
        assert [await ref.result(timeout=60) for ref in refs] == list(range(5))
        await until(lambda: not worker.roster.held, "for the worker to know")
    assert faults.met >= 1
    assert sum(ran.values()) == 5
    assert "was lost before" not in caplog.text  # the worker knows that its outcome was recorded
    for ref in refs:
        assert attempts(holdfast.url, ref.id) == [(1, "main", "done")]


async def test_L4_of_many_that_finish_together_only_the_one_that_was_taken_is_lost(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but their number comes back of them: as it is too small, all are looked up."""
    worker = holdfast.worker(lease=60)
    link, counts = worker._links["settle"], list[int]()
    transact = link.transact
    refs = [await plain.enqueue(n) for n in range(5)]

    async def after_a_takeover(queries: Any, *, lock_timeout: str | None = None) -> Any:
        if not counts:
            sql(holdfast.url, "UPDATE holdfast.task SET attempt = 2 WHERE id = $1", refs[2].id)
        answers = await transact(queries, lock_timeout=lock_timeout)
        counts.extend(answer.count for answer in answers)
        return answers

    link.transact = after_a_takeover  # type: ignore[method-assign]
    async with running(worker):
        await until(lambda: counts and not worker.roster.held, "for the worker to know")
        assert worker.roster.lost == 1
    assert counts == [4]
    assert caplog.text.count("was lost before") == 1
    done, running_still = (1, "main", "done"), (2, "main", None)
    assert [attempts(holdfast.url, ref.id) for ref in refs] == [[done], [done], [running_still], [done], [done]]


@EXECUTED
async def test_M6_a_kept_move_whose_answer_was_lost_neither_doubles_nor_strands(
    holdfast: Harness, executed: bool
) -> None:
    worker = holdfast.worker(lease=60, concurrency=2)
    faults = Faults(worker._links["settle"], "advance", executed=executed, times=2)
    refs = [await chain.enqueue(First()) for _ in range(5)]
    async with running(worker):
        assert [await ref.result(timeout=60) for ref in refs] == [3] * 5
        await until(lambda: not worker.roster.held, "for the worker to know")
        assert worker.roster.continuing == 0
        assert worker.roster.busy == 0
    assert faults.met == 2
    assert sum(ran.values()) == 15
    for ref in refs:
        assert attempts(holdfast.url, ref.id) == [
            (1, "First", "advanced"),
            (2, "Second", "advanced"),
            (3, "Third", "done"),
        ]


@EXECUTED
@pytest.mark.parametrize(("what", "word"), [(failing, "retried"), (sleepy, "snoozed")])
async def test_M6_a_stay_whose_answer_was_lost_is_charged_once(
    holdfast: Harness, executed: bool, what: Any, word: str
) -> None:
    worker = holdfast.worker(lease=60)
    faults = Faults(worker._links["settle"], "stay", executed=executed)
    ref = await what.enqueue()
    async with running(worker):
        await ref.result(timeout=60)
    assert faults.met == 1
    logged = [entry for entry in attempts(holdfast.url, ref.id) if entry[2] != "released"]
    assert [outcome for _, _, outcome in logged] == [word, word, "done"]
    assert set(ran.values()) == {1}


async def test_M6_the_read_back_itself_may_fail(holdfast: Harness) -> None:
    worker = holdfast.worker(lease=60)
    Faults(worker._links["settle"], "finish_counted", executed=True)
    again = Faults(worker._links["settle"], "recorded", executed=False, times=2)
    refs = [await plain.enqueue(n) for n in range(3)]
    async with running(worker):
        assert [await ref.result(timeout=60) for ref in refs] == [0, 1, 2]
        await until(lambda: not worker.roster.held, "for the worker to know")
    assert again.met == 2
    assert sum(ran.values()) == 3


async def test_M6_a_value_that_the_database_refuses_parks_only_the_culprit(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        outcome_of, "encode_result", lambda value: b'"\\u0000"' if value == "bad" else encode_result(value)
    )
    refs = [await plain.enqueue(n) for n in range(-1, 30)]
    async with running(holdfast.worker(lease=60, concurrency=31)):
        assert [await ref.result(timeout=60) for ref in refs[1:]] == list(range(30))
        await until(lambda: row(holdfast.url, refs[0].id)["state"] == "parked", "for the culprit")
    info = await refs[0].info()
    assert info.error is not None
    assert info.error["type"] == "RefusedByDatabase"
    assert "22P05" in info.error["message"]
    assert attempts(holdfast.url, refs[0].id) == [(1, "main", "failed")]


async def test_M6_a_locked_row_does_not_hold_up_the_others(holdfast: Harness) -> None:
    refs = [await plain.enqueue(n) for n in range(10)]
    gate = asyncio.Event()

    @holdfast.app.middleware
    async def wait(ctx: Context, proceed: Any) -> Any:
        await gate.wait()
        return await proceed()

    worker = holdfast.worker(lease=60)
    async with running(worker):
        await until(lambda: worker.roster.busy == 10, "for all to run")
        with psycopg.connect(holdfast.url) as other:
            other.execute("SELECT 1 FROM holdfast.task WHERE id = %s FOR UPDATE", [refs[4].id])
            gate.set()
            others = [ref for ref in refs if ref is not refs[4]]
            assert [await ref.result(timeout=60) for ref in others] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
            other.rollback()
        assert await refs[4].result(timeout=60) == 4
    assert set(ran.values()) == {10}
    tasks._middleware.clear()


@EXECUTED
async def test_M4_a_release_of_strays_whose_answer_was_lost(holdfast: Harness, executed: bool) -> None:
    worker = holdfast.worker(lease=60)
    Faults(worker._links["claim"], "claim", executed=True)
    again = Faults(worker._links["claim"], "stay", executed=executed)
    ref = await plain.enqueue(7)
    async with running(worker):
        assert await ref.result(timeout=60) == 7
    assert again.met == 1
    assert attempts(holdfast.url, ref.id) == [(1, "main", "released"), (2, "main", "done")]


@pytest.mark.parametrize("moment", range(4), ids=["claimed", "begun", "moved", "begun again"])
async def test_L6_M3_what_is_held_up_for_longer_than_a_lease_is_not_begun(holdfast: Harness, moment: int) -> None:
    """This process stood still, or the answer was slow: somebody else may execute it by now."""
    worker = holdfast.worker(lease=60, concurrency=1)
    looks = count()
    worker.dispatcher._is_late = lambda *_: next(looks) == moment  # type: ignore[method-assign]
    worker.dispatcher._contact = cast(Contact, SimpleNamespace(overdue=True))
    ref = await chain.enqueue(First())
    async with running(worker):
        assert await ref.result(timeout=60) == 3
        await until(lambda: not worker.roster.held, "for the worker to know")
        assert worker.roster.continuing == 0
        assert worker.roster.busy == 0
    given_back = 1 if moment < 2 else 2
    outcomes = {number: outcome for number, _, outcome in attempts(holdfast.url, ref.id)}
    assert [number for number, outcome in outcomes.items() if outcome == "released"] == [given_back]
    assert given_back not in {number for _, number in ran} and sum(ran.values()) == 3
    info = await ref.info()
    assert (info.errors, info.crashes) == (0, 0)


async def test_L6_M3_a_lease_that_was_renewed_is_no_reason_to_give_a_task_back(holdfast: Harness) -> None:
    worker = holdfast.worker(lease=60)
    dispatch = worker.dispatcher
    begin = dispatch._roster.begin

    def after_a_while() -> Any:
        dispatch._lease = -1.0  # claimed in time, and then so many were before it
        return begin()

    dispatch._roster.begin = after_a_while  # type: ignore[method-assign]
    ref = await plain.enqueue(1)
    async with running(worker):
        assert await ref.result(timeout=60) == 1
    assert attempts(holdfast.url, ref.id) == [(1, "main", "done")]


async def test_L6_a_late_claim_of_what_is_still_executed_here_interrupts_it(holdfast: Harness) -> None:
    """Our lease was taken, we claimed the task again, and that answer was late: nothing may go on unseen."""
    running_now, seen, go = [0], {"most": 0, "interrupted": 0}, asyncio.Event()
    go.set()

    @holdfast.app.task
    async def slow() -> None:
        running_now[0] += 1
        seen["most"] = max(seen["most"], running_now[0])
        try:
            await (go.wait() if seen["interrupted"] else asyncio.Event().wait())
        except asyncio.CancelledError:
            seen["interrupted"] += 1
            raise
        finally:
            running_now[0] -= 1

    worker = holdfast.worker(lease=60, concurrency=5)
    await slow.enqueue()
    async with running(worker):
        await until(lambda: running_now[0] == 1, "for the step")
        looks = count()
        worker.dispatcher._is_late = lambda *_: next(looks) == 0  # type: ignore[method-assign]
        sql(holdfast.url, "UPDATE holdfast.task SET state = 'ready', worker_id = NULL, lease_expires_at = NULL")
        worker.claimer.wake()
        await until(lambda: seen["interrupted"], "for the interruption")
        assert seen["most"] == 1


@pytest.mark.parametrize("answer", ["comes", "is lost", "was never asked for"])
async def test_W4_what_was_claimed_but_never_began_leaves_no_attempt(
    holdfast: Harness, answer: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "UNSTARTED", 600.0)
    end = asyncio.Event()

    @holdfast.app.task
    async def long() -> None:
        await end.wait()

    refs = [await long.enqueue() for _ in range(6)]
    worker = holdfast.worker(concurrency=1, lease=60)
    worker.claimer._budget.share = lambda queue: 6  # type: ignore[method-assign]
    faults = Faults(worker._links["settle"], "stay", executed=answer == "is lost", times=int(answer != "comes"))
    async with running(worker):
        await until(lambda: (worker.roster.busy, len(worker.roster.ready)) == (1, 5), "for the claim")
        worker.stop()
        await until(lambda: len(worker.roster.held) == 1, "for the others to be given back")
        end.set()
        await until(lambda: not worker.roster.held, "for the first")
    assert faults.met == int(answer != "comes")
    assert "was lost before" not in caplog.text and worker.roster.lost == 0
    left = sql(holdfast.url, "SELECT state, worker_id, attempt, claimed_at FROM holdfast.task")
    assert left == [("ready", None, 0, None)] * 5
    assert [entry for ref in refs for entry in attempts(holdfast.url, ref.id)] == [(1, "main", "done")]
