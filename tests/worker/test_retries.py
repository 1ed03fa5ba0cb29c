"""Errors, retries, parking, and people who resume."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Context, Done, Fail, Retry, TaskNotFound, TaskParked, Tasks, WrongState
from holdfast.testing import Harness

from .support import attempts, row, sql

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


class Busy(Exception):
    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("busy")
        self.retry_after = retry_after


@tasks.task(retry=Retry(5, delay="10s", backoff=1, jitter=0))
async def fixed() -> None:
    raise ValueError("always")


@tasks.task(retry=Retry(5, delay="10s", jitter=0))
async def exponential() -> None:
    raise ValueError("always")


@tasks.task(retry=Retry(5, delay="10s", max_delay="25s", jitter=0))
async def capped() -> None:
    raise ValueError("always")


@tasks.task(retry=Retry(1, delay="100s", jitter=0.2))
async def jittered() -> None:
    raise ValueError("always")


@tasks.task(retry=Retry(3, delay="10s", jitter=0))
async def last_chance(ctx: Context) -> int:
    if ctx.errors < 3:
        raise ValueError("not yet")
    return ctx.attempt


@tasks.task(
    retry=[
        Retry(1, delay="5s", jitter=0, on=KeyError),
        Retry(0, on=TypeError),
        Retry(2, delay=lambda error, n: 60 * (n + 1), jitter=0, on=(OSError, Busy)),
    ]
)
async def picky(what: str) -> None:
    raise {
        "key": KeyError("k"),
        "type": TypeError("t"),
        "os": OSError("o"),
        "after": Busy(30),
        "rest": ValueError("v"),
    }[what]


@tasks.task
async def chained() -> None:
    try:
        try:
            raise KeyError("root")
        except KeyError as error:
            raise ValueError("middle") from error
    except ValueError:
        raise RuntimeError("top")  # noqa: B904


@tasks.task
async def needs(n: int) -> int:
    if n < 10:
        raise ValueError(f"{n} is too small")
    return n


async def delays_of(holdfast: Harness, what: Any, *args: Any) -> list[float]:
    """The seconds between a failed attempt and the next one as written, until the task is parked."""
    ref = await what.enqueue(*args)
    holdfast.clock.advance(0)
    found: list[float] = []
    while True:
        await holdfast.drain()
        now = row(holdfast.url, ref.id)
        if now["state"] == "parked":
            outcomes = [outcome for _, _, outcome in attempts(holdfast.url, ref.id)]
            assert outcomes == ["retried"] * len(found) + ["failed"]
            assert now["errors"] == len(found) + 1
            return found
        # T10: while retrying it is ready, later, and its error is there to see.
        assert now["state"] == "ready"
        assert (await ref.info()).phase == "retrying"
        assert now["error"] is not None
        found.append((now["run_at"] - holdfast.clock.now()).total_seconds())
        holdfast.clock.set(now["run_at"])


@pytest.mark.parametrize(
    ("what", "delays"),
    [(fixed, [10, 10, 10, 10, 10]), (exponential, [10, 20, 40, 80, 160]), (capped, [10, 20, 25, 25, 25])],
    ids=["fixed", "exponential", "capped"],
)
async def test_T9_limit_5_is_6_attempts_with_these_delays(holdfast: Harness, what: Any, delays: list[float]) -> None:
    assert await delays_of(holdfast, what) == delays


async def test_T9_jitter_spreads(holdfast: Harness) -> None:
    refs = await holdfast.app.enqueue_many([jittered.bind() for _ in range(100)])
    holdfast.clock.advance(0)
    now = holdfast.clock.now()
    await holdfast.drain()
    delays = {row(holdfast.url, ref.id)["run_at"] - now for ref in refs}
    assert len(delays) > 90
    assert timedelta(seconds=79) < min(delays) < timedelta(seconds=95)
    assert timedelta(seconds=105) < max(delays) < timedelta(seconds=121)


@pytest.mark.parametrize(
    ("what", "delays"), [("key", [5]), ("type", []), ("os", [60, 120]), ("after", [30, 30]), ("rest", [])]
)
async def test_T9_per_exception_and_by_callable(holdfast: Harness, what: str, delays: list[float]) -> None:
    assert await delays_of(holdfast, picky, what) == delays


async def test_T9_errors_of_all_types_count_for_the_visit(holdfast: Harness) -> None:
    raised: list[Exception] = []

    @holdfast.app.task(
        retry=[Retry(1, delay="5s", jitter=0, on=KeyError), Retry(3, delay="7s", backoff=1, jitter=0, on=OSError)]
    )
    async def moody() -> None:
        raise raised.pop(0)

    raised[:] = [KeyError("k"), OSError("o"), OSError("o"), OSError("o")]
    assert await delays_of(holdfast, moody) == [5, 7, 7]  # three errors had been before the fourth
    raised[:] = [OSError("o"), KeyError("k")]
    assert await delays_of(holdfast, moody) == [7]  # KeyError's one retry was used up by an OSError
    assert raised == []


async def test_T9_a_move_starts_the_budget_anew(holdfast: Harness) -> None:
    kind = holdfast.app.kind("walk", retry=Retry(1, delay="5s", jitter=0))

    @kind.step
    @dataclass
    class Walk:
        left: int

        async def run(self, ctx: Context) -> "Walk | Done[int]":
            if ctx.errors == 0:
                raise ValueError("once at each visit")
            return Walk(self.left - 1) if self.left else Done(ctx.attempt)

    ref = await kind.enqueue(Walk(2))
    await holdfast.run_all()
    assert await ref.result() == 6


def explodes(error: BaseException, errors: int) -> float:
    raise LookupError("no table of delays")


def nonsense(error: BaseException, errors: int) -> Any:
    return "soon"


@pytest.mark.parametrize(("delay", "why"), [(explodes, "LookupError: no table of delays"), (nonsense, "'soon'")])
async def test_T9_a_delay_that_cannot_be_had_parks_and_says_so(holdfast: Harness, delay: Any, why: str) -> None:
    @holdfast.app.task(retry=Retry(5, delay=delay))
    async def unlucky() -> None:
        raise ValueError("the error itself")

    ref = await unlucky.enqueue()
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.errors) == ("parked", 1)
    assert info.error is not None
    assert info.error["type"] == "ValueError"
    assert info.error["message"].startswith("the error itself\n(Retry(delay=")
    assert why in info.error["message"]


async def test_T9_a_timeout_is_an_error_like_others(holdfast: Harness) -> None:
    @holdfast.app.task(timeout="50ms", retry=[Retry(0, on=ValueError), Retry(1, delay="9s", jitter=0, on=TimeoutError)])
    async def slow() -> None:
        await asyncio.sleep(3600)

    assert await delays_of(holdfast, slow) == [9]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()])
@pytest.mark.parametrize("where", ["loop", "thread"])
async def test_T9_T16_what_is_no_Exception_uses_the_budget_too(
    holdfast: Harness, error: BaseException, where: str
) -> None:
    @holdfast.app.task(retry=Retry(2, delay="3s", backoff=1, jitter=0))
    async def on_loop() -> None:
        raise error

    @holdfast.app.task(retry=Retry(2, delay="3s", backoff=1, jitter=0))
    def in_thread() -> None:
        raise error

    assert await delays_of(holdfast, on_loop if where == "loop" else in_thread) == [3, 3]


async def test_T9_groups_are_matched_by_their_members(holdfast: Harness) -> None:
    async def fail(error: Exception) -> None:
        raise error

    members: list[Exception] = []

    @holdfast.app.task(retry=Retry(1, delay="4s", jitter=0, on=OSError))
    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            for each in members:
                group.create_task(fail(each))

    cases: list[tuple[list[Exception], list[float]]] = [
        ([ConnectionError("a"), TimeoutError("b")], [4]),
        ([ConnectionError("a"), ValueError("b")], []),
        ([ConnectionError("a"), Fail("b")], []),
        ([ConnectionError("a")], [4]),
    ]
    for raised, delays in cases:
        members[:] = raised
        assert await delays_of(holdfast, together) == delays, raised


async def test_T9_a_lost_attempt_is_not_charged_to_the_retries(holdfast: Harness) -> None:
    ref = await last_chance.enqueue()
    for errors in range(3):
        await holdfast.drain(until=holdfast.clock.now())
        with holdfast.crash_after(last_chance):
            holdfast.clock.set(row(holdfast.url, ref.id)["run_at"])
            assert (await holdfast.drain()).crashed
        found = row(holdfast.url, ref.id)
        assert found["errors"] == errors + 1
    await holdfast.run_all()
    assert await ref.result() == 7
    outcomes = [outcome for _, _, outcome in attempts(holdfast.url, ref.id)]
    assert outcomes == ["retried", "lost"] * 3 + ["done"]


async def test_Q9_success_at_the_last_allowed_attempt_is_done(holdfast: Harness) -> None:
    ref = await last_chance.enqueue()
    await holdfast.run_all()
    assert await ref.result() == 4


async def test_T10_T11_the_log_and_the_parked_row_hold_the_whole_chain(holdfast: Harness) -> None:
    ref = await chained.enqueue()
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    for error in (info.error, sql(holdfast.url, "SELECT error::text FROM holdfast.attempts")[0][0]):
        for text in ("RuntimeError", "top", "ValueError", "middle", "KeyError", "root", "Traceback", __name__[:4]):
            assert text in str(error)
    await holdfast.drain()
    assert len(attempts(holdfast.url, ref.id)) == 1  # never claimed
    with pytest.raises(TaskParked, match=r"RuntimeError: top.*holdfast retry"):
        await ref.result()


async def test_T12_retry_resumes_with_a_fresh_budget(holdfast: Harness) -> None:
    ref = await last_chance.enqueue()
    sql(holdfast.url, "UPDATE holdfast.task SET state = 'parked', error = '{}', errors = 9, crashes = 2")
    await holdfast.app.retry(ref.id)
    found = row(holdfast.url, ref.id)
    assert (found["state"], found["errors"], found["crashes"], found["error"]) == ("ready", 0, 0, None)
    await holdfast.run_all()
    assert await ref.result() == 4


async def test_T12_retry_with_other_args_keeps_the_old_ones(holdfast: Harness) -> None:
    ref = await needs.enqueue(5)
    await holdfast.drain()
    await holdfast.app.retry(ref.id, args={"n": 50}, by="ann", why="typing error", expected_attempt=1)
    await holdfast.drain()
    assert await ref.result() == 50
    [(action, by, why, old, new)] = sql(
        holdfast.url, "SELECT action, by, why, old -> 'args' ->> 'n', new -> 'args' ->> 'n' FROM holdfast.change"
    )
    assert (action, by, why, old, new) == ("retry", "ann", "typing error", "5", "50")


async def test_T12_two_operators_do_not_overwrite_each_other(holdfast: Harness) -> None:
    ref = await needs.enqueue(5)
    await holdfast.drain()
    await holdfast.app.retry(ref.id, expected_attempt=1)
    await holdfast.drain()
    with pytest.raises(WrongState, match="attempt 2, not 1"):
        await holdfast.app.retry(ref.id, args={"n": 50}, expected_attempt=1)
    assert row(holdfast.url, ref.id)["state"] == "parked"


async def test_T12_what_cannot_be_retried_says_why(holdfast: Harness) -> None:
    ref = await needs.enqueue(50)
    await holdfast.drain()
    with pytest.raises(WrongState, match="already done"):
        await holdfast.app.retry(ref.id)
    with pytest.raises(TaskNotFound):
        await holdfast.app.retry("01890a5d-ac96-774b-bcce-b302099a8057")
    with pytest.raises(TaskNotFound, match="not the id of a task"):
        await holdfast.app.retry("nonsense")
