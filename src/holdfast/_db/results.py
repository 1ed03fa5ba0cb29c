"""Waiting for tasks to end: one `ResultWatch` for all callers that wait on an event loop.

When a caller begins to wait, the database is asked at once whether the task has ended. If it has not, one connection
listens, announces the awaited tasks to the workers ("wait ID …"), asks once more, and is notified by workers when tasks
have ended ("ended ID …"). While no caller waits, nothing of this runs. Notifications may be lost, and do not come
through a pooler, so the database is also polled: soon at first, then every second. Announcements and polls are for many
tasks at once.
"""

import asyncio
import heapq
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar
from uuid import UUID

from holdfast._db.driver.notifications import RECONNECTED, Listener, Word, about_tasks, understood
from holdfast._db.errors import is_full_of_notices, is_passing, tell_no_hint
from holdfast._model.safe_log import Log
from holdfast._sql.plans import Plan, drive
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query

log = Log("holdfast.listen")

T = TypeVar("T")
E = TypeVar("E")

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between polls for one task; the last is repeated."""
ANNOUNCE_EVERY = 30.0
"""Seconds after which the awaited tasks are announced again: new workers do not know of them."""
LINGER = 5.0
"""Seconds that the listening connection outlives the last caller that waited: another may come."""
OUTAGE = 30.0
"""Seconds for which callers go on waiting when a database that answered before does not answer."""
TOGETHER = 1000
"""Tasks that one query asks for."""


@dataclass(eq=False, slots=True)
class _Wait(Generic[T]):
    """The callers that wait for one task."""

    id: UUID
    futures: "set[asyncio.Future[T]]" = field(default_factory=set)
    polls: int = 0
    announced_at: float = float("-inf")


class ResultWatch(Generic[T]):
    """Waits for tasks to end. The plan `ended` gives those of some tasks that have ended; `run` runs its queries."""

    def __init__(
        self,
        url: str,
        queries: Queries,
        run: Callable[[Query[Any]], Awaitable[Any]],
        ended: Callable[[Sequence[UUID]], Plan[dict[UUID, T]]],
    ) -> None:
        self.pid = os.getpid()  # a forked child needs a watch of its own
        self._url = url
        self._queries = queries
        self._run = run
        self._ended = ended
        self._waits: dict[UUID, _Wait[T]] = {}
        self._now: set[UUID] = set()
        self._polls: list[tuple[float, int, _Wait[T]]] = []
        self._order = count()
        self._wake = asyncio.Event()
        self._listener: Listener | None = None
        self._watching: asyncio.Task[None] | None = None
        self._answered_at: float | None = None

    async def ended(self, id: UUID) -> T:
        """Waits until a task has ended or is parked, also for one that is not there yet."""
        loop = asyncio.get_running_loop()
        wait = self._waits.get(id)
        if wait is None:
            wait = self._waits[id] = _Wait(id)
            heapq.heappush(self._polls, (loop.time() + PAUSES[0], next(self._order), wait))
        future: asyncio.Future[T] = loop.create_future()
        wait.futures.add(future)
        self._check_soon(id)
        if self._watching is None:
            self._watching = loop.create_task(self._watch(), name="holdfast watch")
        try:
            return await future
        finally:
            wait.futures.discard(future)
            if not wait.futures and self._waits.get(id) is wait:
                del self._waits[id]

    async def close(self) -> None:
        """Stops listening, and cancels the callers that still wait."""
        watching = self._watching
        for wait in self._waits.values():
            for future in wait.futures:
                future.cancel()
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])

    def abandon(self) -> None:
        """Closes the listening connection of a loop that has ended."""
        if self._listener is not None:
            self._listener.abandon()

    # --- inside

    async def _watch(self) -> None:
        listening: asyncio.Task[None] | None = None
        try:
            while True:
                self._wake.clear()
                await self._check()
                if self._waits and listening is None:
                    self._listener = Listener(self._url, self._queries.schema, self._notified)
                    listening = asyncio.get_running_loop().create_task(self._listener.run(), name="holdfast listen")
                try:
                    async with asyncio.timeout(self._pause()):
                        await self._wake.wait()
                except TimeoutError:
                    if not self._waits:
                        return
        except Exception as error:
            self._fail(list(self._waits), error)
        finally:
            # First of all: a caller that comes from now on begins anew.
            self._watching = self._listener = None
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    def _notified(self, payload: str) -> None:
        notification = understood(payload)
        if notification is not None and notification.word is Word.ENDED:
            for id in notification.ids:
                self._check_soon(id)
        elif payload == RECONNECTED:
            # Notifications may have been missed, and workers must know of this listener.
            for wait in self._waits.values():
                wait.announced_at = float("-inf")
                self._check_soon(wait.id)

    def _check_soon(self, id: UUID) -> None:
        if id in self._waits:
            self._now.add(id)
            self._wake.set()

    def _pause(self) -> float:
        if not self._waits:
            return LINGER
        return max(0.0, self._polls[0][0] - asyncio.get_running_loop().time()) if self._polls else PAUSES[-1]

    async def _check(self) -> None:
        """Asks for the tasks of which a notification came, and for those whose next poll is due."""
        now = asyncio.get_running_loop().time()
        while self._polls and self._polls[0][0] <= now:
            _, _, wait = heapq.heappop(self._polls)
            if self._waits.get(wait.id) is wait:
                self._now.add(wait.id)
                wait.polls += 1
                pause = PAUSES[min(wait.polls, len(PAUSES) - 1)]
                heapq.heappush(self._polls, (now + pause, next(self._order), wait))
        ids = [id for id in self._now if id in self._waits]
        self._now.clear()
        for some in _parts(ids, TOGETHER):
            try:
                await self._announce(some)
                ended = await drive(self._ended(some), self._run)
            except Exception as error:
                log.debug("results cannot be read: %s", error)
                answered = self._answered_at
                if answered is None or now - answered > OUTAGE or not is_passing(error):
                    self._fail(some, error)
                continue
            self._answered_at = now
            for id, answer in ended.items():
                for future in self._take(id):
                    future.set_result(answer)

    async def _announce(self, ids: Iterable[UUID]) -> None:
        """Announces awaited tasks to the workers; not before we listen, or their notification would be missed."""
        now = asyncio.get_running_loop().time()
        if self._listener is None or not self._listener.listening.is_set():
            return
        waits = [
            self._waits[id] for id in ids if id in self._waits and now - self._waits[id].announced_at > ANNOUNCE_EVERY
        ]
        if waits:
            # Noted before it is sent: a reconnect meanwhile takes it back.
            for wait in waits:
                wait.announced_at = now
            try:
                await self._run(self._queries.say(about_tasks(Word.WAIT, [wait.id for wait in waits])))
            except BaseException as error:
                for wait in waits:
                    wait.announced_at = float("-inf")
                if not is_full_of_notices(error):
                    raise
                tell_no_hint(error)  # notifications do not work just now: a poll finds the end

    def _fail(self, ids: Iterable[UUID], error: Exception) -> None:
        for id in ids:
            for future in self._take(id):
                future.set_exception(error)

    def _take(self, id: UUID) -> "list[asyncio.Future[T]]":
        """The futures of the callers that wait for a task, to be answered now."""
        wait = self._waits.pop(id, None)
        return [future for future in wait.futures if not future.done()] if wait is not None else []


def _parts(many: Sequence[E], most: int) -> "list[Sequence[E]]":
    return [many[start : start + most] for start in range(0, len(many), most)]
