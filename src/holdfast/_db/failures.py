"""The feed of failures: every attempt that parked its task, once, in the order in which they are read.

The log of attempts is read on from a cursor, woken by notification. What commits late has an older time than what was
read before: so the last minute is read again each time, and known failures are skipped. Only those are remembered.
The cursor is the database's time of the last whole reading, so neither a broken connection nor an outage leaves a gap.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from holdfast._db.driver.notifications import RECONNECTED, Listener, Word
from holdfast._db.errors import is_passing, pause_after
from holdfast._model.enqueue.ref import Failure
from holdfast._model.safe_log import Log
from holdfast._model.time.duration import Duration, seconds
from holdfast._sql.failures import Place, beginning, failures, places
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query

log = Log("holdfast.listen")

OVERLAP = timedelta(minutes=1)
LOOK_EVERY = 5.0
"""Seconds between readings without notifications."""
AT_MOST_EVERY = 0.1
"""Seconds between readings when notifications come often."""
PAGE = 500
AT_ONCE = 50
"""Failures that are read whole at once: each may be large."""


class FailureFeed:
    """Follows the failures from a time, or since a while ago; without either, from now on."""

    def __init__(
        self,
        url: str,
        queries: Queries,
        run: Callable[[Query[Any]], Awaitable[Any]],
        since: datetime | Duration | None,
    ) -> None:
        self._queries = queries
        self._run = run
        self._begin: datetime | None = None
        self._ago = timedelta(0)
        if isinstance(since, datetime):
            self._begin = since if since.tzinfo is not None else since.astimezone()
        elif since is not None:
            self._ago = timedelta(seconds=seconds(since, "since"))
        self._cursor: datetime | None = None
        self._seen: dict[tuple[Any, int], datetime] = {}
        self._changed = asyncio.Event()
        self._listener = Listener(url, queries.schema, self._notified)

    async def follow(self) -> AsyncGenerator[Failure]:
        """Never ends by itself; errors that pass are waited out."""
        loop = asyncio.get_running_loop()
        listening = loop.create_task(self._listener.run(), name="holdfast listen")
        failed = 0
        try:
            while True:
                self._changed.clear()
                begun = loop.time()
                try:
                    async for failure in self._read_on():
                        yield failure
                    failed = 0
                except Exception as error:
                    # The first reading shows whether the database can be used at all.
                    if self._cursor is None or not is_passing(error):
                        raise
                    failed += 1
                    log.log(logging.WARNING if failed == 1 else logging.DEBUG, "failures cannot be read: %s", error)
                    await asyncio.sleep(pause_after(failed, longest=LOOK_EVERY))
                    continue
                await self._next_time(begun + AT_MOST_EVERY - loop.time())
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def so_far(self) -> AsyncGenerator[Failure]:
        """Those up to now."""
        async for failure in self._read_on():
            yield failure

    async def _read_on(self) -> AsyncIterator[Failure]:
        now: datetime = await self._run(self._queries.clock())
        if self._begin is None:
            self._begin = now - self._ago
        start = self._begin if self._cursor is None else max(self._begin, self._cursor - OVERLAP)
        after, full = beginning(start), True
        while full:
            page: list[Place] = await self._run(places(self._queries, after, PAGE))
            full = len(page) == PAGE
            new = [place for place in page if (place.id, place.attempt) not in self._seen]
            for first in range(0, len(new), AT_ONCE):
                some = new[first : first + AT_ONCE]
                for failure in await self._run(failures(self._queries, some)):
                    self._seen[failure.task.id, failure.attempt] = failure.at
                    yield failure
            if page:
                after = page[-1]
                self._move_to(min(now, after.at))
        self._move_to(now)

    def _move_to(self, cursor: datetime) -> None:
        """Moves the cursor, and forgets the failures that will not be read again."""
        self._cursor = cursor
        oldest = cursor - OVERLAP
        self._seen = {key: at for key, at in self._seen.items() if at >= oldest}

    async def _next_time(self, rest: float) -> None:
        if rest > 0:
            await asyncio.sleep(rest)
        try:
            async with asyncio.timeout(LOOK_EVERY):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _notified(self, payload: str) -> None:
        if payload in (Word.FAILED, RECONNECTED):
            self._changed.set()
