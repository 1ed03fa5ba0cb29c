"""The scheduler: every worker looks after schedules; whoever comes first enqueues an occurrence, and it is done.

There is no leader. A round reads what is due, asks for scopes (outside any transaction, with a time limit), then
locks, works out and writes in one transaction per batch. It sleeps until the next plan time by the database's clock.
No task is executed here, so a slow one delays no schedule; one that cannot be planned backs off by itself.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from holdfast._db.connection import Link, is_data_error, is_passing, pause_after
from holdfast._model.schedule import Definition, Schedule, check_scopes
from holdfast._sql import schedules
from holdfast._sql.queries import Queries
from holdfast._sql.schedules import Candidate, Found, Trouble
from holdfast.errors import HoldfastError, ScheduleError

log = logging.getLogger("holdfast.scheduler")

BATCH = 100
LOOK_EVERY = 30.0
"""Seconds after which it looks whether a schedule was added, if no notification says so."""
SCOPES_WITHIN = 30.0
LOCK_TIMEOUT = "5s"
SINCE = 5
"""The version of the schema that brought schedules."""


class Scheduler:
    """Plans the schedules of a database."""

    def __init__(
        self, link: Link, queries: Queries, declared: Sequence[Schedule], *, enqueued: Callable[[str], Awaitable[None]]
    ) -> None:
        self._link = link
        self._queries = queries
        self._declared = {schedule.name: schedule for schedule in declared}
        self._enqueued = enqueued
        self._wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self.resting = False

    def wake(self) -> None:
        """A schedule may have been added or changed."""
        self.resting = False
        self._wake.set()

    async def declare(self) -> None:
        """Tells the database what the code declares."""
        for name, schedule in self._declared.items():
            await self._link.run(schedules.declare(self._queries, name, schedule.definition, schedule.version))

    async def close(self) -> None:
        """Closes its connection."""
        await self._link.close()

    async def run(self) -> None:
        """Plans for ever; survives every passing error."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                wait = await self.round()
                failures = 0
            except Exception as error:
                if not is_passing(error):
                    raise
                failures += 1
                log.log(logging.WARNING if failures == 1 else logging.DEBUG, "scheduling is interrupted: %s", error)
                wait = pause_after(failures, longest=10.0)
            self.resting = wait > 0
            if wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._wake.wait()
                except TimeoutError:
                    pass
                self.resting = False

    async def catch_up(self) -> None:
        """Plans until nothing is due: for tests, which move the clock."""
        while found := await self._link.run(schedules.due(self._queries, list(self._declared), BATCH)):
            await self._plan(found)

    async def round(self) -> float:
        """Plans what is due; answers how long to sleep."""
        found = await self._link.run(schedules.due(self._queries, list(self._declared), BATCH))
        if found:
            await self._plan(found)
            if len(found) >= BATCH:
                return 0.0
        soonest = await self._link.run(schedules.next_in(self._queries, list(self._declared)))
        if soonest is None or soonest > LOOK_EVERY:
            return LOOK_EVERY
        # Not all workers at the same instant: the first to come does the work.
        return max(0.0, soonest) + random.uniform(0.001, 0.02)  # noqa: S311 - no secret

    async def _plan(self, found: list[Found]) -> None:
        candidates: list[Candidate] = []
        troubles: list[Trouble] = []
        for one, ready in zip(found, await asyncio.gather(*map(self._prepare, found)), strict=True):
            if isinstance(ready, Candidate):
                candidates.append(ready)
            else:
                troubles.append(self._trouble(one, ready))
        troubles += await self._tick(candidates)
        if troubles:
            await self._link.run(schedules.fail(self._queries, troubles))

    async def _prepare(self, found: Found) -> Candidate | BaseException:
        """What planning needs to know beforehand. Whatever goes wrong here concerns this schedule alone."""
        definition = schedules.understood(found)
        if not isinstance(definition, Definition):
            return definition
        try:
            return Candidate(found.name, found.version, definition, await self._scopes(found.name, definition))
        except Exception as error:
            return error

    async def _scopes(self, name: str, definition: Definition) -> Sequence[str]:
        if definition.scopes is None:
            return ("",)
        if isinstance(definition.scopes, tuple):
            return definition.scopes
        schedule = self._declared.get(name)
        async with asyncio.timeout(SCOPES_WITHIN):
            if schedule is not None and schedule.find_scopes is not None:
                return check_scopes(await _call(schedule.find_scopes))
            if schedule is not None and schedule.scopes_query is not None:
                return check_scopes(await self._link.read_only(schedule.scopes_query, SCOPES_WITHIN))
        raise ScheduleError("its scopes come from code that this worker does not have")

    async def _tick(self, candidates: list[Candidate]) -> list[Trouble]:
        """Plans together; if that cannot be written, each by itself, so that only the culprit is held up."""
        if not candidates:
            return []
        try:
            ticked = await self._link.follow(schedules.tick(self._queries, candidates), lock_timeout=LOCK_TIMEOUT)
        except Exception as error:
            if not isinstance(error, (HoldfastError, msgspec.MsgspecError)) and not is_data_error(error):
                raise
            if len(candidates) == 1:
                only = candidates[0]
                return [self._trouble(Found(only.name, only.version, b""), error)]
            return [trouble for one in candidates for trouble in await self._tick([one])]
        for name in ticked.planned:
            self._failures.pop(name, None)
        if ticked.enqueued:
            log.info("%s occurrences of %s schedules were enqueued", ticked.enqueued, len(ticked.planned))
        for queue in sorted(ticked.queues):
            await self._enqueued(queue)
        return []

    def _trouble(self, found: Found, error: BaseException) -> Trouble:
        failures = self._failures.get(found.name, 0)
        self._failures[found.name] = failures + 1
        said = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            said = f"its scopes were not found within {SCOPES_WITHIN:g} s"
        elif not isinstance(error, HoldfastError):
            said = f"{type(error).__name__}: {said}"
        log.log(
            logging.ERROR if failures == 0 else logging.DEBUG,
            "schedule %s cannot be planned, the others go on: %s",
            found.name,
            said,
        )
        return Trouble(found.name, found.version, said[:2000], failures)


async def _call(find: Callable[[], Any]) -> list[str]:
    """Scopes by a function: a plain one in a thread, so that it blocks nobody."""
    found = await find() if inspect.iscoroutinefunction(find) else await asyncio.to_thread(find)
    return list(await found if inspect.isawaitable(found) else found)
