"""What the checks of the doctor look at: one database, asked for each thing once and only if a check wants it."""

import asyncio
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

from holdfast import insights
from holdfast._db.config.resolve import Database
from holdfast._db.migrate import Status, status
from holdfast._model.read.infos import KindInfo, QueueInfo
from holdfast._sql.plans import Plan, drive_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.insights import database as health

T = TypeVar("T")
Level: TypeAlias = Literal["fine", "warning", "bad"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a check found; if it is not fine, why that matters and what to do: commands and SQL, to be pasted."""

    check: str
    level: Level
    found: str
    why: str = ""
    cure: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the doctor begins to worry, and (`…_bad`) when something has to be done now."""

    due: timedelta = timedelta(minutes=5)
    due_bad: timedelta = timedelta(hours=1)
    transaction: timedelta = timedelta(minutes=5)
    transaction_bad: timedelta = timedelta(minutes=30)
    transaction_xids: int = 1_000_000
    """For sessions whose age is hidden, and for replication slots, which have none."""
    lease: timedelta = timedelta(minutes=2)
    """Others take a task over after its lease and a reap interval, and a lone fresh worker a lease later."""
    schedule: timedelta = timedelta(minutes=2)
    schedule_bad: timedelta = timedelta(hours=1)
    dead: int = 50_000
    dead_bad: int = 1_000_000
    vacuumed: timedelta = timedelta(minutes=10)
    """Dead rows are no trouble where vacuum was there so shortly ago and nobody holds them back."""
    skew: timedelta = timedelta(seconds=5)
    days_ahead: int = 3
    overdue: timedelta = timedelta(days=1)
    connections: float = 0.8
    connections_bad: float = 0.95
    notifications: float = 0.1
    notifications_bad: float = 0.5
    frozen: float = 1.5
    """Times the age at which autovacuum begins to work against it."""
    frozen_bad: int = 1_000_000_000
    parked: int = 10
    """Tasks in an hour, if that is also more than twice as many as in other hours."""
    timeout: timedelta = timedelta(seconds=10)
    """A limit on statements, transactions or idle sessions that is shorter gets in the way of work."""


class Patient:
    """One database, as the checks see it.

    `steps` are those that the code at hand knows, if there is any: `kind.Step`. `command` makes a command line of
    words, such as `("migrate",)`, for the same database.
    """

    def __init__(
        self,
        ask: Callable[[Query[Any]], Any],
        queries: Queries,
        database: Database,
        *,
        steps: Collection[str] | None = None,
        app: str | None = None,
        version: str = "",
        limits: Limits | None = None,
        command: Callable[..., str] = lambda *words: shlex.join(["holdfast", *words]),
    ) -> None:
        self._ask = ask
        self.queries = queries
        self.database = database
        self.steps = steps
        self.app = app or "APP"
        self.version = version
        self.limits = limits or Limits()
        self.command = command

    def ask(self, query: Query[T]) -> T:
        answer: T = self._ask(query)
        return answer

    def follow(self, plan: Plan[T]) -> T:
        return drive_sync(plan, self._ask)

    @cached_property
    def schema(self) -> Status:
        """Which version the schema has, and what differs from what was applied."""
        return asyncio.run(status(self.database.url, self.queries.schema))

    @cached_property
    def server(self) -> health.Server:
        return self.ask(health.server(self.queries))

    @cached_property
    def tables(self) -> list[health.Table]:
        return self.ask(health.tables(self.queries))

    @cached_property
    def transactions(self) -> list[health.Transaction]:
        return self.ask(health.transactions(self.queries))

    @cached_property
    def history(self) -> list[health.History]:
        return self.ask(health.history(self.queries))

    @cached_property
    def queues(self) -> list[QueueInfo]:
        return self.ask(insights.queues(self.queries))

    @cached_property
    def kinds(self) -> list[KindInfo]:
        return self.ask(insights.kinds(self.queries))

    @cached_property
    def workers(self) -> list[insights.WorkerInfo]:
        """Those that have not stopped."""
        found = self.ask(insights.workers(self.queries, limit=10_000))
        return [each for each in found if each.stopped_at is None]

    @cached_property
    def due(self) -> list[health.DueStep]:
        """Steps at which tasks are due, in queues that are not paused and have a live worker."""
        open = [each.name for each in self.queues if each.due and each.workers and each.paused_at is None]
        return self.ask(health.due_steps(self.queries, open)) if open else []


# --- what a check answers


def fine(found: str) -> Diagnosis:
    return Diagnosis("", "fine", found)


def warning(found: str, why: str, *cure: str) -> Diagnosis:
    return Diagnosis("", "warning", found, why, cure)


def bad(found: str, why: str, *cure: str) -> Diagnosis:
    return Diagnosis("", "bad", found, why, cure)


def judged(is_bad: bool, found: str, why: str, *cure: str) -> Diagnosis:
    """A warning, or worse."""
    return bad(found, why, *cure) if is_bad else warning(found, why, *cure)


# --- words


def listed(texts: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    more = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {more} more" if more > 0 else "")
