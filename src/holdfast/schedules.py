"""Schedules at run time: what there is, what comes next, and the verbs of people. `app.schedules` is the way to it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec
from typing_extensions import Unpack

from holdfast._db.callers import run_on
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.enqueue.call import Call, StepValue
from holdfast._model.time.plan_times import LOOK_BACK, Answers, Plans, Question, ask, ask_async, is_async
from holdfast._model.time.recurrence import aware
from holdfast._model.time.schedule import Definition, Schedule, ScheduleOptions, When, declare
from holdfast._sql import schedules as sql
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row
from holdfast.errors import HoldfastError, ScheduleError
from holdfast.insights import json_in
from holdfast.verbs import options_bag

T = TypeVar("T")

_MOMENT = timedelta(microseconds=1)
MOST_AT_ONCE = 10_000
"""Occurrences that one backfill makes."""


class SetOptions(EnqueueOptions, ScheduleOptions, total=False):
    """What can be said about a schedule made at run time."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule as it stands. `condition`: active, paused, failing (see `error`), ended, or orphaned: declared in code
    that no live worker has. `now` is the database's time when it was asked."""

    name: str
    definition: Mapping[str, Any]
    condition: str
    next_at: datetime | None
    last_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    error: str | None
    failures: int
    in_code: bool
    changed_by_hand: bool
    scopes: int
    version: int
    watermark: datetime
    created_at: datetime
    now: datetime

    @property
    def words(self) -> str:
        """When it recurs, in plain words."""
        try:
            return self.parsed.timing.words()
        except HoldfastError as error:
            return f"not understood: {error}"

    @property
    def parsed(self) -> Definition:
        """Its definition, understood; a ScheduleError if it cannot be."""
        return Definition.from_json(self.definition)

    def next(self, number: int = 10, after: datetime | None = None) -> list[datetime]:
        """The next plan times."""
        definition, moment = self.parsed, self.now if after is None else after
        times: list[datetime] = []
        while len(times) < number and (moment := definition.next_after(moment)) is not None:  # type: ignore[assignment]
            times.append(moment)
        return times


@dataclass(frozen=True, slots=True)
class OccurrenceInfo:
    """One plan time of a schedule, for one scope, and what became of its task.

    `state` is that of the task; `skipped` if it has none, `gone` if the history no longer has it.
    """

    schedule: str
    scope: str
    plan_time: datetime
    due_at: datetime
    task_id: UUID | None
    state: str
    attempts: int | None
    started_at: datetime | None
    finished_at: datetime | None
    duration: timedelta | None
    lateness: timedelta | None
    result: Any
    error: Mapping[str, Any] | None
    skipped: str | None
    created_at: datetime


# --- queries and verbs, for Apps, the command line and the dashboard


def listed(
    queries: Queries, *, only: str | None = None, above: str | None = None, limit: int = 1000
) -> Query[list[ScheduleInfo]]:
    """Schedules by name; the next page begins `above` the last."""
    return queries.list_schedules(only, above, limit).into(_infos)


def occurrences(
    queries: Queries, name: str, *, scope: str | None = None, before: datetime | None = None, limit: int = 50
) -> Query[list[OccurrenceInfo]]:
    """The occurrences of a schedule, the newest plan time first."""
    return queries.list_occurrences(name, scope, before, limit).into(_occurrences)


@dataclass(frozen=True, slots=True)
class Recent:
    """One plan time of a schedule, and what became of it."""

    plan_time: datetime
    state: str


def recent(queries: Queries, names: Sequence[str], *, limit: int = 12) -> Query[dict[str, list[Recent]]]:
    """What became of the last plan times of some schedules, by their names; the newest last."""
    return queries.recent_occurrences(names, limit).into(_recent)


def set_to(queries: Queries, name: str, definition: Mapping[str, Any], **by_whom: str | None) -> Query[str]:
    """Makes a schedule, or changes what is given of it: created, changed or unchanged."""
    # Whatever was there before, what comes of it is checked by the first worker; what is given here, at once.
    return queries.set_schedule(name, msgspec.json.encode(definition), options_bag(**by_whom))


def pause(queries: Queries, name: str, **by_whom: str | None) -> Query[str]:
    return queries.pause_schedule(name, options_bag(**by_whom))


def resume(queries: Queries, name: str, **by_whom: str | None) -> Query[str]:
    return queries.resume_schedule(name, options_bag(**by_whom))


def delete(queries: Queries, name: str, **by_whom: str | None) -> Query[str]:
    return queries.delete_schedule(name, options_bag(**by_whom))


