"""History by the day: which partitions are to be dropped, and what is deleted from the others."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast._model.time.duration import DAY, Duration, in_short, seconds
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row, quote
from holdfast.errors import InvalidDuration

T = TypeVar("T")


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


class Swept(NamedTuple):
    """What came of deleting from some blocks of a partition."""

    name: str
    rows: int


def mark(queries: Queries) -> list[Query[None]]:
    """Marks what is to be dropped: queries for one transaction."""
    return [_query(queries, name, _nothing) for name in ("unmark_partitions", "mark_partitions", "forget_partitions")]


def to_drop(queries: Queries, limit: int) -> Query[list[OldPartition]]:
    """What is to be dropped, the oldest first; marked or not, so that it can also be shown beforehand."""
    return _query(queries, "to_drop", lambda rows: [OldPartition._make(row) for row in rows], limit=limit)


def detach(queries: Queries, partition: OldPartition) -> Query[None]:
    """Detaches a partition, or goes on with that. Not for a transaction."""
    name = "finalize_partition" if partition.detaching else "detach_partition"
    return _of_partition(_query(queries, name, _nothing), partition.name, partition.parent)


def drop(queries: Queries, partition: OldPartition) -> Plan[int | None]:
    """Drops a partition that is marked and detached, and tells its size; None if it is not."""
    yield _query(queries, "lock_partitions", _nothing)
    size: int | None = yield _query(queries, "droppable", _maybe, name=partition.name)
    if size is not None:
        yield _of_partition(_query(queries, "drop_partition", _nothing), partition.name, partition.parent)
        yield _query(queries, "forget_partitions", _nothing)
    return size


def owned(queries: Queries) -> Query[bool]:
    """Whether this role owns the tables, and so may detach and drop partitions."""
    return _query(queries, "owns_history", _maybe)


def drop_oldest(queries: Queries) -> Query[tuple[date, int] | None]:
    """Drops the oldest partition that is to be dropped, and tells its day and size: for those who do not own it."""
    return _query(queries, "drop_oldest_partition", lambda rows: (rows[0][0], rows[0][1]) if rows else None)


def sweep(queries: Queries, blocks: int) -> Plan[Swept | None]:
    """Deletes from the next blocks of the oldest partition that needs it; None if none does, or another is at it."""
    if not (yield _query(queries, "may_sweep", _maybe)):
        return None
    found: ToSweep | None = yield _query(queries, "to_sweep", lambda rows: ToSweep._make(rows[0]) if rows else None)
    if found is None:
        return None
    below = found.block + blocks
    deleting = _query(
        queries,
        "sweep",
        _maybe,
        since=found.since,
        until=found.until,
        first=f"({found.block},0)",
        below=f"({below},0)",
        named=found.named,
        expired=found.expired,
        others=found.others,
    )
    rows: int = yield _of_partition(deleting, found.name, found.parent)
    ended = below >= found.blocks
    yield _query(
        queries, "note_sweep", _nothing, name=found.name, span=found.span, block=0 if ended else below, ended=ended
    )
    return Swept(found.name, rows)


def propose(queries: Queries, retention: timedelta, by: str) -> Plan[timedelta]:
    """Says how long history is kept, unless somebody has said it; answers what holds."""
    stored: timedelta | None = yield _query(queries, "stored_retention", _maybe)
    if stored is not None:
        return stored
    why = "a worker was started with this setting, and nobody had said it before"
    yield queries.set_default(msgspec.json.encode({"retention": in_words(retention), "by": by, "why": why}))
    return retention


def retention(queries: Queries, queue: str | None) -> Query[timedelta]:
    """How long history of a queue is kept; without a name, of queues that say nothing else."""
    return _query(queries, "retention", _maybe, queue=queue)


def figures_kept(queries: Queries) -> Query[timedelta]:
    """How long figures are kept."""
    return _query(queries, "figures_kept", _maybe)


def given(value: Duration | None, what: str = "retention") -> str | None:
    """A retention as people give it, for SQL; refused if it is too short. "default" stays as it is."""
    if value is None or value == "default":
        return None if value is None else "default"
    span = timedelta(seconds=seconds(value, what))
    if span < timedelta(seconds=DAY):
        raise InvalidDuration(f"{what} ({in_short(span)}) must be a day at least: history is kept by the day")
    return in_words(span)


def in_words(span: timedelta) -> str:
    """A time span as SQL reads it, whatever its style of intervals."""
    return f"{span.total_seconds():.6f} seconds"


def forget_workers(queries: Queries, limit: int) -> Query[int]:
    """Deletes workers that stopped long ago, and counts them."""
    return _query(queries, "forget_workers", len, limit=limit)


def forget_changes(queries: Queries, limit: int) -> Query[int]:
    """Deletes old changes, and counts them."""
    return _query(queries, "forget_changes", len, limit=limit)


def _query(queries: Queries, name: str, read: Callable[[Sequence[Row]], T], /, **values: object) -> Query[T]:
    query = queries.read(name, **values)
    return Query(query.statement, query.parameters, read)


def _of_partition(query: Query[T], name: str, parent: str) -> Query[T]:
    texts = {"partition": quote(name), "parent": quote(parent)}
    statement = query.statement.filled(**{slot: texts[slot] for slot in query.statement.slots})
    return Query(statement, query.parameters, query.read)


def _nothing(rows: Sequence[Row]) -> None:
    return None


def _maybe(rows: Sequence[Row]) -> Any:
    return rows[0][0] if rows else None
