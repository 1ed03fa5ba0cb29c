"""What can be enqueued: a bound function, a step value, or a name with args."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, overload
from uuid import UUID

import msgspec
from typing_extensions import TypeVar, Unpack

from holdfast._model.declare.names import check_kind, check_step
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.declare.step import MAIN, OWNER, Step
from holdfast._model.enqueue.ref import Ref, Tracker
from holdfast._model.json.codec import encode
from holdfast.errors import ConfigError, EnqueueRefused

R_co = TypeVar("R_co", covariant=True)


class StepWithContext(Protocol):
    def run(self, ctx: Any, /) -> Any: ...


class StepWithoutContext(Protocol):
    def run(self) -> Any: ...


StepValue: TypeAlias = StepWithContext | StepWithoutContext


class Enqueuer(Protocol):
    """What functions and kinds need from the App they belong to."""

    async def enqueue(self, what: Any, /, *, conn: object = None, **options: Any) -> Ref[Any]: ...


class Call(msgspec.Struct, Generic[R_co], frozen=True, eq=False, gc=False):
    """A function with its arguments, ready to be enqueued: `send_receipt.bind(42, to="a@b.c")`.

    It has all that an enqueue writes about a task's first step, and how to read its result. Queue and priority are None
    if the code is not here: then they are what the workers declared.
    """

    kind: str
    step: str
    queue: str | None
    priority: int | None
    args: bytes
    decode_result: Callable[[bytes], Any] = msgspec.json.decode
    with_defaults: Callable[[bytes], bytes] | None = None
    """Completes args with the defaults of those that were left out, if some may be."""

    @property
    def _result(self) -> R_co:
        # Only for type checkers: a Call of str is not a Call of int.
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<Call {self.kind}.{self.step} {self.args[:200]!r}>"


class Entry(Generic[R_co]):
    """One of many in `app.enqueue_many`, with options of its own."""

    __slots__ = ("options", "what")

    what: Any
    options: EnqueueOptions

    @overload
    def __init__(self, what: Call[R_co], /, **options: Unpack[EnqueueOptions]) -> None: ...
    @overload
    def __init__(self: "Entry[Any]", what: StepValue, /, **options: Unpack[EnqueueOptions]) -> None: ...
    def __init__(self, what: Any, /, **options: Unpack[EnqueueOptions]) -> None:
        unknown = sorted(options.keys() - EnqueueOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"Entry: there is no option {unknown[0]!r}")
        self.what = what
        self.options = options

    def __repr__(self) -> str:
        return f"Entry({self.what!r}, **{self.options!r})"


def named(step: str, args: Mapping[str, Any], /) -> Call[Any]:
    """A call by name, for those who enqueue without having the code: `named("greeter.ReadName", {...})`."""
    kind, dot, name = step.partition(".") if isinstance(step, str) else ("", "", "")
    try:
        check_kind(kind if isinstance(step, str) else step)
        check_step(name if dot else MAIN)
    except ConfigError as error:
        raise EnqueueRefused(f'named({step!r}): {error}. Write "kind.Step", or "kind" for a function.') from None
    if not isinstance(args, Mapping):
        raise EnqueueRefused(f"named({step!r}): args must be a mapping of field names, not {type(args).__name__}")
    return Call(kind, name if dot else MAIN, None, None, encode(dict(args)))


def call_of(what: object) -> Call[Any]:
    """What to write for `what`, a Call or a step value; EnqueueRefused if it is neither."""
    if isinstance(what, Call):
        return what
    step = step_of_class(type(what))
    if step is None:
        raise EnqueueRefused(_cure_for(what))
    return Call(step.kind, step.name, step.queue, step.priority, step.encode(what), step.decode_result)


def reference(id: UUID, of: Any = None, tracker: Tracker | None = None) -> Ref[Any]:
    """A reference to a task by its id; `of`, a function or kind, says what its result is."""
    decode = getattr(of, "_decode_result", None)
    return Ref(id, "" if of is None else of.name, tracker=tracker, decode_result=decode)


def step_of_class(cls: type) -> Step | None:
    """The step that `cls` itself is declared to be; a subclass of a step is not a step."""
    return vars(cls).get(OWNER)


_NAME = re.compile(r"[a-z][a-z0-9_-]*(\.\w+)?", re.ASCII)
_IF_IT_WAS_CALLED = ": if a function was called to get it, write function.bind(...) instead of function(...)"


def _cure_for(what: object) -> str:
    if isinstance(what, type):
        return f"{what.__qualname__} is a class: enqueue a value of it, {what.__qualname__}(...)"
    if isinstance(what, str):
        by_name = f"; for a task by its name write named({what!r}, {{...}})" if _NAME.fullmatch(what) else ""
        return f"a string cannot be enqueued{_IF_IT_WAS_CALLED}{by_name}"
    if inspect.iscoroutine(what):
        what.close()  # or Python warns that it was never awaited
        return f"{what.__name__}(...) was called, not enqueued: enqueue {what.__name__}.bind(...)"
    bind = getattr(what, "bind", None)
    if callable(bind) and hasattr(what, "enqueue"):
        name = getattr(what, "__name__", "function")
        return f"{name} is a function without its arguments: enqueue {name}.bind(...)"
    if type(what).__module__ == "builtins":
        return f"{what!r:.80} is not a step of any kind{_IF_IT_WAS_CALLED}"
    return (
        f"{type(what).__qualname__} is not a step of any kind: declare it with @kind.step above the class, "
        "and check that its module is imported"
    )
