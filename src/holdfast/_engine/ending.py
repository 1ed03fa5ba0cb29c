"""How an attempt ended, until that is recorded: what is written about it, and what a row says of it afterwards."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from holdfast._engine.attempt import Attempt
from holdfast._model.outcome import Advanced, Cancelled, Failed, Finished, Outcome, Released, Retried, Snoozed
from holdfast._model.tasks import Tasks
from holdfast._sql.queries import Fence, Queries
from holdfast._sql.query import Query

LARGEST_FLUSH = 1000
LARGEST_BYTES = 8 * 1024 * 1024

Times: TypeAlias = dict[UUID, float | None]
"""The ids that were written, and when a kept one began anew."""

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Ending:
    """An attempt and how it ended, until that is recorded. `kept`: it goes on here; `sent`: when it was written."""

    attempt: Attempt
    outcome: Outcome
    kept: bool = False
    sent: float = 0.0


Group: TypeAlias = tuple[str, UUID, str, list[Ending]]
"""Queue, worker, statement, and what it is to write."""


def write(queries: Queries, tasks: Tasks, lease: timedelta, group: Group) -> Query[Times]:
    """The statement that records a group."""
    queue, worker, statement, endings = group
    values = {str(e.attempt.id): _values(tasks, e) for e in endings}
    ids, outcomes = "{" + ",".join(values) + "}", _encode(values)
    match statement:
        case "finish":
            return queries.finish(queue, worker, ids, outcomes)
        case "keep" | "advance":
            keep = statement == "keep"
            return queries.advance(queue, worker, ids, outcomes, keep=keep, lease=lease)
        case "cancel":
            return queries.cancel(queue, worker, ids, outcomes)
        case _:
            return queries.stay(queue, worker, ids, outcomes)


def _values(tasks: Tasks, ending: Ending) -> dict[str, Any]:
    """What a statement needs to know about one ending."""
    attempt = ending.attempt
    values: dict[str, Any] = {"attempt": attempt.number}
    match ending.outcome:
        case Finished(result=result):
            if result is not None:
                values["result"] = msgspec.Raw(result)
        case Advanced(step=step, args=args, delay=delay, at=at):
            values |= {
                "step": step,
                "args": msgspec.Raw(args),
                "at": at,
                "delay": delay or None,
                "old_step": attempt.step,
                "old_args": msgspec.Raw(attempt.args),
                "claimed_at": attempt.claimed_at,
                "max_crashes": tasks._steps[attempt.kind, step].max_crashes,
            }
        case Retried(error=error, delay=delay):
            values |= {"outcome": "retried", "error": msgspec.Raw(error), "errors": 1, "delay": delay}
        case Failed(error=error, charged=charged):
            values |= {"outcome": "failed", "error": msgspec.Raw(error), "errors": int(charged)}
        case Snoozed(delay=delay, at=at):
            values |= {"outcome": "snoozed", "at": at, "delay": delay}
        case Released(delay=delay):
            values |= {"outcome": "released", "delay": delay or None}
        case Cancelled(reason=reason):
            values["reason"] = reason
    return values


def continued(ending: Ending, tasks: Tasks, claimed_at: float) -> Attempt:
    """The attempt that follows a kept move."""
    assert isinstance(ending.outcome, Advanced)  # noqa: S101 - only moves are kept
    step = ending.outcome.step
    # The lease began when the move was written, which may be a while ago if its answer was lost.
    return ending.attempt.next(ending.outcome, tasks._steps[ending.attempt.kind, step], claimed_at, ending.sent)


def affordable(endings: list[Ending]) -> int:
    """How many of these one flush takes: bounded by number and by bytes, or a large one would never come through."""
    size = 0
    for count, ending in enumerate(endings[:LARGEST_FLUSH]):
        match ending.outcome:
            case Finished(result=bytes() as json) | Advanced(args=json) | Retried(error=json) | Failed(error=json):
                size += len(json)
        if size > LARGEST_BYTES:
            return max(1, count)
    return LARGEST_FLUSH


def intact(ending: Ending, fence: Fence) -> bool:
    """Whether the row still waits for the end of this attempt."""
    attempt = ending.attempt
    return (fence.worker_id, fence.attempt) == (attempt.worker_id, attempt.number)


def moved_on(ending: Ending, fence: Fence) -> bool:
    """Whether the row is where a kept move would have brought it: only this worker can have done that."""
    attempt = ending.attempt
    return ending.kept and (fence.worker_id, fence.attempt, fence.moves) == (
        attempt.worker_id,
        attempt.number + 1,
        attempt.moves + 1,
    )


def by_queue(endings: list[Ending]) -> list[tuple[str, list[Ending]]]:
    queues: dict[str, list[Ending]] = {}
    for ending in endings:
        queues.setdefault(ending.attempt.queue, []).append(ending)
    return list(queues.items())
