"""T23: wrong declarations are refused at import, with the cure in the message."""

import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import attrs
import msgspec
import pydantic
import pytest

from holdfast import Context, DeclarationError, Retry, Tasks


@dataclass
class Plain:
    a: int

    def run(self) -> None: ...


class NotAnything:
    a: int

    def run(self) -> None: ...


def step_class(**members: Any) -> type:
    return dataclass(type("Made", (), {"__annotations__": {"a": int}, "run": lambda self: None, **members}))


def test_t23_decorators_in_the_wrong_order() -> None:
    kind = Tasks().kind("k")
    with pytest.raises(DeclarationError, match=r"@kind\.step\n    @dataclass\n    class Late"):

        @dataclass
        @kind.step
        class Late:
            a: int

            def run(self) -> None: ...


def test_t23_a_plain_subclass_with_new_fields_is_not_a_dataclass() -> None:
    class More(Plain):
        b: int

    with pytest.raises(DeclarationError, match="must be a dataclass"):
        Tasks().kind("k").step(More)


def takes_an_order(self: Any, order_id: int) -> None: ...


@pytest.mark.parametrize(
    ("cls", "cure"),
    [
        (NotAnything, "must be a dataclass"),
        (3, "a step is a class"),
        (Plain(1), "a step is a class"),
        (step_class(run=None), "has no run method"),
        (step_class(run=3), "is no method"),
        (step_class(run=staticmethod(lambda: None)), "is no method"),
        (step_class(run=classmethod(lambda cls: None)), "is no method"),
        (step_class(run=lambda self, ctx, extra: None), "wrong parameters"),
        (step_class(run=lambda self, *args: None), "wrong parameters"),
        (step_class(run=lambda self, *, ctx: None), "wrong parameters"),
        (step_class(run=takes_an_order), "given the context alone, not order_id: int: write .* a field of its class"),
        (step_class(run=lambda self, order_id: None), "given the context alone, not order_id"),
        (step_class(run=lambda self: (yield)), "it yields"),
        (step_class(__annotations__={"a": NotAnything}), "field a of Made .*NotAnything"),
        (step_class(__annotations__={"a": list[NotAnything]}), "field a of Made .*NotAnything"),
        (step_class(__annotations__={"a": dict[str, complex]}), "field a of Made .*complex"),
        (step_class(__annotations__={"a": Callable[[], None]}), "field a of Made"),
        (step_class(__annotations__={"a": Plain | msgspec.Struct}), "field a of Made"),
        (step_class(__annotations__={"a": dataclasses.InitVar[int]}), "field a of Made"),
    ],
)
def test_t23_what_is_no_step_is_refused(cls: Any, cure: str) -> None:
    kind = Tasks().kind("k")
    with pytest.raises(DeclarationError, match=cure):
        kind.step(cls)
    assert kind.steps == {}


def test_t23_a_class_without_run() -> None:
    @dataclass
    class Idle:
        a: int

    with pytest.raises(DeclarationError, match="has no run method"):
        Tasks().kind("k").step(Idle)  # type: ignore[type-var]


class Array(msgspec.Struct, array_like=True):
    a: int

    def run(self) -> None: ...


class Root(pydantic.RootModel[list[int]]):
    def run(self) -> None: ...


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr | None = None

    def run(self) -> None: ...


class TwoAliases(pydantic.BaseModel):
    a: int = pydantic.Field(serialization_alias="b")

    def run(self) -> None: ...


@attrs.define
class Private:
    _a: int

    def run(self) -> None: ...


@pytest.mark.parametrize(
    ("cls", "cure"),
    [
        (Array, "array_like"),
        (Root, "RootModel"),
        (Secret, "a secret"),
        (TwoAliases, "use alias= for both"),
        (Private, "would not be stored"),
    ],
)
def test_t23_what_would_not_come_back_is_refused(cls: type[Any], cure: str) -> None:
    with pytest.raises(DeclarationError, match=cure):
        Tasks().kind("k").step(cls)


def test_t23_an_alias_for_both_ways_is_fine() -> None:
    tasks = Tasks()
    kind = tasks.kind("k")

    @kind.step
    class Aliased(pydantic.BaseModel):
        a: int = pydantic.Field(alias="from")

        def run(self) -> None: ...

    step = tasks._steps["k", "Aliased"]
    value = Aliased(**{"from": 3})
    assert step.encode(value) == b'{"from":3}'
    assert step.decode(b'{"from":3}') == value


