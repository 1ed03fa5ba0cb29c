"""What people ask about some tasks: one, a list of them, their attempts and changes."""

from collections.abc import Sequence
from uuid import UUID

from holdfast._model.enqueue.ids import made_at
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.filter import EVERYTHING, Filter
from holdfast._model.read.infos import Unfinished
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.insights.rows import AttemptInfo, ChangeInfo, attempt_in, change_in, task_in


def task(queries: Queries, id: UUID) -> Query[TaskInfo | None]:
    """One task, live or archived."""
    return queries.task_info(id).into(lambda rows: task_in(rows[0]) if rows else None)


def ended(queries: Queries, ids: Sequence[UUID]) -> Plan[dict[UUID, TaskInfo]]:
    """Those of these tasks that have ended or are parked. Unfinished ones are looked for first, or one that ends in
    between would be missed."""
    going_on: set[UUID] = yield queries.going_on(ids)
    found: dict[UUID, TaskInfo] = {}
    times = [made_at(id) for id in ids]
    since = [None] if None in times else [min(time for time in times if time is not None), None]
    for made in since:
        # Hardly anything is left to be looked for in all the days: what is not committed yet.
        left = [id for id in ids if id not in going_on and id not in found]
        if left:
            found |= {row[0]: task_in(row) for row in (yield queries.ended(left, made))}
    return found


def tasks(
    queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50, below: UUID | None = None
) -> Query[list[TaskInfo]]:
    """Tasks that a filter lets through, the newest first; the next page begins `below` the last id."""
    return queries.list_tasks(filter, limit=limit, below=below).into(lambda rows: [task_in(row) for row in rows])


def count(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 10_000) -> Query[int]:
    """How many tasks a filter lets through. One more than `limit` means: more than that."""
    return queries.count_tasks(filter, limit=limit + 1)


def attempts(queries: Queries, id: UUID, *, limit: int | None = None) -> Query[list[AttemptInfo]]:
    """The attempts of one task, in order; with a limit, the last ones."""
    return queries.task_attempts(id, limit).into(lambda rows: [attempt_in(row) for row in rows])


def forgotten(task: TaskInfo, found: Sequence[AttemptInfo]) -> int:
    """How many of the first attempts of a task are no longer in the log: they ended longer ago than history is kept."""
    return found[0].attempt - 1 if found else task.attempt


def changes(queries: Queries, id: UUID) -> Query[list[ChangeInfo]]:
    """The repairs and operator actions on one task, in order."""
    return queries.task_changes(id).into(lambda rows: [change_in(row) for row in rows])


def explain(queries: Queries, id: UUID) -> Query[str]:
    """Why a task is not running, or how it stands, in one sentence; also if there is no such task."""
    return queries.explain(id)


def unfinished(queries: Queries, *, above: UUID | None = None, limit: int = 1000) -> Query[list[Unfinished]]:
    """Unfinished tasks, the smallest id first; the next page begins `above` the last id."""
    return queries.unfinished(above, limit).into(lambda rows: [Unfinished(*row) for row in rows])
