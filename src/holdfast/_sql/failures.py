"""Failures in the log of attempts: those that parked their task."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast._model.enqueue.ref import Failure, TaskInfo
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row

NOBODY = UUID(int=0)


class Place(NamedTuple):
    """Where a failure is in the log; they are in this order."""

    at: datetime
    id: UUID
    attempt: int


def beginning(at: datetime) -> Place:
    """Before everything that happened at a time."""
    return Place(at, NOBODY, -1)


def places(queries: Queries, after: Place, limit: int) -> Query[list[Place]]:
    """The failures behind a place, in their order. Only an index is read."""
    return queries.failure_places(after.at, after.id, after.attempt, limit).into(
        lambda rows: [Place(*row) for row in rows]
    )


def failures(queries: Queries, wanted: Sequence[Place]) -> Query[list[Failure]]:
    """The failures at these places, in their order; one whose day was dropped meanwhile is left out."""
    times = [place.at for place in wanted]
    ids = [place.id for place in wanted]

    def read(rows: Sequence[Row]) -> list[Failure]:
        found = {(row[0], row[6]): row for row in rows}
        return [_failure(found[at.id, at.attempt]) for at in wanted if (at.id, at.attempt) in found]

    return queries.failures(ids, min(times), max(times)).into(read)


def _failure(row: Row) -> Failure:
    (
        id,
        queue,
        kind,
        step,
        args,
        moves,
        attempt,
        claimed_at,
        at,
        error,
        report,
        priority,
        errors,
        crashes,
        key,
        headers,
        created_at,
    ) = row
    return Failure(
        at=at,
        task=TaskInfo(
            id=id,
            queue=queue,
            kind=kind,
            step=step,
            state="parked",
            phase="parked",
            args=_json(args),
            priority=priority or 0,
            attempt=attempt,
            moves=moves,
            errors=errors or 0,
            crashes=crashes or 0,
            created_at=created_at,
            claimed_at=claimed_at,
            error=_json(error),
            key=key,
            headers=_json(headers) or {},
            report=_json(report) or {},
        ),
    )


def _json(text: bytes | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
