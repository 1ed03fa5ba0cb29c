"""What people ask about tasks: the statements of `insights.sql`. `insights` makes more of most of their rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from holdfast._model.read.filter import Filter
from holdfast._sql.filter_sql import filtered
from holdfast._sql.queries.base import Base, by_id, first_set, nothing, value
from holdfast._sql.query import Query, Row


class InsightQueries(Base):
    """What people ask about tasks."""

    def only_look(self, within: timedelta) -> Query[None]:
        return self._query("only_look", nothing, within=within)

    def task_info(self, id: UUID) -> Query[list[Row]]:
        return self._query("task_info", list, id=id)

    def going_on(self, ids: Sequence[UUID]) -> Query[set[UUID]]:
        return self._query("going_on", first_set, ids=list(ids))

    def ended(self, ids: Sequence[UUID], made: datetime | None) -> Query[list[Row]]:
        return self._query("ended", list, ids=list(ids), made=made)

    def list_tasks(self, filter: Filter, *, limit: int, below: UUID | None = None) -> Query[list[Row]]:
        return filtered(self._query("list_tasks", list, limit=limit, below=below), filter, self.schema)

    def count_tasks(self, filter: Filter, *, limit: int) -> Query[int]:
        return filtered(self._query("count_tasks", value, limit=limit), filter, self.schema)

    def matching(self, filter: Filter, *, limit: int, above: UUID | None = None) -> Query[dict[UUID, str]]:
        return filtered(self._query("matching", by_id, limit=limit, above=above), filter, self.schema)

    def how_they_stand(self, ids: Sequence[UUID]) -> Query[list[Row]]:
        return self._query("how_they_stand", list, ids=list(ids))

    def task_attempts(self, id: UUID, limit: int | None = None) -> Query[list[Row]]:
        return self._query("task_attempts", list, id=id, limit=limit)

    def failure_places(self, at: datetime, id: UUID, attempt: int, limit: int) -> Query[list[Row]]:
        return self._query("failure_places", list, at=at, id=id, attempt=attempt, limit=limit)

    def failures(self, ids: Sequence[UUID], first: datetime, last: datetime) -> Query[list[Row]]:
        return self._query("failures", list, ids=list(ids), first=first, last=last)

    def running(self, limit: int) -> Query[list[Row]]:
        return self._query("running", list, limit=limit)

    def in_hand(self, workers: Sequence[UUID], limit: int) -> Query[list[Row]]:
        return self._query("in_hand", list, workers=list(workers), limit=limit)

    def recent_failures(self, limit: int) -> Query[list[Row]]:
        return self._query("recent_failures", list, limit=limit)

    def task_changes(self, id: UUID) -> Query[list[Row]]:
        return self._query("task_changes", list, id=id)

    def workers(self, limit: int) -> Query[list[Row]]:
        return self._query("workers", list, limit=limit)

    def explain(self, id: UUID) -> Query[str]:
        return self._query("explain", value, id=id)

    def gauges(self) -> Query[Row]:
        return self._query("gauges", lambda rows: rows[0])

    def queues(self, counted: int, looked: int) -> Query[list[Row]]:
        return self._query("queues", list, counted=counted, looked=looked)

    def kinds(self) -> Query[list[Row]]:
        return self._query("kinds", list)

    def known_steps(self, kind: str) -> Query[list[str]]:
        return self._query("known_steps", value, kind=kind)

    def standing_now(self, kind: str | None, *, counted: int, looked: int, parked: int) -> Query[list[Row]]:
        return self._query("standing_now", list, kind=kind, counted=counted, looked=looked, parked=parked)

    def unfinished(self, above: UUID | None, limit: int) -> Query[list[Row]]:
        return self._query("unfinished", list, above=above, limit=limit)
