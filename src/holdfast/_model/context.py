"""What a step is told about the attempt it is in."""

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Protocol, cast
from uuid import UUID

from typing_extensions import TypeVar

from holdfast.errors import DeclarationError

R = TypeVar("R")

PLAN_TIME, SCOPE, SCHEDULE = "holdfast-plan-time", "holdfast-scope", "holdfast-schedule"
"""The headers in which an occurrence hands its plan time, scope and schedule to its task."""


class Signals(Protocol):
    """What the worker tells a running attempt from outside."""

    @property
    def cancelled(self) -> bool: ...
    @property
    def stopping(self) -> bool: ...


class Context:
    """The attempt a step runs in: which task, which step, how often it was tried, and what it may use."""

    __slots__ = (
        "_resources",
        "_signals",
        "attempt",
        "crashes",
        "deadline",
        "errors",
        "headers",
        "id",
        "key",
        "kind",
        "moves",
        "queue",
        "step",
    )

    def __init__(
        self,
        *,
        id: UUID,
        kind: str,
        step: str,
        queue: str,
        attempt: int,
        errors: int,
        crashes: int,
        moves: int,
        key: str | None,
        headers: Mapping[str, str],
        deadline: datetime | None,
        resources: Mapping[type, object],
        signals: Signals,
    ) -> None:
        self.id = id
        self.kind = kind
        self.step = step
        self.queue = queue
        self.attempt = attempt
        self.errors = errors
        self.crashes = crashes
        self.moves = moves
        self.key = key
        self.headers = headers
        self.deadline = deadline
        self._resources = resources
        self._signals = signals

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of this visit, another for every other: hand it to outside systems."""
        return f"{self.id}:{self.moves}"

    @property
    def cancelled(self) -> bool:
        """True once this attempt should stop: the task was cancelled, or its lease is lost."""
        return self._signals.cancelled

    @property
    def stopping(self) -> bool:
        """True once the worker is stopping: finish soon, or snooze."""
        return self._signals.stopping

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
        found: Any = self._resources.get(cls)
        if found is None:
            found = next((each for each in self._resources.values() if isinstance(each, cls)), None)
        if found is None:
            raise DeclarationError(
                f"there is no resource of type {cls.__qualname__}: declare a function with @app.resource "
                f"that is annotated -> AsyncIterator[{cls.__qualname__}] and yields it"
            )
        return cast("R", found)

    def __repr__(self) -> str:
        return f"<Context {self.kind}.{self.step} attempt {self.attempt} of task {self.id}>"


current_context: ContextVar[Context] = ContextVar("holdfast_context")
