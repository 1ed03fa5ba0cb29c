"""When something recurs: a cron line in a time zone, an interval anchored in time, or a list of instants; or a function
of the user says so, see `plan_times`.

A timing is pure: `after(moment)` gives the instants that follow, in UTC, and never asks what time it is.

Clocks that are set forward or back make two cases of a cron line. With fixed hours (`0 3 * * *`) it means times of
the day: one that the clocks skip comes at the first instant after the gap, unless `gap="skip"`, and one that they
repeat comes the first time only, unless `fold="both"`. With wildcard hours (`*/15 * * * *`) it means a rhythm, and
comes at every real instant whose local time matches.
"""

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast._model.time.duration import Duration, seconds
from holdfast.errors import ScheduleError

Gap: TypeAlias = Literal["skip", "after"]
Fold: TypeAlias = Literal["first", "both"]

LONGEST_LINE = 200
MOST_TIMES = 10_000

_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
# No clock is set by more than a day: what lies longer ago has no bearing on the local times of now.
_LOOK_BACK = timedelta(hours=26)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Timing(ABC):
    """The instants at which something recurs."""

    @abstractmethod
    def after(self, moment: datetime) -> Iterator[datetime]:
        """The instants later than `moment`, in order, in UTC."""

    @abstractmethod
    def words(self) -> str:
        """The timing in plain words."""

    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """What `timing()` makes the same timing of, ready for JSON."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timing) and self.definition() == other.definition()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.definition()})"


class Cron(Timing):
    """A cron line of 5 fields, or of 6 with seconds first, or a name such as `@daily`; in an IANA time zone."""

    def __init__(self, expression: str, *, tz: str = "UTC", gap: Gap = "after", fold: Fold = "first") -> None:
        if gap not in ("skip", "after"):
            raise ScheduleError(f"gap={gap!r}: write gap='after' or gap='skip'")
        if fold not in ("first", "both"):
            raise ScheduleError(f"fold={fold!r}: write fold='first' or fold='both'")
        self.expression = expression
        self.tz, self.gap, self.fold = tz, gap, fold
        self._zone = zone(tz)
        self._sim = _parse(expression)
        hours = self._sim.parts[2]
        self._is_rhythm = hours.startswith("*") or len(self._sim.hours) == 24

    def after(self, moment: datetime) -> Iterator[datetime]:
        last = moment
        try:
            for instant in self._instants(self._start(moment)):
                if instant > last:
                    last = instant
                    yield instant
        except OverflowError:
            return  # the end of the calendar

    def _start(self, moment: datetime) -> datetime:
        """Where to begin: what came before matters to times of the day alone, if the clocks were set not long ago."""
        before = moment - _LOOK_BACK
        return moment if self._is_rhythm or self._change_within(before, moment) is None else before

    def _instants(self, start: datetime) -> Iterator[datetime]:
        """Walks along stretches of constant offset; within one, local and real time go side by side."""
        position = start.astimezone(UTC).replace(microsecond=0)
        offset = self._offset(position)
        local = copy.copy(self._sim)
        local.dt = _naive(position + offset)
        repeated_until = datetime.min  # noqa: DTZ901 - a local time
        while True:
            at = next(local, None)
            if at is None:
                return
            instant = at.replace(tzinfo=UTC) - offset
            change = self._change_within(position, instant)
            if change is None:
                if at >= repeated_until:
                    yield instant
                position = instant
                continue
            former_end = _naive(change + offset)
            offset = self._offset(change)
            begin = _naive(change + offset)
            if former_end <= at < begin and not self._is_rhythm and self.gap == "after":
                yield change
            if begin < former_end and not self._is_rhythm and self.fold == "first":
                repeated_until = former_end
            local.dt = begin - _SECOND
            position = change

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._zone).utcoffset() or timedelta()

    def _change_within(self, begin: datetime, end: datetime) -> datetime | None:
        """The first instant after `begin`, up to `end`, with another offset from UTC."""
        if self._zone is UTC:
            return None
        offset = self._offset(begin)
        same = begin
        while same < end:
            later = min(same + _DAY, end)
            if self._offset(later) != offset:
                return self._first_with_another(offset, same, later)
            same = later
        return None

    def _first_with_another(self, offset: timedelta, same: datetime, other: datetime) -> datetime:
        while other - same > _SECOND:
            middle = same + timedelta(seconds=(other - same) // _SECOND // 2)
            if self._offset(middle) == offset:
                same = middle
            else:
                other = middle
        return other

    def words(self) -> str:
        said: str = self._sim.explain()
        return f"{said[:1].lower()}{said[1:]} ({self.tz})"

    def definition(self) -> dict[str, Any]:
        return {"cron": self.expression, "tz": self.tz, "gap": self.gap, "fold": self.fold}


class Every(Timing):
    """An interval anchored in time: `Every("15m")` is at every full quarter of an hour, in UTC.

    `anchor` is an instant that belongs to it; without one, 1970-01-01 00:00 UTC, so that all agree on it.
    """

    def __init__(self, interval: Duration, *, anchor: datetime | None = None) -> None:
        length = seconds(interval, "interval")
        if length < 1:
            raise ScheduleError(f"Every({interval!r}): an interval is at least a second")
        self._interval = timedelta(seconds=length)
        self._anchor = _EPOCH if anchor is None else aware(anchor, "anchor")

    def after(self, moment: datetime) -> Iterator[datetime]:
        number = (moment - self._anchor) // self._interval + 1
        while True:
            try:
                instant = self._anchor + number * self._interval
            except OverflowError:
                return
            yield instant
            number += 1

    def words(self) -> str:
        anchored = "" if self._anchor == _EPOCH else f", counted from {self._anchor:%Y-%m-%d %H:%M:%S} UTC"
        return f"every {span(self._interval)}{anchored}"

    def definition(self) -> dict[str, Any]:
        return {"every": self._interval.total_seconds(), "anchor": self._anchor.isoformat()}


class Times(Timing):
    """A list of instants."""

    def __init__(self, times: Iterable[datetime]) -> None:
        given = list(islice(times, MOST_TIMES + 1))  # a stranger's iterator may never end
        if not given:
            raise ScheduleError("a list of times needs at least one")
        if len(given) > MOST_TIMES:
            raise ScheduleError(f"these are too many times: at most {MOST_TIMES:,}, or use Cron, Every or Plans")
        self._times = sorted({aware(time, "a time") for time in given})

    def after(self, moment: datetime) -> Iterator[datetime]:
        return (time for time in self._times if time > moment)

    def words(self) -> str:
        first = f"{self._times[0]:%Y-%m-%d %H:%M:%S} UTC"
        if len(self._times) == 1:
            return f"once, at {first}"
        return f"at {len(self._times)} times from {first} to {self._times[-1]:%Y-%m-%d %H:%M:%S} UTC"

    def definition(self) -> dict[str, Any]:
        return {"times": [time.isoformat() for time in self._times]}


def timing(definition: Mapping[str, Any]) -> Timing:
    """The timing that a definition describes; whoever wrote it, it is checked."""
    match dict(definition):
        case {"cron": str(expression), **rest} if rest.keys() <= {"tz", "gap", "fold"}:
            return Cron(expression, **rest)
        case {"every": str() | int() | float() as interval, **rest} if rest.keys() <= {"anchor"}:
            anchor = rest.get("anchor")
            return Every(interval, anchor=None if anchor is None else _instant(anchor))
        case {"times": list(times), **rest} if not rest:
            return Times(_instant(time) for time in times)
    raise ScheduleError(
        f"{str(definition)[:200]} is no timing. Write "
        '{"cron": "0 3 * * *", "tz": "Europe/Berlin"}, {"every": "15m"} or {"times": ["2027-01-01T00:00:00Z"]}'
    )


def zone(name: str) -> ZoneInfo | Any:
    """A time zone by its IANA name."""
    if name == "UTC":
        return UTC
    if not isinstance(name, str):
        raise ScheduleError(f"tz={name!r}: give the IANA name of a time zone, such as 'Europe/Berlin'")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ScheduleError(
            f"there is no time zone {name[:100]!r}. Give its IANA name, such as 'Europe/Berlin'; if it is right, "
            "this machine has no time zone data: pip install tzdata"
        ) from None


def aware(moment: object, what: str) -> datetime:
    """An instant in UTC; a datetime without a zone is refused, because it means another one on every machine."""
    if not isinstance(moment, datetime):
        raise ScheduleError(f"{what}: {moment!r} is no datetime")
    if moment.tzinfo is None:
        raise ScheduleError(f"{what}: {moment.isoformat()} has no time zone; write datetime(…, tzinfo=UTC)")
    return moment.astimezone(UTC)


@lru_cache(1000)
def _parse(expression: str) -> CronSim:
    if not isinstance(expression, str) or len(expression) > LONGEST_LINE:
        raise ScheduleError(f"a cron line is a text of at most {LONGEST_LINE} characters")
    line = expression.strip().lower()
    if line.startswith("@") and line not in _NAMES:
        raise ScheduleError(f"there is no {expression!r}; there are {', '.join(_NAMES)}")
    try:
        sim = CronSim(_NAMES.get(line, expression), datetime(2000, 1, 1))  # noqa: DTZ001 - a local time
        if next(copy.copy(sim), None) is not None:
            return sim
    except CronSimError as error:
        problem = re.sub(r"^Bad ", "cannot read the field ", str(error))
        raise ScheduleError(
            f"cron line {expression!r}: {problem[:1].lower()}{problem[1:]}. It has 5 fields, minute hour day month "
            "weekday, such as '0 3 * * *' (03:00 every day), or 6 with seconds first"
        ) from None
    except AssertionError:
        raise ScheduleError(f"cron line {expression!r}: cannot be read") from None
    raise ScheduleError(f"cron line {expression!r} never comes true: no day has that date")


def _naive(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


def _instant(text: object) -> datetime:
    try:
        return aware(datetime.fromisoformat(str(text)), "time")
    except ValueError:
        raise ScheduleError(f"{str(text)[:100]!r} is no time; write 2027-01-31T12:00:00Z") from None


def span(length: timedelta) -> str:
    """A length of time in words: `15 minutes`, `minute`."""
    left = int(length.total_seconds())
    parts = []
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}{'' if number == 1 else 's'}")
    return " ".join(parts).removeprefix("1 ") if len(parts) == 1 else " ".join(parts)
