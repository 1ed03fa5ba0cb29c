"""Durations as users write them: `"250ms"`, `"90s"`, `"1h30m"`, `"7d"`, a number of seconds, a timedelta."""

import math
import re
from datetime import timedelta
from typing import TypeAlias

from holdfast.errors import InvalidDuration

Duration: TypeAlias = str | int | float | timedelta

LONGEST = 100 * 365.25 * 86_400.0
"""A hundred years. Longer durations are slips of the keyboard and would overflow a timestamp."""

DAY = 86_400.0

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def seconds(value: Duration, what: str = "duration", *, least: float = 0.0) -> float:
    """The length of `value` in seconds, refused below `least`; `what` names it in the error message."""
    match value:
        case bool():
            raise _invalid(what, value, "is not a duration")
        case str():
            length = _parse(value, what)
        case timedelta():
            length = value.total_seconds()
        case int() | float():
            length = _number(value, what)
        case _:
            raise _invalid(what, value, "is not a duration")
    if math.isnan(length):
        raise _invalid(what, value, "is not a number")
    if length < 0:
        raise _invalid(what, value, "is negative")
    if length > LONGEST:
        raise _invalid(what, value, "is longer than 100 years")
    if length < least:
        raise _invalid(what, value, f"is shorter than {in_short(timedelta(seconds=least))}, the least there is")
    return length


def _parse(text: str, what: str) -> float:
    if _WHOLE.fullmatch(text) is None:
        raise _invalid(what, text, "is not a duration")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _number(value: float, what: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise _invalid(what, value, "is longer than 100 years") from None


def _invalid(what: str, value: object, problem: str) -> InvalidDuration:
    try:
        shown = repr(value)
    except Exception:  # a huge int refuses to be printed, and a stranger's repr may do anything
        shown = f"a {type(value).__name__}"
    if len(shown) > 60:
        shown = shown[:57] + "..."
    return InvalidDuration(
        f'{what}: {shown} {problem}. Write for example "250ms", "90s", "1h30m" or "7d", '
        "a number of seconds, or a timedelta."
    )


def in_short(span: timedelta) -> str:
    """A duration as users write it: `2d`, `1h30m`."""
    left = round(span.total_seconds() * 1000)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, round(_UNITS[unit] * 1000))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"
