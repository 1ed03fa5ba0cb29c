"""What statements give and take: rows by their names."""

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Literal, NamedTuple
from uuid import UUID


class Claimed(NamedTuple):
    """A row of `claim`: what a worker needs to execute one attempt."""

    raw_id: bytes
    kind: str
    step: str
    args: bytes
    attempt: int
    moves: int
    errors: int
    crashes: int
    priority: int
    run_at: float
    claimed_at: float
    key: str | None
    headers: bytes | None
    deadline: datetime | None

    @property
    def id(self) -> UUID:
        return UUID(bytes=self.raw_id)


class Fence(NamedTuple):
    """What a task's row says about who may write it."""

    id: UUID
    state: str
    worker_id: UUID | None
    attempt: int
    moves: int
    cancelled: bool
    claimed_at: float | None


class Obstacles(NamedTuple):
    """What speaks against going on with tasks of a queue that move."""

    higher: int | None
    queue_paused: bool
    paused_kinds: list[str]


class Beaten(NamedTuple):
    """A renewed lease."""

    id: UUID
    attempt: int
    cancelled: bool


class Reaped(NamedTuple):
    """A task taken from a lost worker."""

    id: UUID
    kind: str
    step: str
    state: str
    attempt: int
    crashes: int
    args: bytes
    priority: int
    moves: int
    errors: int
    claimed_at: datetime | None
    key: str | None
    error: bytes | None


class Overdue(NamedTuple):
    """When it was looked, and whether leases had run out and deadlines had passed by then."""

    now: datetime
    leases: bool
    deadlines: bool


class Loops(NamedTuple):
    """How long ago each loop of a worker succeeded, in seconds, and which of them are late; None if nobody knows."""

    ages: Mapping[str, float] | None = None
    late: list[str] | None = None


class Recorded(NamedTuple):
    """An attempt found in the log."""

    id: UUID
    attempt: int
    outcome: str


class Declared(NamedTuple):
    """What workers said about a kind: where its tasks go, and its only step if it has just one."""

    queue: str
    priority: int
    first: str | None


class Placed(NamedTuple):
    """What came of a task with a key: the task that has it now, and if that is another one, its state."""

    id: UUID
    kind: str
    enqueued: Literal[
        "created", "replaced", "existing", "running", "started", "parked", "ended", "id taken", "contended"
    ]
    state: str | None


class OldPartition(NamedTuple):
    """A partition that is to be dropped, or whose detachment was interrupted."""

    name: str
    parent: str
    day: date
    attached: bool
    detaching: bool
    bytes: int | None


class ToSweep(NamedTuple):
    """A partition from which some queues' rows are to be deleted, and where to go on in it."""

    name: str
    parent: str
    since: datetime
    until: datetime
    block: int
    blocks: int
    span: timedelta
    named: list[str]
    expired: list[str]
    others: bool


class DueSchedule(NamedTuple):
    """A schedule that is to be planned, with its definition as JSON."""

    name: str
    version: int
    definition: str


class Watermark(NamedTuple):
    """How far a schedule is, when it was last planned, and what time it is."""

    watermark: datetime
    planned: datetime | None
    now: datetime

    def begin(self, reached: datetime | None) -> tuple[datetime, bool]:
        """From where a scope is to be planned that has reached so much, and whether it is new."""
        is_new = reached is None and self.planned is not None
        return max(self.watermark, reached or self.planned or self.watermark), is_new
