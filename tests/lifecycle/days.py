"""For the tests of history: passes of maintenance, and tasks that ended on a day."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.maintain.maintenance import Maintenance

from .support import NOW, Db

T = TypeVar("T")
DAY = timedelta(days=1)


def pass_of(db: Db, **options: Any) -> list[str]:
    """Passes of maintenance until nothing is left to do: what they did, but for the days before the test's own."""

    async def passes() -> list[str]:
        made = Maintenance(Link(db.url, db.queries, "holdfast maintain"), db.queries, **options)
        told: list[str] = []
        more = True
        while more:
            done, failures = await made.once()
            assert not failures, failures
            told, more = told + done.what, done.more
        return [each for each in told if "history of 20" not in each or "history of 203" in each]

    return asyncio.run(passes())


def with_link(db: Db, use: Callable[[Link], Awaitable[T]]) -> T:
    async def opened() -> T:
        link = Link(db.url, db.queries, "holdfast maintain")
        try:
            return await use(link)
        finally:
            await link.close()

    return asyncio.run(opened())


def finished(db: Db, worker: UUID, queue: str = "default", *, at: datetime = NOW) -> UUID:
    """A task that ended then, after one error: a row in archive and one in attempt."""
    db.clock.set(at)
    task = db.claimed(worker, queue=queue)
    ids, ended = [task.id], {"outcome": "retried", "error": {"type": "E"}, "errors": 1, "delay": 0}
    assert db.run(db.queries.stay(queue, worker, ids, _one(task.id, 1, **ended)))
    db.claim(worker, 100, queue=queue)
    assert db.run(db.queries.finish(queue, worker, ids, _one(task.id, 2)))
    return task.id


def _one(id: UUID, attempt: int, **values: Any) -> bytes:
    return json.dumps({str(id): {"attempt": attempt, **values}}).encode()


def known(db: Db, *ids: UUID) -> list[tuple[int, int]]:
    """For each task, how many rows there are in archive and in attempt."""
    return [
        (
            db.one("SELECT count(*) FROM holdfast.archive WHERE id = $1", id),
            db.one("SELECT count(*) FROM holdfast.attempt WHERE task_id = $1", id),
        )
        for id in ids
    ]


def tables(db: Db) -> set[str]:
    """All tables that look like partitions, attached or not."""
    rows = db.sql(
        "SELECT relname FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'holdfast'::regnamespace AND relname ~ '_p\\d{8}$'"
    )
    return {row[0] for row in rows}


def set_queue(db: Db, name: str, **options: Any) -> Any:
    return json.loads(db.run(db.queries.set_queue(name, json.dumps(options).encode())))


def set_default(db: Db, **options: Any) -> Any:
    return json.loads(db.run(db.queries.set_default(json.dumps(options).encode())))
