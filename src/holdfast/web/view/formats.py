"""How numbers are told: counts, lengths of time, sizes."""

from datetime import timedelta

from holdfast._model.read.infos import COUNTED


def lasted(span: timedelta | float | None) -> str:
    """How long something took."""
    if span is None:
        return ""
    seconds = max(0.0, span.total_seconds() if isinstance(span, timedelta) else span)
    if seconds < 60:
        return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def amount(count: int, limit: int = COUNTED) -> str:
    """A bounded count: one more than the limit means more than that."""
    return f"{count:,}" if count <= limit else f"{limit:,}+"


def number(count: float) -> str:
    return f"{count:,.0f}" if count >= 100 or count == int(count) else f"{count:,.1f}"


def size(count: int) -> str:
    """Bytes, in the unit that fits."""
    if count < 1024:
        return f"{count} B"
    amount = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        amount /= 1024
        if amount < 1000 or unit == "TB":
            break
    return f"{amount:,.1f} {unit}" if amount < 10 else f"{amount:,.0f} {unit}"
