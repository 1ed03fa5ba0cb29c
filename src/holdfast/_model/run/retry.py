"""When an error is tried again, and after how long."""

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias

from holdfast._model.time.duration import Duration, seconds
from holdfast.errors import ConfigError

Delay: TypeAlias = Duration | Callable[[BaseException, int], Duration | None]

LONGEST_RETRY_AFTER = 86_400.0
"""An exception's own `retry_after` is honoured up to one day: a server's slip must not bury a task."""


class BrokenDelay(Exception):
    """The `delay` callable of a policy raised, or returned what is no duration."""

    def __init__(self, policy: "Retry", why: Exception) -> None:
        name = getattr(policy.delay, "__qualname__", None) or type(policy.delay).__qualname__
        super().__init__(
            f"Retry(delay={name}) could not say how long to wait ({type(why).__name__}: {why}): parked without a "
            "retry. Correct it, then retry the task"
        )


class Retry:
    """A retry budget for one visit of a step: `Retry(5)` allows 5 retries, 6 attempts in all.

    The delay after the n-th error is `delay * backoff ** n` (n counted from 0), at most `max_delay`, spread
    by `jitter` (0.2 = 20 % either way) so that tasks which failed together do not come back together.
    `delay` may be a callable `(error, n) -> Duration | None`, where None gives up; its value is taken without
    backoff. If it raises or returns what is no duration, the task is parked, with an error that tells.
    `on` says which exceptions it is for; the default, `Exception`, means every one, SystemExit included. A group of
    exceptions matches if all its members do.
    """

    __slots__ = ("_delay", "backoff", "delay", "jitter", "limit", "max_delay", "on")

    limit: int
    delay: Delay
    backoff: float
    max_delay: float
    jitter: float
    on: tuple[type[BaseException], ...]
    _delay: float | Callable[[BaseException, int], Duration | None]

    def __init__(
        self,
        limit: int,
        *,
        delay: Delay = "1s",
        backoff: float = 2.0,
        max_delay: Duration = "1h",
        jitter: float = 0.2,
        on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    ) -> None:
        store = object.__setattr__
        store(self, "limit", _count(limit))
        store(self, "delay", delay)
        store(self, "_delay", delay if callable(delay) else seconds(delay, "Retry(delay=)"))
        store(self, "backoff", _factor(backoff))
        store(self, "max_delay", seconds(max_delay, "Retry(max_delay=)"))
        store(self, "jitter", _share(jitter))
        store(self, "on", _exceptions(on))

    def matches(self, error: BaseException) -> bool:
        if isinstance(error, self.on) or Exception in self.on:
            return True
        return isinstance(error, BaseExceptionGroup) and all(self.matches(each) for each in error.exceptions)

    def delay_after(self, error: BaseException, errors: int) -> float | None:
        """Seconds until the next attempt, None if the budget is used up; `errors` as below."""
        if errors >= self.limit:
            return None
        asked = _retry_after(error)
        if asked is not None:
            # a server that says "not before" is obeyed: jitter only ever adds to it
            return min(asked + random.uniform(0, asked * self.jitter), LONGEST_RETRY_AFTER)  # noqa: S311
        delay = self._base_delay(error, errors)
        if delay is None:
            return None
        capped = min(delay, self.max_delay)
        return min(capped * random.uniform(1 - self.jitter, 1 + self.jitter), self.max_delay)  # noqa: S311

    def _base_delay(self, error: BaseException, errors: int) -> float | None:
        delay = self._delay
        if not callable(delay):
            try:
                return float(delay * self.backoff**errors)
            except OverflowError:
                return self.max_delay
        try:
            answer = delay(error, errors)
            return None if answer is None else seconds(answer, "its answer")
        except Exception as broken:
            raise BrokenDelay(self, broken) from broken

    def _fields(self) -> tuple[object, ...]:
        return self.limit, self._delay, self.backoff, self.max_delay, self.jitter, self.on

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, Retry) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields())

    def __repr__(self) -> str:
        on = ", ".join(each.__name__ for each in self.on)
        on = on if len(self.on) == 1 else f"({on})"
        return (
            f"Retry({self.limit}, delay={self.delay!r}, backoff={self.backoff!r}, "
            f"max_delay={self.max_delay!r}, jitter={self.jitter!r}, on={on})"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Retry cannot be changed (tried to set {name!r}): make a new one")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Retry cannot be changed (tried to delete {name!r}): make a new one")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.limit, self.delay, self.backoff, self.max_delay, self.jitter, self.on)