def fire(
    queries: Queries, name: str, *, plan_time: datetime | None = None, scope: str | None = None, **by_whom: str | None
) -> Query[list[UUID]]:
    """An occurrence now, for all scopes or one: the ids of the tasks."""
    when = None if plan_time is None else aware(plan_time, "plan_time").isoformat()
    return queries.fire_schedule(name, options_bag(plan_time=when, scope=scope, **by_whom))


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill makes, or would make."""

    name: str
    missing: list[tuple[str, datetime]]
    existing: int
    enqueued: int = 0


def backfill(
    queries: Queries,
    name: str,
    since: datetime,
    until: datetime,
    *,
    dry_run: bool = False,
    by: str | None = None,
    why: str | None = None,
    answers: Answers | None = None,
) -> Plan[tuple[Backfill, set[str]]]:
    """Occurrences for all plan times of a range that have none: for one transaction. Names the queues to be woken.

    `answers` is what a function gave, if its plan times come from one.
    """
    since, until = aware(since, "since"), aware(until, "until")
    info = one(name, (yield listed(queries, only=name)))
    if until > info.now:
        raise ScheduleError(f"a backfill is of the past: {until:%Y-%m-%d %H:%M} UTC lies ahead")
    definition = info.parsed
    scopes: list[str] = (yield scopes_of(queries, name)) if definition.scopes is not None else [""]
    if answers is None:
        found = takewhile(lambda plan: plan <= until, definition.timing.after(since - _MOMENT))
        times = list(islice(found, MOST_AT_ONCE + 1))
        wanted = list(islice(((plan, scope) for plan in times for scope in scopes), MOST_AT_ONCE + 1))
    else:
        wanted = sorted((plan, scope) for scope, answer in answers.times.items() for plan in answer.times)
    if len(wanted) > MOST_AT_ONCE:
        raise ScheduleError(f"that would be more than {MOST_AT_ONCE:,} occurrences of {name}: choose a shorter range")
    there = yield sql.between(queries, name, since, until)
    missing = [(scope, plan) for plan, scope in wanted if (scope, plan) not in there]
    if dry_run or not missing:
        return Backfill(name, missing, len(wanted) - len(missing)), set()
    ticked = yield from sql.backfill(queries, name, definition, missing)
    bag = options_bag(since=since.isoformat(), until=until.isoformat(), enqueued=ticked.enqueued, by=by, why=why)
    yield queries.note_backfill(name, bag)
    return Backfill(name, missing, len(wanted) - len(missing), ticked.enqueued), ticked.queues


def scopes_of(queries: Queries, name: str) -> Query[list[str]]:
    """The scopes that a schedule had when it was last planned."""
    return queries.list_scopes(name, MOST_AT_ONCE)


def check_ahead(name: str, definition: Definition) -> None:
    """Refuses what would never come. This machine's clock may be wrong, but hardly by a day."""
    if definition.next_after(datetime.now(UTC) - timedelta(days=1)) is None:
        raise ScheduleError(f"schedule {name!r} would never come: all its times lie in the past")


def one(name: str, listed: Sequence[ScheduleInfo]) -> ScheduleInfo:
    """The only one of a list, or a clear error."""
    if not listed:
        raise ScheduleError(f"there is no schedule {name!r}; `holdfast schedules` lists them")
    return listed[0]


def _infos(rows: Sequence[Row]) -> list[ScheduleInfo]:
    return [ScheduleInfo(row[0], json_in(row[1].encode()), *row[2:]) for row in rows]


def _recent(rows: Sequence[Row]) -> dict[str, list[Recent]]:
    by_name: dict[str, list[Recent]] = {}
    for name, plan_time, state in rows:
        by_name.setdefault(name, []).append(Recent(plan_time, state))
    return by_name


def _occurrences(rows: Sequence[Row]) -> list[OccurrenceInfo]:
    return [OccurrenceInfo(*_with_json(row, 11, 12)) for row in rows]


def _with_json(row: Row, *columns: int) -> list[Any]:
    """A row with the JSON of some columns decoded."""
    made = list(row)
    for column in columns:
        made[column] = None if row[column] is None else json_in(row[column].encode())
    return made


# --- for programs


class ScheduleApp(Protocol):
    """The part of an App that its schedules use."""

    @property
    def _schedules(self) -> dict[str, Schedule]: ...
    @property
    def _queries(self) -> Queries: ...
    def _run(self, query: Query[T]) -> Awaitable[T]: ...
    def _together(self, plan: Plan[T], wake: Callable[[T], set[str]]) -> Awaitable[T]: ...


