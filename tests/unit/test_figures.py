"""Percentiles of figures, and how figures are added up."""

import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta

import pytest

from holdfast._model.read.figures import BUCKETS, Figure, Point, Spread, arranged

NOON = datetime(2031, 5, 20, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def spread(*times: float) -> Spread:
    counts = [0] * (len(BUCKETS) + 1)
    for time in times:
        counts[bisect_right(BUCKETS, time)] += 1
    return Spread(tuple(counts), sum(times))


@pytest.mark.parametrize("part", [0.5, 0.95, 0.99, 1.0])
def test_a_percentile_is_in_the_bucket_of_the_true_one(part: float) -> None:
    chance = random.Random(3)
    times = sorted(chance.lognormvariate(-2, 2) for _ in range(2000))
    true = times[max(0, round(part * len(times)) - 1)]
    found = spread(*times).percentile(part)
    bounds = (0.0, *BUCKETS)
    place = bisect_right(BUCKETS, true)
    assert found is not None and bounds[place] <= found <= bounds[place + 1]


def test_percentiles_rise() -> None:
    times = spread(0.0, 0.0015, 0.0015, 3.0, 3.0, 3.0, 40.0, 10_000_000.0)
    found = [times.percentile(part / 100) for part in range(101)]
    assert found == sorted(found, key=lambda each: each or 0.0)
    assert found[-1] == BUCKETS[-1]  # as far as anybody knows


def test_of_nothing_there_is_no_percentile_and_no_mean() -> None:
    assert (Spread().p50, Spread().p99, Spread().mean, Figure().error_rate) == (None, None, None, None)


def test_spreads_are_added_up() -> None:
    whole = spread(1.0, 2.0) + spread(3.0)
    assert whole == spread(1.0, 2.0, 3.0) and whole.mean == 2.0


def test_attempts_that_were_handed_back_are_not_counted() -> None:
    figure = Figure({"done": 6, "retried": 2, "failed": 1, "lost": 1, "released": 90})
    assert (figure.attempts, figure.done, figure.errors, figure.error_rate) == (10, 6, 4, 0.4)


def test_steps_of_time_in_which_nothing_happened_are_there() -> None:
    counted = [("b", Point(NOON + MINUTE, Figure({"done": 1}))), ("a", Point(NOON, Figure({"done": 2})))]
    found = arranged(NOON, NOON + timedelta(seconds=150), MINUTE, counted, None)
    assert list(found.groups) == ["a", "b"]  # the busiest first
    assert [point.figure.done for point in found.points] == [2, 1, 0]
    assert found.total.done == 3 and found.seconds == 150
    assert [p.at for p in arranged(NOON, NOON + timedelta(seconds=90), MINUTE, [], None).points] == [
        NOON,
        NOON + MINUTE,
    ]
