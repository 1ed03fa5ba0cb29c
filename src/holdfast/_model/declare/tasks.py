"""`Tasks`: what is declared in a package, without a database. An App is Tasks with one."""

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeAlias, get_args, overload

from typing_extensions import TypeVar, Unpack

from holdfast._model.declare import annotations
from holdfast._model.declare.function import (
    AsyncContextFunction,
    AsyncFunction,
    Declare,
    Function,
    SyncContextFunction,
    SyncFunction,
    function_class,
)
from holdfast._model.declare.kind import Kind, rows_of
from holdfast._model.declare.names import check_kind
from holdfast._model.declare.options import EnqueueOptions, KindOptions, check_known, old_names, settings
from holdfast._model.declare.step import MAIN, FunctionStep, Step, result_type_of
from holdfast._model.declare.validate import check_executor, check_function, check_storable
from holdfast._model.enqueue.call import Call, Enqueuer, StepValue, step_of_class
from holdfast._model.enqueue.ref import Failure
from holdfast._model.run.context import Context
from holdfast._model.run.tracing import Tracing
from holdfast._model.time.duration import Duration
from holdfast._model.time.schedule import CatchUp, Overlap, Schedule, Scopes, When, declare
from holdfast.errors import ConfigError, DeclarationError, EnqueueRefused

_RENAME = "rename one, a function with @app.task(name=…)"

P = ParamSpec("P")
R = TypeVar("R")
ResourceT = TypeVar("ResourceT", bound=Callable[[], AsyncIterator[Any]] | Callable[[], Iterator[Any]])
HookT = TypeVar("HookT", bound=Callable[[Failure], Awaitable[None] | None])
Middleware: TypeAlias = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]


@dataclass(frozen=True)
class Resource:
    """A generator function that makes one thing for a whole worker process and cleans up after its yield."""

    make: Callable[[], AsyncIterator[Any]] | Callable[[], Iterator[Any]]

    @property
    def is_async(self) -> bool:
        return inspect.isasyncgenfunction(self.make)

    @cached_property
    def provides(self) -> type:
        """The class by which `ctx.resource` finds it: what the return annotation says is yielded."""
        name = self.make.__qualname__
        try:
            hint = annotations.resolve(
                annotations.signature(self.make).return_annotation, annotations.namespace(self.make)
            )
        except Exception as error:
            raise DeclarationError(f"@app.resource {name}: its return annotation does not resolve: {error}") from None
        yielded = (get_args(hint) or (None,))[0]
        if not isinstance(yielded, type):
            raise DeclarationError(f"@app.resource {name}: annotate it, such as -> AsyncIterator[Client]")
        return yielded


