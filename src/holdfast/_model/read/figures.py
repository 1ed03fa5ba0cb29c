"""Figures: how many attempts ended how, and how long they had waited and took, by steps of time.

Times are kept as histograms with fixed bounds, so figures of any selection are added up before a percentile is read.
A percentile is exact to its bucket, a factor of 2 or 2.5, and interpolated in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

By: TypeAlias = Literal["kind", "queue", "step"]

BUCKETS = tuple(float(f"{first}e{power}") for power in range(-3, 5) for first in (1, 2, 5)) + (100_000.0,)
"""The bounds between buckets, in seconds; as `holdfast.buckets()` in the database."""

OUTCOMES = ("done", "advanced", "snoozed", "retried", "failed", "lost", "cancelled", "released")
ERRORS = ("retried", "failed", "lost")


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something took: how many times each bucket, and all together in seconds."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """In seconds; None if there was nothing."""
        return self.seconds / self.count if self.count else None

    @property
    def p50(self) -> float | None:
        return self.percentile(0.50)

    @property
    def p95(self) -> float | None:
        return self.percentile(0.95)

    @property
    def p99(self) -> float | None:
        return self.percentile(0.99)

    def percentile(self, part: float) -> float | None:
        """How long at most this part of all took, in seconds; None if there was nothing."""
        rank, before = part * self.count, 0
        if not self.count:
            return None
        for place, count in enumerate(self.counts):
            if count and before + count >= rank:
                return _within(place, max(0.0, rank - before) / count)
            before += count
        return BUCKETS[-1]

    @property
    def summary(self) -> dict[str, float | None]:
        """What people ask of it, in seconds."""
        return {"mean": self.mean, "p50": self.p50, "p95": self.p95, "p99": self.p99}

    def __add__(self, other: "Spread") -> "Spread":
        added = tuple(mine + its for mine, its in zip(self.counts, other.counts, strict=True))
        return Spread(added, self.seconds + other.seconds)


def _within(place: int, part: float) -> float:
    """A time in a bucket, evenly on the scale of logarithms; the first begins at 0, and the last has no end."""
    if place == 0:
        return BUCKETS[0] * part
    if place == len(BUCKETS):
        return BUCKETS[-1]
    low, high = BUCKETS[place - 1], BUCKETS[place]
    return float(low * (high / low) ** part)


@dataclass(frozen=True, slots=True)
class Figure:
    """What happened in a span of time: attempts by outcome, and how long they waited and took.

    How long lost and released attempts took tells when somebody noticed, so their times are left out.
    """

    outcomes: Mapping[str, int] = field(default_factory=dict)
    wait: Spread = Spread()
    run: Spread = Spread()

    @property
    def attempts(self) -> int:
        """All but those that were handed back unfinished."""
        return sum(count for outcome, count in self.outcomes.items() if outcome != "released")

    @property
    def done(self) -> int:
        """Tasks that were finished."""
        return self.outcomes.get("done", 0)

    @property
    def errors(self) -> int:
        """Attempts that ended with an error, or with their worker."""
        return sum(self.outcomes.get(each, 0) for each in ERRORS)

    @property
    def error_rate(self) -> float | None:
        """Errors by attempts, 0 to 1; None if there were no attempts."""
        return self.errors / self.attempts if self.attempts else None

    def summary(self, seconds: float) -> dict[str, Any]:
        """What people ask of it, as JSON; it happened in so many seconds."""
        return {
            "attempts": self.attempts,
            "per_second": self.attempts / seconds if seconds else None,
            "done": self.done,
            "errors": self.errors,
            "error_rate": self.error_rate,
            "outcomes": dict(self.outcomes),
            "wait": self.wait.summary,
            "run": self.run.summary,
        }

    def __add__(self, other: "Figure") -> "Figure":
        outcomes = dict(self.outcomes)
        for outcome, count in other.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
        return Figure(outcomes, self.wait + other.wait, self.run + other.run)


@dataclass(frozen=True, slots=True)
class Point:
    """What happened in one step of time, from `at` on."""

    at: datetime
    figure: Figure


@dataclass(frozen=True, slots=True)
class Figures:
    """What happened between two times, in steps; of all attempts, or apart by name.

    `groups` has the points of each name, the busiest first; without `by` there is one, with the name "". Steps of time
    in which nothing happened are there too. The last step may be going on. `missing_since`: from then on nothing was
    counted, except for the last hour, because no worker has come round to it.
    """

    since: datetime
    until: datetime
    step: timedelta
    groups: Mapping[str, Sequence[Point]]
    missing_since: datetime | None = None

    @property
    def seconds(self) -> float:
        """How long the whole span is."""
        return (self.until - self.since).total_seconds()

    @property
    def totals(self) -> dict[str, Figure]:
        """What happened in the whole span, by name."""
        return {name: _sum(point.figure for point in points) for name, points in self.groups.items()}

    @property
    def total(self) -> Figure:
        """What happened in the whole span."""
        return _sum(self.totals.values())

    @property
    def points(self) -> list[Point]:
        """All names together, step by step."""
        series = list(self.groups.values())
        return [Point(at, _sum(points[place].figure for points in series)) for place, at in enumerate(_times(self))]


def _sum(figures: Iterable[Figure]) -> Figure:
    return sum(figures, Figure())


def _times(figures: Figures) -> list[datetime]:
    times: list[datetime] = []
    at = figures.since
    while at < figures.until or not times:
        times.append(at)
        at += figures.step
    return times


def arranged(
    since: datetime,
    until: datetime,
    step: timedelta,
    counted: Iterable[tuple[str, Point]],
    missing_since: datetime | None,
) -> Figures:
    """Figures of what was counted, with the steps of time in between."""
    found: dict[str, dict[datetime, Figure]] = {}
    for name, point in counted:
        found.setdefault(name, {})[point.at] = point.figure
    times = _times(Figures(since, until, step, {}))
    busiest = sorted(found, key=lambda name: (-sum(figure.attempts for figure in found[name].values()), name))
    groups = {name: [Point(at, found[name].get(at, Figure())) for at in times] for name in busiest}
    return Figures(since, until, step, groups, missing_since)
