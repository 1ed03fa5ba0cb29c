"""T6, T13, T20: functions, kinds and steps in use, renamed, included."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import pydantic
import pytest

import holdfast
from holdfast import (
    Call,
    Context,
    DeclarationError,
    DecodeError,
    Done,
    EncodeError,
    EnqueueRefused,
    Entry,
    Kind,
    Ref,
    Tasks,
    named,
)
from holdfast._model.declare.step import OWNER
from holdfast._model.enqueue.call import call_of

from .steps_elsewhere import context_only_for_checkers

P = ParamSpec("P")
R = TypeVar("R")


class Recorder(Tasks):
    """An App without a database."""

    def __init__(self, *include: Tasks) -> None:
        super().__init__()
        self.enqueued: list[tuple[Any, object, dict[str, Any]]] = []
        self._owner = self
        for each in include:
            self._include(each)

    async def enqueue(self, what: Any, /, *, conn: object = None, **options: Any) -> Ref[Any]:
        self.enqueued.append((what, conn, options))
        return Ref(uuid4(), call_of(what).kind)


class Model(pydantic.BaseModel):
    n: int


tasks = Recorder()


@tasks.task(queue="mail", priority=4)
async def send_receipt(order_id: int, to: str, at: datetime | None = None) -> str:
    """Sends it."""
    return f"{order_id} {to} {at}"


@tasks.task
def with_context(ctx: Context, n: int, *, models: list[Model] | None = None) -> Done[int]:
    return Done(n)


@tasks.task
def dotted(c: holdfast.Context, n: int = 1) -> int:
    return n


checked = tasks.task(context_only_for_checkers)


greeter = tasks.kind("greeter", result=datetime, queue="slow", priority=2)


@greeter.step
@dataclass
class ReadName:
    filename: str

    def run(self) -> None: ...


@greeter.step
@dataclass
class WithContext:
    async def run(self, ctx: Context) -> Context:
        return ctx


context: Any = object()


def stored(call: Call[Any]) -> Any:
    return json.loads(call_of(call).args)


def test_arguments_are_stored_by_name_as_given() -> None:
    assert stored(send_receipt.bind(42, "a@b.c")) == {"order_id": 42, "to": "a@b.c"}
    assert stored(send_receipt.bind(to="a@b.c", order_id=42)) == {"order_id": 42, "to": "a@b.c"}
    assert stored(send_receipt.bind(42, "x", at=datetime(2030, 1, 1)))["at"] == "2030-01-01T00:00:00"
    assert stored(with_context.bind(1, models=[Model(n=3)])) == {"n": 1, "models": [{"n": 3}]}
    assert stored(dotted.bind()) == {}
    assert stored(checked.bind(2)) == {"n": 2}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {}),
        ((1, "x", None, 4), {}),
        ((1, "x"), {"to": "y"}),
        ((1, "x"), {"too": 1}),
        ((1,), {"at": None}),
    ],
)
def test_wrong_arguments_raise_as_in_a_call(args: Any, kwargs: Any) -> None:
    with pytest.raises(TypeError, match=r"^send_receipt: "):
        send_receipt.bind(*args, **kwargs)


def test_keyword_only_arguments_stay_so() -> None:
    with pytest.raises(TypeError):
        with_context.bind(1, [])  # type: ignore[call-arg]


def test_t7_an_argument_that_cannot_be_stored_is_refused_at_bind() -> None:
    with pytest.raises(EncodeError, match=r"send_receipt: args\['to'\]: .*NUL"):
        send_receipt.bind(1, "\0")


async def test_a_function_just_runs_when_called() -> None:
    assert await send_receipt(1, to="x") == "1 x None"
    assert with_context(context, 3) == Done(3)
    assert dotted(context) == 1
    assert inspect.signature(send_receipt).parameters.keys() == {"order_id", "to", "at"}
    assert (vars(send_receipt)["__name__"], send_receipt.__doc__, send_receipt.name) == (
        "send_receipt",
        "Sends it.",
        "send_receipt",
    )


async def test_a_step_calls_its_code_with_decoded_arguments() -> None:
    step = tasks._steps["send_receipt", "main"]
    value = step.decode(b'{"order_id":1,"to":"x","at":"2030-01-01T00:00:00","unknown":3}')
    assert value == {"order_id": 1, "to": "x", "at": datetime(2030, 1, 1)}
    assert await step.call(value, context) == "1 x 2030-01-01 00:00:00"
    step = tasks._steps["with_context", "main"]
    assert step.decode(b'{"n":1,"models":[{"n":3}]}') == {"n": 1, "models": [Model(n=3)]}
    assert step.call({"n": 5}, context) == Done(5)
    assert tasks._steps["context_only_for_checkers", "main"].call({}, context) == b"x"
    assert tasks._steps["greeter", "ReadName"].call(ReadName("x"), context) is None
    assert await tasks._steps["greeter", "WithContext"].call(WithContext(), context) is context


@pytest.mark.parametrize("args", [b'{"order_id":"1","to":"x"}', b'{"to":"x"}', b"[]", b"null", b"", b"{"])
def test_t13_arguments_that_do_not_fit_are_a_decode_error(args: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^send_receipt"):
        tasks._steps["send_receipt", "main"].decode(args)


def test_an_annotation_that_never_resolves_is_a_decode_error() -> None:
    local = Tasks()

    @local.task
    def f(a: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DecodeError, match="Nowhere"):
        local._steps["f", "main"].decode(b'{"a":1}')


def logged(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    return wrapper


def test_a_decorated_function_is_seen_through() -> None:
    local = Tasks()

    @local.task
    @logged
    def f(ctx: Context, a: int) -> int:
        return a

    step = local._steps["f", "main"]
    assert step.takes_ctx
    assert step.call(step.decode(b'{"a":3}'), context) == 3


def test_results_are_read_as_they_were_declared() -> None:
    assert call_of(send_receipt.bind(1, "x")).decode_result(b'"x"') == "x"
    assert call_of(with_context.bind(1)).decode_result(b"3") == 3
    assert call_of(checked.bind(1)).decode_result(b'"eA=="') == b"x"
    assert call_of(ReadName("x")).decode_result(b'"2030-01-01T00:00:00"') == datetime(2030, 1, 1)
    assert greeter._decode_result(b'"2030-01-01T00:00:00"') == datetime(2030, 1, 1)
    assert call_of(named("a.B", {})).decode_result(b'{"x":1}') == {"x": 1}


def test_a_result_type_that_cannot_be_read_is_read_as_plain_json() -> None:
    local = Tasks()

    @local.task
    def f() -> inspect.Signature: ...  # type: ignore[empty-body]

    assert call_of(f.bind()).decode_result(b"[1]") == [1]


def test_what_is_enqueued_is_prepared() -> None:
    call = call_of(send_receipt.bind(1, "x"))
    assert (call.kind, call.step, call.queue, call.priority) == ("send_receipt", "main", "mail", 4)
    call = call_of(ReadName("x"))
    assert (call.kind, call.step, call.queue, call.priority) == ("greeter", "ReadName", "slow", 2)
    assert call.args == b'{"filename":"x"}'
    assert send_receipt.bind(1, "x").kind == "send_receipt"


class SubclassOfReadName(ReadName):
    pass


@dataclass
class Undeclared:
    def run(self) -> None: ...


@pytest.mark.parametrize(
    ("what", "cure"),
    [
        (ReadName, r"ReadName\(\.\.\.\)"),
        (send_receipt, r"send_receipt\.bind\(\.\.\.\)"),
        ("greeter.ReadName", r"named\('greeter\.ReadName'"),
        (Undeclared(), "not a step of any kind"),
        (SubclassOfReadName("x"), "not a step of any kind"),
        (None, "not a step of any kind"),
    ],
)
def test_t6_what_cannot_be_enqueued_says_what_can(what: Any, cure: str) -> None:
    with pytest.raises(EnqueueRefused, match=cure):
        call_of(what)


async def test_t6_a_step_of_another_kind_is_refused() -> None:
    other = tasks.kind("other-kind")
    with pytest.raises(EnqueueRefused, match="ReadName is a step of greeter, not of other-kind"):
        await other.enqueue(ReadName("x"))
    with pytest.raises(EnqueueRefused, match="not a step"):
        await greeter.enqueue(Undeclared())


def test_calls_by_name() -> None:
    call = call_of(named("greeter.ReadName", {"filename": "x"}))
    assert (call.kind, call.step, call.args) == ("greeter", "ReadName", b'{"filename":"x"}')
    assert (call.queue, call.priority) == (None, None)
    assert call_of(named("send_receipt", {})).step == "main"


@pytest.mark.parametrize("name", ["", ".", "Greeter.X", "a.", ".B", "a.B.C", "a b", "a.B\n", "a\n", None, 3])
def test_q1_bad_names_are_refused(name: Any) -> None:
    with pytest.raises(EnqueueRefused, match="named"):
        named(name, {})


def test_q11_bad_args_by_name_are_refused() -> None:
    with pytest.raises(EncodeError, match="NUL"):
        named("a.B", {"x": "\0"})
    with pytest.raises(EnqueueRefused, match="mapping"):
        named("a.B", [1])  # type: ignore[arg-type]


def test_entries_keep_their_options() -> None:
    entry = Entry(ReadName("x"), key="a", delay="5m")
    assert (entry.what, entry.options) == (ReadName("x"), {"key": "a", "delay": "5m"})
    with pytest.raises(TypeError, match="dealy"):
        Entry(ReadName("x"), dealy="5m")  # type: ignore[call-overload]


async def test_functions_and_kinds_reach_their_app() -> None:
    package = Tasks()

    @package.task
    def f(n: int) -> int:
        return n

    with pytest.raises(EnqueueRefused, match=r"App\(include=\[tasks\]\)"):
        await f.enqueue(1)
    outer = Tasks()
    outer._include(package)
    with pytest.raises(EnqueueRefused, match="no App"):
        await f.enqueue(1)
    app = Recorder(outer)
    ref = await f.enqueue(1)
    assert ref.kind == "f"
    assert stored(app.enqueued[0][0]) == {"n": 1}
    last = Recorder(package)
    await f.enqueue(2)
    assert (len(app.enqueued), len(last.enqueued)) == (1, 1)


async def test_a_kind_hands_on_the_options() -> None:
    app = Recorder()
    kind = app.kind("k")
    cls = first_step_of(kind)
    await kind.enqueue(cls(), conn="session", key="k", delay="5m")
    assert app.enqueued == [(cls(), "session", {"key": "k", "delay": "5m"})]


def first_step_of(kind: Kind[Any]) -> Any:
    @kind.step
    @dataclass
    class First:
        def run(self) -> None: ...

    return First


def declare_function(where: Tasks, name: str) -> None:
    @where.task(name=name)
    def f() -> None: ...


def test_what_is_included_is_seen_also_when_declared_later() -> None:
    package, middle, app = Tasks(), Tasks(), Recorder()
    kind = package.kind("k")
    middle._include(package)
    app._include(middle)
    cls = first_step_of(kind)
    declare_function(package, "late")
    assert app._steps.keys() == {("k", "First"), ("late", "main")}
    assert app._kinds.keys() == {"k", "late"}
    assert app._step_of(cls()) is package._steps["k", "First"]
    assert Tasks()._step_of(cls()) is None

    @package.on_failure
    def hook(failure: holdfast.Failure) -> None: ...

    @package.middleware
    async def around(ctx: Context, proceed: Callable[[], Any]) -> Any: ...

    assert (app._failure_hooks, len(app._middleware)) == ([hook], 1)


def test_t6_a_namesake_declared_elsewhere_is_not_the_same_step() -> None:
    one, two = Tasks(), Tasks()
    mine, theirs = first_step_of(one.kind("k")), first_step_of(two.kind("k"))
    assert one._step_of(mine()) is one._steps["k", "First"]
    assert one._step_of(theirs()) is None


def test_including_twice_or_in_a_circle_is_harmless() -> None:
    package, left, right, app = Tasks(), Tasks(), Tasks(), Recorder()
    declare_function(package, "f")

    @package.on_failure
    def hook(failure: holdfast.Failure) -> None: ...

    left._include(package)
    right._include(package)
    for each in (left, right, left):
        app._include(each)
    package._include(app)
    assert app._failure_hooks == [hook]
    assert app._steps.keys() == {("f", "main")}


def test_two_kinds_of_one_name_cannot_be_included() -> None:
    one, two = Tasks(), Tasks()
    one.kind("k")
    two.kind("k")
    app = Recorder(one)
    with pytest.raises(DeclarationError, match="two kinds named 'k'"):
        app._include(two)
    three = Tasks()
    app._include(three)
    with pytest.raises(DeclarationError, match="two kinds named 'k'"):
        three.kind("k")
    assert three._kinds == {}


def rename_key(args: dict[str, Any]) -> dict[str, Any]:
    return {"url": args["link"], "trail": [*args.get("trail", []), "step"]}


def mark(args: dict[str, Any]) -> dict[str, Any]:
    return {**args, "trail": ["kind"]}


def test_t20_old_names_of_steps_and_kinds_reach_the_new_code() -> None:
    app = Tasks()
    kind = app.kind("crawler", was={"spider": mark, "bot": lambda args: args})

    @kind.step(name="Fetch", was={"Download": rename_key})
    @dataclass
    class Anything:
        url: str
        trail: list[str] | None = None

        def run(self) -> None: ...

    assert app._steps.keys() == {(k, s) for k in ("crawler", "spider", "bot") for s in ("Fetch", "Download")}
    assert {(step.kind, step.name) for step in app._steps.values()} == {("crawler", "Fetch")}
    new, old = b'{"url":"x"}', b'{"link":"x"}'
    assert app._steps["crawler", "Fetch"].decode(new) == Anything("x")
    assert app._steps["crawler", "Download"].decode(old) == Anything("x", ["step"])
    assert app._steps["spider", "Fetch"].decode(new) == Anything("x", ["kind"])
    assert app._steps["spider", "Download"].decode(old) == Anything("x", ["kind", "step"])
    assert app._steps["spider", "Download"].current_args(old) == b'{"url":"x","trail":["kind","step"]}'
    assert call_of(Anything("x")).kind == "crawler"


def test_t20_a_plain_list_of_old_names_needs_no_upgrade() -> None:
    app = Tasks()

    @app.task(name="new", was=["old", "older"])
    def f(a: int) -> None: ...

    assert app._steps["new", "main"] is app._steps["old", "main"] is app._steps["older", "main"]


@pytest.mark.parametrize("upgrade", [lambda args: 1 / 0, lambda args: None, lambda args: [1]])
def test_t20_a_broken_upgrade_is_a_decode_error(upgrade: Any) -> None:
    app = Tasks()

    @app.task(was={"old": upgrade})
    def f(a: int) -> None: ...

    with pytest.raises(DecodeError, match="upgrade"):
        app._steps["old", "main"].decode(b'{"a":1}')


def test_t20_an_old_name_that_is_somebody_elses_is_refused() -> None:
    app = Tasks()
    declare_function(app, "taken")
    with pytest.raises(DeclarationError, match=r"two steps named taken\.main"):

        @app.task(was=["taken"])
        def f() -> None: ...


def test_a_child_process_can_find_the_step() -> None:
    step = tasks._steps["send_receipt", "main"]
    assert (step.module, step.qualname) == (__name__, "send_receipt")
    assert getattr(send_receipt, OWNER) is step
    assert getattr(ReadName, OWNER) is tasks._steps["greeter", "ReadName"]
