"""T9: how often and after how long an error is tried again."""

import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConfigError, Retry
from holdfast._model.run.retry import LONGEST_RETRY_AFTER, BrokenDelay, next_delay


def delays(policy: Retry, error: BaseException, count: int) -> list[float | None]:
    return [next_delay([policy], error, errors) for errors in range(count)]


class SlowDown(Exception):
    def __init__(self, retry_after: object) -> None:
        self.retry_after = retry_after


def test_t9_a_limit_of_5_means_6_attempts() -> None:
    given_up = [delay is None for delay in delays(Retry(5), ValueError(), 7)]
    assert given_up == [False] * 5 + [True] * 2


def test_t9_without_a_policy_nothing_is_retried() -> None:
    assert next_delay((), ValueError(), 0) is None
    assert next_delay([Retry(0)], ValueError(), 0) is None


def test_t9_delays_grow_and_are_capped() -> None:
    policy = Retry(10, delay="2s", backoff=3, max_delay="1m", jitter=0)
    assert delays(policy, ValueError(), 5) == [2, 6, 18, 54, 60]


def test_t9_a_fixed_delay() -> None:
    assert delays(Retry(3, delay="5s", backoff=1, jitter=0), ValueError(), 3) == [5, 5, 5]


def test_t9_a_huge_number_of_errors_is_still_capped() -> None:
    assert next_delay([Retry(2**40, jitter=0, max_delay="1h")], ValueError(), 2**30) == 3600


def test_t9_the_first_policy_that_matches_decides() -> None:
    policies = [
        Retry(10, on=TimeoutError, delay=1, jitter=0),
        Retry(0, on=(KeyError, ValueError)),
        Retry(2, delay=9, jitter=0),
    ]
    assert next_delay(policies, TimeoutError(), 9) == 1 * 2**9
    assert next_delay(policies, KeyError(), 0) is None
    assert next_delay(policies, OSError(), 0) == 9
    assert next_delay(policies[:2], OSError(), 0) is None


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_t9_the_default_is_for_every_exception(error: BaseException) -> None:
    assert next_delay([Retry(1)], error, 0) is not None
    assert next_delay([Retry(1, on=OSError)], error, 0) is None


def test_t9_jitter_spreads_10000_simultaneous_failures() -> None:
    spread = [delay for _ in range(10_000) if (delay := next_delay([Retry(5, delay="100s")], ValueError(), 0))]
    assert len(spread) == 10_000
    assert 80 <= min(spread) < 81
    assert 119 < max(spread) <= 120
    buckets = [0] * 40
    for delay in spread:
        buckets[min(int(delay - 80), 39)] += 1
    assert max(buckets) < 400  # 250 on average: no second gets a crowd


def test_t9_jitter_never_exceeds_the_cap() -> None:
    policy = Retry(50, delay="10s", max_delay="10s", jitter=1)
    spread = [delay for _ in range(1000) if (delay := next_delay([policy], ValueError(), 3)) is not None]
    assert max(spread) <= 10
    assert min(spread) < 5


def test_t9_a_callable_decides_with_the_error_and_the_count() -> None:
    asked: list[tuple[str, int]] = []

    def decide(error: BaseException, errors: int) -> str | None:
        asked.append((str(error), errors))
        return "3s" if errors < 2 else None

    policy = Retry(9, delay=decide, jitter=0)
    assert delays(policy, ValueError("x"), 4) == [3, 3, None, None]
    assert asked == [("x", 0), ("x", 1), ("x", 2), ("x", 3)]


@pytest.mark.parametrize("rubbish", ["soon", -1, float("nan"), object(), True])
def test_t9_a_callable_that_returns_rubbish_says_so(rubbish: Any) -> None:
    with pytest.raises(BrokenDelay, match=r"could not say how long to wait \(InvalidDuration: its answer: "):
        next_delay([Retry(1, delay=lambda error, errors: rubbish, jitter=0)], ValueError(), 0)


def test_t9_a_callable_that_raises_says_so() -> None:
    def broken(error: BaseException, errors: int) -> float:
        raise KeyError("oops")

    with pytest.raises(BrokenDelay, match=r"Retry\(delay=.*broken\) could not say .*KeyError: 'oops'.*parked"):
        next_delay([Retry(1, delay=broken, jitter=0)], ValueError(), 0)


@pytest.mark.parametrize("asked", [7200, 7200.0, timedelta(hours=2), "7200", " 7200 "])
def test_t9_retry_after_is_honoured_beyond_max_delay(asked: object) -> None:
    assert next_delay([Retry(1, max_delay="1m", jitter=0)], SlowDown(asked), 0) == 7200


def test_t9_retry_after_may_be_an_instant() -> None:
    then = datetime.now(UTC) + timedelta(hours=2)
    for asked in (then, then.astimezone().replace(tzinfo=None), format_datetime(then, usegmt=True)):
        wait = next_delay([Retry(1, max_delay="1m", jitter=0)], SlowDown(asked), 0)
        assert wait is not None and 7000 < wait <= 7200
    assert next_delay([Retry(1)], SlowDown(then - timedelta(days=1)), 0) == 0


