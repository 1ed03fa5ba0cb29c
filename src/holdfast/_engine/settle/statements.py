"""What is written about attempts that ended: endings sorted into statements, and their values as JSON."""

from datetime import timedelta
from operator import itemgetter
from typing import Any, NamedTuple, assert_never
from uuid import UUID

import msgspec

from holdfast._engine.settle.continuation import Keeper
from holdfast._engine.settle.ending import Ending, Times, with_details
from holdfast._model.declare.tasks import Tasks
from holdfast._model.run.outcome import Advanced, Cancelled, Failed, Finished, Released, Retried, Snoozed
from holdfast._sql.queries import Queries
from holdfast._sql.queries.base import Ids
from holdfast._sql.query import Query

_encode = msgspec.json.Encoder().encode


class StatementGroup(NamedTuple):
    """What one statement is to write; `more`: the endings of which more is told than that they are done."""

    queue: str
    worker: UUID
    statement: str
    endings: list[Ending]
    more: list[Ending]


def groups(batch: list[Ending], more: list[Ending], keeper: Keeper) -> list[StatementGroup]:
    """The batch by queue, worker and statement; moves are kept here or not."""
    queue, worker = batch[0].attempt.queue, batch[0].attempt.worker_id
    if not more and not [e for e in batch if e.attempt.worker_id is not worker or e.attempt.queue is not queue]:
        return [StatementGroup(queue, worker, "finish", batch, more)]
    found: dict[tuple[str, UUID, str], list[Ending]] = {}
    for ending in batch:
        key = ending.attempt.queue, ending.attempt.worker_id, _statement(ending, keeper)
        found.setdefault(key, []).append(ending)
    # In one order, so that two workers never wait for each other.
    return [
        StatementGroup(*key, endings, with_details(endings))
        for key, endings in sorted(found.items(), key=itemgetter(0))
    ]


def _statement(ending: Ending, keeper: Keeper) -> str:
    if isinstance(ending.outcome, Advanced):
        keeper.decide(ending, now_due=not ending.outcome.delay and ending.outcome.at is None)
        if ending.kept:
            return "keep"
    return ending.outcome.statement


def write(
    queries: Queries, tasks: Tasks, lease: timedelta, group: StatementGroup, *, together: bool = False
) -> Query[Times]:
    """The statement that records a group.

    `together` with others, what its steps enqueued comes along, and of those that are only done nothing comes back but
    how many were written.
    """
    queue, worker, statement, endings, more = group
    ids = Ids(sorted([ending.attempt.raw_id for ending in endings]))  # in one order, as above
    children = _children(more) if together else None
    if statement == "finish":
        numbers = {e.attempt.number for e in endings}
        attempt = numbers.pop() if len(numbers) == 1 else None
        told = endings if attempt is None else more
        known = _encode({str(e.attempt.id): _values(tasks, e) for e in told}) if told else None
        counted = together and children is None
        return queries.finish(queue, worker, ids, known, attempt=attempt, children=children, counted=counted)
    outcomes = _encode({str(e.attempt.id): _values(tasks, e) for e in endings})
    match statement:
        case "keep" | "advance":
            keep = statement == "keep"
            return queries.advance(queue, worker, ids, outcomes, keep=keep, lease=lease, children=children)
        case "cancel":
            return queries.cancel(queue, worker, ids, outcomes)
        case _:
            return queries.stay(queue, worker, ids, outcomes)


def _values(tasks: Tasks, ending: Ending) -> dict[str, Any]:
    """What a statement needs to know about one ending."""
    attempt = ending.attempt
    values: dict[str, Any] = {"attempt": attempt.number}
    if not isinstance(ending.outcome, (Finished, Cancelled)):
        values["run_at"] = attempt.run_at  # these two take the whole row along, and that knows it
    if attempt.told is not None and attempt.told.report:
        values["report"] = attempt.told.report
    outcome = ending.outcome
    match outcome:
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
                "max_crashes": tasks._steps[attempt.definition.kind, step].max_crashes,
            }
            if attempt.kind != attempt.definition.kind:
                # A row under an old name: its next args are those of the new one.
                values |= {"kind": attempt.definition.kind, "old_kind": attempt.kind}
        case Retried(error=error, delay=delay):
            values |= {
                "outcome": outcome.word,
                "error": msgspec.Raw(error),
                "errors": outcome.charge,
                "delay": delay,
            }
        case Failed(error=error):
            values |= {"outcome": outcome.word, "error": msgspec.Raw(error), "errors": outcome.charge}
        case Snoozed(delay=delay, at=at):
            values |= {"outcome": outcome.word, "at": at, "delay": delay}
        case Released(delay=delay, untouched=untouched):
            values |= {"outcome": None if untouched else outcome.word, "delay": delay or None}
        case Cancelled(reason=reason):
            values["reason"] = reason
        case _:
            assert_never(outcome)
    return values


def _children(endings: list[Ending]) -> bytes | None:
    """The tasks that steps enqueued, each with the parent it depends on; None if there are none."""
    made = [
        {
            "parent": ending.attempt.id,
            "id": child.id,
            "queue": child.queue,
            "kind": child.kind,
            "step": child.step,
            "args": msgspec.Raw(child.args),
            "priority": child.priority,
            "at": child.at,
            "delay": child.delay.total_seconds(),
            "expires_at": child.expires_at,
            "expires_in": None if child.expires_in is None else child.expires_in.total_seconds(),
            "headers": None if child.headers is None else msgspec.Raw(child.headers),
        }
        for ending in endings
        for child in ending.children
    ]
    return _encode(made) if made else None
