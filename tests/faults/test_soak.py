"""What the soak measures is judged rightly: growth is found, and a pool that fills up again and again is not growth."""

from collections.abc import Callable

import pytest

from faults.soak import LIMITS, Series, judge, most

SECONDS = 3600.0
BOUNDS = most(3)


def measured(value: Callable[[float], float]) -> Series:
    return [(float(at), value(at)) for at in range(0, int(SECONDS), 5)]


def steady() -> dict[str, Series]:
    """Everything goes up and down, and nothing up alone; pools fill up after each time that all sessions ended."""
    seen = {name: measured(lambda at: 20 + at % 7) for name in LIMITS}
    return seen | {name: measured(lambda at, most=most: most * (at % 700) / 700) for name, most in BOUNDS.items()}  # type: ignore[misc]


def test_F30_what_is_steady_is_found_right() -> None:
    figures, wrong = judge(steady(), SECONDS, BOUNDS)
    assert wrong == []
    assert set(figures) == {*LIMITS, *BOUNDS}


@pytest.mark.parametrize("name", LIMITS)
def test_F30_a_leak_is_found(name: str) -> None:
    """So much in an hour that a worker would not live for a week."""
    seen = steady()
    seen[name] = [(at, value + 20 * at / SECONDS) for at, value in seen[name]]
    _, wrong = judge(seen, SECONDS, BOUNDS)
    assert [text.partition(":")[0] for text in wrong] == [name]


@pytest.mark.parametrize("name", LIMITS)
def test_F30_what_comes_in_the_warm_up_does_not_count(name: str) -> None:
    seen = steady()
    seen[name] = [(at, value - 15 if at < 0.25 * SECONDS else value) for at, value in seen[name]]
    assert judge(seen, SECONDS, BOUNDS)[1] == []


@pytest.mark.parametrize("name", BOUNDS)
def test_F30_a_pool_beyond_its_size_is_found(name: str) -> None:
    seen = steady()
    seen[name] = [*seen[name][:-1], (SECONDS, BOUNDS[name] + 1.0)]
    _, wrong = judge(seen, SECONDS, BOUNDS)
    assert [text.partition(":")[0] for text in wrong] == [name]
