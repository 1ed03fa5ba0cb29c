"""How much is claimed ahead (W1) and what a mark hides (M12), without a database."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from holdfast._engine.marks import Marks
from holdfast._engine.pace import EVIDENCE, MOST_AHEAD, Pace
from holdfast._engine.roster import Roster
from holdfast._engine.settings import WorkerSettings
from holdfast._engine.shares import LARGEST_CLAIM, Shares
from holdfast._sql.queries.lifecycle import NO_ID
from holdfast._sql.records import Claimed
from holdfast.errors import ConfigError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> "Ticker":
    ticker = Ticker()
    monkeypatch.setattr("holdfast._engine.pace.time.monotonic", lambda: ticker.now)
    return ticker


class Ticker:
    now = 1000.0


def test_W1_slow_steps_get_no_claim_ahead(clock: Ticker) -> None:
    pace = Pace()
    for finished in range(10, 100, 10):
        clock.now += 1.0  # ten slots, a second each
        pace.measure(finished)
    assert pace.ahead(slots=10) == 0


def test_W1_short_steps_are_claimed_ahead_for_a_fifth_of_a_second(clock: Ticker) -> None:
    pace = Pace()
    for finished in range(100, 2000, 100):
        clock.now += 0.1  # a thousand a second
        pace.measure(finished)
    assert 150 <= pace.ahead(slots=10) <= 250
    clock.now += 0.1
    pace.measure(10**6)
    assert pace.ahead(slots=10) == MOST_AHEAD


def test_W1_the_pace_falls_when_steps_become_slow(clock: Ticker) -> None:
    pace = Pace()
    clock.now += 0.1
    pace.measure(1000)
    assert pace.ahead(slots=10) > 0
    for finished in range(1001, 1010):
        clock.now += 1.0
        pace.measure(finished)
    assert pace.ahead(slots=10) == 0


def test_W1_to_wait_for_a_claim_is_not_to_be_slow(clock: Ticker) -> None:
    pace = Pace()
    for finished in range(1000, 10_000, 1000):
        clock.now += 0.5  # of which it had something to do for 50 ms: 20,000 a second
        pace.measure(finished, starved=0.45)
    assert pace.per_second == pytest.approx(20_000, rel=0.01)
    assert pace.ahead(slots=10) == MOST_AHEAD


def test_W1_the_pace_falls_while_a_worker_rests(clock: Ticker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._engine.roster.now", lambda: clock.now)
    roster = Roster(10)
    shares = Shares(roster, ["default"])
    roster._end_rest()
    for _ in range(5):
        clock.now += 0.01
        roster.finished += 1000
        shares.measure()
        shares.learn("default", served=True, more=False)
    assert shares.share("default") == LARGEST_CLAIM
    roster._rests_since = clock.now
    shares.rest()
    for _ in range(5):
        clock.now += 1.0
        shares.measure()
    assert shares.share("default") == 10


def test_W1_a_clock_that_stood_still_does_no_harm(clock: Ticker) -> None:
    pace = Pace()
    clock.now += 0.01
    pace.measure(100)
    pace.measure(200, starved=3600.0)  # the machine slept, and the two clocks differ about that
    assert 0 <= pace.per_second <= 10**7 and pace.ahead(slots=10) <= MOST_AHEAD
    for finished in range(200, 210):
        clock.now += 1.0
        pace.measure(finished)
    assert pace.ahead(slots=10) == 0


def test_W1_a_few_short_steps_are_no_reason_to_claim_thousands(clock: Ticker) -> None:
    pace = Pace()
    clock.now += 0.001
    pace.measure(10)
    assert 100 <= pace.ahead(slots=10) <= 10 * EVIDENCE
    clock.now += 0.01
    pace.measure(210)
    assert pace.ahead(slots=10) == MOST_AHEAD


def test_W1_one_second_in_which_nothing_ended_is_not_believed_at_once(clock: Ticker) -> None:
    pace = Pace()
    for finished in range(1000, 10_000, 1000):
        clock.now += 0.02
        pace.measure(finished)
    clock.now += 1.0
    pace.measure(9000)
    assert pace.ahead(slots=10) > 1000
    for _ in range(4):
        clock.now += 1.0
        pace.measure(9000)
    assert pace.ahead(slots=10) == 0


def row(priority: int, run_at: datetime, waited: float = 0.0, crashes: int = 0) -> Claimed:
    due = run_at.timestamp()
    return Claimed(uuid4().bytes, "k", "s", b"{}", 1, 0, 0, crashes, priority, due, due + waited, None, None, None)


def test_M12_a_mark_is_set_per_priority_by_a_full_batch_and_dropped_by_time(clock: Ticker) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    marks = Marks()
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
    start, marks = datetime(2026, 1, 1, tzinfo=UTC), Marks()
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
