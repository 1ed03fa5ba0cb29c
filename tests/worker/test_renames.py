"""Changing names with tasks in flight: rows that say the old name run in the new code (T20)."""

from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Done, Tasks, named
from holdfast.testing import Harness

from .support import attempts, sql


def renamed() -> Tasks:
    """The new code: another kind, another first step, and args that have changed."""
    tasks = Tasks()

    def with_greeting(args: dict[str, Any]) -> dict[str, Any]:
        assert "greeting" not in args, "an upgrade meets old args only"
        return {**args, "greeting": "Hello"}

    kind = tasks.kind("greeter", result=str, was={"welcome": with_greeting})

    @kind.step(was={"Read": lambda args: {"name": args["who"], **args}})
    @dataclass
    class ReadName:
        name: str
        greeting: str

        async def run(self) -> "SayHello":
            return SayHello(self.name, self.greeting)

    @kind.step
    @dataclass
    class SayHello:
        name: str
        greeting: str

        async def run(self) -> Done[str]:
            return Done(f"{self.greeting}, {self.name}")

    return tasks


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return renamed()


@pytest.mark.parametrize(
    ("step", "args"),
    [
        ("welcome.ReadName", {"name": "Ada"}),
        ("welcome.Read", {"who": "Ada"}),
        ("welcome.SayHello", {"name": "Ada"}),
        ("greeter.Read", {"who": "Ada", "greeting": "Hello"}),
        ("greeter.ReadName", {"name": "Ada", "greeting": "Hello"}),
    ],
)
async def test_T20_rows_under_old_names_go_through_all_steps(holdfast: Harness, step: str, args: Any) -> None:
    ref = await holdfast.app.enqueue(named(step, args))
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.result, info.error) == ("done", "Hello, Ada", None)
    logged = sql(holdfast.url, "SELECT kind, step FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt", ref.id)
    kind, _, first = step.partition(".")
    assert logged[0] == (kind, first), "the log says what the row said"
    assert logged[1:] == ([("greeter", "SayHello")] if first != "SayHello" else [])


async def test_T20_a_move_that_waits_is_written_under_the_new_name(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(named("welcome.Read", {"who": "Ada"}))
    worker = holdfast.worker()
    worker.settler.keeper.decide = lambda ending, *, now_due: None  # type: ignore[method-assign]
    await worker.run(until_idle=True)
    assert attempts(holdfast.url, ref.id) == [(1, "Read", "advanced"), (2, "SayHello", "done")]
    assert (await ref.info()).kind == "greeter"


async def test_T20_an_old_worker_leaves_the_new_name_alone(holdfast: Harness) -> None:
    ref = await holdfast.app.enqueue(named("greeter.Newest", {}))
    await holdfast.drain()
    assert ((await ref.info()).state, (await ref.info()).attempt) == ("ready", 0)