def test_t23_a_second_step_of_the_same_name() -> None:
    kind = Tasks().kind("k")
    kind.step(step_class())
    with pytest.raises(DeclarationError, match=r"two steps named k\.Made"):
        kind.step(step_class())
    with pytest.raises(DeclarationError, match=r"two steps named k\.Made"):
        kind.step(name="New", was=["Made"])(step_class())
    kind.step(name="Other")(step_class())


def test_t23_a_class_belongs_to_one_kind() -> None:
    tasks = Tasks()
    cls = step_class()
    tasks.kind("one").step(cls)
    with pytest.raises(DeclarationError, match=r"already the step one\.Made"):
        tasks.kind("two").step(cls)
    sub: Any = type("Sub", (cls,), {})
    tasks.kind("three").step(sub)


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"retries": 3}, "no option 'retries'; there are"),
        ({"queue": "mail"}, "no option 'queue'"),
        ({"name": "Read-Name"}, "cannot be the name of a step"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "-5s"}, "timeout"),
        ({"timeout": "soon"}, "timeout"),
        ({"retry": 5}, "retry"),
        ({"retry": [5]}, "retry"),
        ({"executor": "gpu"}, "executor"),
        ({"on_lost": "ignore"}, "on_lost"),
        ({"max_crashes": -1}, "max_crashes"),
        ({"max_crashes": True}, "max_crashes"),
        ({"transactional": "yes"}, "transactional"),
        ({"was": "Old"}, "was="),
        ({"was": ["Old Name"]}, "was="),
        ({"was": {"Old": "upgrade"}}, "needs a function"),
        ({"executor": "process"}, "top of a module"),
        ({"executor": "process", "transactional": True}, "transactional"),
    ],
)
def test_t23_wrong_options_are_refused(options: dict[str, Any], cure: str) -> None:
    with pytest.raises(DeclarationError, match=cure):
        Tasks().kind("k").step(**options)(type("Step", (Plain,), {"__qualname__": "f.<locals>.Step"}))


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"queue": "Mail"}, "queue"),
        ({"priority": 10}, "priority"),
        ({"max_moves": 0}, "max_moves"),
        ({"nope": 1}, "no option 'nope'"),
        ({"name": "x"}, "leave name= out"),
        ({"timeout": 0}, "timeout"),
        ({"result": NotAnything}, "result"),
        ({"was": ["Old"]}, "cannot be the name of a kind"),
    ],
)
def test_t23_wrong_options_of_a_kind_are_refused(options: dict[str, Any], cure: str) -> None:
    with pytest.raises(DeclarationError, match=cure):
        Tasks().kind("k", **options)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_t23_async_code_runs_on_the_loop(executor: Any) -> None:
    kind = Tasks().kind("k", executor=executor)
    with pytest.raises(DeclarationError, match="event loop"):

        @kind.step
        @dataclass
        class Waits:
            async def run(self) -> None: ...

    @kind.step(executor="auto")
    @dataclass
    class WaitsToo:
        async def run(self) -> None: ...


def positional_only(a: int, /) -> None: ...
def star_args(*a: int) -> None: ...
def star_kwargs(**a: int) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def late_context(a: int, ctx: Context) -> None: ...
def keyword_context(*, ctx: Context) -> None: ...
def unsupported(a: NotAnything) -> None: ...
def Capital() -> None: ...


@pytest.mark.parametrize(
    ("function", "cure"),
    [
        (positional_only, "remove /"),
        (star_args, "a list or dict instead of"),
        (star_kwargs, "a list or dict instead of"),
        (generator, "it yields"),
        (async_generator, "it yields"),
        (late_context, "must be the first parameter"),
        (keyword_context, "given by position"),
        (unsupported, "parameter a .*NotAnything"),
        (Capital, "Give a name with name="),
        (functools.partial(print, 1), "only functions"),
        (Plain, "only functions"),
        (3, "only functions"),
    ],
)
def test_t23_functions_that_cannot_be_tasks_are_refused(function: Any, cure: str) -> None:
    tasks = Tasks()
    with pytest.raises(DeclarationError, match=cure):
        tasks.task(function)
    assert tasks._steps == {}


def test_t23_two_kinds_of_one_name() -> None:
    tasks = Tasks()
    tasks.kind("greeter")
    with pytest.raises(DeclarationError, match="two kinds named 'greeter'"):
        tasks.kind("greeter")
    with pytest.raises(DeclarationError, match="two kinds named 'greeter'"):

        @tasks.task(name="greeter")
        def f() -> None: ...


