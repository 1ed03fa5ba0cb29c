"""How a step ends: what it must not return, raise or do with its transaction. More: tests/unit/test_conclude.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, DeclarationError, Done, EnqueueRefused, Fail, Later, Tasks
from holdfast.testing import Harness

tasks = Tasks()
kind = tasks.kind("kind")
other = tasks.kind("other")


@other.step
@dataclass
class Other:
    def run(self) -> None: ...


@kind.step
@dataclass
class Ends:
    how: str

    async def run(self) -> Any:
        match self.how:
            case "returns Fail":
                return Fail("no such name")
            case "raises Done":
                raise Done(5)  # type: ignore[misc]
            case "returns another kind's step":
                return Other()
            case "returns a number":
                return 5
            case "returns a class":
                return Later(Ends, "5s")
            case "a result of a path":
                return Done(Path("x"))
            case "a result of functions":
                return Done({"a": [print]})
            case "a next step of a path":
                return Ends(Path("x"))  # type: ignore[arg-type]


@kind.step(transactional=True)
@dataclass
class Writes:
    how: str

    async def run(self, ctx: Context) -> Any:
        match self.how:
            case "tx_sync":
                ctx.tx_sync.execute("SELECT 1")
            case "closes":
                await ctx.tx.close()
            case "closes and raises":
                await ctx.tx.close()
                raise ValueError("an error of its own")
            case "catches":
                try:
                    await ctx.tx.execute("SELECT 1/0")
                except ArithmeticError:
                    pass
                except Exception:
                    return None
            case "moves":
                return await ctx.move(Ends("never"), conn=ctx.tx)
        return None


@kind.step(transactional=True)
@dataclass
class Blocks:
    how: str

    def run(self, ctx: Context) -> None:
        match self.how:
            case "tx":
                ctx.tx  # noqa: B018
            case "closes":
                ctx.tx_sync.close()


@kind.step
@dataclass
class Plain:
    async def run(self, ctx: Context) -> None:
        ctx.tx  # noqa: B018


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


async def parked(holdfast: Harness, step: Any) -> str:
    """The error of a task that is parked after its first attempt."""
    ref = await holdfast.app.enqueue(step)
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.attempt) == ("parked", 1)
    return f"{(info.error or {})['type']}: {(info.error or {})['message']}"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("returns Fail", "kind.Ends: it returned Fail(...): raise it instead"),
        ("raises Done", "kind.Ends: it raised what is no exception: return Done(...) or Later(...) instead"),
        ("returns another kind's step", "Other(...), a step of other: a task stays in its kind; enqueue that one"),
        ("returns a number", "int(...), which is not a step: return a step, Later(step, ...), Done(result) or None"),
        ("returns a class", "it returned the class Ends: return a value of it, Ends(...)"),
    ],
)
async def test_26_what_is_no_ending(holdfast: Harness, how: str, said: str) -> None:
    assert said in await parked(holdfast, Ends(how))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("a result of a path", "kind.Ends: its result cannot be stored: value: a value of type PosixPath"),
        ("a result of a path", "store str(path)"),
        ("a result of functions", "its result cannot be stored: value['a'][0]: a value of type builtin_function"),
        ("a next step of a path", "kind.Ends: Ends.how: a value of type PosixPath cannot be stored as JSON; store str"),
    ],
)
async def test_27_what_cannot_be_stored(holdfast: Harness, how: str, said: str) -> None:
    error = await parked(holdfast, Ends(how))
    assert error.startswith("holdfast.errors.EncodeError: ") and said in error


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Writes("tx_sync"), "ctx.tx_sync is for def steps: use ctx.tx here"),
        (Blocks("tx"), "ctx.tx is for async def steps: use ctx.tx_sync here"),
        (Plain(), "kind.Plain is not declared with transactional=True"),
        (Writes("closes"), "kind.Writes: it closed the connection of its transaction, and everything is rolled back."),
        (Writes("closes"), "the worker commits when the step has returned"),
        (Blocks("closes"), "kind.Blocks: it closed the connection of its transaction"),
        (Writes("closes and raises"), "ValueError: an error of its own"),
        (Writes("catches"), "current transaction is aborted"),
        (Writes("catches"), "Let it pass, or put what may fail into a savepoint: ctx.tx.transaction()"),
        (Writes("moves"), "a step with transactional=True returns the next step, and both commit together"),
    ],
    ids=lambda value: getattr(value, "how", None),
)
async def test_36_a_transaction_that_is_not_left_to_the_worker(holdfast: Harness, step: Any, said: str) -> None:
    assert said in await parked(holdfast, step)


async def test_36_enqueued_by_a_step_in_the_wrong_way(holdfast: Harness) -> None:
    @holdfast.app.task
    async def fans_out(ctx: Context) -> None:
        ctx.enqueue(Other)

    error = await parked(holdfast, fans_out.bind())
    assert f"{EnqueueRefused.__name__}: Other is a class: enqueue a value of it, Other(...)" in error
    assert DeclarationError.__name__ not in error
