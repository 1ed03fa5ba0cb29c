"""What people ask about all tasks at once: queues, kinds, workers, what is parked, figures."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from holdfast._model.duration import Duration, seconds
from holdfast._model.figures import By, Figures
from holdfast._model.filter import EVERYTHING, Filter
from holdfast._model.overview import (
    COUNTED,
    FailureInfo,
    Gauges,
    KindInfo,
    ParkedGroup,
    QueueInfo,
    RunningInfo,
    Standing,
)
from holdfast._sql import figures as counted
from holdfast._sql.filters import filtered
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row
from holdfast.insights.rows import WorkerInfo, kind_in, worker_in


def workers(queries: Queries, *, limit: int = 100) -> Query[list[WorkerInfo]]:
    """Workers, the newest first."""
    query = queries.read("workers", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [worker_in(row) for row in rows])


def running(queries: Queries, *, limit: int = 50) -> Query[list[RunningInfo]]:
    """What is being executed, the longest first."""
    query = queries.read("running", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [RunningInfo(*row) for row in rows])


def in_hand(queries: Queries, workers: Sequence[UUID], *, limit: int = 5) -> Query[dict[UUID, list[RunningInfo]]]:
    """What each of these workers executes, the longest first, no more of each than `limit`."""
    query = queries.read("in_hand", workers=list(workers), limit=limit)

    def by_worker(rows: Sequence[Row]) -> dict[UUID, list[RunningInfo]]:
        found: dict[UUID, list[RunningInfo]] = {}
        for each in (RunningInfo(*row) for row in rows):
            found.setdefault(each.worker_id, []).append(each)
        return found

    return Query(query.statement, query.parameters, by_worker)


def recent_failures(queries: Queries, *, limit: int = 50) -> Query[list[FailureInfo]]:
    """What was parked in the last day, the latest first."""
    query = queries.read("recent_failures", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [FailureInfo(*row) for row in rows])


def gauges(queries: Queries) -> Query[Gauges]:
    """What a monitor wants to know of the database, beside `queues`."""
    query = queries.read("gauges")
    return Query(query.statement, query.parameters, lambda rows: Gauges(*rows[0]))


def parked_groups(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50) -> Query[list[ParkedGroup]]:
    """The parked tasks that a filter lets through, grouped by kind, step, type and place of the error; large groups
    first."""
    return filtered(queries, "parked_groups", filter, lambda rows: [ParkedGroup(*row) for row in rows], limit=limit)


def group_filter(chosen: Filter, group: ParkedGroup) -> Filter:
    """The filter that lets through this group of parked tasks, and no other."""
    made = chosen if chosen.names("state") else chosen.with_term("state", "parked")
    made = made.with_term("kind", group.kind).with_term("step", group.step)
    return made.with_term("error_type", group.error_type or "null").with_term("place", group.place or "null")


def queues(queries: Queries) -> Query[list[QueueInfo]]:
    """All queues by name. Stays fast with any number of tasks."""
    query = queries.read("queues", counted=COUNTED + 1)
    return Query(query.statement, query.parameters, lambda rows: [QueueInfo(*row) for row in rows])


def kinds(queries: Queries) -> Query[list[KindInfo]]:
    """All kinds that workers have declared, by name."""
    query = queries.read("kinds")
    return Query(query.statement, query.parameters, lambda rows: [kind_in(row) for row in rows])


def standing(queries: Queries, kind: str | None = None) -> Query[list[Standing]]:
    """How many unfinished tasks stand at which step and in which state, of one kind or of all. Reads all of them."""
    query = queries.read("standing", kind=kind)
    return Query(query.statement, query.parameters, lambda rows: [Standing(*row) for row in rows])


def standing_now(queries: Queries, kind: str | None = None) -> Query[tuple[list[Standing], bool]]:
    """As `standing`, but fast with any number of tasks: no more than some are counted; and whether that was all."""
    query = queries.read("standing_now", kind=kind, counted=COUNTED + 1)
    return Query(
        query.statement,
        query.parameters,
        lambda rows: ([Standing(*row[:4]) for row in rows if row[0] is not None], not any(row[4] for row in rows)),
    )


def figures(
    queries: Queries,
    since: Duration = "1h",
    step: Duration | None = None,
    *,
    queue: str | None = None,
    kind: str | None = None,
    at_step: str | None = None,
    by: By | None = None,
) -> Query[Figures]:
    """What happened from `since` ago until now: throughput, errors, percentiles of waits and runs, in steps of time.

    Steps are whole minutes; beyond three days, whole hours. Without `step` there are about 60, beyond half a day
    of whole hours. `by` tells kinds, queues or steps (as `kind.Step`) apart. Stays fast with any
    history.
    """
    span = timedelta(seconds=max(60.0, seconds(since, "since")))
    each = counted.handy(span) if step is None else timedelta(seconds=seconds(step, "step"))
    return counted.read(queries, span, each, queue=queue, kind=kind, at_step=at_step, by=by)
