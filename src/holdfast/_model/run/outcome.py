"""What a step says when it ends, and what is recorded of it.

A step *returns* where the task goes (`Later`, `Done`, another step, None) and *raises* why it does not
(`Fail`, `Snooze`, `Cancel`, any other exception). `conclude.py` turns that into an `Outcome`, which is
what the engine records. All of them are plain data and can be pickled.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, Literal, TypeAlias, get_args, overload

from typing_extensions import TypeVar

from holdfast._model.time.duration import Duration, seconds

S_co = TypeVar("S_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)

EARLIEST, LATEST = datetime(1000, 1, 2, tzinfo=UTC), datetime(9998, 12, 31, tzinfo=UTC)
"""The times that both PostgreSQL and Python can hold, in every zone."""

SHORTEST_SNOOZE = 0.1
"""A snooze shorter than this would only heat the database."""


class Later(Generic[S_co]):
    """Go on with `step` after a delay, or at a time. A datetime without a zone is taken as local time."""

    __slots__ = ("at", "delay", "step")

    step: S_co
    delay: float
    at: datetime | None

    @overload
    def __init__(self, step: S_co, delay: Duration, /) -> None: ...
    @overload
    def __init__(self, step: S_co, /, *, at: datetime) -> None: ...
    def __init__(self, step: S_co, delay: Duration | None = None, /, *, at: datetime | None = None) -> None:
        self.step = step
        self.delay, self.at = _when(delay, at, "Later(step, ...)")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Later):
            return NotImplemented
        return bool(self.step == other.step) and (self.delay, self.at) == (other.delay, other.at)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Later({self.step!r}, at={self.at!r})" if self.at else f"Later({self.step!r}, {self.delay!r})"


class Done(Generic[R_co]):
    """The task is finished; `result` is kept with it."""

    __slots__ = ("result",)

    result: R_co

    def __init__(self, result: R_co, /) -> None:
        self.result = result

    def __eq__(self, other: object) -> bool:
        return bool(self.result == other.result) if isinstance(other, Done) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Done({self.result!r})"


class Fail(Exception):
    """Raised by a step: no retry helps, park the task at once."""

    __module__ = "holdfast"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Exception):
    """Raised by a step: the same visit again, later; the budgets are untouched."""

    __module__ = "holdfast"

    def __init__(self, delay: Duration | None = None, *, at: datetime | None = None) -> None:
        self.delay, self.at = _when(delay, at, "Snooze")
        super().__init__(f"at {self.at.isoformat()}" if self.at else f"for {self.delay:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return _snooze, (self.delay, self.at)


class Cancel(Exception):
    """Raised by a step: the task is no longer wanted."""

    __module__ = "holdfast"

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Ended:
    """What every outcome has: how it is called, recorded, charged and coloured."""

    __slots__ = ()

    word: ClassVar[str]
    """Its name in the log of attempts, in figures, metrics and logs."""
    statement: ClassVar[Literal["finish", "advance", "stay", "cancel"]]
    """The statement of `lifecycle.sql` that records it."""
    tone: ClassVar[Literal["good", "warning", "bad", "quiet"]]
    """What people see it as."""

    @property
    def charge(self) -> int:
        """How many errors it adds to those of the visit."""
        return 0


@dataclass(frozen=True, slots=True)
class Advanced(Ended):
    """The move to another step, or to the same one anew: now, after `delay` seconds, or `at` a time."""

    word = "advanced"
    statement = "advance"
    tone = "good"

    step: str
    args: bytes
    delay: float = 0.0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Finished(Ended):
    """The task is done. `result` is JSON, or None if there is none."""

    word = "done"
    statement = "finish"
    tone = "good"

    result: bytes | None


NO_RESULT = Finished(None)
"""How most tasks end: one object for all of them, known by its identity."""


@dataclass(frozen=True, slots=True)
class Retried(Ended):
    """An error within the retry budget: the same visit again after `delay` seconds."""

    word = "retried"
    statement = "stay"
    tone = "warning"

    error: bytes
    delay: float

    @property
    def charge(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Failed(Ended):
    """An error that parks the task. Not `charged` if the step's code never ran."""

    word = "failed"
    statement = "stay"
    tone = "bad"

    error: bytes
    charged: bool = True

    @property
    def charge(self) -> int:
        return int(self.charged)


@dataclass(frozen=True, slots=True)
class Snoozed(Ended):
    """The same visit again, by the step's own wish; nothing is charged."""

    word = "snoozed"
    statement = "stay"
    tone = "warning"

    delay: float
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Cancelled(Ended):
    """The task ends here, by the step's own wish or by somebody's."""

    word = "cancelled"
    statement = "cancel"
    tone = "quiet"

    reason: str


@dataclass(frozen=True, slots=True)
class Released(Ended):
    """Given back unfinished, uncharged: the worker stops, or it had claimed more than it could start.

    `untouched`: it never began, and its worker begins nothing any more. Then it is as if it had never been claimed: its
    number is free again, and the log has no attempt.
    """

    word = "released"
    statement = "stay"
    tone = "warning"

    delay: float = 0.0
    untouched: bool = False


Outcome: TypeAlias = Advanced | Finished | Retried | Failed | Snoozed | Cancelled | Released
OUTCOMES: tuple[type[Outcome], ...] = get_args(Outcome)
LOST = "lost"
"""The word for an attempt that had no outcome: its worker was lost."""


def _when(delay: Duration | None, at: datetime | None, what: str) -> tuple[float, datetime | None]:
    if delay is not None and at is None:
        return seconds(delay, what), None
    if at is None or delay is not None:
        raise TypeError(f'{what} needs either a delay, such as "5m", or at=, a datetime')
    if not isinstance(at, datetime):
        raise TypeError(f"{what}: at= must be a datetime, not {type(at).__name__}")
    at = at if at.tzinfo is not None else at.astimezone()
    if not EARLIEST <= at <= LATEST:
        raise ValueError(f"{what}: at={at.isoformat()} is out of range")
    return 0.0, at


def _snooze(delay: float, at: datetime | None) -> Snooze:
    return Snooze(at=at) if at is not None else Snooze(delay)
