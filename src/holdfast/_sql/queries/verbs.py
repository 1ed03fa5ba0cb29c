"""The verbs of people: the statements of `verbs.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from holdfast._sql.queries.base import Base, Ids, array, by_id, text, value
from holdfast._sql.query import Query


class VerbQueries(Base):
    """The verbs of people."""

    def retry(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("retry", value, id=id, options=text(options))

    def cancel_task(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("cancel_task", value, id=id, options=text(options))

    def discard(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("discard", value, id=id, options=text(options))

    def again(self, id: UUID, options: bytes) -> Query[UUID]:
        return self._query("again", value, id=id, options=text(options))

    def retry_many(
        self,
        ids: Sequence[UUID] | Ids,
        seen: Sequence[str],
        options: bytes,
        *,
        first: datetime | None = None,
        spacing: timedelta | None = None,
    ) -> Query[dict[UUID, tuple[str, datetime | None]]]:
        return self._query(
            "retry_many",
            lambda rows: {row[0]: (row[1], row[2]) for row in rows},
            ids=array(ids),
            seen=list(seen),
            options=text(options),
            first=first,
            spacing=spacing,
        )

    def cancel_many(self, ids: Sequence[UUID] | Ids, options: bytes) -> Query[dict[UUID, str]]:
        return self._query("cancel_many", by_id, ids=array(ids), options=text(options))

    def discard_many(self, ids: Sequence[UUID] | Ids, options: bytes) -> Query[dict[UUID, str]]:
        return self._query("discard_many", by_id, ids=array(ids), options=text(options))

    def stop_workers(self, worker: UUID | None, options: bytes = b"{}") -> Query[int]:
        return self._query("stop_workers", value, worker=worker, options=text(options))

    def pause(self, name: str, options: bytes) -> Query[str]:
        return self._query("pause", value, name=name, options=text(options))

    def resume(self, name: str, options: bytes) -> Query[str]:
        return self._query("resume", value, name=name, options=text(options))
