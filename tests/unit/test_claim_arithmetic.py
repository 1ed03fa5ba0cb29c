"""How much is claimed ahead (W1) and what a mark hides (M12), without a database."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from holdfast._engine.claim.budget import LARGEST_CLAIM, ClaimBudget
from holdfast._engine.claim.low_water import LowWaterMarks
from holdfast._engine.claim.pace import AHEAD_SECONDS, EVIDENCE, MOST_AHEAD, StepPace
from holdfast._engine.run.roster import Roster
from holdfast._engine.settings import WorkerSettings
from holdfast._sql.queries.lifecycle import NO_ID
from holdfast._sql.rows import Claimed
from holdfast.errors import ConfigError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Ticker":
    ticker = Ticker()
    for module in ("run.roster", "claim.budget"):
        monkeypatch.setattr(f"holdfast._engine.{module}.now", lambda: ticker.now)
    monkeypatch.setattr("holdfast._engine.claim.low_water.time.monotonic", lambda: ticker.now)
    return ticker


class Ticker:
    now = 1000.0


def attempt() -> Any:
    return SimpleNamespace(window=-1, queue="default", number=1, priority=0, crashes=0)


class Bench:
    """A worker's slots, with steps that take a certain time. What it allows itself is counted from outside."""

    def __init__(self, clock: Ticker, slots: int) -> None:
        self.clock = clock
        self.roster = Roster(slots)
        self.shares = ClaimBudget(self.roster, ["default"])

    @property
    def ahead(self) -> int:
        return self.shares.room() - (self.roster.slots - self.roster.busy)

    def execute(self, seconds: float, times: int) -> None:
        """All slots at once, all end together, and a claim follows each time."""
        for _ in range(times):
            self.roster.ready.extend(attempt() for _ in range(self.roster.slots))
            begun = [self.roster.begin() for _ in range(self.roster.slots)]
            self.clock.now += seconds
            for one in begun:
                assert one is not None
                self.roster.end(one)
                self.shares.measure()  # as each of them asks for the next
            self.shares.learn("default", served=True, more=True)


@pytest.mark.parametrize("slots", [1, 10, 50, 1000])
@pytest.mark.parametrize("seconds", [0.021, 0.1, 0.3, 1.0, 30.0])
def test_W1_longer_steps_get_no_claim_ahead_though_they_end_together(clock: Ticker, slots: int, seconds: float) -> None:
    bench = Bench(clock, slots)
    for _ in range(20):
        bench.execute(seconds, 1)
        assert bench.ahead == 0


@pytest.mark.parametrize("slots", [1, 10, 50])
@pytest.mark.parametrize("seconds", [0.001, 0.005, 0.01])
def test_W1_short_steps_are_claimed_ahead_for_a_twentieth_of_a_second(
    clock: Ticker, slots: int, seconds: float
) -> None:
    bench = Bench(clock, slots)
    bench.execute(seconds, 300)
    exact = slots / seconds * AHEAD_SECONDS
    assert 0.7 * exact <= bench.ahead <= 1.1 * exact + 1


def test_W1_no_more_than_the_most_is_claimed_ahead(clock: Ticker) -> None:
    bench = Bench(clock, 1000)
    bench.execute(0.001, 300)
    assert bench.ahead == MOST_AHEAD


def test_W1_the_pace_falls_when_steps_become_slow(clock: Ticker) -> None:
    bench = Bench(clock, 10)
    bench.execute(0.001, 300)
    assert bench.ahead > 0
    bench.execute(1.0, 2)
    assert bench.ahead == 0


def test_W1_a_few_short_steps_are_no_reason_to_claim_thousands(clock: Ticker) -> None:
    pace = StepPace()
    pace.measure(10, 0.0001, over=False)
    assert pace.ahead(slots=10) == 10 * EVIDENCE
    pace.measure(200, 0.001, over=False)
    assert pace.ahead(slots=10) == MOST_AHEAD


def test_W1_to_wait_for_a_claim_is_not_to_be_slow(clock: Ticker) -> None:
    bench = Bench(clock, 10)
    for _ in range(100):
        bench.execute(0.001, 5)
        bench.roster._rests_since = clock.now
        clock.now += 0.1  # the next claim is on its way
        bench.roster._end_rest()
    assert bench.shares._all.pace.per_second == pytest.approx(10_000, rel=0.1)


def test_W1_the_pace_falls_while_a_worker_rests(clock: Ticker) -> None:
    bench = Bench(clock, 10)
    bench.execute(0.0001, 3000)
    assert bench.shares.share("default") == LARGEST_CLAIM
    bench.roster._rests_since = clock.now
    bench.shares.rest()
    for _ in range(5):
        clock.now += 1.0
        bench.shares.measure()
    assert bench.shares.share("default") == 10


def test_W1_a_clock_that_stood_still_does_no_harm(clock: Ticker) -> None:
    bench = Bench(clock, 10)
    bench.execute(0.0, 100)
    bench.shares._starved = 3600.0  # the machine slept, and the two clocks differ about that
    bench.execute(0.0, 100)
    assert 0 <= bench.ahead <= MOST_AHEAD
    bench.execute(1.0, 3)
    assert bench.ahead == 0


