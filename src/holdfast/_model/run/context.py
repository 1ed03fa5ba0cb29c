"""What a step is told about the attempt it is in."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, cast, overload
from uuid import UUID

from typing_extensions import TypeVar, Unpack

from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.enqueue.ref import Ref, Tracker
from holdfast._model.run.progress import Figure, Told, with_progress, with_report
from holdfast._model.time.duration import Duration
from holdfast.errors import DeclarationError, EnqueueRefused

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

    from holdfast._model.enqueue.call import Call, StepValue
    from holdfast._model.enqueue.request import Request
    from holdfast._model.run.tracing import Tracing

R = TypeVar("R")

PLAN_TIME, SCOPE, SCHEDULE = "holdfast-plan-time", "holdfast-scope", "holdfast-schedule"
"""The headers in which an occurrence hands its plan time, scope and schedule to its task."""


class Subject(Protocol):
    """The attempt that a context tells of: what is known of it, and what the worker tells it from outside."""

    @property
    def id(self) -> UUID: ...
    @property
    def kind(self) -> str: ...
    @property
    def step_name(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def errors(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def moves(self) -> int: ...
    @property
    def key(self) -> str | None: ...
    @property
    def deadline(self) -> datetime | None: ...
    def strings(self) -> Mapping[str, str]: ...

    @property
    def cancelled(self) -> bool: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def transaction(self) -> "Transaction | None": ...
    @property
    def moved(self) -> Any: ...

    told: Told | None


@dataclass
class Described:
    """An attempt of which only this is known: one in a child process, or in a test."""

    id: UUID
    kind: str
    step_name: str
    queue: str
    number: int
    errors: int
    crashes: int
    moves: int
    key: str | None
    headers: Mapping[str, str]
    deadline: datetime | None
    cancelled: bool = False
    stopping: bool = False
    transaction: "Transaction | None" = None
    moved: Any = None
    told: Told | None = None

    def strings(self) -> Mapping[str, str]:
        return self.headers


class Transaction(Protocol):
    """The transaction of a step declared with `transactional=True`."""

    @property
    def tx(self) -> "AsyncConnection[Any] | None": ...
    @property
    def tx_sync(self) -> "Connection[Any] | None": ...


class Mover(Protocol):
    """Writes a move on a connection of the step's own."""

    async def move(self, ctx: "Context", attempt: Any, next: Any, conn: object) -> None: ...
    def move_sync(self, ctx: "Context", attempt: Any, next: Any, conn: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Offers:
    """What a worker offers to all its steps."""

    resources: Mapping[type, object] = field(default_factory=dict)
    tracker: Tracker | None = None
    mover: Mover | None = None
    tell: Callable[[Any], None] | None = None
    """Takes note that an attempt has told something of itself."""
    tracing: "Tracing | None" = None


class Context:
    """The attempt a step runs in: which task, which step, how often it was tried, and what it may use.

    `id`, `kind`, `queue`, `key` and `headers` are the task's, `step` is where it stands. `attempt` is the number of
    this execution over the task's life, `moves` that of the moves before it; `errors` and `crashes` are of this visit.
    """

    __slots__ = ("_about", "_enqueued", "_headers", "_offers")

    # One is made for each attempt, and most of them are asked for nothing.
    def __init__(self, about: Subject, offers: Offers) -> None:
        self._about = about
        self._offers = offers
        self._enqueued: list[Request] | None = None
        self._headers: Mapping[str, str] | None = None

    @property
    def id(self) -> UUID:
        return self._about.id

    @property
    def kind(self) -> str:
        return self._about.kind

    @property
    def step(self) -> str:
        return self._about.step_name

    @property
    def queue(self) -> str:
        return self._about.queue

    @property
    def attempt(self) -> int:
        return self._about.number

    @property
    def errors(self) -> int:
        return self._about.errors

    @property
    def crashes(self) -> int:
        return self._about.crashes

    @property
    def moves(self) -> int:
        return self._about.moves

    @property
    def key(self) -> str | None:
        return self._about.key

    @property
    def deadline(self) -> datetime | None:
        return self._about.deadline

    @property
    def headers(self) -> Mapping[str, str]:
        if self._headers is None:
            self._headers = self._about.strings()
        return self._headers

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this visit, another for every other: hand it to outside systems."""
        return f"{self.id}:{self.moves}"

    @property
    def cancelled(self) -> bool:
        """True once this attempt should stop: the task was cancelled, or its lease is lost."""
        return self._about.cancelled

    @property
    def stopping(self) -> bool:
        """True once the worker is stopping: finish soon, or snooze."""
        return self._about.stopping

    @property
    def schedule(self) -> str | None:
        return self.headers.get(SCHEDULE)

    @property
    def scope(self) -> str | None:
        return self.headers.get(SCOPE)

    @property
    def plan_time(self) -> datetime | None:
        """The instant this occurrence was planned for, whenever it came to run."""
        text = self.headers.get(PLAN_TIME)
        try:
            return None if text is None else datetime.fromisoformat(text)
        except ValueError:  # headers can be set by anybody who enqueues
            return None

    def resource(self, cls: type[R], /) -> R:
        """What `@app.resource` made for this worker: looked up by its class, or a base class of it."""
        resources = self._offers.resources
        found: Any = resources.get(cls)
        if found is None:
            found = next((each for each in resources.values() if isinstance(each, cls)), None)
        if found is None:
            raise DeclarationError(
                f"there is no resource of type {cls.__qualname__}: declare a function with @app.resource "
                f"that is annotated -> AsyncIterator[{cls.__qualname__}] and yields it"
            )
        return cast("R", found)

    @property
    def tx(self) -> "AsyncConnection[Any]":
        """The connection of a transactional `async def` step: what is written on it commits with the step's outcome."""
        transaction = self._about.transaction
        if transaction is None or transaction.tx is None:
            raise self._no_transaction("ctx.tx", "async def", "ctx.tx_sync")
        return transaction.tx

    @property
    def tx_sync(self) -> "Connection[Any]":
        """The connection of a transactional `def` step: what is written on it commits with the step's outcome."""
        transaction = self._about.transaction
        if transaction is None or transaction.tx_sync is None:
            raise self._no_transaction("ctx.tx_sync", "def", "ctx.tx")
        return transaction.tx_sync

    def _no_transaction(self, name: str, where: str, other: str) -> DeclarationError:
        if self._about.transaction is not None:
            return DeclarationError(f"{name} is for {where} steps: use {other} here")
        return DeclarationError(f"{name}: {self.kind}.{self.step} is not declared with transactional=True")

    async def move(self, next: R, /, *, conn: object) -> R:
        """Writes the move to `next` on a connection of your own: `return await ctx.move(Ship(…), conn=session)`.

        The move is part of that connection's transaction, with the same fence as any other. If the step ends and it
        is not committed, that is an error of the step.
        """
        await self._required_mover("ctx.move").move(self, self._about, next, conn)
        return next

    def move_sync(self, next: R, /, *, conn: object) -> R:
        """As `move`, on a blocking connection."""
        self._required_mover("ctx.move_sync").move_sync(self, self._about, next, conn)
        return next

    def _required_mover(self, name: str) -> Mover:
        if self._offers.mover is None:
            raise DeclarationError(f"{name} needs a worker: a step in a process and a test's context() have none")
        return self._offers.mover

    @overload
    def enqueue(self, what: "Call[R]", /, **options: Unpack[EnqueueOptions]) -> "Ref[R]": ...
    @overload
    def enqueue(self, what: "StepValue", /, **options: Unpack[EnqueueOptions]) -> "Ref[Any]": ...
    def enqueue(self, what: Any, /, **options: Unpack[EnqueueOptions]) -> "Ref[Any]":
        """Enqueues a task together with the outcome of this attempt, if that is a move or the end of the task.

        Nothing is written before, so there is nothing to wait for; it may be awaited all the same. If the step raises,
        or its lease is lost, no task appears. Its result cannot be had in this step.
        """
        from holdfast._model.enqueue.request import request_of  # here, because steps know contexts

        if self._about.moved is not None:
            raise DeclarationError("ctx.enqueue comes after ctx.move, whose transaction it would miss: enqueue first")
        request = request_of(what, options)
        if request.durable is not None:
            raise EnqueueRefused("ctx.enqueue takes no durable=: the task is written with the outcome of this attempt")
        if self._offers.tracing is not None:
            with self._offers.tracing.enqueuing([request]) as (request,):
                pass
        if self._enqueued is None:
            self._enqueued = []
        self._enqueued.append(request)
        return ChildRef(
            request.id,
            request.kind,
            queue=request.queue or None,
            tracker=self._offers.tracker,
            decode_result=request.decode_result,
        )._of(self)

    def progress(self, fraction: float, note: str = "") -> None:
        """Tells how far this attempt has come, from 0 to 1, and what it is doing. Nothing to await.

        From any thread, as often as you like: it is seen within about a second, by `ref.info()` and `holdfast show`.
        """
        with _telling:
            self._tell(with_progress(self._about.told, fraction, note))

    def report(self, **figures: Figure) -> None:
        """Tells figures about this attempt: `ctx.report(rows=42)`. They are kept with it, however it ends.

        A figure told again takes the place of the old one. Numbers and short texts, 8 KiB at most.
        """
        with _telling:
            self._tell(with_report(self._about.told, figures))

    def _tell(self, told: Told) -> None:
        self._about.told = told
        if self._offers.tell is not None:
            self._offers.tell(self._about)

    def __repr__(self) -> str:
        return f"<Context {self.kind}.{self.step} attempt {self.attempt} of task {self.id}>"


class ChildRef(Ref[R]):
    """A reference to a task that begins to exist when the step that enqueued it has ended."""

    __slots__ = ("_parent",)

    _parent: Context

    def _of(self, parent: Context) -> Self:
        self._parent = parent
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self
        yield  # nothing: whoever writes `await ctx.enqueue(…)` goes on at once

    async def result(self, timeout: Duration | None = None) -> R:
        """As of any reference, but not in the step that enqueued the task."""
        if current_context.get(None) is self._parent:
            raise DeclarationError(
                f"{self._parent.kind}.{self._parent.step} waits for the result of {self.kind}, which it enqueued with "
                "ctx.enqueue: that task is written when this step ends, so it would wait for ever. Return another step "
                "that asks for the result, or enqueue it with app.enqueue(…)"
            )
        return await super().result(timeout)


_telling = threading.Lock()

current_context: ContextVar[Context] = ContextVar("holdfast_context")