def next_delay(policies: Sequence[Retry], error: BaseException, errors: int) -> float | None:
    """Seconds until the next attempt, or None to give up. The first policy that matches the error decides.

    `errors` is how many errors this visit had before this one, of whatever type. BrokenDelay if a callable is.
    """
    for policy in policies:
        if policy.matches(error):
            return policy.delay_after(error, errors)
    return None


def policies(retry: object) -> tuple[Retry, ...]:
    """What `retry=` was given, checked: a Retry or a sequence of them."""
    if isinstance(retry, Retry):
        return (retry,)
    if isinstance(retry, (list, tuple)) and all(isinstance(each, Retry) for each in retry):
        return tuple(retry)
    raise ConfigError(f"retry={retry!r}: write Retry(5), or a list of them; the first that matches decides")


def _rebuild(
    limit: int,
    delay: Delay,
    backoff: float,
    max_delay: float,
    jitter: float,
    on: tuple[type[BaseException], ...],
) -> Retry:
    return Retry(limit, delay=delay, backoff=backoff, max_delay=max_delay, jitter=jitter, on=on)


def _retry_after(error: BaseException) -> float | None:
    """What the error itself asks for; of a group, the longest that one of its members does."""
    if isinstance(error, BaseExceptionGroup):
        return max((asked for each in error.exceptions if (asked := _retry_after(each)) is not None), default=None)
    try:
        length = _length(getattr(error, "retry_after", None))
        return None if length is None else min(seconds(length), LONGEST_RETRY_AFTER)
    except Exception:  # the attribute may be a property of a stranger, or no valid duration
        return None


def _length(asked: object) -> float | timedelta | None:
    """A number of seconds, a timedelta, a datetime, or the text of an HTTP header: seconds, or a date."""
    if isinstance(asked, str):
        asked = float(asked) if asked.strip().isdecimal() else parsedate_to_datetime(asked)
    if isinstance(asked, datetime):
        # By this machine's clock: the other side named an instant, not a length.
        return max(asked.astimezone() - datetime.now(UTC), timedelta())
    return asked if isinstance(asked, (int, float, timedelta)) else None


def _count(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise ConfigError(f"Retry({limit!r}): the limit is a number of retries, 0 or more; 5 means 6 attempts")
    return int(limit)


def _factor(backoff: object) -> float:
    if isinstance(backoff, bool) or not isinstance(backoff, (int, float)) or not 1 <= backoff < math.inf:
        raise ConfigError(f"Retry(backoff={backoff!r}): it must be a number from 1 up; 1 keeps the delay fixed")
    return float(backoff)


def _share(jitter: object) -> float:
    if isinstance(jitter, bool) or not isinstance(jitter, (int, float)) or not 0 <= jitter <= 1:
        raise ConfigError(f"Retry(jitter={jitter!r}): it must be from 0 to 1; 0.2 spreads by 20 % either way")
    return float(jitter)


def _exceptions(on: object) -> tuple[type[BaseException], ...]:
    given: tuple[Any, ...] = on if isinstance(on, tuple) else (on,)
    if given and all(isinstance(each, type) and issubclass(each, BaseException) for each in given):
        return given
    raise ConfigError(f"Retry(on={on!r}): give an exception class or a tuple of them")
