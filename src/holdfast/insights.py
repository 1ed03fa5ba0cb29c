"""What people ask about tasks: the one read API behind references, CLI and dashboard."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.duration import Duration, seconds
from holdfast._model.figures import By as By
from holdfast._model.figures import Figure as Figure
from holdfast._model.figures import Figures as Figures
from holdfast._model.figures import Point as Point
from holdfast._model.figures import Spread as Spread
from holdfast._model.filter import EVERYTHING, Filter
from holdfast._model.names import made_at
from holdfast._model.overview import COUNTED
from holdfast._model.overview import FailureInfo as FailureInfo
from holdfast._model.overview import Gauges as Gauges
from holdfast._model.overview import KindInfo as KindInfo
from holdfast._model.overview import ParkedGroup as ParkedGroup
from holdfast._model.overview import QueueInfo as QueueInfo
from holdfast._model.overview import RunningInfo as RunningInfo
from holdfast._model.overview import Standing as Standing
from holdfast._model.overview import Unfinished as Unfinished
from holdfast._model.reference import Progress, Ref, TaskInfo
from holdfast._sql import figures as counted
from holdfast._sql.filters import filtered
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row
from holdfast.errors import (
    NoResult,
    ResultTimeout,
    TaskCancelled,
    TaskDiscarded,
    TaskExpired,
    TaskNotFound,
    TaskParked,
)

_LOOK_AGAIN = (0.02, 0.05, 0.1, 0.2, 0.5)
_ENDS: dict[str, type[NoResult]] = {
    "parked": TaskParked,
    "cancelled": TaskCancelled,
    "expired": TaskExpired,
    "discarded": TaskDiscarded,
}


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One attempt of the log; the running one has no outcome yet."""

    task_id: UUID
    queue: str
    kind: str
    step: str
    moves: int
    attempt: int
    worker_id: UUID | None
    claimed_at: datetime | None
    finished_at: datetime | None
    outcome: str | None
    error: Mapping[str, Any] | None
    args: Any
    report: Mapping[str, Any]
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """A repair or operator action."""

    action: str
    by: str
    why: str | None
    old: Any
    new: Any
    at: datetime


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as it last reported, and how many tasks are leased to it now.

    `live`: it reported within the last minute. `condition` says how it is: running, stopping, stopped or lost.
    """

    id: UUID
    name: str
    host: str
    pid: int
    version: str
    queues: list[str]
    limits: Mapping[str, int]
    steps: list[str]
    only: list[str]
    slots: int
    idle: bool
    stuck: int
    started_at: datetime
    seen_at: datetime
    stop_requested_at: datetime | None
    stopping_at: datetime | None
    stopped_at: datetime | None
    running: int
    live: bool
    condition: str
    loops: Mapping[str, float] = field(default_factory=dict)
    """How long before its last report each of its loops had succeeded, in seconds."""
    late: Sequence[str] = ()
    """The loops that had not succeeded for too long by then."""


def task(queries: Queries, id: UUID) -> Query[TaskInfo | None]:
    """One task, live or archived."""
    query = queries.read("task_info", id=id)
    return Query(query.statement, query.parameters, lambda rows: _task(rows[0]) if rows else None)


def ended(queries: Queries, ids: Sequence[UUID]) -> Plan[dict[UUID, TaskInfo]]:
    """Those of these tasks that have ended or are parked. Unfinished ones are looked for first, or one that ends in
    between would be missed."""
    going_on = {row[0] for row in (yield queries.read("going_on", ids=list(ids)))}
    found: dict[UUID, TaskInfo] = {}
    times = [made_at(id) for id in ids]
    since = [None] if None in times else [min(time for time in times if time is not None), None]
    for made in since:
        # Hardly anything is left to be looked for in all the days: what is not committed yet.
        left = [id for id in ids if id not in going_on and id not in found]
        if left:
            found |= {row[0]: _task(row) for row in (yield queries.read("ended", ids=left, made=made))}
    return found


def tasks(
    queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50, below: UUID | None = None
) -> Query[list[TaskInfo]]:
    """Tasks that a filter lets through, the newest first; the next page begins `below` the last id."""
    return filtered(queries, "list_tasks", filter, lambda rows: [_task(row) for row in rows], limit=limit, below=below)


def count(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 10_000) -> Query[int]:
    """How many tasks a filter lets through. One more than `limit` means: more than that."""
    return filtered(queries, "count_tasks", filter, lambda rows: int(rows[0][0]), limit=limit + 1)


def attempts(queries: Queries, id: UUID, *, limit: int | None = None) -> Query[list[AttemptInfo]]:
    """The attempts of one task, in order; with a limit, the last ones."""
    query = queries.read("task_attempts", id=id, limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [_attempt(row) for row in rows])


def forgotten(task: TaskInfo, found: Sequence[AttemptInfo]) -> int:
    """How many of the first attempts of a task are no longer in the log: they ended longer ago than history is kept."""
    return found[0].attempt - 1 if found else task.attempt


def changes(queries: Queries, id: UUID) -> Query[list[ChangeInfo]]:
    """The repairs and operator actions on one task, in order."""
    query = queries.read("task_changes", id=id)
    return Query(query.statement, query.parameters, lambda rows: [_change(row) for row in rows])


def workers(queries: Queries, *, limit: int = 100) -> Query[list[WorkerInfo]]:
    """Workers, the newest first."""
    query = queries.read("workers", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [_worker(row) for row in rows])


def running(queries: Queries, *, limit: int = 50) -> Query[list[RunningInfo]]:
    """What is being executed, the longest first."""
    query = queries.read("running", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [RunningInfo(*row) for row in rows])


def recent_failures(queries: Queries, *, limit: int = 50) -> Query[list[FailureInfo]]:
    """What was parked in the last day, the latest first."""
    query = queries.read("recent_failures", limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [FailureInfo(*row) for row in rows])


def gauges(queries: Queries) -> Query[Gauges]:
    """What a monitor wants to know of the database, beside `queues`."""
    query = queries.read("gauges")
    return Query(query.statement, query.parameters, lambda rows: Gauges(*rows[0]))


def explain(queries: Queries, id: UUID) -> Query[str]:
    """Why a task is not running, or how it stands, in one sentence; also if there is no such task."""
    query = queries.read("explain", id=id)
    return Query(query.statement, query.parameters, lambda rows: str(rows[0][0]))


def parked_groups(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50) -> Query[list[ParkedGroup]]:
    """The parked tasks that a filter lets through, grouped by kind, step and type of error; large groups first."""
    return filtered(queries, "parked_groups", filter, lambda rows: [ParkedGroup(*row) for row in rows], limit=limit)


def group_filter(chosen: Filter, group: ParkedGroup) -> Filter:
    """The filter that a group of parked tasks is described by."""
    made = chosen if chosen.names("state") else chosen.with_term("state", "parked")
    made = made.with_term("kind", group.kind).with_term("step", group.step)
    return made.with_term("error", group.error_type) if group.error_type else made


def queues(queries: Queries) -> Query[list[QueueInfo]]:
    """All queues by name. Stays fast with any number of tasks."""
    query = queries.read("queues", counted=COUNTED + 1)
    return Query(query.statement, query.parameters, lambda rows: [QueueInfo(*row) for row in rows])


def kinds(queries: Queries) -> Query[list[KindInfo]]:
    """All kinds that workers have declared, by name."""
    query = queries.read("kinds")
    return Query(query.statement, query.parameters, lambda rows: [_kind(row) for row in rows])


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


def unfinished(queries: Queries, *, above: UUID | None = None, limit: int = 1000) -> Query[list[Unfinished]]:
    """Unfinished tasks, the smallest id first; the next page begins `above` the last id."""
    query = queries.read("unfinished", above=above, limit=limit)
    return Query(query.statement, query.parameters, lambda rows: [Unfinished(*row) for row in rows])


def outcome_of(info: TaskInfo, ref: Ref[Any]) -> tuple[Any] | None:
    """The result of a task that has ended, in a tuple; None if it goes on; raises if it has none to give."""
    if info.state == "done":
        decode = ref._decode_result
        raw = msgspec.json.encode(info.result)
        return (decode(raw) if decode is not None and info.result is not None else info.result,)
    if info.phase == "expired" and info.state != "expired":
        raise TaskExpired(
            f"task {info.id} ({info.kind}.{info.step}) is expired: it was not started before its "
            f"deadline, {info.deadline}"
        )
    if info.state in _ENDS:
        error = info.error or {}
        said = f": {error.get('type')}: {error.get('message')}" if error else ""
        told = f"holdfast retry {info.id}" in said
        advice = f". Repair the cause, then: holdfast retry {info.id}" if info.state == "parked" and not told else ""
        raise _ENDS[info.state](f"task {info.id} ({info.kind}.{info.step}) is {info.state}{said}{advice}")
    return None


def result_of(info: TaskInfo, ref: Ref[Any]) -> Any:
    """The result of a task that has ended; raises if it has none to give."""
    ended = outcome_of(info, ref)
    return ended[0] if ended is not None else None


def result_or_too_late(ref: Ref[Any], limit: float | None, last: Sequence[TaskInfo | None]) -> Any:
    """What a last look found when the time was up: the result after all, or why there is none."""
    for found in last:
        if found is not None and (ended := outcome_of(found, ref)) is not None:
            return ended[0]
    raise too_late(ref.id, limit, last)


def not_found(id: object) -> TaskNotFound:
    """Nobody knows this task, live or archived."""
    return TaskNotFound(f"there is no task {id} in this database. Is it the right database, and the right schema?")


def too_late(id: UUID, limit: float | None, looks: Sequence[TaskInfo | None]) -> ResultTimeout:
    """Why a result was waited for in vain: how the task stood at the last look."""
    within = "" if limit is None else f" within {limit:g} s"
    if not looks:
        return ResultTimeout(f"task {id} was not finished{within}: there was no time to ask for it")
    found = looks[-1]
    if found is None:
        return ResultTimeout(
            f"task {id} was not finished{within}: there is no such task so far. "
            "If it was enqueued in a transaction, is that committed?"
        )
    known = f"{found.kind}.{found.step} is {found.phase}"
    if found.phase == "unroutable":
        known += f", no live worker knows this step and serves the queue {found.queue}"
    return ResultTimeout(f"task {id} was not finished{within}: {known}. More is told by: holdfast show {id}")


def patiently() -> Iterator[float]:
    yield from _LOOK_AGAIN
    while True:
        yield _LOOK_AGAIN[-1]


def options_bag(**options: Any) -> bytes:
    """The options of an SQL verb: those that were given."""
    return msgspec.json.encode({name: value for name, value in options.items() if value is not None})


def _task(row: Row) -> TaskInfo:
    (
        id,
        queue,
        kind,
        step,
        state,
        phase,
        priority,
        run_at,
        moves,
        attempt,
        errors,
        crashes,
        worker_id,
        claimed_at,
        lease_expires_at,
        args,
        error,
        key,
        headers,
        created_at,
        finished_at,
        result,
        deadline,
        *told,
    ) = row
    report, fraction, note = told or (None, None, "")
    return TaskInfo(
        id=id,
        queue=queue,
        kind=kind,
        step=step,
        state=state,
        phase=phase,
        priority=priority,
        run_at=run_at,
        moves=moves,
        attempt=attempt,
        errors=errors,
        crashes=crashes,
        worker_id=worker_id,
        claimed_at=claimed_at,
        lease_expires_at=lease_expires_at,
        args=_json(args),
        error=_json(error),
        key=key,
        headers=_json(headers) or {},
        created_at=created_at,
        finished_at=finished_at,
        result=_json(result),
        deadline=deadline,
        progress=None if fraction is None else Progress(fraction, note),
        report=_json(report) or {},
    )


def _attempt(row: Row) -> AttemptInfo:
    *said, report, fraction, note = row
    task_id, queue, kind, step, moves, attempt, worker_id, claimed_at, finished_at, outcome, error, args = said
    return AttemptInfo(
        task_id,
        queue,
        kind,
        step,
        moves,
        attempt,
        worker_id,
        claimed_at,
        finished_at,
        outcome,
        _json(error),
        _json(args),
        _json(report) or {},
        None if fraction is None else Progress(fraction, note),
    )


def _change(row: Row) -> ChangeInfo:
    action, by, why, old, new, at = row
    return ChangeInfo(action, by, why, _json(old), _json(new), at)


def _worker(row: Row) -> WorkerInfo:
    told = list(row)
    told[6], told[-2] = _json(row[6]), _json(row[-2])  # limits, loops
    return WorkerInfo(*told)


def _kind(row: Row) -> KindInfo:
    name, queue, priority, paused_at, paused_by, graph, workers, seen_at, about, alike, first = row
    return KindInfo(
        name,
        queue,
        priority,
        paused_at,
        paused_by,
        _json(graph),
        workers,
        seen_at,
        _json(about),
        _json(alike) or {},
        first,
    )


def _json(text: bytes | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # Written by SQL: too deep, or with numbers beyond all bounds. Shown as it is.
        return {"unreadable": text[:1000].decode("utf-8", "replace")}