def test_t9_retry_after_of_a_group_is_the_longest_of_its_members() -> None:
    group = ExceptionGroup("both", [SlowDown(5), ExceptionGroup("in it", [SlowDown(50), ValueError()])])
    assert next_delay([Retry(1, jitter=0)], group, 0) == 50
    assert next_delay([Retry(1, delay=3, jitter=0)], ExceptionGroup("none", [KeyError(), ValueError()]), 0) == 3


def test_t9_a_group_matches_if_it_does_or_all_its_members_do() -> None:
    policy = Retry(1, on=(OSError, TimeoutError))
    inner = ExceptionGroup("in it", [TimeoutError(), ConnectionError()])
    assert next_delay([policy], ExceptionGroup("all", [OSError(), inner]), 0) is not None
    assert next_delay([policy], ExceptionGroup("one", [OSError(), ValueError()]), 0) is None
    assert next_delay([Retry(1, on=ExceptionGroup)], ExceptionGroup("one", [OSError(), ValueError()]), 0) is not None
    assert next_delay([Retry(1)], BaseExceptionGroup("every", [SystemExit(), ValueError()]), 0) is not None


def test_t9_one_count_of_errors_for_all_policies() -> None:
    """The budget is the visit's: errors of other types count too, whichever policy is asked."""
    policies = [Retry(1, on=KeyError), Retry(5, on=OSError)]
    assert [next_delay(policies, OSError(), n) is None for n in range(6)] == [False] * 5 + [True]
    assert next_delay(policies, KeyError(), 0) is not None
    assert next_delay(policies, KeyError(), 2) is None


def test_t9_retry_after_is_never_shortened_and_at_most_a_day() -> None:
    spread = [next_delay([Retry(1)], SlowDown(100), 0) or 0 for _ in range(100)]
    assert min(spread) >= 100
    assert next_delay([Retry(1)], SlowDown(10**9), 0) == LONGEST_RETRY_AFTER


def test_t9_retry_after_does_not_widen_the_budget() -> None:
    assert next_delay([Retry(2)], SlowDown(5), 2) is None


@pytest.mark.parametrize(
    "rubbish", [-5, float("nan"), float("inf"), "soon", None, True, object(), pytest.param(10**5000, id="huge")]
)
def test_t9_a_bad_retry_after_is_ignored(rubbish: object) -> None:
    assert next_delay([Retry(1, delay=4, jitter=0)], SlowDown(rubbish), 0) == 4


def test_t9_a_retry_after_that_raises_is_ignored() -> None:
    class Broken(Exception):
        @property
        def retry_after(self) -> float:
            raise RuntimeError

    assert next_delay([Retry(1, delay=4, jitter=0)], Broken(), 0) == 4


@given(
    limit=st.integers(0, 100),
    delay=st.floats(0, 1e6),
    backoff=st.floats(1, 100),
    max_delay=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
    errors=st.integers(0, 200),
)
def test_t9_any_policy_gives_a_delay_within_its_cap(
    limit: int, delay: float, backoff: float, max_delay: float, jitter: float, errors: int
) -> None:
    policy = Retry(limit, delay=delay, backoff=backoff, max_delay=max_delay, jitter=jitter)
    answer = next_delay([policy], ValueError(), errors)
    assert (answer is None) == (errors >= limit)
    assert answer is None or 0 <= answer <= max_delay


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": -1},
        {"limit": 1.5},
        {"limit": True},
        {"limit": "5"},
        {"delay": "soon"},
        {"delay": -1},
        {"backoff": 0.5},
        {"backoff": float("inf")},
        {"backoff": float("nan")},
        {"backoff": True},
        {"max_delay": "never"},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
        {"on": ValueError()},
        {"on": ()},
        {"on": "ValueError"},
        {"on": int},
    ],
)
def test_wrong_arguments_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"Retry\(" if "limit" in wrong else next(iter(wrong))):
        Retry(**{"limit": 1, **wrong})


def test_policies_are_values() -> None:
    assert Retry(5, delay="60s") == Retry(5, delay="1m")
    assert hash(Retry(5, delay="60s")) == hash(Retry(5, delay="1m"))
    assert Retry(5) != Retry(6)
    assert pickle.loads(pickle.dumps(Retry(5, on=(KeyError, OSError)))) == Retry(5, on=(KeyError, OSError))
    assert repr(Retry(5, delay="2s", on=OSError)) == (
        "Retry(5, delay='2s', backoff=2.0, max_delay=3600.0, jitter=0.2, on=OSError)"
    )
    assert "on=(KeyError, OSError)" in repr(Retry(5, on=(KeyError, OSError)))


def test_a_policy_cannot_be_changed() -> None:
    policy = Retry(5)
    with pytest.raises(AttributeError, match="make a new one"):
        policy.limit = 6
    with pytest.raises(AttributeError, match="make a new one"):
        del policy.limit
