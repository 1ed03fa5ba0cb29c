"""The statements of `demo.sql` as queries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import TypeVar
from uuid import UUID

from holdfast._sql.query import Query, Row, Statement, statement
from holdfast._sql.template import compose

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drained:
    """What one worker has done of a burst."""

    worker_id: UUID
    tasks: int
    began: datetime
    ended: datetime
    total: int


def lock_demo(schema: str) -> Query[bool]:
    """Whether no other demo uses this schema."""
    return _query("lock_demo", schema, lambda rows: bool(rows[0][0]), schema=schema)


def counts(schema: str, queue: str) -> Query[dict[str, int]]:
    """How many tasks of a queue are in which phase."""
    return _query("counts", schema, lambda rows: {row[0]: row[1] for row in rows}, queue=queue)


def drained(schema: str, kind: str, ids: Sequence[UUID]) -> Query[list[Drained]]:
    """How far the workers have come with the tasks enqueued together."""
    return _query(
        "drained",
        schema,
        lambda rows: [Drained(*row) for row in rows],
        kind=kind,
        first=min(ids),
        last=max(ids),
    )


def _query(name: str, schema: str, read: Callable[[Sequence[Row]], T], /, **values: object) -> Query[T]:
    found = _statements(schema)[name]
    return Query(found, tuple(values[each] for each in found.parameters), read)


@cache
def _statements(schema: str) -> dict[str, Statement]:
    text = resources.files("holdfast.cli.demo").joinpath("demo.sql").read_text("utf-8")
    [bodies] = compose([text])
    return {name: statement(name, body, schema) for name, body in bodies.items()}
