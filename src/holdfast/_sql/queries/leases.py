"""Leases, and what becomes of tasks whose time has run out: the statements of `leases.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from holdfast._sql.queries.base import Base, Ids, array, first_set, nothing, rows_of, text, value
from holdfast._sql.query import Query
from holdfast._sql.rows import Beaten, Overdue, Reaped


class LeaseQueries(Base):
    """Leases, and what becomes of tasks whose time has run out."""

    def beat(
        self, queue: str, worker: UUID, ids: Sequence[UUID] | Ids, lease: timedelta, begun: Sequence[UUID] = ()
    ) -> Query[list[Beaten]]:
        """`begun`: those of them that are executed."""
        return self._query(
            "beat", rows_of(Beaten), queue=queue, worker=worker, ids=array(ids), lease=lease, begun=array(begun)
        )

    def hurriedly(self) -> Query[None]:
        return self._query("hurriedly", nothing)

    def progress(self, told: bytes) -> Query[None]:
        return self._query("progress", nothing, told=text(told))

    def forget_progress(self, attempts: bytes) -> Query[None]:
        return self._query("forget_progress", nothing, attempts=text(attempts))

    def sweep_progress(self, limit: int) -> Query[int]:
        return self._query("sweep_progress", value, limit=limit)

    def overdue(self, queues: Sequence[str]) -> Query[Overdue]:
        return self._query("overdue", lambda rows: Overdue._make(rows[0]), queues=list(queues))

    def begin(self, queue: str, worker: UUID, id: UUID, attempt: int) -> Query[set[UUID]]:
        return self._query("begin", first_set, queue=queue, worker=worker, id=id, attempt=attempt)

    def reap(self, queue: str, limit: int, expired_by: datetime | None = None) -> Query[list[Reaped]]:
        """`expired_by`: leases that ran out later are left alone; None for all that have run out."""
        return self._query("reap", rows_of(Reaped), queue=queue, limit=limit, expired_by=expired_by)

    def reap_cancelled(self, queue: str, limit: int, expired_by: datetime | None = None) -> Query[set[UUID]]:
        return self._query("reap_cancelled", first_set, queue=queue, limit=limit, expired_by=expired_by)

    def expire(self, queue: str, limit: int) -> Query[set[UUID]]:
        return self._query("expire", first_set, queue=queue, limit=limit)

    def strays(self, queue: str, worker: UUID) -> Query[list[tuple[UUID, int]]]:
        return self._query("strays", lambda rows: [(r[0], r[1]) for r in rows], queue=queue, worker=worker)
