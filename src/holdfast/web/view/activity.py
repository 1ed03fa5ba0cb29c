"""What happened lately, for the charts and for the JSON: throughput, errors, percentiles of waits and runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias, get_args

from holdfast import insights
from holdfast.insights import By, Figure, Spread
from holdfast.web.context import Look

Span: TypeAlias = Literal["1h", "24h", "7d"]
SPANS: tuple[Span, ...] = get_args(Span)
"""The spans of time to choose from."""

TOO_SHORT = 0.2
"""What has gone on for less than this part of a step has no rate yet."""


@dataclass(frozen=True)
class Percentiles:
    """So many of a hundred took no longer, in seconds; None if there was nothing."""

    p50: float | None
    p95: float | None
    p99: float | None


@dataclass(frozen=True)
class Pace:
    """What happened in a span of time from `at` on. `error_rate` is 0 to 1; None where there was nothing to tell.

    `wait` is from due to claimed, `run` from claimed to recorded. `per_minute` counts attempts.
    """

    at: datetime
    attempts: int
    done: int
    errors: int
    parked: int
    per_minute: float | None
    done_per_minute: float | None
    error_rate: float | None
    wait: Percentiles
    run: Percentiles


@dataclass(frozen=True)
class Activity:
    """What happened until now, all together and in steps of so many seconds; the last may be going on.

    `missing_since`: from then on nothing was counted, but for the last hour, because no worker has come round to it.
    """

    span: Span
    since: datetime
    until: datetime
    step: float
    total: Pace
    points: list[Pace]
    missing_since: datetime | None


async def activity(look: Look, span: Span, *, kind: str | None = None) -> Activity:
    """What happened in this span of time, of one kind or of all."""
    found = await look(insights.figures(look.queries, span, kind=kind))
    step = found.step.total_seconds()
    return Activity(
        span,
        found.since,
        found.until,
        step,
        _pace(found.since, found.total, found.seconds, 0.0),
        [
            _pace(each.at, each.figure, min(step, (found.until - each.at).total_seconds()), TOO_SHORT * step)
            for each in found.points
        ],
        found.missing_since,
    )


async def last_hour(look: Look, by: By) -> Mapping[str, Pace]:
    """What happened in the last hour, by the name of kinds or queues that did anything."""
    found = await look(insights.figures(look.queries, "1h", "5m", by=by))
    return {name: _pace(found.since, total, found.seconds, 0.0) for name, total in found.totals.items()}


def _pace(at: datetime, figure: Figure, seconds: float, least: float) -> Pace:
    minutes = seconds / 60 if seconds > least else None
    return Pace(
        at,
        figure.attempts,
        figure.done,
        figure.errors,
        figure.outcomes.get("failed", 0),
        figure.attempts / minutes if minutes else None,
        figure.done / minutes if minutes else None,
        figure.error_rate,
        _percentiles(figure.wait),
        _percentiles(figure.run),
    )


def _percentiles(spread: Spread) -> Percentiles:
    return Percentiles(spread.p50, spread.p95, spread.p99)
