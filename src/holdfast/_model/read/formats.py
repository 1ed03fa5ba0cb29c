"""How counts, sizes and times are written for people: alike on the command line, in the dashboard, the doctor and logs.

Durations have the units of `holdfast.how_long` in SQL: ms, s, min, h, d. A kB has 1,024 bytes, as in PostgreSQL.
"""

from datetime import UTC, datetime, timedelta

from holdfast._model.read.infos import COUNTED

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))

# Counts ---------------------------------------------------------------------------------------------


def amount(count: int, limit: int = COUNTED) -> str:
    """A bounded count: `1,234`, `10,000+`. One more than the limit means more than that."""
    return f"{count:,}" if count <= limit else f"{limit:,}+"


def things(count: int, noun: str, limit: int | None = None) -> str:
    """`1 task`, `1,234 tasks`; with a limit a bounded count of them."""
    shown = f"{count:,}" if limit is None else amount(count, limit)
    return f"{shown} {noun}{'' if count == 1 else 's'}"


def number(count: float) -> str:
    """A number that need not be whole: `1,234`, `12.5`."""
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:,.1f}"


def percent(part: float | None) -> str:
    """`1.2 %`; a little is not nothing."""
    if part is None:
        return "-"
    return "<0.1 %" if 0 < part < 0.0005 else f"{part * 100:.1f} %"


def rate(count: int, seconds: float) -> str:
    """`3.4/s`, `12.0/min`: the unit in which it can be read."""
    each = count / seconds if seconds else 0.0
    if each >= 0.95 or not each:
        return f"{each:,.0f}/s" if each >= 10 or not each else f"{each:.1f}/s"
    each *= 60
    return f"{each:.1f}/min" if each >= 0.95 else f"{each * 60:.1f}/h"


def size(count: float) -> str:
    """Bytes in the unit that fits: `812 kB`, `1.4 GB`."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1024
        if count < 1000 or unit == "TB":
            break
    return f"{count:,.1f} {unit}" if count < 10 else f"{count:,.0f} {unit}"


# Times ----------------------------------------------------------------------------------------------


def duration(span: timedelta | float | None) -> str:
    """How long something takes: `4.2 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `1 d 3 h`; nothing if it is not known."""
    if span is None:
        return ""
    seconds = max(0.0, span.total_seconds() if isinstance(span, timedelta) else span)
    if seconds and seconds < 0.9995:
        return _decimal(seconds * 1000, "ms")
    if round(seconds, 1) < 60:
        return _decimal(seconds, "s")
    left = round(seconds)
    parts: list[str] = []
    for unit, length in _UNITS:
        count, left = divmod(left, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def about(span: timedelta | float) -> str:
    """How long ago or how late something is, in one unit: `42 s`, `12 min`, `3 h`, `2 d`."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    unit, length = next((each for each in _UNITS if seconds >= 2 * each[1]), _UNITS[-1])
    return f"{int(seconds // length)} {unit}"


def between(start: datetime | None, end: datetime | None) -> str:
    """How long something took; nothing if it has not begun or not ended."""
    return "" if start is None or end is None else duration(end - start)


def relative(at: datetime | None) -> str:
    """`in 4 s`, `3 min ago`, by this machine's clock: nothing is decided by it."""
    if at is None:
        return ""
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {about(seconds)}" if seconds >= 0 else f"{about(-seconds)} ago"


def moment(at: datetime | None) -> str:
    """A time as people here read it, and how far away it is."""
    return "" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S} ({relative(at)})"


def _decimal(count: float, unit: str) -> str:
    """Two figures at least, and no more than one behind the point where that matters: `4.2 ms`, `42 ms`, `42.3 s`."""
    shown = f"{count:.0f}" if unit == "ms" and count >= 9.95 else f"{count:.1f}".removesuffix(".0")
    return f"{shown} {unit}"
