"""The plan times of a schedule for people: in its own zone, and around the next change of its clocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import takewhile

from holdfast._model.time.recurrence import Cron, zone
from holdfast._model.time.schedule import Definition
from holdfast.errors import HoldfastError
from holdfast.schedules import ScheduleInfo

AHEAD = timedelta(days=370)
"""How far ahead a change of the clocks is looked for."""
BESIDE = 3
"""Plan times that are shown before and after a change."""
_SECOND = timedelta(seconds=1)
_LOOK_BACK = (timedelta(hours=1), timedelta(days=1), timedelta(days=8), timedelta(days=63))


@dataclass(frozen=True)
class PlanTime:
    """A plan time, as the clocks of its zone show it. `clocks_set`: they were set since the one before."""

    at: datetime
    local: str
    clocks_set: bool


@dataclass(frozen=True)
class ClockChange:
    """When the clocks of a schedule's zone are set next, and its plan times around that."""

    at: datetime
    zone: str
    times: list[PlanTime]


def next_plan(info: ScheduleInfo) -> datetime | None:
    """Its next plan time, which is not when a worker looks at it next."""
    if info.condition in ("paused", "ended"):
        return None
    return next(iter(next_plans(info, 1)), None)


def next_plans(info: ScheduleInfo, number: int, after: datetime | None = None) -> list[datetime]:
    """The next plan times; none of a definition that cannot be understood."""
    try:
        return info.next(number, after)
    except HoldfastError:
        return []


def zone_of(info: ScheduleInfo) -> tuple[str, tzinfo]:
    """The zone that its times are meant in."""
    try:
        timing = info.parsed.timing
        return (timing.tz, zone(timing.tz)) if isinstance(timing, Cron) else ("UTC", UTC)
    except HoldfastError:
        return "UTC", UTC


def told(times: Iterable[datetime], where: tzinfo) -> list[PlanTime]:
    """Times as the clocks there show them."""
    found: list[PlanTime] = []
    before: timedelta | None = None
    for each in times:
        local = each.astimezone(where)
        offset = local.utcoffset()
        found.append(PlanTime(each, f"{local:%a %Y-%m-%d %H:%M:%S %z}", before not in (None, offset)))
        before = offset
    return found


def next_change(info: ScheduleInfo) -> ClockChange | None:
    """What becomes of a schedule when its clocks are set next; None if they are not."""
    name, where = zone_of(info)
    at = _change(info.now, where)
    if at is None:
        return None
    try:
        definition = info.parsed
        times = [*_last_before(definition, at), *info.next(BESIDE, at - timedelta(microseconds=1))]
    except HoldfastError:
        return None
    return ClockChange(at, name, told(times, where)) if times else None


def _change(begin: datetime, where: tzinfo) -> datetime | None:
    """The first instant after `begin` with another offset from UTC."""
    begin = begin.replace(microsecond=0)
    same = begin
    while same < begin + AHEAD:
        later = same + timedelta(days=1)
        if _offset(later, where) != _offset(same, where):
            while later - same > _SECOND:
                middle = same + timedelta(seconds=(later - same) // _SECOND // 2)
                same, later = (middle, later) if _offset(middle, where) == _offset(same, where) else (same, middle)
            return later
        same = later
    return None


def _offset(instant: datetime, where: tzinfo) -> timedelta | None:
    return instant.astimezone(where).utcoffset()


def _last_before(definition: Definition, at: datetime) -> list[datetime]:
    """The last plan times before an instant, looking back farther and farther: there may be one each second."""
    found: list[datetime] = []
    for length in _LOOK_BACK:
        found = [*takewhile(lambda plan: plan < at, _from(definition, at - length))]
        if len(found) >= BESIDE:
            break
    return found[-BESIDE:]


def _from(definition: Definition, moment: datetime) -> Iterator[datetime]:
    following = definition.next_after(moment)
    while following is not None:
        yield following
        following = definition.next_after(following)