class Tasks:
    """Functions, kinds, resources and hooks, declared where they belong and included by an App.

    What is declared here later is seen by everything that has included it; steps and schedules also by workers that
    run, within a second. Resources, middleware and hooks count for the whole App.
    """

    def __init__(self) -> None:
        self._owner: Enqueuer | None = None
        self._kinds: dict[str, Kind[Any] | Function[Any, Any]] = {}
        self._steps: dict[tuple[str, str], Step] = {}
        self._resources: list[Resource] = []
        self._middleware: list[Middleware] = []
        self._failure_hooks: list[Callable[[Failure], Awaitable[None] | None]] = []
        self._schedules: dict[str, Schedule] = {}
        self._included_by: list[Tasks] = []
        self._tracing: Tracing | None = None

    @overload
    def task(  # type: ignore[overload-overlap]
        self, f: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextFunction[P, R]: ...
    @overload
    def task(self, f: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFunction[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, f: Callable[Concatenate[Context, P], R], /) -> SyncContextFunction[P, R]: ...
    @overload
    def task(self, f: Callable[P, R], /) -> SyncFunction[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[KindOptions]) -> Declare: ...
    def task(self, f: Callable[..., Any] | None = None, /, **options: Unpack[KindOptions]) -> Any:
        """Declare a function as a kind of task with one step."""
        check_known("@task", options, KindOptions)
        if f is None:
            return lambda f: self._declare_function(f, options)
        return self._declare_function(f, options)

    @overload
    def kind(self, name: str, /, *, result: type[R], **options: Unpack[KindOptions]) -> Kind[R]: ...
    @overload
    def kind(self, name: str, /, **options: Unpack[KindOptions]) -> Kind[Any]: ...
    def kind(self, name: str, /, *, result: Any = Any, **options: Any) -> Kind[Any]:
        """Declare a kind of task with several steps. Step options given here are defaults for its steps."""
        what = f"kind({name!r})"
        check_known(what, options, KindOptions)
        if "name" in options:
            raise DeclarationError(f"{what}: the name of a kind is its first argument: leave name= out")
        if not isinstance(name, str):
            raise DeclarationError('kind(…): it takes a name: greeter = app.kind("greeter"), and then @greeter.step')
        try:
            checked = check_kind(name)
        except ConfigError as error:
            suggested = _suggested(name)
            raise DeclarationError(f"{what}: {error}" + (f". Write kind({suggested})" if suggested else "")) from None
        settings(what, options, {})
        check_storable(result, f"{what}: result")
        made: Kind[Any] = Kind(self, checked, result, options, old_names(what, options.get("was"), check_kind))
        self._add_kind(checked, made)
        return made

    def resource(self, f: ResourceT, /) -> ResourceT:
        """Declare something that steps get with `ctx.resource(cls)`, made once per worker process."""
        if not (inspect.isasyncgenfunction(f) or inspect.isgeneratorfunction(f)):
            raise DeclarationError(f"@app.resource: {f!r} must be a function that yields the resource once")
        if annotations.signature(f).parameters:
            raise DeclarationError(f"@app.resource {f.__qualname__}: it is called without arguments; remove them")
        for each in self._and_includers():
            each._resources.append(Resource(f))
        return f

    def middleware(self, f: Middleware, /) -> None:
        """Declare `async def f(ctx, proceed)`, which runs around every attempt and must await `proceed()`."""
        if not inspect.iscoroutinefunction(f):
            raise DeclarationError(f"@app.middleware: {f!r} must be async def f(ctx, proceed)")
        for each in self._and_includers():
            each._middleware.append(f)

    def on_failure(self, f: HookT, /) -> HookT:
        """Declare a function that is told about every task that is parked."""
        if not callable(f):
            raise DeclarationError(f"@app.on_failure: {f!r} must be a function that takes a Failure")
        for each in self._and_includers():
            each._failure_hooks.append(f)
        return f

    def schedule(
        self,
        name: str,
        when: When,
        what: Call[Any] | StepValue,
        /,
        *,
        scopes: Scopes = None,
        catch_up: CatchUp = "latest",
        catch_up_window: Duration = "1d",
        catch_up_limit: int = 100,
        overlap: Overlap = "allow",
        start_delay: Duration = 0,
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        version: int = 0,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        """Declare that `what` recurs at the instants of `when`: each is enqueued once, whatever number of workers run.

        `scopes` multiply it: a list, a function, or a query, asked anew each time. `catch_up` says what becomes of
        plan times that nobody was there for: none of them (`skip`), the `latest`, or `all` within `catch_up_window`,
        at most `catch_up_limit` at once. `overlap` says what happens while the one before is unfinished. Tasks are due
        `start_delay` after the plan time, spread over `jitter`. The other options are those of an enqueue.
        """
        given = {
            "scopes": scopes,
            "catch_up": catch_up,
            "catch_up_window": catch_up_window,
            "catch_up_limit": catch_up_limit,
            "overlap": overlap,
            "start_delay": start_delay,
            "jitter": jitter,
            "start": start,
            "end": end,
            "version": version,
            **options,
        }
        self._add_schedule(declare(name, when, what, given))

    # --- for App and engine

    def _step_of(self, value: object) -> Step | None:
        """The step whose class is exactly that of `value`, if it is declared or included here."""
        step = step_of_class(type(value))
        return step if step is not None and self._steps.get((step.kind, step.name)) is step else None

    def _include(self, other: "Tasks") -> None:
        """Take in what `other` declares, now and later."""
        if not isinstance(other, Tasks):
            name = getattr(other, "__name__", None) if inspect.ismodule(other) else None
            cure = f": give the Tasks in it, or name it, App(modules=[{name!r}])" if name else ""
            raise DeclarationError(f"App(include=[…]) takes Tasks, not a {type(other).__name__}{cure}")
        if other in self._and_includers() or self in other._included_by:
            return
        for name, kind in other._kinds.items():
            self._add_kind(name, kind)
        self._add_steps(other._steps)
        for each in self._and_includers():
            _add_new(each._resources, other._resources)
            _add_new(each._middleware, other._middleware)
            _add_new(each._failure_hooks, other._failure_hooks)
        for schedule in other._schedules.values():
            self._add_schedule(schedule)
        other._included_by.append(self)

    def _app(self) -> Enqueuer:
        """The App these tasks belong to; the one that included them last, if there are several."""
        owner = self._find_owner()
        if owner is None:
            raise EnqueueRefused("these tasks belong to no App: App(include=[tasks])")
        return owner

    def _find_owner(self) -> Enqueuer | None:
        owners = (each._find_owner() for each in reversed(self._included_by))
        return self._owner or next((owner for owner in owners if owner is not None), None)

    def _and_includers(self) -> list["Tasks"]:
        found: list[Tasks] = [self]
        for each in found:  # grows while it is walked
            found += [includer for includer in each._included_by if includer not in found]
        return found

    def _declare_function(self, f: Callable[..., Any], options: Mapping[str, Any]) -> Function[Any, Any]:
        what = f"@task {getattr(f, '__name__', f)!s}"
        is_async, takes_ctx = check_function(f, what)
        name = _name_of(what, options.get("name", f.__name__))
        chosen = settings(what, options, {})
        check_executor(chosen, f, what, is_async=is_async)
        was = old_names(what, options.get("was"), check_kind)
        step = FunctionStep(
            name,
            MAIN,
            chosen,
            f,
            is_async=is_async,
            takes_ctx=takes_ctx,
            result_type=lambda: result_type_of(f),
        )
        made = function_class(is_async=is_async, takes_ctx=takes_ctx)(self, step)
        self._add_kind(name, made)
        self._add_steps(rows_of(step, was, {}))
        return made

    def _add_schedule(self, schedule: Schedule) -> None:
        for each in self._and_includers():
            if each._schedules.get(schedule.name, schedule) is not schedule:
                raise DeclarationError(f"there are two schedules named {schedule.name!r}: rename one")
        for each in self._and_includers():
            each._schedules[schedule.name] = schedule

    def _add_kind(self, name: str, kind: Kind[Any] | Function[Any, Any]) -> None:
        for each in self._and_includers():
            there = each._kinds.get(name, kind)
            if there is not kind:
                raise DeclarationError(f"there are two kinds named {name!r}{_places(there, kind)}: {_RENAME}")
        for each in self._and_includers():
            each._kinds[name] = kind

    def _add_steps(self, rows: Mapping[tuple[str, str], Step]) -> None:
        for each in self._and_includers():
            for (kind, name), step in rows.items():
                there = each._steps.get((kind, name), step)
                if there is not step:
                    places = _places(there, step)
                    raise DeclarationError(
                        f"there are two steps named {kind}.{name}{places}; was= counts too: rename one with name="
                    )
        for each in self._and_includers():
            each._steps.update(rows)


def _add_new(known: list[R], more: list[R]) -> None:
    known += [each for each in more if each not in known]


def _name_of(what: str, name: object) -> str:
    """The name of the kind that a function is."""
    try:
        return check_kind(name)
    except ConfigError as error:
        raise DeclarationError(f"{what}: {error}. Give a name with name={_suggested(name)}") from None


def _suggested(name: object) -> str:
    """`'send_mail'` for `sendMail`; nothing if that would be no name either."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name))
    made = re.sub(r"[^a-z0-9-]+", "_", words.lower()).strip("_-")[:63]
    return repr(made) if re.match("[a-z]", made) and made != "lambda" else ""


def _place(of: object) -> str:
    """`shop.mail.send`: where something is declared, if it knows."""
    step = of if isinstance(of, Step) else getattr(of, "_step", None)
    return f"{step.module}.{step.qualname}" if isinstance(step, Step) else ""


def _places(one: object, other: object) -> str:
    found = [place for place in (_place(one), _place(other)) if place]
    return f" ({' and '.join(found)})" if len(set(found)) > 1 else ""
