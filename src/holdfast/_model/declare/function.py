"""Functions as tasks: a kind whose only step is `main`."""

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, cast, overload

from typing_extensions import TypeVar

from holdfast._model.declare import annotations
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.declare.step import OWNER, FunctionStep
from holdfast._model.enqueue.call import Call
from holdfast._model.enqueue.ref import Ref
from holdfast._model.run.context import Context

if TYPE_CHECKING:
    from holdfast._model.declare.tasks import Tasks

P = ParamSpec("P")
R = TypeVar("R")


class Function(Generic[P, R]):
    """A function declared with `@app.task`. Called, it just runs; enqueued, it becomes a task."""

    name: str

    def __init__(self, tasks: "Tasks", step: FunctionStep) -> None:
        functools.update_wrapper(cast("Callable[..., Any]", self), step.target)
        setattr(self, OWNER, step)  # a child process finds the step by the function's name
        self.name = step.kind
        self._tasks = tasks
        self._step = step
        self._decode_result = step.decode_result
        self._function: Callable[..., Any] = step.target
        parameters = annotations.signature(step.target).parameters.values()
        wanted = list(parameters)[step.takes_ctx :]
        self._positional = [each.name for each in wanted if each.kind is each.POSITIONAL_OR_KEYWORD]
        self._names = frozenset(each.name for each in wanted)
        self._required = frozenset(each.name for each in wanted if each.default is each.empty)
        self._signature = annotations.signature(step.target).replace(parameters=wanted)
        self._plain = len(wanted) == len(self._positional)

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """This function with its arguments, to be enqueued. Wrong arguments raise TypeError, as in a call."""
        step = self._step
        encoded = step.encode(self._by_name(args, kwargs))
        return Call(step.kind, step.name, step.queue, step.priority, encoded, self._decode_result, step.with_defaults)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Enqueue this function with these arguments in the App it belongs to."""
        return await self._tasks._app().enqueue(self.bind(*args, **kwargs))

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._plain and not kwargs and len(args) == len(self._positional):
            return dict(zip(self._positional, args))  # noqa: B905 - the common case, without a detour
        given = dict(zip(self._positional, args, strict=False))
        fits = len(args) <= len(self._positional) and self._names >= kwargs.keys() and not given.keys() & kwargs.keys()
        given.update(kwargs)
        if not (fits and given.keys() >= self._required):
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}: {self._unknown(kwargs) or error}") from None
        return given

    def _unknown(self, kwargs: dict[str, Any]) -> str | None:
        """What is wrong with the names of arguments: Python would complain about those that are missing."""
        unknown = next((name for name in kwargs if name not in self._names), None)
        if unknown is None:
            return None
        if unknown in EnqueueOptions.__annotations__ or unknown == "conn":
            call = f"app.enqueue({self.name}.bind(...), {unknown}=...)"
            return f"it has no parameter {unknown!r}; if it is meant for the enqueue, write {call}"
        return f"it has no parameter {unknown!r}; its parameters are {', '.join(self._signature.parameters) or 'none'}"

    def __repr__(self) -> str:
        return f"<Function {self.name}>"


class SyncFunction(Function[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._function(*args, **kwargs)
        return result


class SyncContextFunction(Function[P, R]):
    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._function(ctx, *args, **kwargs)
        return result


class AsyncFunction(Function[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self._function(*args, **kwargs)
        return coroutine


class AsyncContextFunction(Function[P, R]):
    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        coroutine: Coroutine[Any, Any, R] = self._function(ctx, *args, **kwargs)
        return coroutine


class Declare(Protocol):
    """What `@app.task(...)` with options returns: the decorator itself."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, f: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextFunction[P, R]: ...
    @overload
    def __call__(self, f: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFunction[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, f: Callable[Concatenate[Context, P], R], /) -> SyncContextFunction[P, R]: ...
    @overload
    def __call__(self, f: Callable[P, R], /) -> SyncFunction[P, R]: ...


def function_class(*, is_async: bool, takes_ctx: bool) -> type[Function[Any, Any]]:
    if is_async:
        return AsyncContextFunction if takes_ctx else AsyncFunction
    return SyncContextFunction if takes_ctx else SyncFunction
