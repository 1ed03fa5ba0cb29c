"""References to tasks, and what they answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, Protocol, TypeAlias
from uuid import UUID

from typing_extensions import TypeVar

from holdfast._model.time.duration import Duration
from holdfast.errors import HoldfastError

R_co = TypeVar("R_co", covariant=True, default=Any)

HowEnqueued: TypeAlias = Literal["created", "replaced", "existing", "running", "started", "parked", "ended"]
"""What came of an enqueue: see `Ref.enqueued`."""

State: TypeAlias = Literal["ready", "running", "waiting", "parked", "done", "cancelled", "expired", "discarded"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running attempt has come, from 0 to 1, and what it said it is doing."""

    fraction: float
    note: str = ""

    def __str__(self) -> str:
        return f"{int(100 * self.fraction)} %" + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A task as it stood when asked, live or archived.

    `progress` is what its running attempt told with `ctx.progress`, `report` the figures that its last attempt told
    with `ctx.report`, so far or to the end. In a list of tasks both are left out.
    """

    id: UUID
    queue: str
    kind: str
    step: str
    state: State
    phase: str = ""
    args: Any = None
    priority: int = 0
    run_at: datetime | None = None
    attempt: int = 0
    moves: int = 0
    errors: int = 0
    crashes: int = 0
    created_at: datetime | None = None
    finished_at: datetime | None = None
    deadline: datetime | None = None
    worker_id: UUID | None = None
    claimed_at: datetime | None = None
    lease_expires_at: datetime | None = None
    result: Any = None
    error: Mapping[str, Any] | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None
    report: Mapping[str, int | float | str] = field(default_factory=dict)

    @property
    def duration(self) -> timedelta | None:
        """How long the last attempt took; None unless the task ended with it."""
        ended = self.finished_at is not None and self.claimed_at is not None
        return self.finished_at - self.claimed_at if ended else None  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A task that was parked, as `@app.on_failure` hooks and `app.failures()` get it.

    `task` is the task as it stood then, `at` when that was recorded; for a hook, by the clock of its worker.
    """

    task: TaskInfo
    at: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def error(self) -> Mapping[str, Any]:
        """Type, message, place, traceback and causes."""
        return self.task.error or {}

    @property
    def attempt(self) -> int:
        """The attempt that failed, or was lost; with the task's id it names this failure."""
        return self.task.attempt

    @property
    def kind(self) -> str:
        return self.task.kind

    @property
    def step(self) -> str:
        return self.task.step


class Tracker(Protocol):
    """What a reference needs from its app."""

    async def result(self, ref: "Ref[Any]", timeout: Duration | None, /) -> Any: ...
    async def info(self, id: UUID, /) -> TaskInfo: ...
    async def cancel(self, id: UUID, reason: str, /) -> bool: ...


class Ref(Generic[R_co]):
    """A reference to one task.

    `enqueued` says what the enqueue came to: `created`, or, if the key was held, to which other task this refers:
    `replaced`: a waiting one, which has the new args now; `existing`: an unfinished one, left as it is; `running`,
    `started` or `parked`: one that could not be replaced, and why; `ended`: one that has ended while `unique_for` still
    holds the key.
    """

    __slots__ = ("_decode_result", "_tracker", "enqueued", "id", "kind", "queue")

    id: UUID
    kind: str
    queue: str | None
    enqueued: HowEnqueued

    def __init__(
        self,
        id: UUID,
        kind: str,
        *,
        queue: str | None = None,
        enqueued: HowEnqueued = "created",
        tracker: Tracker | None = None,
        decode_result: Callable[[bytes], Any] | None = None,
    ) -> None:
        self.id = id
        self.kind = kind
        self.queue = queue
        self.enqueued = enqueued
        self._tracker = tracker
        self._decode_result = decode_result

    @property
    def created(self) -> bool:
        """Whether a new task was enqueued; False if it refers to one that held the key."""
        return self.enqueued == "created"

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the task and give its result; NoResult if it is parked, cancelled, expired or late."""
        answer: R_co = await self._asked().result(self, timeout)
        return answer

    async def info(self) -> TaskInfo:
        """How the task stands now."""
        return await self._asked().info(self.id)

    async def cancel(self, reason: str = "") -> bool:
        """Cancel the task; False if it had already ended."""
        return await self._asked().cancel(self.id, reason)

    def _asked(self) -> Tracker:
        if self._tracker is None:
            raise HoldfastError(f"this reference belongs to no App: ask one with app.ref({str(self.id)!r})")
        return self._tracker

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Ref) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<Ref {self.kind} {self.id}>"
