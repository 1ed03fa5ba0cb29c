"""What a row of the database is in Python: tasks, attempts, changes, workers, kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.enqueue.ref import Progress, TaskInfo
from holdfast._model.read.infos import KindInfo
from holdfast._sql.query import Row


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

    `live`: it reported within the length of its lease. `condition` says how it is: running, stopping, stopped or lost.
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


def task_in(row: Row) -> TaskInfo:
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
        args=json_in(args),
        error=json_in(error),
        key=key,
        headers=object_in(headers),
        created_at=created_at,
        finished_at=finished_at,
        result=json_in(result),
        deadline=deadline,
        progress=None if fraction is None else Progress(fraction, note),
        report=object_in(report),
    )


def attempt_in(row: Row) -> AttemptInfo:
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
        json_in(error),
        json_in(args),
        json_in(report) or {},
        None if fraction is None else Progress(fraction, note),
    )


def change_in(row: Row) -> ChangeInfo:
    action, by, why, old, new, at = row
    return ChangeInfo(action, by, why, json_in(old), json_in(new), at)


def worker_in(row: Row) -> WorkerInfo:
    told = list(row)
    told[6], told[-2] = json_in(row[6]), json_in(row[-2])  # limits, loops
    return WorkerInfo(*told)


def kind_in(row: Row) -> KindInfo:
    name, queue, priority, paused_at, paused_by, graph, workers, seen_at, about, alike, first = row
    return KindInfo(
        name,
        queue,
        priority,
        paused_at,
        paused_by,
        json_in(graph),
        workers,
        seen_at,
        json_in(about),
        json_in(alike) or {},
        first,
    )


def json_in(text: bytes | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        # Written by SQL: too deep, or with numbers beyond all bounds. Shown as it is.
        return {"unreadable": text[:1000].decode("utf-8", "replace")}


def object_in(text: bytes | None) -> dict[str, Any]:
    """An object; what SQL has written in its place, a list or a number, is shown under a name that says so."""
    found = json_in(text)
    if found is None or isinstance(found, dict):
        return found or {}
    return {"not an object": found}
