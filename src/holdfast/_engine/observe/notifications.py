"""Notifications to callers who wait: that a task has ended whose result they wait for, that a task was parked.

All workers remember which tasks callers wait for, since any of them may be the one that ends it. Only hints: a caller
who waits also polls.
"""

import asyncio
from collections.abc import Iterable
from time import monotonic
from uuid import UUID

from holdfast._db.driver.notifications import Word, about_tasks
from holdfast._db.driver.session import Link
from holdfast._model.safe_log import Log
from holdfast._sql.queries import Queries

log = Log("holdfast.worker")

REMEMBERED = 10_000
"""Tasks waited for that a worker remembers; of more it forgets the oldest."""
REMEMBERED_SECONDS = 90.0
"""A caller who still waits says so again within this time."""


class Notifications:
    """Sends notifications of ends and failures, many at once."""

    def __init__(self, link: Link, queries: Queries) -> None:
        self._link = link
        self._queries = queries
        self.awaited: dict[int, float] = {}
        self._ended: list[UUID] = []
        self._failed = False
        self._telling: asyncio.Task[None] | None = None

    def hear(self, ids: Iterable[UUID]) -> None:
        """A caller waits for these tasks."""
        now = monotonic()
        for id in ids:
            self.awaited.pop(id.int, None)
            self.awaited[id.int] = now
        while self.awaited:
            oldest = next(iter(self.awaited))
            if len(self.awaited) <= REMEMBERED and now - self.awaited[oldest] <= REMEMBERED_SECONDS:
                break
            del self.awaited[oldest]

    def ended(self, ids: Iterable[UUID]) -> None:
        """These tasks have ended, or are parked: callers who wait for one are notified."""
        awaited = [id for id in ids if self.awaited.pop(id.int, None) is not None]
        if awaited:
            self._ended += awaited
            self._begin()

    def parked(self, id: UUID) -> None:
        """A task was parked: callers who follow the failures are notified."""
        self._failed = True
        self.ended([id])
        self._begin()

    async def all_sent(self) -> None:
        """Waits until all notifications are sent."""
        while self._telling is not None:
            await asyncio.wait([self._telling])

    def _begin(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._ended or self._failed:
                ended, self._ended = self._ended, []
                failed: list[str] = [Word.FAILED] if self._failed else []
                self._failed = False
                await self._link.run(self._queries.say(failed + about_tasks(Word.ENDED, ended)))
        except Exception as error:
            log.debug("those who wait could not be told, and will look: %s", error)
        finally:
            self._telling = None
