"""What `holdfast.insights` answers about many tasks at once: queues, kinds, groups of parked tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, SupportsInt
from uuid import UUID

COUNTED = 10_000
"""Counts of a queue end here: one more means more than that."""
LOOKED = 20_000
"""The most tasks that one look by a filter examines."""


class AtLeast(int):
    """A count that has ended at its bound: wherever it is told it has a +, and so has a sum with it."""

    def __format__(self, spec: str) -> str:
        return f"{int(self):{spec}}+"

    def __add__(self, other: SupportsInt) -> "AtLeast":
        return AtLeast(int(self) + int(other))

    __radd__ = __add__


def as_json(value: object) -> object:
    """What msgspec does not know by itself: `enc_hook=as_json`."""
    if isinstance(value, AtLeast):
        return int(value)
    raise NotImplementedError(f"{type(value).__qualname__} has no place in JSON")


@dataclass(frozen=True, slots=True)
class ParkedGroup:
    """Parked tasks that stopped alike: at the same step, with the same type of error, raised at the same place.

    Message and example are the newest's. If there are very many at a step, only the newest of them are looked at: then
    the count is `AtLeast` so many.
    """

    kind: str
    step: str
    error_type: str | None
    message: str | None
    count: int
    newest: datetime
    oldest: datetime
    example: UUID
    place: str | None = None
    """The line of the user's code that raised it, as `shop.mail.send:42`, if that is known."""
    count_is_exact: bool = True


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue: its unfinished tasks, counted no further than one more than `COUNTED`, and its live workers.

    `scheduled` are the tasks that are not due yet, those that wait for a retry among them.
    """

    name: str
    paused_at: datetime | None
    paused_by: str | None
    due: int
    scheduled: int
    running: int
    parked: int
    oldest_due: datetime | None
    workers: int
    retention: timedelta | None = None
    """How long its history is kept, if it is not as for all."""
    unroutable: int = 0
    """How many of those that are due first no live worker of the queue knows; `AtLeast`, if not all were looked at."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """A kind as workers declared it, and how many live ones know any of its steps."""

    name: str
    queue: str
    priority: int
    paused_at: datetime | None
    paused_by: str | None
    graph: Mapping[str, Any]
    workers: int
    seen_at: datetime
    about: Mapping[str, Any]
    """For each step, `fields`: the names of its fields, and `errors`: with how many a task is parked there."""
    declared_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names of live workers that declare it alike, by a fingerprint of what they declare."""
    first: str | None = None
    """The step that its tasks begin with, if there is one such."""

    @property
    def differs(self) -> str | None:
        """A sentence about live workers that declare it differently: normal for a while, wrong for long."""
        if len(self.declared_by) < 2:
            return None
        groups = sorted((sorted(set(workers)) for workers in self.declared_by.values()), key=len)
        told = "; ".join(
            ", ".join(each[:3]) + (f" and {len(each) - 3} more" if len(each) > 3 else "") for each in groups
        )
        return (
            f"live workers declare it in {len(groups)} ways ({told}): as in the middle of a deploy; if it stays so, "
            "two programs use one name"
        )


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """A task that is being executed, since when and for how many seconds, and how far it has come if it tells."""

    id: UUID
    queue: str
    kind: str
    step: str
    attempt: int
    worker_id: UUID
    claimed_at: datetime
    seconds: float
    fraction: float | None
    note: str


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """An attempt that parked its task, and when."""

    task_id: UUID
    queue: str
    kind: str
    step: str
    attempt: int
    at: datetime
    error_type: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Standing:
    """How many unfinished tasks stand at a step, in one state; those that are not due yet are `scheduled`.

    The count is `AtLeast` so many, if not all were looked at.
    """

    kind: str
    step: str
    state: str
    count: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An unfinished task with its args as they are stored."""

    id: UUID
    queue: str
    kind: str
    step: str
    args: bytes
    state: str


@dataclass(frozen=True, slots=True)
class Gauges:
    """What a monitor wants to know of the database beside its queues. Times are in seconds."""

    schedule_lag: float
    """For how long the schedule that is longest due has been so."""
    notification_queue: float
    """How full the queue of notifications is, 0 to 1; full, nobody can notify any more."""
    partitions_ahead: float
    """Until when there are partitions."""
    figures_behind: float
    """How far counting is behind."""
    running: int
    stopping: int
    lost: int
    late: int
    """Workers: those that run, stop, have vanished, and those that run of which a loop is late."""
    slots: int
    """Slots of those that run."""
