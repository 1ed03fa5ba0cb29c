"""History by the day: which partitions are to be dropped, and what is deleted from the others."""

from datetime import date, timedelta
from typing import NamedTuple

import msgspec

from holdfast._model.time.duration import DAY, Duration, in_short, seconds
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.rows import OldPartition, ToSweep
from holdfast.errors import InvalidDuration


class Swept(NamedTuple):
    """What came of deleting from some blocks of a partition."""

    name: str
    rows: int


def mark(queries: Queries) -> list[Query[None]]:
    """Marks what is to be dropped: queries for one transaction."""
    return [queries.unmark_partitions(), queries.mark_partitions(), queries.forget_partitions()]


def to_drop(queries: Queries, limit: int) -> Query[list[OldPartition]]:
    """What is to be dropped, the oldest first; marked or not, so that it can also be shown beforehand."""
    return queries.to_drop(limit)


def detach(queries: Queries, partition: OldPartition) -> Query[None]:
    """Detaches a partition, or goes on with that. Not for a transaction."""
    detaches = queries.finalize_partition if partition.detaching else queries.detach_partition
    return detaches(partition.name, partition.parent)


def drop(queries: Queries, partition: OldPartition) -> Plan[int | None]:
    """Drops a partition that is marked and detached, and tells its size; None if it is not."""
    yield queries.lock_partitions()
    size: int | None = yield queries.droppable(partition.name)
    if size is not None:
        yield queries.drop_partition(partition.name)
        yield queries.forget_partitions()
    return size


def owned(queries: Queries) -> Query[bool]:
    """Whether this role owns the tables, and so may detach and drop partitions."""
    return queries.owns_history()


def drop_oldest(queries: Queries) -> Query[tuple[date, int] | None]:
    """Drops the oldest partition that is to be dropped, and tells its day and size: for those who do not own it."""
    return queries.drop_oldest_partition()


def sweep(queries: Queries, blocks: int) -> Plan[Swept | None]:
    """Deletes from the next blocks of the oldest partition that needs it; None if none does, or another is at it."""
    if not (yield queries.may_sweep()):
        return None
    found: ToSweep | None = yield queries.to_sweep()
    if found is None:
        return None
    below = found.block + blocks
    rows: int = yield queries.sweep(
        found.parent,
        since=found.since,
        until=found.until,
        first_block=found.block,
        below_block=below,
        named=found.named,
        expired=found.expired,
        others=found.others,
    )
    ended = below >= found.blocks
    yield queries.note_sweep(found.name, found.span, 0 if ended else below, ended)
    return Swept(found.name, rows)


def propose(queries: Queries, retention: timedelta, by: str) -> Plan[timedelta]:
    """Says how long history is kept, unless somebody has said it; answers what holds."""
    stored: timedelta | None = yield queries.stored_retention()
    if stored is not None:
        return stored
    why = "a worker was started with this setting, and nobody had said it before"
    yield queries.set_default(msgspec.json.encode({"retention": in_words(retention), "by": by, "why": why}))
    return retention


def retention(queries: Queries, queue: str | None) -> Query[timedelta]:
    """How long history of a queue is kept; without a name, of queues that say nothing else."""
    return queries.retention(queue)


def figures_kept(queries: Queries) -> Query[timedelta]:
    """How long figures are kept."""
    return queries.figures_kept()


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
    return queries.forget_workers(limit)


def forget_changes(queries: Queries, limit: int) -> Query[int]:
    """Deletes old changes, and counts them."""
    return queries.forget_changes(limit)
