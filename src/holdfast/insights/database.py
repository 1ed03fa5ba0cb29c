"""How the database is: sizes, dead rows, old transactions, history, connections. For the doctor and the dashboard.

Each function gives one query whose time does not grow with the number of tasks. All of them work for a role that has
only the part of a viewer. `Server.sees_all` says whether it sees the sessions of others as a whole: if not, since when
they are open and what they do is None.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import TypeVar

import msgspec

from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row

T = TypeVar("T")

SETTINGS = (
    *("autovacuum", "autovacuum_freeze_max_age", "autovacuum_multixact_freeze_max_age", "track_counts"),
    *("fsync", "full_page_writes", "synchronous_commit", "default_transaction_read_only"),
    *("server_encoding", "default_transaction_isolation", "track_activities", "enable_indexscan"),
    *("statement_timeout", "transaction_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout"),
)
"""The settings of the server that are asked for; spans are in milliseconds, ages in transactions."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its size, its rows as the statistics estimate them, and when it was last vacuumed and analyzed.

    `dead` rows are old versions that were not removed yet; with `vacuum_at` of them autovacuum comes.
    """

    name: str
    partitions: int
    live: int
    dead: int
    table_bytes: int
    index_bytes: int
    vacuumed_at: datetime | None
    analyzed_at: datetime | None
    vacuum_at: int
    autovacuum: bool
    """Whether it may be vacuumed by the server itself; False if somebody has turned that off for this table."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index: its size and how often it was used. One that is not `valid` was left behind half made."""

    name: str
    table: str
    bytes: int
    scans: int
    valid: bool


@dataclass(frozen=True, slots=True)
class Transaction:
    """What keeps old rows from being removed: a `session`, a replication `slot` or a `prepared` transaction.

    `xids`: how many transactions have begun since what it may still see; None if it holds nothing back.
    """

    what: str
    pid: int | None
    role: str | None
    name: str | None
    state: str | None
    since: datetime | None
    seconds: float | None
    xids: int | None


@dataclass(frozen=True, slots=True)
class History:
    """One of the two tables of history, `archive` and `attempt`, with a partition for each day.

    `days_ahead`: so many days from today on have their partition, without a gap. `overdue` are older than anything is
    kept, and should have been dropped.
    """

    parent: str
    partitions: int
    oldest: date
    newest: date
    bytes: int
    days_ahead: int
    overdue: int
    overdue_since: datetime | None
    detaching: int


@dataclass(frozen=True, slots=True)
class Partition:
    """One day of one table of history."""

    name: str
    parent: str
    day: date
    bytes: int
    detaching: bool
    drop_after: datetime


@dataclass(frozen=True, slots=True)
class Server:
    """The server and this database, as this role and session see them."""

    version: str
    database: str
    role: str
    is_standby: bool
    started_at: datetime
    connections: int
    max_connections: int
    reserved_connections: int
    notifications: float
    """How full the queue of notifications is, from 0 to 1."""
    frozen_age: int
    """So many transactions have begun since the oldest on record; past 2 billion nothing can be written."""
    multixact_age: int
    sees_all: bool
    settings: Mapping[str, str]
    schema_version: int


@dataclass(frozen=True, slots=True)
class Skew:
    """How far the database's clock is ahead of this machine's, in seconds; give or take `uncertainty`."""

    seconds: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class DueStep:
    """Tasks that are due at one step of one queue; `known` if a live worker of the queue knows it."""

    queue: str
    kind: str
    step: str
    tasks: int
    seconds: float
    """For how long the oldest of them has been due."""
    known: bool
    paused: bool
    """Whether the kind is paused."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Running tasks of a queue whose lease has ended, and that nobody took over."""

    queue: str
    tasks: int
    seconds: float
    served: bool
    """Whether a live worker serves the queue."""


@dataclass(frozen=True, slots=True)
class LateSchedule:
    """A schedule with an error, or one that was not planned when it should have been."""

    name: str
    seconds: float | None
    error: str | None
    failures: int
    served: bool
    """Whether a live worker would plan it."""


def tables(queries: Queries) -> Query[list[Table]]:
    """The tables of the schema, the largest first."""
    return _rows(queries.table_health(), Table)


def indexes(queries: Queries) -> Query[list[Index]]:
    """The indexes of the schema, the largest first."""
    return _rows(queries.index_health(), Index)


def transactions(queries: Queries, *, limit: int = 20) -> Query[list[Transaction]]:
    """What keeps old rows from being removed in this database, the longest first."""
    return _rows(queries.transactions(limit), Transaction)


def history(queries: Queries) -> Query[list[History]]:
    """The tables of history."""
    return _rows(queries.history_health(), History)


def partitions(queries: Queries, *, limit: int = 1000) -> Query[list[Partition]]:
    """The partitions of history, the newest first."""
    return _rows(queries.partitions(limit), Partition)


def server(queries: Queries) -> Query[Server]:
    """The server, this database and this session."""
    return queries.server_health(SETTINGS).into(_server)


def due_steps(queries: Queries, queues: Sequence[str], *, limit: int = 200) -> Query[list[DueStep]]:
    """At which steps tasks of these queues are due, those that wait for longest first.

    Counts are of the first `limit` tasks of each queue and priority.
    """
    return _rows(queries.due_steps(queues, limit), DueStep)


def expired_leases(queries: Queries, *, grace: timedelta, limit: int = 10_000) -> Query[list[Expired]]:
    """Running tasks whose lease ended longer ago than `grace`, by their queues."""
    return _rows(queries.expired_leases(grace, limit), Expired)


def parked_lately(queries: Queries, *, limit: int = 10_000) -> Query[tuple[int, int]]:
    """How many tasks were parked in the last hour, and in the 23 hours before."""
    return queries.parked_lately(limit)


def late_schedules(queries: Queries, *, grace: timedelta, limit: int = 100) -> Query[list[LateSchedule]]:
    """Schedules with an error, or that should have been planned longer ago than `grace`."""
    return _rows(queries.late_schedules(grace, limit), LateSchedule)


def zones(queries: Queries, *, limit: int = 50) -> Query[list[str]]:
    """The time zones of schedules."""
    return queries.scheduled_zones(limit)


def offsets(queries: Queries, zone: str, instants: Sequence[datetime]) -> Query[list[int]]:
    """How far a zone is from UTC at some instants, in seconds, as the database knows it."""
    return queries.zone_offsets(zone, instants)


def lacking_rights(queries: Queries, role: str, part: str) -> Plan[list[str]]:
    """Which of the rights that a part consists of a role does not have."""
    rights: list[str] = yield queries.grants(part)
    lacking: list[str] = yield queries.lacking_rights(role, rights)
    return lacking


def skew(queries: Queries, *, times: int = 3) -> Plan[Skew]:
    """Compares the clocks, as exactly as the quickest of some answers allows."""
    found: list[Skew] = []
    for _ in range(times):
        before, started = time.time(), time.monotonic()
        there: datetime = yield queries.clock()
        half = (time.monotonic() - started) / 2
        found.append(Skew(there.timestamp() - before - half, half))
    return min(found, key=lambda each: each.uncertainty)


def _rows(query: Query[list[Row]], make: Callable[..., T]) -> Query[list[T]]:
    return query.into(lambda rows: [make(*row) for row in rows])


def _server(row: Row) -> Server:
    found = Server(*row)
    return replace(found, settings=msgspec.json.decode(row[12], type=dict[str, str]))
