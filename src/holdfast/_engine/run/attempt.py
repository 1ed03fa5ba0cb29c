"""A claim: one attempt at one step, with the fence that every write about it carries."""

import time
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import Any
from uuid import UUID

import msgspec

from holdfast._db.transactions import StepTransaction
from holdfast._model.declare.step import Step
from holdfast._model.enqueue.request import Request
from holdfast._model.garbage import no_collecting
from holdfast._model.run.outcome import Advanced
from holdfast._model.run.progress import Told
from holdfast._sql.rows import Claimed

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class Interruption(Enum):
    """Why a running attempt was told to end."""

    LOST = "the lease is lost"
    CANCEL = "the task was cancelled"
    STOP = "the worker stops"
    CONTACT = "the database cannot be reached"


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

now: Callable[[], float] = partial(time.clock_gettime, _CLOCK)
"""Seconds that go on while the machine sleeps: leases do not wait for a suspended laptop."""


class Attempt(msgspec.Struct, eq=False):
    """One execution of one step, from the claim to its recorded end. Its worker and number are the fence.

    It begins with what a row of `claim` says, in that order.
    """

    raw_id: bytes
    """Its id as bytes, the key in dictionaries: a UUID is made only when it is asked for."""
    kind: str
    step: str
    args: bytes
    number: int
    moves: int
    errors: int
    crashes: int
    priority: int
    run_at: float
    claimed_at: float
    key: str | None
    headers: bytes | None
    deadline: datetime | None
    queue: str
    worker_id: UUID
    definition: Step
    held_since: float
    handle: Any = None
    window: int = -1
    """In which window of time it began."""
    unmarked: bool = False
    """It was claimed ahead, and the database must know that it begins before it does."""
    in_thread: bool = False
    thread: "Future[Any] | None" = None
    """The thread in which the step goes on although the attempt was given up."""
    refusals: int = 0
    interruption: Interruption | None = None
    noticed: bool = False
    stop_flag: "StopFlag | None" = None
    children: Sequence[Request] = ()
    raised: BaseException | None = None
    moved: Any = None
    told: Told | None = None
    transaction: StepTransaction | None = None
    trace_id: str | None = None
    """There only if it is traced."""

    @property
    def cancelled(self) -> bool:
        """What `ctx.cancelled` tells a step that cannot be interrupted; from then on it has `noticed`."""
        self.noticed = self.interruption is not None
        return self.noticed

    @property
    def lingering(self) -> bool:
        """Whether the step still goes on in a thread that was given up."""
        return self.thread is not None and not self.thread.done()

    @property
    def stopping(self) -> bool:
        return self.stop_flag is not None and self.stop_flag.stopping

    @property
    def id(self) -> UUID:
        return UUID(bytes=self.raw_id)

    @property
    def step_name(self) -> str:
        """What the step is called by now: a row may have an old name of it."""
        return self.definition.name

    def strings(self) -> dict[str, str]:
        """Its headers."""
        if self.headers is None:
            return {}
        try:
            return _decode_headers(self.headers)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Any session can write headers with SQL; a step must not fail for them.
            return {}

    def next(self, outcome: Advanced, definition: Step, claimed_at: float, held_since: float) -> "Attempt":
        """The attempt at the next step, after a move under which the lease was kept."""
        return Attempt(
            self.raw_id,
            definition.kind,
            outcome.step,
            outcome.args,
            self.number + 1,
            self.moves + 1,
            0,
            0,
            self.priority,
            claimed_at,
            claimed_at,
            self.key,
            self.headers,
            self.deadline,
            self.queue,
            self.worker_id,
            definition,
            held_since,
        )

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self.kind}.{self.step} {self.id}>"


_BY_TIME = itemgetter(*map(Claimed._fields.index, ("run_at", "raw_id")))
_BY_PRIORITY = itemgetter(Claimed._fields.index("priority"))


def attempts_of(
    rows: list[Claimed], queue: str, worker_id: UUID, steps: Mapping[tuple[str, str], Step], held_since: float
) -> list[Attempt]:
    """The attempts that a claim has begun, the most urgent first; its rows are brought into that order, too."""
    if len(rows) > 1:
        # RETURNING comes in the order of the heap. Two sorts that Python does by itself: the second keeps the
        # order of the first among equals.
        rows.sort(key=_BY_TIME)
        rows.sort(key=_BY_PRIORITY, reverse=True)
    with no_collecting(len(rows)):
        # Column by column, because to pass on a row as it is (*row) takes a third longer.
        return [
            Attempt(
                id, kind, step, args, number, moves, errors, crashes, priority, run_at, claimed_at,
                key, headers, deadline, queue, worker_id, steps[kind, step], held_since,
            )
            for id, kind, step, args, number, moves, errors, crashes, priority, run_at, claimed_at,
                key, headers, deadline in rows
        ]  # fmt: skip


class StopFlag:
    """Whether the worker is stopping, shared by all its attempts."""

    __slots__ = ("stopping",)

    def __init__(self) -> None:
        self.stopping = False


def fields(attempt: Attempt) -> dict[str, Any]:
    """What log records about an attempt carry."""
    found = {
        "task_id": str(attempt.id),
        "kind": attempt.kind,
        "step": attempt.step,
        "attempt": attempt.number,
        "queue": attempt.queue,
        "worker": str(attempt.worker_id),
    }
    return found if attempt.trace_id is None else {**found, "trace_id": attempt.trace_id}
