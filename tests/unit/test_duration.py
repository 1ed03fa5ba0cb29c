"""Durations as users write them."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, InvalidDuration
from holdfast._model.time.duration import LONGEST, seconds

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("1h30m", 5400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        ("1.5s", 1.5),
        ("1m1ms", 60.001),
        ("0s", 0),
        (0, 0),
        (2.5, 2.5),
        (timedelta(minutes=2), 120),
        (timedelta(0), 0),
    ],
)
def test_durations_are_understood(written: Any, meant: float) -> None:
    assert seconds(written) == pytest.approx(meant)


@pytest.mark.parametrize(
    "rubbish",
    ["", " ", "5", "5 m", "5m ", "5m\n", "m", "-5m", "+5m", "1e3s", "5x", "5M", "\u0665s", "1.s", ".5s", "1h30", "NaNs"]
    + [
        -1,
        -0.001,
        True,
        False,
        float("nan"),
        float("inf"),
        float("-inf"),
        pytest.param(10**5000, id="huge"),
        LONGEST + 1,
        "5300w",
        "9" * 400 + "s",
    ]
    + [timedelta(seconds=-1), timedelta.max, None, b"5m", [5], Decimal(5), object()],
)
def test_everything_else_is_refused_with_an_example(rubbish: Any) -> None:
    with pytest.raises(InvalidDuration, match=r"^timeout: .*1h30m") as refusal:
        seconds(rubbish, "timeout")
    assert isinstance(refusal.value, ConfigError)
    assert isinstance(refusal.value, ValueError)
    assert len(str(refusal.value)) < 300


def test_a_hundred_years_are_allowed() -> None:
    assert seconds(LONGEST) == LONGEST


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=5))
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    written = "".join(f"{number}{unit}" for number, unit in parts)
    meant = sum(number * UNITS[unit] for number, unit in parts)
    if meant > LONGEST:
        with pytest.raises(InvalidDuration):
            seconds(written)
    else:
        assert seconds(written) == pytest.approx(meant)


@given(st.one_of(st.text(), st.integers(), st.floats(), st.timedeltas(), st.booleans(), st.none(), st.binary()))
def test_any_input_gives_seconds_or_a_clear_refusal(given: Any) -> None:
    try:
        length = seconds(given)
    except InvalidDuration:
        return
    assert 0 <= length <= LONGEST
