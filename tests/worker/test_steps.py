"""Steps and moves: what a step says, and what is recorded of it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Cancel, Context, Done, EnqueueRefused, Fail, Later, Retry, Snooze, TaskCancelled, TaskParked, Tasks
from holdfast.testing import Harness

from .support import attempts, row, sql

tasks = Tasks()
loop_kind = tasks.kind("loop", result=list, retry=Retry(2, delay="1s", jitter=0), max_moves=6)
other = tasks.kind("other")
lone = tasks.kind("lone")
keys: list[tuple[str, str]] = []


@pytest.fixture
def holdfast_tasks() -> Tasks:
    keys.clear()
    return tasks


@loop_kind.step
@dataclass
class A:
    left: int
    fail: bool = False

    async def run(self, ctx: Context) -> "B":
        keys.append(("A", ctx.idempotency_key))
        if self.fail and ctx.errors == 0:
            raise ValueError("once")
        return B(self.left)


@loop_kind.step
@dataclass
class B:
    left: int

    def run(self, ctx: Context) -> "A | Done[list[int]]":
        keys.append(("B", ctx.idempotency_key))
        return A(self.left - 1, fail=True) if self.left else Done([1, 2])


@other.step
@dataclass
class Stranger:
    async def run(self) -> None: ...


class NoStep:
    pass


@lone.step
@dataclass
class Says:
    what: str

    async def run(self, ctx: Context) -> Any:
        match self.what:
            case "none":
                return None
            case "done":
                return Done({"n": 1})
            case "later":
                return Later(Says("none"), "1h")
            case "at":
                return Later(Says("none"), at=datetime(2200, 1, 1, tzinfo=UTC))
            case "snooze":
                raise Snooze("10m")
            case "fail":
                raise Fail("no use")
            case "return fail":
                return Fail("no use")
            case "return snooze":
                return Snooze("1m")
            case "raise done":
                raise Done(1)  # type: ignore[misc]
            case "cancel":
                raise Cancel("unwanted")
            case "stranger":
                return Stranger()
            case "no step":
                return NoStep()
            case "class":
                return Says
            case "unstorable result":
                return Done({"socket": object()})
            case "unstorable step":
                return Says(object())  # type: ignore[arg-type]
            case "nul":
                return Done("a\0b")
            case "nan":
                return Done(float("nan"))
            case "surrogate":
                return Done("\ud800")
            case "large":
                return Done("x" * 5_000_000)
            case "nul error":
                raise ValueError("a\0b \ud800")
            case _:
                raise AssertionError(self.what)


async def test_T1_T3_a_task_is_one_row_until_it_is_one_row_in_the_archive(holdfast: Harness) -> None:
    ref = await loop_kind.enqueue(A(1))
    assert sql(holdfast.url, "SELECT kind, step, args->>'left', state FROM holdfast.task") == [
        ("loop", "A", "1", "ready")
    ]
    await holdfast.run_all()
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.task") == [(0,)]
    assert sql(holdfast.url, "SELECT id, state, step FROM holdfast.archive") == [(ref.id, "done", "B")]
    assert await ref.result() == [1, 2]
    assert attempts(holdfast.url, ref.id) == [
        (1, "A", "advanced"),
        (2, "B", "advanced"),
        (3, "A", "retried"),
        (4, "A", "advanced"),
        (5, "B", "done"),
    ]
    moves = sql(holdfast.url, "SELECT moves FROM holdfast.attempts ORDER BY attempt")
    assert moves == [(0,), (1,), (2,), (2,), (3,)]
    # The key of a visit is the same for all its attempts, and differs between visits of one step.
    assert keys == [(s, f"{ref.id}:{n}") for s, n in [("A", 0), ("B", 1), ("A", 2), ("A", 2), ("B", 3)]]
    info = await ref.info()
    assert (info.errors, info.crashes, info.attempt, info.moves) == (0, 0, 5, 3)


async def test_T21_a_task_that_loops_is_parked(holdfast: Harness) -> None:
    ref = await loop_kind.enqueue(A(100))
    await holdfast.run_all()
    info = await ref.info()
    assert (info.state, info.moves) == ("parked", 6)
    assert info.error is not None
    assert "max_moves is 6" in info.error["message"]


@pytest.mark.parametrize(("says", "result"), [("none", None), ("done", {"n": 1})])
async def test_T2_none_and_done_finish(holdfast: Harness, says: str, result: Any) -> None:
    ref = await lone.enqueue(Says(says))
    await holdfast.drain()
    assert await ref.result() == result


async def test_T2_T4_later_ends_the_step_at_once_and_waits_without_a_worker(holdfast: Harness) -> None:
    ref = await lone.enqueue(Says("later"))
    at = await lone.enqueue(Says("at"))
    holdfast.clock.advance(0)
    now = holdfast.clock.now()
    with holdfast.crash_after(when=lambda ctx: ctx.moves > 0):
        await holdfast.drain()
    assert row(holdfast.url, ref.id)["run_at"] == now + timedelta(hours=1)
    assert row(holdfast.url, at.id)["run_at"] == datetime(2200, 1, 1, tzinfo=UTC)
    assert row(holdfast.url, ref.id)["worker_id"] is None
    await holdfast.drain()
    assert attempts(holdfast.url, ref.id) == [(1, "Says", "advanced")]
    holdfast.clock.advance("1h")
    await holdfast.drain()
    assert (await ref.info()).state == "done"


async def test_T2_snooze_is_the_same_visit_with_budgets_untouched(holdfast: Harness) -> None:
    ref = await lone.enqueue(Says("snooze"))
    holdfast.clock.advance(0)
    now = holdfast.clock.now()
    await holdfast.drain()
    found = row(holdfast.url, ref.id)
    assert (found["errors"], found["moves"], found["attempt"]) == (0, 0, 1)
    assert found["run_at"] == now + timedelta(minutes=10)
    assert attempts(holdfast.url, ref.id) == [(1, "Says", "snoozed")]


async def test_T2_fail_parks_and_cancel_ends(holdfast: Harness) -> None:
    failed, cancelled = await lone.enqueue(Says("fail")), await lone.enqueue(Says("cancel"))
    await holdfast.drain()
    with pytest.raises(TaskParked, match="no use"):
        await failed.result()
    with pytest.raises(TaskCancelled, match="unwanted"):
        await cancelled.result()
    assert attempts(holdfast.url, cancelled.id) == [(1, "Says", "cancelled")]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("return fail", "raise it instead"),
        ("return snooze", "raise it instead"),
        ("raise done", "return Done"),
        ("stranger", "a step of other"),
        ("no step", "not a step"),
        ("class", "return a value of it"),
        ("unstorable result", "socket"),
        ("unstorable step", "what"),
        ("large", "5,000,002 bytes"),
    ],
)
async def test_T5_T6_what_cannot_be_recorded_is_parked_with_a_clear_error(
    holdfast: Harness, says: str, told: str
) -> None:
    ref = await lone.enqueue(Says(says))
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None
    assert told in info.error["message"]
    assert attempts(holdfast.url, ref.id) == [(1, "Says", "failed")]
    assert (info.step, info.args, info.moves) == ("Says", {"what": says}, 0)


@pytest.mark.parametrize(("says", "kept"), [("nul", "a\\x00b"), ("nan", "NaN"), ("surrogate", "\\ud800")])
async def test_Q11_results_are_escaped_and_never_a_stuck_task(holdfast: Harness, says: str, kept: str) -> None:
    ref = await lone.enqueue(Says(says))
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "done"
    assert str(info.result).lower().replace("\\u0000", "\\x00") == kept.lower()


async def test_Q11_errors_are_escaped(holdfast: Harness) -> None:
    ref = await lone.enqueue(Says("nul error"))
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None
    assert info.error["type"] == "ValueError"


async def test_T6_what_is_no_step_cannot_be_enqueued(holdfast: Harness) -> None:
    for wrong in (NoStep(), Says, "lone.Says", 42, None):
        with pytest.raises(EnqueueRefused):
            await holdfast.app.enqueue(wrong)  # type: ignore[call-overload]
    with pytest.raises(EnqueueRefused, match="a step of other"):
        await lone.enqueue(Stranger())
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.task") == [(0,)]