def test_t23_a_forward_reference_is_looked_at_when_it_is_needed() -> None:
    tasks = Tasks()
    kind = tasks.kind("k")

    @kind.step
    @dataclass
    class Early:
        later: "DefinedLater"  # type: ignore[name-defined]  # noqa: F821

        def run(self) -> None: ...

    globals()["DefinedLater"] = Plain
    try:
        assert tasks._steps["k", "Early"].decode(b'{"later":{"a":3}}') == Early(Plain(3))
    finally:
        del globals()["DefinedLater"]


def test_a_step_class_stays_as_it_was() -> None:
    cls = step_class()
    before = dict(vars(cls))
    assert Tasks().kind("k").step(cls) is cls
    assert cls.__mro__ == (cls, object)
    changed = {name for name in vars(cls) if vars(cls)[name] is not before.get(name)}
    assert changed - {"__msgspec_cache__"} == {"__holdfast_step__"}


def test_options_nearest_wins() -> None:
    tasks = Tasks()
    kind = tasks.kind("k", queue="mail", priority=3, retry=Retry(5), timeout="1m", max_crashes=7, max_moves=9)

    @kind.step
    @dataclass
    class Inherits:
        def run(self) -> None: ...

    @kind.step(retry=[Retry(1), Retry(2)], timeout=5, max_crashes=0, on_lost="retry")
    @dataclass
    class Overrides:
        async def run(self, ctx: Context) -> None: ...

    @kind.step(on_lost="fail", transactional=True)
    @dataclass
    class Once:
        def run(self) -> None: ...

    first, second, third = (tasks._steps["k", name] for name in ("Inherits", "Overrides", "Once"))
    assert (first.queue, first.priority, first.retry, first.timeout) == ("mail", 3, (Retry(5),), 60)
    assert (first.max_crashes, first.max_moves, first.is_async, first.takes_ctx) == (7, 9, False, False)
    assert (second.retry, second.timeout, second.max_crashes) == ((Retry(1), Retry(2)), 5, 0)
    assert (second.queue, second.is_async, second.takes_ctx) == ("mail", True, True)
    assert (third.on_lost, third.max_crashes, third.transactional) == ("fail", 0, True)


def test_defaults() -> None:
    tasks = Tasks()

    @tasks.task
    def f() -> None: ...

    step = tasks._steps["f", "main"]
    assert (step.queue, step.priority, step.retry, step.timeout) == ("default", 0, (), None)
    assert (step.executor, step.transactional, step.on_lost) == ("auto", False, "retry")
    assert (step.max_crashes, step.max_moves) == (3, 10_000)


def test_resources_say_what_they_provide() -> None:
    tasks = Tasks()

    @tasks.resource
    async def client() -> AsyncIterator[Plain]:
        yield Plain(1)

    @tasks.resource
    def number() -> Iterator["int"]:
        yield 1

    assert [each.provides for each in tasks._resources] == [Plain, int]
    assert [each.is_async for each in tasks._resources] == [True, False]


def test_wrong_resources_and_hooks_are_refused() -> None:
    tasks = Tasks()
    with pytest.raises(DeclarationError, match="yields"):
        tasks.resource(lambda: 3)  # type: ignore[type-var]

    def with_argument(a: int) -> Iterator[int]:
        yield a

    with pytest.raises(DeclarationError, match="without arguments"):
        tasks.resource(with_argument)  # type: ignore[type-var]

    @tasks.resource
    def unannotated():  # type: ignore[no-untyped-def]
        yield 1

    with pytest.raises(DeclarationError, match="annotate it"):
        _ = tasks._resources[0].provides
    with pytest.raises(DeclarationError, match="async def"):
        tasks.middleware(lambda ctx, proceed: proceed())
    with pytest.raises(DeclarationError, match="Failure"):
        tasks.on_failure(3)  # type: ignore[type-var]


class Narrow(Protocol):
    @property
    def attempt(self) -> int: ...


def run_with(annotation: Any, name: str = "c") -> Any:
    namespace: dict[str, Any] = {"annotation": annotation}
    exec(f"def run(self, {name}: annotation): ...", namespace)
    return namespace["run"]


@pytest.mark.parametrize(
    "run",
    [
        *(run_with(hint) for hint in (Context, "Context", Context | None, Any, object, Narrow)),
        run_with("OnlyForTypeCheckers", "ctx"),
        lambda self, ctx: None,
        lambda self, context: None,
        lambda self, _: None,
    ],
)
def test_t23_whatever_can_be_the_context_is_given_it(run: Any) -> None:
    Tasks().kind("k").step(step_class(run=run))
