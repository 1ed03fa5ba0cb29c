"""How tasks are claimed and how attempts end: the statements of `lifecycle.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from holdfast._sql.queries.base import Base, Ids, T, array, by_id, names, nothing, rows_of, text, times, value
from holdfast._sql.query import Query, Row, Statement, for_schema
from holdfast._sql.rows import Claimed, Fence, Obstacles, Recorded

NO_ID = UUID(int=0)
"""Comes before all ids."""

_NOT_LOCKED = """ARRAY(SELECT l.id FROM holdfast.task l WHERE l.queue = :queue::text AND l.id = ANY (:ids::uuid[])
    ORDER BY l.id FOR UPDATE SKIP LOCKED)"""


class LifecycleQueries(Base):
    """How tasks are claimed and how attempts end."""

    def __init__(self, schema: str = "holdfast") -> None:
        super().__init__(schema)
        self._skipping: dict[str, Statement] = {}

    def claim(
        self,
        queue: str,
        worker: UUID,
        *,
        limit: int,
        lease: timedelta,
        known: list[str],
        crash_limits: str,
        marks: Sequence[datetime] | None = None,
        mark_ids: Sequence[UUID] | None = None,
        suspects: int = 1,
        id: UUID | None = None,
    ) -> Query[list[Claimed]]:
        one_limit = not crash_limits.startswith("{")
        return self._query(
            "claim_one" if id is not None else "claim" if suspects else "claim_without_suspects",
            rows_of(Claimed),
            queue=queue,
            worker=worker,
            limit=limit,
            lease=lease,
            known=names(tuple(known)),
            crash_limit=crash_limits if one_limit else None,
            crash_limits=None if one_limit else crash_limits,
            marks=None if marks is None else times(tuple(marks)),
            mark_ids=None if mark_ids is None else array(mark_ids),
            suspects=suspects,
            id=id,
        )

    def next_due(self, queues: Sequence[str], since: float = 0.0) -> Query[tuple[float | None, bool]]:
        """`since`: what became due in so many seconds counts, too."""
        return self._query("next_due", lambda rows: (rows[0][0], rows[0][1]), queues=list(queues), since=since)

    def obstacles(self, queue: str, above: int, known: list[str]) -> Query[Obstacles]:
        return self._query(
            "obstacles", lambda rows: Obstacles._make(rows[0]), queue=queue, above=min(above, 9), known=known
        )

    def unclaimable(self, queue: str, known: list[str]) -> Query[tuple[int, datetime]]:
        return self._query("unclaimable", lambda rows: (rows[0][0], rows[0][1]), queue=queue, known=known)

    def due(self, queue: str, known: list[str]) -> Query[bool]:
        return self._query("due", value, queue=queue, known=known)

    def finish(
        self,
        queue: str,
        worker: UUID,
        ids: Sequence[UUID] | Ids,
        outcomes: bytes | None,
        *,
        attempt: int | None = None,
        children: bytes | None = None,
        counted: bool = False,
    ) -> Query[dict[UUID, float | None]]:
        """`counted`: the number of those that were written is enough; there are no children then."""
        return self._query(
            "finish_counted" if counted else "finish" if children is None else "finish_with_children",
            _only_ids,
            queue=queue,
            worker=worker,
            ids=array(ids),
            attempt=attempt,
            outcomes=text(outcomes),
            children=text(children),
        )

    def advance(
        self,
        queue: str,
        worker: UUID,
        ids: Sequence[UUID] | Ids,
        outcomes: bytes,
        *,
        keep: bool,
        lease: timedelta,
        children: bytes | None = None,
    ) -> Query[dict[UUID, float | None]]:
        return self._query(
            "advance" if children is None else "advance_with_children",
            by_id,
            queue=queue,
            worker=worker,
            ids=array(ids),
            outcomes=text(outcomes),
            keep=keep,
            lease=lease,
            children=text(children),
        )

    def stay(
        self, queue: str, worker: UUID, ids: Sequence[UUID] | Ids, outcomes: bytes
    ) -> Query[dict[UUID, float | None]]:
        return self._query("stay", by_id, queue=queue, worker=worker, ids=array(ids), outcomes=text(outcomes))

    def cancel(
        self, queue: str, worker: UUID, ids: Sequence[UUID] | Ids, outcomes: bytes
    ) -> Query[dict[UUID, float | None]]:
        return self._query("cancel", _only_ids, queue=queue, worker=worker, ids=array(ids), outcomes=text(outcomes))

    def skip_locked(self, query: Query[T]) -> Query[T]:
        """The same write, passing over rows that another transaction has locked."""
        name = query.statement.name
        if name not in self._skipping:
            self._skipping[name] = query.statement.filled(ids=for_schema(_NOT_LOCKED, self.schema))
        return Query(self._skipping[name], query.parameters, query.read)

    def has_written(self) -> Query[bool]:
        return self._query("has_written", value)

    def begin_to_write(self) -> Query[None]:
        return self._query("begin_to_write", nothing)

    def fences(self, queue: str, ids: Sequence[UUID] | Ids) -> Query[dict[UUID, Fence]]:
        return self._query("fences", lambda rows: {r[0]: Fence._make(r) for r in rows}, queue=queue, ids=array(ids))

    def recorded(self, ids: Sequence[UUID] | Ids) -> Query[list[Recorded]]:
        return self._query("recorded", rows_of(Recorded), ids=array(ids))


def _only_ids(rows: Sequence[Row]) -> dict[UUID, float | None]:
    return dict.fromkeys([row[0] for row in rows])
