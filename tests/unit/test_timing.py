"""S1, S9, S10: when something recurs."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, takewhile
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest

from holdfast._model.time.recurrence import Cron, Every, Times, Timing, timing
from holdfast.errors import HoldfastError, InvalidDuration, ScheduleError

MINUTE = timedelta(minutes=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def first(timing: Timing, after: datetime, number: int = 5) -> list[datetime]:
    return list(islice(timing.after(after), number))


def local(cron: Cron, after: str, number: int = 5) -> list[str]:
    zone = ZoneInfo(cron.tz)
    moment = datetime.fromisoformat(after).replace(tzinfo=zone)
    return [f"{instant.astimezone(zone):%m-%d %H:%M%z}" for instant in first(cron, moment, number)]


def test_S1_a_cron_line_in_a_zone() -> None:
    assert local(Cron("30 9 * * mon-fri", tz="Asia/Tokyo"), "2026-11-13T09:30", 3) == [
        "11-16 09:30+0900",
        "11-17 09:30+0900",
        "11-18 09:30+0900",
    ]


def test_S1_six_fields_have_seconds_first() -> None:
    assert [f"{t:%H:%M:%S}" for t in first(Cron("*/20 * * * * *"), NEW_YEAR, 4)] == [
        "00:00:20",
        "00:00:40",
        "00:01:00",
        "00:01:20",
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [("@hourly", "0 * * * *"), ("@Daily", "0 0 * * *"), ("@weekly", "0 0 * * 0"), ("@monthly", "0 0 1 * *")],
)
def test_S1_names(name: str, line: str) -> None:
    assert first(Cron(name), NEW_YEAR) == first(Cron(line), NEW_YEAR)


def test_S1_after_means_later_than_also_within_a_second() -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    every_noon = Cron("0 12 * * *")
    assert first(every_noon, noon - timedelta(microseconds=1), 1) == [noon]
    assert first(every_noon, noon, 1) == [noon + timedelta(days=1)]
    assert first(every_noon, noon + timedelta(microseconds=1), 1) == [noon + timedelta(days=1)]


def test_S1_intervals_are_anchored_in_time() -> None:
    quarter = Every("15m")
    assert [f"{t:%H:%M}" for t in first(quarter, NEW_YEAR + timedelta(minutes=7), 3)] == ["00:15", "00:30", "00:45"]
    own = Every("1h", anchor=datetime(2026, 3, 1, 0, 10, tzinfo=UTC))
    assert [f"{t:%H:%M}" for t in first(own, NEW_YEAR, 2)] == ["00:10", "01:10"]
    assert first(own, first(own, NEW_YEAR, 1)[0], 1) == [first(own, NEW_YEAR, 2)[1]]


def test_S1_a_list_of_times() -> None:
    times = [NEW_YEAR + timedelta(days=n) for n in (3, 1, 2, 1)]
    assert first(Times(times), NEW_YEAR + timedelta(days=1)) == [NEW_YEAR + timedelta(days=n) for n in (2, 3)]


@pytest.mark.parametrize(
    "made",
    [
        Cron("0 3 * * *", tz="Europe/Berlin", gap="skip", fold="both"),
        Cron("@daily"),
        Every("90s"),
        Every("1d", anchor=NEW_YEAR),
        Times([NEW_YEAR]),
    ],
)
def test_S1_a_definition_makes_the_same_timing(made: Timing) -> None:
    again = timing(made.definition())
    assert again == made and hash(again) == hash(made)
    assert first(again, NEW_YEAR - timedelta(1)) == first(made, NEW_YEAR - timedelta(1))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Cron("0 3 * * *", tz="Europe/Berlin"), "at 03:00 every day (Europe/Berlin)"),
        (Every("15m"), "every 15 minutes"),
        (Every("1h"), "every hour"),
        (Every("1h30m"), "every 1 hour 30 minutes"),
        (Every("1d", anchor=NEW_YEAR + timedelta(hours=6)), "every day, counted from 2026-01-01 06:00:00 UTC"),
        (Times([NEW_YEAR]), "once, at 2026-01-01 00:00:00 UTC"),
        (
            Times([NEW_YEAR, NEW_YEAR + timedelta(1)]),
            "at 2 times from 2026-01-01 00:00:00 UTC to 2026-01-02 00:00:00 UTC",
        ),
    ],
)
def test_S10_plain_words(made: Timing, words: str) -> None:
    assert made.words() == words


@pytest.mark.parametrize(
    "line",
    [
        "",
        "* * * *",
        "60 * * * *",
        "0 0 31 2 *",
        "0 0 30 feb *",
        "0 0 1--100000000 * *",
        "*/0 * * * *",
        "0 0 1-99999999999999999999 * *",
        "0 0 * * MON#6",
        "L/2 * * * *",
        "@reboot",
        "1,2," * 60 + "3 * * * *",
        "hourly",
        "0 0 * * *\0",
        None,
        7,
    ],
)
def test_S10_a_hostile_line_is_refused(line: Any) -> None:
    with pytest.raises(ScheduleError):
        Cron(line)


def test_S10_a_line_that_never_comes_true_is_refused() -> None:
    with pytest.raises(ScheduleError):
        Cron("0 0 31 4,6,9,11 *")


@pytest.mark.parametrize("tz", ["Mars/Olympus", "../../etc/passwd", "", "Europe", None, 3, "/usr/share/zoneinfo/UTC"])
def test_S1_an_unknown_zone_is_refused(tz: Any) -> None:
    with pytest.raises(ScheduleError, match=r"zone"):
        Cron("0 3 * * *", tz=tz)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Every(0), "at least a second"),
        (lambda: Every("soon"), "soon"),
        (lambda: Every("1h", anchor=datetime(2026, 1, 1)), "no time zone"),
        (lambda: Times([]), "at least one"),
        (lambda: Times([datetime(2026, 1, 1)]), "no time zone"),
        (lambda: Times(["now"]), "no datetime"),  # type: ignore[list-item]
        (lambda: Cron("0 3 * * *", gap="before"), "gap="),  # type: ignore[arg-type]
        (lambda: Cron("0 3 * * *", fold="second"), "fold="),  # type: ignore[arg-type]
        (lambda: timing({"cron": "0 3 * * *", "zone": "UTC"}), "no timing"),
        (lambda: timing({"times": ["tomorrow"]}), "no time"),
        (lambda: timing({}), "no timing"),
    ],
)
def test_S1_what_is_wrong_is_said(make: Any, message: str) -> None:
    with pytest.raises((ScheduleError, InvalidDuration), match=message) as refused:
        make()
    assert isinstance(refused.value, HoldfastError)


# --- clocks that are set


def test_S9_fixed_hours_in_a_gap() -> None:
    line = "30 2 * * *"
    assert local(Cron(line, tz="Europe/Berlin"), "2026-03-28T12:00", 2) == ["03-29 03:00+0200", "03-30 02:30+0200"]
    assert local(Cron(line, tz="Europe/Berlin", gap="skip"), "2026-03-28T12:00", 1) == ["03-30 02:30+0200"]
    several = Cron("*/15 2 * * *", tz="Europe/Berlin")
    assert local(several, "2026-03-28T12:00", 2) == ["03-29 03:00+0200", "03-30 02:00+0200"], "once for the whole gap"
    both = Cron("0 2,3 * * *", tz="Europe/Berlin")
    assert local(both, "2026-03-28T12:00", 2) == ["03-29 03:00+0200", "03-30 02:00+0200"], "two plans, one instant"


def test_S9_fixed_hours_in_a_fold() -> None:
    line = "30 2 * * *"
    assert local(Cron(line, tz="Europe/Berlin"), "2026-10-25T00:00", 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]
    assert local(Cron(line, tz="Europe/Berlin", fold="both"), "2026-10-25T00:00", 2) == [
        "10-25 02:30+0200",
        "10-25 02:30+0100",
    ]
    between = datetime(2026, 10, 25, 0, 45, tzinfo=UTC)  # 02:45, before the clocks go back
    assert first(Cron(line, tz="Europe/Berlin"), between, 1)[0].day == 26, "asked in between, it knows the first"


def test_S9_wildcard_hours_are_a_rhythm() -> None:
    half = Cron("*/30 * * * *", tz="Europe/Berlin")
    for begin in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        assert first(half, begin, 8) == [begin + n * timedelta(minutes=30) for n in range(1, 9)]


def test_S9_a_day_that_a_zone_skips() -> None:
    noon = Cron("0 12 * * *", tz="Pacific/Apia")
    assert local(noon, "2011-12-29T13:00", 2) == ["12-31 00:00+1400", "12-31 12:00+1400"]


class Change(NamedTuple):
    """Clocks that are set; two with the same signature are alike for every cron line without dates."""

    zone: str
    at: datetime
    before: timedelta
    after: timedelta

    @property
    def signature(self) -> tuple[object, ...]:
        wall = self.at + self.before
        return self.before, self.after, wall.time()


@cache
def changes() -> list[Change]:
    """All changes of all zones from 2020 to 2040, found by asking every half hour."""
    found = []
    end = datetime(2040, 1, 1, tzinfo=UTC)
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        day = datetime(2020, 1, 1, tzinfo=UTC)
        if len({(day + timedelta(days=n)).astimezone(zone).utcoffset() for n in range(0, 7305, 5)}) == 1:
            continue
        while day < end:
            after = day + timedelta(days=1)
            if day.astimezone(zone).utcoffset() != after.astimezone(zone).utcoffset():
                at = day
                while (before := day.astimezone(zone).utcoffset()) == at.astimezone(zone).utcoffset():
                    at += MINUTE
                assert before is not None
                later = at.astimezone(zone).utcoffset()
                assert later is not None
                found.append(Change(name, at, before, later))
            day = after
    return found


@cache
def walls(change: Change) -> list[tuple[datetime, datetime]]:
    """Every minute around a change, with what a clock on the wall says."""
    zone = ZoneInfo(change.zone)
    around = [change.at + n * MINUTE for n in range(-30 * 60, 30 * 60)]
    return [(instant, instant.astimezone(zone).replace(tzinfo=None)) for instant in around]


def by_scan(fields: list[set[int]], is_rhythm: bool, change: Change, gap: str, fold: str) -> Iterator[datetime]:
    """What a clock on the wall would do, minute by minute: the oracle. It shares nothing with the code."""
    minutes, hours = fields
    seen: set[datetime] = set()
    before = walls(change)[0][1] - MINUTE
    for instant, wall in walls(change):
        comes = wall.minute in minutes and wall.hour in hours
        if not is_rhythm:
            skipped = before + MINUTE
            while skipped < wall:
                if gap == "after" and skipped.minute in minutes and skipped.hour in hours:
                    comes = True
                skipped += MINUTE
            if wall in seen and fold == "first":
                comes = False
        seen.add(wall)
        before = wall
        if comes:
            yield instant


def check(change: Change, minute: str, hour: str, gap: Any, fold: Any) -> None:
    cron = Cron(f"{minute} {hour} * * *", tz=change.zone, gap=gap, fold=fold)
    fields = [cron._sim.minutes, cron._sim.hours]
    expected = list(by_scan(fields, hour.startswith("*"), change, gap, fold))
    start, end = change.at - timedelta(hours=30) - MINUTE, change.at + timedelta(hours=30)
    assert list(takewhile(lambda t: t < end, cron.after(start))) == expected, (change, minute, hour, gap, fold)
    middle = change.at + random.Random(str(change)).randrange(-90, 90) * MINUTE
    later = [t for t in expected if t > middle]
    assert list(takewhile(lambda t: t < end, cron.after(middle))) == later, (change, middle, minute, hour, gap, fold)


def test_S9_every_change_of_every_zone_from_2020_to_2040() -> None:
    """Changes that are alike are scanned once, with all rules; each change once, with one of them."""
    kinds = {change.signature: change for change in changes()}
    assert len(changes()) > 3000 and len(kinds) > 50
    for change in kinds.values():
        wall = change.at + change.before
        around = [(wall + timedelta(minutes=m)) for m in (-30, 0, 15, 60)]
        lines = [(str(t.minute), str(t.hour)) for t in around]
        lines += [("*/20", f"{wall.hour}"), ("7", "*"), ("*/15", "*/2"), ("0", "0")]
        for minute, hour in lines:
            for gap in ("after", "skip"):
                for fold in ("first", "both"):
                    check(change, minute, hour, gap, fold)


def test_S9_each_single_change_with_a_line_of_its_own() -> None:
    chosen = random.Random(9)
    for change in chosen.sample(changes(), 400):
        wall = change.at + change.before + timedelta(minutes=chosen.randrange(-60, 60))
        check(
            change, str(wall.minute), str(wall.hour), chosen.choice(["after", "skip"]), chosen.choice(["first", "both"])
        )
