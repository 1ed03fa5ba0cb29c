"""What a running step tells of itself: how far it has come, and figures such as the rows it has written."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TypeAlias

import msgspec

from holdfast._model.json.text import safe_text

Figure: TypeAlias = int | float | str

LONGEST_NOTE = 500
LARGEST_REPORT = 8 * 1024
"""Bytes of a report as JSON: figures, not data."""
LARGEST_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Told:
    """What an attempt has told so far. Never changed, only replaced: other threads read it."""

    fraction: float | None = None
    note: str = ""
    report: Mapping[str, Figure] = field(default_factory=dict)


def with_progress(told: Told | None, fraction: float, note: str) -> Told:
    """`told` with another progress; a TypeError or a ValueError says what is wrong with it."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"ctx.progress: fraction must be a number from 0 to 1, not {_shown(fraction)}")
    if not 0 <= fraction <= 1:  # NaN is not, either
        raise ValueError(f"ctx.progress: fraction must be from 0 to 1, not {fraction!r}: give done / total")
    if not isinstance(note, str):
        raise TypeError(f"ctx.progress: note must be a text, not {_shown(note)}")
    text = safe_text(note)
    short = text if len(text) <= LONGEST_NOTE else text[: LONGEST_NOTE - 1] + "…"
    return replace(told or Told(), fraction=float(fraction), note=short)


def with_report(told: Told | None, figures: Mapping[str, Figure]) -> Told:
    """`told` with more figures; a TypeError or a ValueError names the one that is wrong."""
    checked = {safe_text(name): _checked(name, value) for name, value in figures.items()}
    before = told or Told()
    report = {**before.report, **checked}
    size = len(msgspec.json.encode(report))
    if size > LARGEST_REPORT:
        largest = max(report, key=lambda name: len(str(report[name])))
        raise ValueError(
            f"ctx.report: the figures have {size:,} bytes together, and {LARGEST_REPORT:,} are allowed (the largest is "
            f"{largest}): return what is large as the result, or store it elsewhere"
        )
    return replace(before, report=report)


def _checked(name: str, value: Figure) -> Figure:
    if isinstance(value, str):
        return safe_text(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"ctx.report: {name} is {value!r}, which is no figure")
        return float(value)
    if isinstance(value, int):
        if abs(value) > LARGEST_NUMBER:
            raise ValueError(f"ctx.report: {name} is larger than 64 bits hold: give it as a text")
        return value
    raise TypeError(
        f"ctx.report: {name} must be a number or a text, not {_shown(value)}: give int(…), float(…) or str(…) of it"
    )


def _shown(value: object) -> str:
    return "None" if value is None else f"a {type(value).__qualname__}"
