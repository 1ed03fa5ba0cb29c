"""Schedules: what recurs, in plain words, when it comes next and what became of it; fire, pause, resume, delete,
backfill."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec

from holdfast import schedules as asked
from holdfast.schedules import Backfill, OccurrenceInfo, Recent, ScheduleInfo
from holdfast.web.context import Act, Look
from holdfast.web.routes import action, page
from holdfast.web.view.plan_times import ClockChange, PlanTime, next_change, next_plan, next_plans, told, zone_of
from holdfast.web.view.problems import Problem
from holdfast.web.view.questions import Question

PAGE = 50
RECENT = 12
"""Occurrences of each schedule that the list shows."""
SHOWN = 500
"""Plan times of a dry run that are shown."""


@dataclass(frozen=True)
class Schedule:
    """A schedule in plain words, its next plan time, and what became of the last ones, the newest last."""

    info: ScheduleInfo
    words: str
    next: datetime | None
    recent: list[Recent]


@dataclass(frozen=True)
class ScheduleList:
    """Schedules by name; the next page is `above` the last one."""

    schedules: list[Schedule]
    next: str | None


@dataclass(frozen=True)
class SchedulePage:
    """Everything about a schedule: its next plan times, also around a change of the clocks, and its history."""

    schedule: Schedule
    zone: str
    upcoming: list[PlanTime]
    change: ClockChange | None
    occurrences: list[OccurrenceInfo]
    earlier: datetime | None


@page("/schedules", "Schedules", "schedules.html", menu=True)
async def schedules(look: Look, *, above: str | None = None) -> ScheduleList:
    """What recurs: in plain words, when it comes next, and what became of it."""
    found = await look(asked.listed(look.queries, above=above, limit=PAGE + 1))
    shown = found[:PAGE]
    recent = await look(asked.recent(look.queries, [each.name for each in shown], limit=RECENT))
    return ScheduleList(
        [_schedule(each, recent.get(each.name, [])) for each in shown], shown[-1].name if len(found) > PAGE else None
    )


@page("/schedules/{name}", "Schedule", "schedule.html")
async def schedule(
    look: Look,
    *,
    name: str,
    after: str | None = None,
    before: str | None = None,
    number: Annotated[int, msgspec.Meta(ge=1, le=200)] = 10,
) -> SchedulePage:
    """One schedule: its next plan times, later than `after`, and what became of those before `before`."""
    info = await _one(look, name)
    zone, where = zone_of(info)
    seen = await look(
        asked.occurrences(look.queries, name, before=_moment(before, "before") if before else None, limit=PAGE + 1)
    )
    recent = await look(asked.recent(look.queries, [name], limit=RECENT * 4))
    upcoming = next_plans(info, number, _moment(after, "after") if after else None)
    return SchedulePage(
        _schedule(info, recent.get(name, [])),
        zone,
        told(upcoming, where),
        next_change(info),
        seen[:PAGE],
        seen[PAGE - 1].plan_time if len(seen) > PAGE else None,
    )


def _schedule(info: ScheduleInfo, recent: list[Recent]) -> Schedule:
    return Schedule(info, info.words, next_plan(info), recent)


async def _one(look: Look, name: str) -> ScheduleInfo:
    found = await look(asked.listed(look.queries, only=name))
    if not found:
        raise Problem(404, "Not found", f"There is no schedule {name}.")
    return found[0]


def _moment(text: str, what: str) -> datetime:
    """A time from a form or an address; in UTC if it names no zone."""
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Problem(400, "Not understood", f"{what}: write a time, such as 2030-01-31T09:00+01:00") from None


# --- fire, pause, resume


@dataclass(frozen=True)
class Acted:
    """What became of a schedule, and the tasks that were enqueued."""

    name: str
    state: str
    tasks: list[UUID]


def _to_the_schedule(acted: "Acted | Backfilled") -> str:
    return f"/schedules/{acted.name}"


@page("/schedules/{name}/fire", "Fire a schedule", "question.html", live=False)
async def ask_to_fire_schedule(look: Look, *, name: str) -> Question:
    """What it means to fire a schedule now."""
    info = await _one(look, name)
    each = f"a task for each of its {info.scopes:,} scopes" if info.scopes else "one task"
    return Question(
        f"Fire {name} now?",
        [
            f"It enqueues {each} of {info.definition.get('step')}, with now as the plan time, whatever its timing "
            "says. Its next plan times stay as they are.",
        ],
        "Fire it",
        f"/schedules/{name}/fire",
        f"/schedules/{name}",
    )


@page("/schedules/{name}/pause", "Pause a schedule", "question.html", live=False)
async def ask_to_pause_schedule(look: Look, *, name: str) -> Question:
    """What it means to pause a schedule."""
    await _one(look, name)
    return Question(
        f"Pause {name}?",
        ["Nothing of it is enqueued until somebody resumes it. What it has enqueued before goes on."],
        "Pause it",
        f"/schedules/{name}/pause",
        f"/schedules/{name}",
        is_danger=True,
    )


@page("/schedules/{name}/resume", "Resume a schedule", "question.html", live=False)
async def ask_to_resume_schedule(look: Look, *, name: str) -> Question:
    """What it means to resume a schedule."""
    info = await _one(look, name)
    by = f" It was paused by {info.paused_by}." if info.paused_by else ""
    return Question(
        f"Resume {name}?",
        [f"It goes on from now; what was planned meanwhile is not caught up, unless by a backfill.{by}"],
        "Resume it",
        f"/schedules/{name}/resume",
        f"/schedules/{name}",
    )


@page("/schedules/{name}/delete", "Delete a schedule", "question.html", live=False)
async def ask_to_delete_schedule(look: Look, *, name: str) -> Question:
    """What it means to delete a schedule."""
    info = await _one(look, name)
    says = ["Nothing more of it is enqueued. Its tasks stay, and so does its history, under its name."]
    if info.in_code and info.condition != "orphaned":
        says.append("A live worker declares it in its code: it would come back, so this is refused. Pause it instead.")
    return Question(
        f"Delete {name}?", says, "Delete it", f"/schedules/{name}/delete", f"/schedules/{name}", is_danger=True
    )


@action("/schedules/{name}/fire", _to_the_schedule)
async def fire_schedule(act: Act, *, name: str, scope: str | None = None, why: str | None = None) -> Acted:
    """Enqueues an occurrence now, whatever the timing says; for all scopes, or for one."""
    return Acted(name, "fired", await act.app.schedules.fire(name, scope=scope, by=act.by, why=why))


@action("/schedules/{name}/pause", _to_the_schedule)
async def pause_schedule(act: Act, *, name: str, why: str | None = None) -> Acted:
    """Enqueues nothing of a schedule until it is resumed."""
    return Acted(name, await act.app.schedules.pause(name, by=act.by, why=why), [])


@action("/schedules/{name}/resume", _to_the_schedule)
async def resume_schedule(act: Act, *, name: str, why: str | None = None) -> Acted:
    """Lets a paused schedule go on from now."""
    return Acted(name, await act.app.schedules.resume(name, by=act.by, why=why), [])


@action("/schedules/{name}/delete", lambda _: "/schedules")
async def delete_schedule(act: Act, *, name: str, why: str | None = None) -> Acted:
    """Deletes a schedule; its tasks and its history stay. Refused if the code of a live worker declares it."""
    await act.app.schedules.delete(name, by=act.by, why=why)
    return Acted(name, "deleted", [])


# --- backfill


@dataclass(frozen=True)
class DryRun:
    """What a backfill would enqueue: so many plan times, the first of them, and how many have their task already.

    Without a range, or with a wrong one, `count` is None, and `problem` says what is wrong.
    """

    name: str
    since: str
    until: str
    zone: str
    count: int | None
    existing: int
    missing: list[tuple[str, PlanTime]]
    problem: str


@dataclass(frozen=True)
class Backfilled:
    """What a backfill has enqueued."""

    name: str
    enqueued: int
    existing: int


@page("/schedules/{name}/backfill", "Backfill a schedule", "backfill.html", live=False)
async def dry_run(look: Look, *, name: str, since: str = "", until: str = "") -> DryRun:
    """What a backfill of a range would enqueue: nothing is changed."""
    info = await _one(look, name)
    zone, where = zone_of(info)
    if not since or not until:
        return DryRun(name, since, until, zone, None, 0, [], "")
    first, last = _moment(since, "since"), _moment(until, "until")
    if last < first:
        return DryRun(name, since, until, zone, None, 0, [], "The range ends before it begins.")
    made: Backfill = (await look.plan(asked.backfill(look.queries, name, first, last, dry_run=True)))[0]
    shown = made.missing[:SHOWN]
    times = told([plan for _, plan in shown], where)
    missing = [(scope, time) for (scope, _), time in zip(shown, times, strict=True)]
    return DryRun(name, since, until, zone, len(made.missing), made.existing, missing, "")


@action("/schedules/{name}/backfill", _to_the_schedule)
async def backfill_schedule(act: Act, *, name: str, since: str, until: str, why: str | None = None) -> Backfilled:
    """Enqueues the plan times of a range that have no occurrence yet. Done again, it does nothing."""
    first, last = _moment(since, "since"), _moment(until, "until")
    made = await act.app.schedules.backfill(name, first, last, by=act.by, why=why)
    return Backfilled(name, made.enqueued, made.existing)
