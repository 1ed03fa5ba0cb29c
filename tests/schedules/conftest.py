"""A database whose clock stands still, and schedulers on it that are told when to look."""

import json
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import App
from holdfast._db.driver.session import Link
from holdfast._engine.maintain.scheduler import Scheduler
from holdfast.testing import Harness

NOON = datetime(2031, 5, 20, 12, 0, tzinfo=UTC)
"""Where the clock of a test stands at its beginning."""


class Planner:
    """An app, its database at noon, and any number of schedulers."""

    def __init__(self, harness: Harness) -> None:
        self.app: App = harness.app
        self.sql = harness.sql
        self.url = harness.url
        self.clock = harness.clock
        self.clock.set(NOON)
        self.links: list[Link] = []

    async def scheduler(self, app: App | None = None) -> Scheduler:
        """A scheduler as a worker of this app would have; what the code declares is told."""
        app = app or self.app
        link = Link(self.url, app._queries, "holdfast schedule")
        self.links.append(link)
        made = Scheduler(link, app._queries, list(app._schedules.values()), on_enqueued=_Nobody())
        await made.declare()
        await made.round()
        return made

    def plans(self, name: str = "nightly", column: str = "plan_time") -> list[Any]:
        rows = self.sql(
            f"SELECT {column} FROM holdfast.occurrence WHERE schedule = $1 AND skipped IS NULL"
            " ORDER BY plan_time, scope",
            name,
        )
        return [row[0] for row in rows]

    def times(self, name: str = "nightly") -> list[str]:
        """The plan times so far, as day and time."""
        return [f"{plan:%d %H:%M}" for plan in self.plans(name)]

    def tasks(self) -> int:
        return int(self.sql("SELECT count(*) FROM holdfast.task")[0][0])

    def row(self, name: str = "nightly") -> dict[str, Any]:
        [found] = self.sql("SELECT to_jsonb(s)::text FROM holdfast.schedule s WHERE name = $1", name)
        row: dict[str, Any] = json.loads(found[0])
        return row


class _Nobody:
    async def enqueued(self, queues: Iterable[str]) -> None: ...


@pytest.fixture
async def planner(holdfast: Harness) -> AsyncIterator[Planner]:
    made = Planner(holdfast)
    yield made
    for link in made.links:
        await link.close()
