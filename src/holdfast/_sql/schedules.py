"""What workers do to plan schedules, as plans: locked first, then read, worked out, and written in one transaction.

Each plan time of each schedule and scope is one row of `occurrence`, written together with its task: whoever comes
first enqueues it, and nobody else can.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.enqueue.request import Request
from holdfast._model.time.plan_times import Answers, Plans
from holdfast._model.time.schedule import Definition, Due
from holdfast._sql import plans
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.rows import DueSchedule, Watermark
from holdfast.errors import HoldfastError

SOONEST, LATEST = 1.0, 60.0
"""Seconds after which a plan that waits for its predecessor is looked at again: a tenth of how late it is."""
LONGEST_BACK_OFF = 300.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schedule that can be planned: its definition is understood and its scopes are known."""

    name: str
    version: int
    definition: Definition
    scopes: Sequence[str]
    answers: Answers | None = None
    """What a function gave, if its plan times come from one."""

    def of(self, scope: str) -> Definition:
        """What holds for a scope."""
        if self.answers is None:
            return self.definition
        return replace(self.definition, timing=self.answers.times[scope])

    def next_after(self, moment: datetime) -> datetime | None:
        """The next plan time of any scope, or when to ask the function again for one."""
        definition = self.definition
        if self.answers is None or not isinstance(definition.timing, Plans):
            return definition.next_after(moment)
        if definition.end is not None and definition.end <= moment:
            return None
        following = (self.of(scope).next_after(moment) for scope in self.scopes)
        return min([moment + definition.timing.every, *filter(None, following)])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A schedule that cannot be planned now, and why."""

    name: str
    version: int
    error: str
    failures: int = 0


@dataclass(slots=True)
class Ticked:
    """What came of planning: how many tasks, in which queues; the schedules that somebody else was faster with."""

    enqueued: int = 0
    queues: set[str] = field(default_factory=set)
    more: bool = False
    planned: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Occurrence:
    schedule: str
    scope: str
    plan: datetime
    due_at: datetime
    request: Request | None
    skipped: str | None
    open: bool

    def row(self) -> dict[str, Any]:
        return {
            "schedule": self.schedule,
            "scope": self.scope,
            "plan_time": self.plan,
            "due_at": self.due_at,
            "task_id": None if self.request is None else self.request.id,
            "queue": None if self.request is None else self.request.queue,
            "skipped": self.skipped,
            "open": self.open,
        }


@dataclass(slots=True)
class _Worked:
    """What is to be written about one schedule."""

    occurrences: list[_Occurrence] = field(default_factory=list)
    scopes: list[dict[str, Any]] = field(default_factory=list)
    next: dict[str, Any] = field(default_factory=dict)
    more: bool = False


def declare(queries: Queries, name: str, definition: Definition, version: int) -> Query[None]:
    """What the code says about a schedule."""
    return queries.declare_schedule(name, msgspec.json.encode(definition.to_json()), version)


def due(queries: Queries, declared: Sequence[str], limit: int) -> Query[list[DueSchedule]]:
    """Schedules that are to be planned now."""
    return queries.schedules_due(declared, limit)


def next_in(queries: Queries, declared: Sequence[str]) -> Query[float | None]:
    """Seconds until the next schedule is to be planned; None if there is none."""
    return queries.next_schedule(declared)


def sweep(queries: Queries, limit: int) -> Query[int]:
    """Forgets occurrences older than the history is kept, and counts them."""
    return queries.sweep_occurrences(limit)


def fail(queries: Queries, troubles: Iterable[Trouble]) -> Query[None]:
    """These could not be planned: they are looked at again later, and meanwhile it is told why."""
    rows = [
        {
            "name": t.name,
            "version": t.version,
            "wait": min(LONGEST_BACK_OFF, 5.0 * 2 ** min(t.failures, 10)),
            "error": t.error,
        }
        for t in troubles
    ]
    return queries.advance_schedules(msgspec.json.encode(rows))


def tick(queries: Queries, candidates: Sequence[Candidate]) -> Plan[Ticked]:
    """Plans schedules, for one transaction."""
    ticked = Ticked()
    by_name = {candidate.name: candidate for candidate in candidates}
    found: list[tuple[str, int]] = yield queries.lock_schedules(list(by_name))
    locked = [name for name, version in found if by_name[name].version == version]
    if not locked:
        return ticked
    marks: dict[str, Watermark] = yield marks_of(queries, locked)
    known: dict[tuple[str, str], datetime] = yield reached(queries, locked)
    busy = yield from _busy(queries, [name for name in locked if by_name[name].definition.overlap != "allow"])
    worked = [_work_out(by_name[name], marks[name], known, busy) for name in locked]
    yield from _write(queries, locked, worked, ticked)
    ticked.more = any(work.more for work in worked)
    ticked.planned = locked
    return ticked


def marks_of(queries: Queries, names: Sequence[str]) -> Query[dict[str, Watermark]]:
    """How far schedules are."""
    return queries.schedule_watermarks(names)


def reached(queries: Queries, names: Sequence[str]) -> Query[dict[tuple[str, str], datetime]]:
    """How far each of their scopes is."""
    return queries.scope_watermarks(names)


def _busy(queries: Queries, names: list[str]) -> Plan[set[tuple[str, str]]]:
    if not names:
        return set()
    yield queries.close_occurrences(names)
    busy: set[tuple[str, str]] = yield queries.unfinished_occurrences(names)
    return busy


def _work_out(
    candidate: Candidate, marks: Watermark, known: Mapping[tuple[str, str], datetime], busy: set[tuple[str, str]]
) -> _Worked:
    """What one schedule comes to: pure, and about this schedule alone."""
    name, definition, now = candidate.name, candidate.definition, marks.now
    if candidate.answers is not None:
        now = min(now, candidate.answers.until)  # what comes later was not asked for
    work = _Worked()
    waits: list[float] = []
    found: dict[tuple[str, datetime, bool], Due] = {}  # most scopes are equally far
    for scope in candidate.scopes:
        begin, is_new = marks.begin(known.get((name, scope)))
        alike = ("" if candidate.answers is None else scope, begin, is_new)
        due = found.get(alike) or found.setdefault(alike, candidate.of(scope).due(begin, now, is_new=is_new))
        done, more = due.watermark, due.more
        held = (name, scope) in busy
        for position, plan in enumerate(due.plans):
            if definition.overlap == "queue" and (held or position > 0):
                # The rest stays where it is until this one has ended.
                done = plan - timedelta(microseconds=1)
                waits.append(min(LATEST, max(SOONEST, (now - plan).total_seconds() / 10)))
                more = False
                break
            skipped = (
                "the one before was unfinished" if definition.overlap == "skip" and (held or position > 0) else None
            )
            work.occurrences.append(_occurrence(candidate, scope, plan, skipped))
        work.scopes.append({"schedule": name, "scope": scope, "watermark": done})
        work.more = work.more or more
    plans_made = [o.plan for o in work.occurrences if o.skipped is None]
    following = candidate.next_after(now)
    soonest = now if work.more else now + timedelta(seconds=min(waits)) if waits else following
    work.next = {
        "name": name,
        "version": candidate.version,
        "next_at": soonest if following is None or soonest is None else min(soonest, following),
        "last_at": max(plans_made, default=None),
    }
    return work


def _occurrence(candidate: Candidate, scope: str, plan: datetime, skipped: str | None) -> _Occurrence:
    name, definition = candidate.name, candidate.definition
    due_at = definition.due_at(name, scope, plan)
    request = None if skipped else definition.request(name, scope, plan)
    return _Occurrence(name, scope, plan, due_at, request, skipped, open=not skipped and definition.overlap != "allow")


def _write(queries: Queries, names: list[str], worked: Sequence[_Worked], ticked: Ticked) -> Plan[None]:
    occurrences = [occurrence for work in worked for occurrence in work.occurrences]
    yield from record(queries, occurrences, ticked)
    scopes = [row for work in worked for row in work.scopes]
    yield queries.advance_scopes(names, msgspec.json.encode(scopes))
    yield queries.advance_schedules(msgspec.json.encode([work.next for work in worked]))


def record(
    queries: Queries, occurrences: Sequence[_Occurrence], ticked: Ticked, *, by_hand: bool = False
) -> Plan[None]:
    """Writes the occurrences that nobody has written before, each with its task."""
    if not occurrences:
        return
    wanted = [o for o in occurrences if o.request is not None]
    requests = yield from plans.new_tasks(queries, [o.request for o in wanted if o.request is not None])
    for occurrence, request in zip(wanted, requests, strict=True):
        occurrence.request = request
    rows = msgspec.json.encode([occurrence.row() for occurrence in occurrences])
    created: set[UUID] = yield queries.record_occurrences(rows, by_hand=by_hand)
    ours = [request for request in requests if request.id in created]
    if not ours:
        return
    answers, queues = yield from plans.enqueue_many(queries, ours)
    corrected = [
        {"meant": request.id, "task_id": answer.id}
        for request, answer in zip(ours, answers, strict=True)
        if answer.id != request.id
    ]
    if corrected:
        yield queries.correct_occurrences(msgspec.json.encode(corrected))
    ticked.enqueued += len(ours) - len(corrected)
    ticked.queues |= queues


def backfill(
    queries: Queries, name: str, definition: Definition, missing: Sequence[tuple[str, datetime]]
) -> Plan[Ticked]:
    """Occurrences for given scopes and plan times; those there already are left alone. For one transaction."""
    ticked = Ticked()
    candidate = Candidate(name, 0, definition, ())
    yield from record(
        queries, [_occurrence(candidate, scope, plan, None) for scope, plan in missing], ticked, by_hand=True
    )
    return ticked


def between(queries: Queries, name: str, since: datetime, until: datetime) -> Query[set[tuple[str, datetime]]]:
    """Which plan times are there already, by scope."""
    return queries.occurrences_between(name, since, until)


def understood(found: DueSchedule) -> Definition | HoldfastError:
    """The definition of a schedule as it is stored, or what is wrong with it."""
    try:
        return Definition.from_json(msgspec.json.decode(found.definition))
    except HoldfastError as error:
        return error
    except (msgspec.MsgspecError, RecursionError) as error:
        return HoldfastError(str(error))
