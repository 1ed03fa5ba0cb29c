"""The scheduler: every worker plans schedules. The first worker to come enqueues an occurrence, and it is done.

There is no leader. A round reads what is due, asks for scopes (outside any transaction, with a time limit), then
locks, works out and writes in one transaction per batch. It sleeps until the next plan time by the database's clock.
No task is executed here, so a slow one delays no schedule; one whose scopes take long is left for a later round, and
one that cannot be planned backs off by itself.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_contended, is_passing
from holdfast._engine.events import OnEnqueued
from holdfast._engine.loops import Loop, Pulse, Words
from holdfast._engine.run.threads import Threads, outcome_of
from holdfast._model.json.error_json import message_of
from holdfast._model.safe_log import Log
from holdfast._model.time.plan_times import Answers, Plans, ask, ask_async, is_async
from holdfast._model.time.schedule import Definition, Schedule, check_scopes
from holdfast._sql import schedules
from holdfast._sql.queries import Queries
from holdfast._sql.rows import DueSchedule
from holdfast._sql.schedules import Candidate, Trouble
from holdfast.errors import DatabaseUnreachable, HoldfastError, ScheduleError

log = Log("holdfast.scheduler")

WORDS = Words(log, "scheduling is interrupted")
LONGEST_PAUSE = 10.0

BATCH = 100
LOOK_EVERY = 30.0
"""Seconds after which a round reads the schedules again, if no notification says that one was added."""
BUSY = 0.5
"""Seconds until the next round if another session has locked what is due."""
SCOPES_WITHIN = 30.0
PATIENCE = 0.2
"""Seconds that a round waits for scopes; those that take longer are planned when they are there."""
LOCK_TIMEOUT = "5s"
SINCE = 5
"""The version of the schema that brought schedules."""


class Scheduler:
    """Plans the schedules of a database."""

    def __init__(
        self,
        link: Link,
        queries: Queries,
        declared: Sequence[Schedule],
        *,
        on_enqueued: OnEnqueued,
        pulse: Pulse | None = None,
    ) -> None:
        self._link = link
        self._queries = queries
        self._declared = {schedule.name: schedule for schedule in declared}
        self._on_enqueued = on_enqueued
        self._wake = asyncio.Event()
        self._failures: dict[str, int] = {}
        self._asking: dict[str, tuple[DueSchedule, asyncio.Task[Candidate | BaseException]]] = {}
        self._calls: dict[str, asyncio.Future[Any]] = {}
        self._threads = Threads()
        self._one_query = asyncio.Lock()
        self.resting = False
        self._loop = Loop("schedule", pulse or Pulse(), LOOK_EVERY, WORDS, longest=LONGEST_PAUSE, rest=self._rest)

    def wake(self) -> None:
        """A schedule may have been added or changed."""
        self.resting = False
        self._wake.set()

    @property
    def declared(self) -> int:
        """How many schedules of the code it knows."""
        return len(self._declared)

    async def declare(self) -> None:
        """Tells the database what the code declares."""
        for name, schedule in self._declared.items():
            await self._link.run(schedules.declare(self._queries, name, schedule.definition, schedule.version))

    async def learn(self, declared: Iterable[Schedule]) -> None:
        """Takes up what was declared since."""
        for schedule in declared:
            if schedule.name not in self._declared:
                await self._link.run(
                    schedules.declare(self._queries, schedule.name, schedule.definition, schedule.version)
                )
                self._declared[schedule.name] = schedule
        self.wake()

    async def close(self) -> None:
        """Closes its connection."""
        await self._link.close()

    async def run(self) -> None:
        """Plans for ever."""
        try:
            await self._loop.run(self._next_round)
        finally:
            for _, asking in self._asking.values():
                asking.cancel()
            self._threads.close()

    async def _next_round(self) -> float:
        self._wake.clear()
        return await self.round()

    async def _rest(self, seconds: float) -> None:
        self.resting = not self._asking
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self.resting = False

    async def catch_up(self) -> None:
        """Plans until nothing is due: for tests, which move the clock."""
        while found := await self._link.run(schedules.due(self._queries, self._free(), BATCH)):
            await self._plan(found, patience=None)

    async def round(self) -> float:
        """Plans what is due; answers how long to sleep."""
        found = await self._link.run(schedules.due(self._queries, self._free(), BATCH))
        if found or self._asking:
            await self._plan(found)
            if len(found) >= BATCH:
                return 0.0
        soonest = await self._link.run(schedules.next_in(self._queries, self._free()))
        if soonest is None or soonest > LOOK_EVERY:
            return LOOK_EVERY
        if not found and soonest <= 0:
            return BUSY  # another worker is planning it, or an operator is changing it
        # Not all workers at the same instant: the first to come does the work.
        return max(0.0, soonest) + random.uniform(0.001, 0.02)  # noqa: S311 - no secret

    def _free(self) -> list[str]:
        """What the code declares, but for what is still being asked about."""
        return [name for name in self._declared if name not in self._asking]

    async def _plan(self, found: list[DueSchedule], patience: float | None = PATIENCE) -> None:
        candidates: list[Candidate] = []
        troubles: list[Trouble] = []
        for one in found:
            if one.name not in self._asking:
                self._asking[one.name] = one, asyncio.create_task(self._prepare(one))
        await asyncio.wait([asking for _, asking in self._asking.values()], timeout=patience)
        for one, asking in list(self._asking.values()):
            if not asking.done():
                asking.add_done_callback(self._asked)
                continue
            del self._asking[one.name]
            ready = asyncio.CancelledError("it was cancelled") if asking.cancelled() else asking.result()
            if isinstance(ready, Candidate):
                candidates.append(ready)
            else:
                troubles.append(self._trouble(one, ready))
        troubles += await self._tick(candidates)
        if troubles:
            await self._link.run(schedules.fail(self._queries, troubles))

    def _asked(self, asking: "asyncio.Task[Candidate | BaseException]") -> None:
        self.wake()

    async def _prepare(self, found: DueSchedule) -> Candidate | BaseException:
        """What planning needs to know beforehand. Whatever goes wrong here concerns this schedule alone."""
        definition = schedules.understood(found)
        if not isinstance(definition, Definition):
            return definition
        try:
            scopes = await self._scopes(found.name, definition)
            answers = await self._answers(found.name, definition, scopes)
            return Candidate(found.name, found.version, definition, scopes, answers)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return error

    async def _scopes(self, name: str, definition: Definition) -> Sequence[str]:
        if definition.scopes is None:
            return ("",)
        if isinstance(definition.scopes, tuple):
            return definition.scopes
        schedule = self._declared.get(name)
        if schedule is not None and schedule.find_scopes is not None:
            async with asyncio.timeout(SCOPES_WITHIN):
                return check_scopes(await self._call(name, schedule.find_scopes))
        if schedule is not None and schedule.scopes_query is not None:
            async with self._one_query:  # on a connection of its own: planning goes on meanwhile
                return check_scopes(await self._link.aside(schedule.scopes_query, SCOPES_WITHIN))
        raise ScheduleError("its scopes come from code that this worker does not have")

    async def _answers(self, name: str, definition: Definition, scopes: Sequence[str]) -> Answers | None:
        """Plan times that come from a function: up to now, and as far ahead as it is not asked again."""
        if not isinstance(definition.timing, Plans):
            return None
        schedule = self._declared.get(name)
        plans = schedule.definition.timing if schedule is not None else None
        if not isinstance(plans, Plans):
            raise ScheduleError("its plan times come from code that this worker does not have")
        marks = (await self._link.run(schedules.marks_of(self._queries, [name])))[name]
        known = await self._link.run(schedules.reached(self._queries, [name]))
        questions = []
        for scope in scopes:
            begin, is_new = marks.begin(known.get((name, scope)))
            questions.append(definition.question(scope, begin, marks.now, is_new=is_new, ahead=plans.every))
        if not questions:
            return Answers({}, marks.now + plans.every)
        limit = asyncio.timeout(SCOPES_WITHIN)
        try:
            async with limit:
                if is_async(plans):
                    return await ask_async(plans, questions)
                answers: Answers = await self._in_thread(f"{name} plans", partial(ask, plans, questions))
        except TimeoutError:
            if not limit.expired():
                raise
            raise ScheduleError(f"{plans.name} did not give its plan times within {SCOPES_WITHIN:g} s") from None
        if set(scopes) - answers.times.keys():
            raise ScheduleError(f"{plans.name} took so long that there are other scopes by now: it is asked again")
        return answers

    async def _call(self, name: str, find: Callable[[], Any]) -> list[str]:
        """Scopes by a function: a plain one in a thread, so that it does not block the event loop."""
        if inspect.iscoroutinefunction(find):
            return list(await find())
        found = await self._in_thread(name, find)
        return list(await found if inspect.isawaitable(found) else found)

    async def _in_thread(self, what: str, function: Callable[[], Any]) -> Any:
        # One that took too long is waited for again, not called once more beside itself.
        call = self._calls.get(what) or self._calls.setdefault(what, self._threads.run(function))
        try:
            return await outcome_of(call)
        finally:
            if call.done():
                del self._calls[what]

    async def _tick(self, candidates: list[Candidate]) -> list[Trouble]:
        """Plans together; if that cannot be written, each by itself, so that only the culprit is held up."""
        if not candidates:
            return []
        try:
            ticked = await self._link.follow(schedules.tick(self._queries, candidates), lock_timeout=LOCK_TIMEOUT)
        except Exception as error:
            # An error of the connection would meet all schedules. Every other error, also a key that another session
            # holds for long, comes from one of these schedules.
            if isinstance(error, DatabaseUnreachable) or (is_passing(error) and not is_contended(error)):
                raise
            if len(candidates) == 1:
                only = candidates[0]
                return [self._trouble(DueSchedule(only.name, only.version, ""), error)]
            return [trouble for one in candidates for trouble in await self._tick([one])]
        for name in ticked.planned:
            self._failures.pop(name, None)
        if ticked.enqueued:
            log.info("%s occurrences of %s schedules were enqueued", ticked.enqueued, len(ticked.planned))
        await self._on_enqueued.enqueued(ticked.queues)
        return []

    def _trouble(self, found: DueSchedule, error: BaseException) -> Trouble:
        failures = self._failures.get(found.name, 0)
        self._failures[found.name] = failures + 1
        said = message_of(error) or type(error).__name__
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