def test_W1_W9_a_queue_that_is_held_back_is_nobodys_rival(clock: Ticker) -> None:
    roster = Roster(12, {"a": None, "b": 3})
    shares = ClaimBudget(roster, ["a", "b"])
    roster.lanes["a"].busy, roster.lanes["b"].busy, roster.busy = 8, 3, 11
    assert shares.round() == ["b", "a"] and shares.is_full("b")
    shares.learn("b", served=False, more=False)
    assert shares.share("a") == 1


def row(priority: int, run_at: datetime, waited: float = 0.0, crashes: int = 0) -> Claimed:
    due = run_at.timestamp()
    return Claimed(uuid4().bytes, "k", "s", b"{}", 1, 0, 0, crashes, priority, due, due + waited, None, None, None)


def test_M12_a_mark_is_set_per_priority_by_a_full_batch_and_dropped_by_time(clock: Ticker) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    marks = LowWaterMarks()
    beginning = marks.current()[0]
    rows = [row(9, start), row(9, start + timedelta(1)), row(3, start + timedelta(2))]
    far = datetime(2200, 1, 1, tzinfo=UTC)
    marks.learn([*rows, row(1, far)])
    clock.now += 0.5
    current = marks.current()
    slack = timedelta(milliseconds=1)
    assert (current[9], current[3], current[0]) == (start, start + timedelta(2), beginning)
    assert (marks.ids[9], marks.ids[3], marks.ids[0]) == (rows[0].id, rows[2].id, NO_ID)
    assert (current[1], marks.ids[1]) == (far - slack, NO_ID), "so far away seconds are not exact"
    assert marks.until_scan() == pytest.approx(0.5)
    clock.now += 0.5
    assert (marks.current(), marks.ids) == ([beginning] * 10, [NO_ID] * 10)
    assert marks.until_scan() == float("inf")


def test_M12_a_mark_lies_behind_a_backlog_but_not_behind_tasks_of_this_moment() -> None:
    start, marks = datetime(2026, 1, 1, tzinfo=UTC), LowWaterMarks()
    marks.current()
    later = start + timedelta(seconds=1)
    backlog = [row(9, start, waited=60), row(9, later, waited=60)]
    fresh = [row(3, start, waited=1), row(3, later, waited=0.1)]
    suspect = row(9, later + timedelta(seconds=1), waited=60, crashes=1)
    marks.learn([*backlog, suspect, *fresh])
    current = marks.current()
    assert (current[9], marks.ids[9]) == (later, backlog[1].id), "a suspect tells nothing of what lies before it"
    assert (current[3], marks.ids[3]) == (start, fresh[0].id), "what was enqueued in between may be committed yet"


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"concurrency": True},
        {"lease": 0},
        {"lease": "-1s"},
        {"beat": 0},
        {"lease": "30s", "beat": "11s"},
        {"poll": 0},
        {"reap": 0},
        {"queues": []},
        {"queues": "a;b"},
    ],
)
def test_L2_W1_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        WorkerSettings.of(**wrong)  # type: ignore[arg-type]


def test_L2_defaults() -> None:
    settings = WorkerSettings.of()
    assert (settings.lease, settings.beat, settings.concurrency, settings.grace) == (30, 10, 10, 30)
    assert WorkerSettings.of(lease="6s").beat == 2
    assert WorkerSettings.of(queues="mail, default").queues == ("mail", "default")


@pytest.mark.parametrize(
    "given", ["mail:5, default", ["mail:5", "default"], ("mail:5", "default"), {"mail": 5, "default": None}]
)
def test_W7_queues_with_limits(given: Any) -> None:
    settings = WorkerSettings.of(queues=given)
    assert (settings.queues, settings.limits, settings.concurrency) == (("mail", "default"), {"mail": 5}, 10)
    assert settings.served == "mail:5, default"


def test_W7_concurrency_is_the_sum_if_every_queue_has_a_limit() -> None:
    assert WorkerSettings.of(queues="mail:5,default:50").concurrency == 55
    assert WorkerSettings.of(queues="mail:5,default:50", concurrency=20).concurrency == 20


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("mail:0", "the queue mail cannot have 0 steps at once"),
        ("mail:x", "the queue mail cannot have 'x' steps at once: write mail:5"),
        ("mail:", "the queue mail cannot have '' steps at once"),
        ("mail:-1", "cannot have '-1' steps"),
        ("mail:5:6", "cannot have '5:6' steps"),
        ({"mail": True}, "cannot have True steps"),
        ({"mail": 1.5}, "cannot have 1.5 steps"),
        ("mail,mail", "the queue mail is named twice"),
        ("mail:5,mail", "the queue mail is named twice"),
        ({}, "at least one queue"),
        (5, "queues must be names of queues"),
        ([5], "the name of a queue must be a str"),
    ],
)
def test_W7_wrong_queues_are_refused(wrong: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        WorkerSettings.of(queues=wrong)
    assert said in str(caught.value)
