"""History by the day, and what is kept for how long: the statements of `maintenance.sql`."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from holdfast._sql.queries.base import Base, maybe, maybe_value, nothing, rows_of, text, value
from holdfast._sql.query import Query, quote
from holdfast._sql.rows import OldPartition, ToSweep


class MaintenanceQueries(Base):
    """History by the day, and what is kept for how long."""

    def ensure_today(self) -> Query[None]:
        return self._query("ensure_today", nothing)

    def stored_retention(self) -> Query[timedelta | None]:
        return self._query("stored_retention", maybe_value)

    def unmark_partitions(self) -> Query[None]:
        return self._query("unmark_partitions", nothing)

    def mark_partitions(self) -> Query[None]:
        return self._query("mark_partitions", nothing)

    def to_drop(self, limit: int) -> Query[list[OldPartition]]:
        return self._query("to_drop", rows_of(OldPartition), limit=limit)

    def owns_history(self) -> Query[bool]:
        return self._query("owns_history", maybe_value)

    def drop_oldest_partition(self) -> Query[tuple[date, int] | None]:
        return self._query("drop_oldest_partition", lambda rows: (rows[0][0], rows[0][1]) if rows else None)

    def detach_partition(self, name: str, parent: str) -> Query[None]:
        return self._query("detach_partition", nothing).filled(partition=quote(name), parent=quote(parent))

    def finalize_partition(self, name: str, parent: str) -> Query[None]:
        return self._query("finalize_partition", nothing).filled(partition=quote(name), parent=quote(parent))

    def lock_partitions(self) -> Query[None]:
        return self._query("lock_partitions", nothing)

    def droppable(self, name: str) -> Query[int | None]:
        return self._query("droppable", maybe_value, name=name)

    def drop_partition(self, name: str) -> Query[None]:
        return self._query("drop_partition", nothing).filled(partition=quote(name))

    def forget_partitions(self) -> Query[None]:
        return self._query("forget_partitions", nothing)

    def may_sweep(self) -> Query[bool]:
        return self._query("may_sweep", value)

    def to_sweep(self) -> Query[ToSweep | None]:
        return self._query("to_sweep", maybe(ToSweep))

    def sweep(
        self,
        parent: str,
        *,
        since: datetime,
        until: datetime,
        first_block: int,
        below_block: int,
        named: Sequence[str],
        expired: Sequence[str],
        others: bool,
    ) -> Query[int]:
        """Rows of these blocks. `named`: the queues with a retention of their own; of those, the `expired` ones."""
        return self._query(
            "sweep",
            value,
            since=since,
            until=until,
            first=f"({first_block},0)",
            below=f"({below_block},0)",
            named=list(named),
            expired=list(expired),
            others=others,
        ).filled(parent=quote(parent))

    def note_sweep(self, name: str, span: timedelta, block: int, ended: bool) -> Query[None]:
        return self._query("note_sweep", nothing, name=name, span=span, block=block, ended=ended)

    def forget_workers(self, limit: int) -> Query[int]:
        return self._query("forget_workers", len, limit=limit)

    def forget_changes(self, limit: int) -> Query[int]:
        return self._query("forget_changes", len, limit=limit)

    def retention(self, queue: str | None) -> Query[timedelta]:
        return self._query("retention", value, queue=queue)

    def set_queue(self, name: str, options: bytes) -> Query[bytes]:
        return self._query("set_queue", value, name=name, options=text(options))

    def set_default(self, options: bytes) -> Query[bytes]:
        return self._query("set_default", value, options=text(options))
