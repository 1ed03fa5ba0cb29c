"""What people ask about all tasks at once: queues, kinds, workers, what is parked, figures."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from holdfast._model.read.figures import By, Figures
from holdfast._model.read.infos import (
    COUNTED,
    AtLeast,
    FailureInfo,
    Gauges,
    KindInfo,
    QueueInfo,
    RunningInfo,
    Standing,
)
from holdfast._model.time.duration import Duration, seconds
from holdfast._sql import figures as counted
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row
from holdfast.insights.rows import WorkerInfo, kind_in, worker_in

_KNOWN = 200
"""Due tasks of each queue and priority that are looked at: does a worker know their steps?"""
_STANDING = 5_000
"""Ready tasks that are looked at to say at which steps they stand."""
_PARKED = 10 * (COUNTED + 1)
"""Parked tasks that are counted, which an index has: each of up to ten steps is counted as far as a queue."""


def workers(queries: Queries, *, limit: int = 100) -> Query[list[WorkerInfo]]:
    """Workers, the newest first."""
    return queries.workers(limit).into(lambda rows: [worker_in(row) for row in rows])


def running(queries: Queries, *, limit: int = 50) -> Query[list[RunningInfo]]:
    """What is being executed, the longest first."""
    return queries.running(limit).into(lambda rows: [RunningInfo(*row) for row in rows])


def in_hand(queries: Queries, workers: Sequence[UUID], *, limit: int = 5) -> Query[dict[UUID, list[RunningInfo]]]:
    """What each of these workers executes, the longest first, no more of each than `limit`."""

    def by_worker(rows: Sequence[Row]) -> dict[UUID, list[RunningInfo]]:
        found: dict[UUID, list[RunningInfo]] = {}
        for each in (RunningInfo(*row) for row in rows):
            found.setdefault(each.worker_id, []).append(each)
        return found

    return queries.in_hand(workers, limit).into(by_worker)


def recent_failures(queries: Queries, *, limit: int = 50) -> Query[list[FailureInfo]]:
    """What was parked in the last day, the latest first."""
    return queries.recent_failures(limit).into(lambda rows: [FailureInfo(*row) for row in rows])


def gauges(queries: Queries) -> Query[Gauges]:
    """What a monitor wants to know of the database, beside `queues`."""
    return queries.gauges().into(lambda row: Gauges(*row))


def queues(queries: Queries) -> Query[list[QueueInfo]]:
    """All queues by name. Stays fast with any number of tasks."""

    def read(rows: Sequence[Row]) -> list[QueueInfo]:
        found = [(QueueInfo(*row[:-1]), row[-1]) for row in rows]
        return [replace(q, unroutable=AtLeast(q.unroutable)) if cut and q.unroutable else q for q, cut in found]

    return queries.queues(counted=COUNTED + 1, looked=_KNOWN).into(read)


def kinds(queries: Queries) -> Query[list[KindInfo]]:
    """All kinds that workers have declared, by name."""
    return queries.kinds().into(lambda rows: [kind_in(row) for row in rows])


def known_steps(queries: Queries, kind: str) -> Query[list[str]]:
    """The steps of a kind that were declared, or that a live worker knows; the kind by its name or an old one."""
    return queries.known_steps(kind)


def standing_now(queries: Queries, kind: str | None = None) -> Query[tuple[list[Standing], bool]]:
    """How many unfinished tasks stand at which step and in which state, of one kind or of all; and whether that is all.

    Stays fast with any number of tasks: of very many ready ones, those due first and those that come next are counted.
    """

    def read(rows: Sequence[Row]) -> tuple[list[Standing], bool]:
        found = [
            Standing(kind, step, state, AtLeast(count) if is_cut else count)
            for kind, step, state, count, is_cut, _ in rows
            if kind is not None
        ]
        return found, not any(row[5] for row in rows)

    return queries.standing_now(kind, counted=COUNTED + 1, looked=_STANDING, parked=_PARKED).into(read)


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