class Schedules:
    """The schedules of an app's database, at run time: `await app.schedules.pause("nightly")`.

    With `conn=`, a change is made in that connection's transaction: it holds once that commits.
    """

    def __init__(self, app: ScheduleApp) -> None:
        self._app = app

    async def _act(self, query: Query[T], conn: object) -> T:
        return await (self._app._run(query) if conn is None else run_on(conn, query))

    async def _asked(self, plans: Plans, questions: Sequence[Question]) -> Answers:
        return await (ask_async(plans, questions) if is_async(plans) else asyncio.to_thread(ask, plans, questions))

    async def all(self, *, above: str | None = None, limit: int = 1000) -> list[ScheduleInfo]:
        """Schedules by name; the next page begins `above` the last."""
        return await self._app._run(listed(self._app._queries, above=above, limit=limit))

    async def get(self, name: str) -> ScheduleInfo:
        """One schedule."""
        return one(name, await self._app._run(listed(self._app._queries, only=name)))

    async def next(
        self, name: str, number: int = 10, *, after: datetime | None = None, scope: str = ""
    ) -> list[datetime]:
        """The next plan times; of a function of this program too, for one scope."""
        info = await self.get(name)
        plans, moment = self._plans(info), info.now if after is None else aware(after, "after")
        if plans is None:
            return info.next(number, after)
        definition, found = info.parsed, list[datetime]()
        for ahead in (plans.every, *LOOK_BACK):  # farther and farther
            question = definition.question(scope, moment, moment, is_new=False, ahead=ahead)
            answers = await self._asked(plans, [question._replace(afters=[question.afters[-1]])])
            found = list(answers.times[scope].times)
            if len(found) >= number:
                break
        return found[:number]

    async def _answers(self, name: str, since: datetime, until: datetime) -> Answers | None:
        """What a function of this program gives for a range; None if the plan times come from elsewhere."""
        info = await self.get(name)
        plans = self._plans(info)
        if plans is None:
            return None
        scopes = [""] if info.parsed.scopes is None else await self._app._run(scopes_of(self._app._queries, name))
        if until < since or not scopes:
            return Answers({}, until)
        return await self._asked(plans, [Question(scope, [since - _MOMENT], until, until) for scope in scopes])

    def _plans(self, info: ScheduleInfo) -> Plans | None:
        declared = self._app._schedules.get(info.name)
        ours = None if declared is None else declared.definition.timing
        return ours if isinstance(ours, Plans) and ours == info.parsed.timing else None

    async def set(
        self,
        name: str,
        when: When,
        what: Call[Any] | StepValue,
        /,
        *,
        by: str | None = None,
        why: str | None = None,
        conn: object = None,
        **options: Unpack[SetOptions],
    ) -> str:
        """Makes a schedule, or redefines it from now on: created, changed or unchanged. Scopes are a list here."""
        made = declare(name, when, what, options)
        if isinstance(made.definition.timing, Plans):
            raise ScheduleError(f"schedule {name!r}: a function of plan times is declared in the code: app.schedule(…)")
        if made.find_scopes is not None or made.scopes_query is not None:
            raise ScheduleError(f"schedule {name!r}: at run time scopes= is a list; declare it in the code for more")
        check_ahead(name, made.definition)
        change = set_to(self._app._queries, name, made.definition.to_json(), by=by, why=why)
        return await self._act(change, conn)

    async def pause(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> str:
        """Nothing of it is enqueued until it is resumed."""
        return await self._act(pause(self._app._queries, name, by=by, why=why), conn)

    async def resume(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> str:
        """It goes on from now: resumed, or not paused."""
        return await self._act(resume(self._app._queries, name, by=by, why=why), conn)

    async def delete(self, name: str, *, by: str | None = None, why: str | None = None, conn: object = None) -> bool:
        """Deletes it; False if there is none. Its occurrences stay. One that live code declares can only be paused."""
        return await self._act(delete(self._app._queries, name, by=by, why=why), conn) == "deleted"

    async def fire(
        self,
        name: str,
        *,
        plan_time: datetime | None = None,
        scope: str | None = None,
        by: str | None = None,
        why: str | None = None,
        conn: object = None,
    ) -> list[UUID]:
        """Enqueues an occurrence now, for all scopes or one; the same plan time never fires twice."""
        change = fire(self._app._queries, name, plan_time=plan_time, scope=scope, by=by, why=why)
        return await self._act(change, conn)

    async def occurrences(
        self, name: str, *, scope: str | None = None, before: datetime | None = None, limit: int = 50
    ) -> list[OccurrenceInfo]:
        """What became of its plan times, the newest first."""
        return await self._app._run(occurrences(self._app._queries, name, scope=scope, before=before, limit=limit))

    async def backfill(
        self,
        name: str,
        since: datetime,
        until: datetime,
        *,
        dry_run: bool = False,
        by: str | None = None,
        why: str | None = None,
    ) -> Backfill:
        """Enqueues the plan times of a range that have no occurrence yet; again, it does nothing."""
        answers = await self._answers(name, aware(since, "since"), aware(until, "until"))
        plan = backfill(self._app._queries, name, since, until, dry_run=dry_run, by=by, why=why, answers=answers)
        made, _ = await self._app._together(plan, lambda answer: answer[1])
        return made
