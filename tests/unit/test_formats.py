"""How counts, sizes and times are written for people."""

from datetime import UTC, datetime, timedelta

import pytest

from holdfast._model.read.formats import (
    about,
    amount,
    between,
    duration,
    moment,
    number,
    percent,
    rate,
    relative,
    size,
    things,
)
from holdfast._model.read.infos import AtLeast


def test_counts() -> None:
    assert [amount(each) for each in (0, 1234, 10_000, 10_001)] == ["0", "1,234", "10,000", "10,000+"]
    assert amount(AtLeast(20)) == "20+"
    assert [things(each, "task") for each in (0, 1, 12_000)] == ["0 tasks", "1 task", "12,000 tasks"]
    assert things(12_000, "task", 10_000) == "10,000+ tasks"
    assert [number(each) for each in (3, 3.21, 1234.5)] == ["3", "3.2", "1,234"]


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (None, ""),
        (0, "0 s"),
        (0.0042, "4.2 ms"),
        (0.012, "12 ms"),
        (timedelta(milliseconds=999), "999 ms"),
        (0.9996, "1 s"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (120, "2 min"),
        (150, "2 min 30 s"),
        (7500, "2 h 5 min"),
        (7205, "2 h"),
        (timedelta(days=7), "7 d"),
        (timedelta(hours=27, minutes=1), "1 d 3 h"),
        (-1, "0 s"),
    ],
)
def test_durations(span: timedelta | float | None, text: str) -> None:
    assert duration(span) == text


@pytest.mark.parametrize(
    ("span", "text"),
    [(0.4, "0 s"), (90.5, "90 s"), (120, "2 min"), (timedelta(hours=5, minutes=1), "5 h"), (259_260, "3 d")],
)
def test_about_how_long(span: timedelta | float, text: str) -> None:
    assert about(span) == text


def test_times() -> None:
    now = datetime.now(UTC)
    assert relative(now - timedelta(seconds=90.5)) == "90 s ago"
    assert relative(now + timedelta(hours=5, minutes=1)) == "in 5 h"
    assert relative(None) == moment(None) == ""
    assert moment(now - timedelta(days=3, minutes=1)).endswith(" (3 d ago)")
    assert between(now, now + timedelta(milliseconds=12)) == "12 ms"
    assert between(now, None) == between(None, now) == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (8192, "8.0 kB"),
        (1000 * 1024, "1.0 MB"),
        (50 * 2**20, "50 MB"),
        (2**60, "1,048,576 TB"),
    ],
)
def test_a_kB_has_1024_bytes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("count", "seconds", "shown"),
    [(0, 60, "0/s"), (12_000, 60, "200/s"), (90, 60, "1.5/s"), (30, 60, "30.0/min"), (2, 3600, "2.0/h")],
)
def test_rates(count: int, seconds: float, shown: str) -> None:
    assert rate(count, seconds) == shown


def test_a_few_errors_are_not_none() -> None:
    assert (percent(None), percent(0.0), percent(0.0001), percent(0.123)) == ("-", "0.0 %", "<0.1 %", "12.3 %")
