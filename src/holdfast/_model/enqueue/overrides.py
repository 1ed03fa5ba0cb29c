"""`retry=` and `timeout=` of one enqueue: kept in the task's headers, and applied at each of its steps.

In the headers both are written as people write them, `5 delay=10s` and `30s`, so that an operator can read them in a
task, and a caller can give them by SQL.
"""

from collections.abc import Mapping
from copy import copy
from datetime import timedelta
from typing import Any

from holdfast._model.declare.step import Step
from holdfast._model.run.retry import Retry
from holdfast._model.time.duration import in_short, seconds
from holdfast.errors import ConfigError, EnqueueRefused

RETRY, TIMEOUT = "holdfast-retry", "holdfast-timeout"
_MOST = 2**31 - 2
_LENGTHS = ("delay", "max_delay")
_NUMBERS = ("backoff", "jitter")


def to_headers(options: Mapping[str, Any]) -> dict[str, str]:
    """The headers of an enqueue, with its retry= and timeout= written into them."""
    headers = dict(options.get("headers") or {})
    if options.get("retry") is not None:
        headers[RETRY] = _written(options["retry"])
    if options.get("timeout") is not None:
        length = seconds(options["timeout"], "timeout")
        if length < 0.001:
            raise EnqueueRefused('timeout= must be at least "1ms": nothing ends sooner')
        headers[TIMEOUT] = _short(length)
    return headers


def retry_of(text: str) -> Retry:
    """A Retry as it is written in a header and on the command line: `5`, or `5 delay=10s backoff=1`."""
    limit, *pairs = text.split() or [""]
    given: dict[str, Any] = {}
    for name, _, value in (pair.partition("=") for pair in pairs):
        try:
            given[name] = {**dict.fromkeys(_LENGTHS, str), **dict.fromkeys(_NUMBERS, float)}[name](value)
        except (KeyError, ValueError):
            raise ConfigError(f"{text!r:.100}: there is no {name}={value}{_HOW}") from None
    if not (limit.isascii() and limit.isdecimal() and int(limit[:11]) <= _MOST):
        raise ConfigError(f"{text!r:.100} does not begin with a number of retries{_HOW}")
    return Retry(int(limit), **given)


_HOW = "; write 5, or 5 delay=10s backoff=2 max_delay=1h jitter=0.2"


def own_step(step: Step, headers: Mapping[str, str]) -> Step:
    """The step with the retry and timeout of these headers. Those that cannot be read (from SQL) are ignored."""
    changed: dict[str, Any] = {}
    try:
        if RETRY in headers:
            changed["retry"] = (retry_of(headers[RETRY]),)
    except ConfigError:
        pass
    try:
        if TIMEOUT in headers:
            changed["timeout"] = seconds(headers[TIMEOUT]) or step.timeout
    except ConfigError:
        pass
    if not changed:
        return step
    made = copy(step)
    for name, value in changed.items():
        setattr(made, name, value)
    return made


def _written(retry: object) -> str:
    if not isinstance(retry, Retry):
        raise EnqueueRefused(f"retry= of an enqueue is one Retry(…), not {retry!r:.100}")
    if callable(retry.delay) or retry.on != (Exception,):
        raise EnqueueRefused(
            "retry= of an enqueue is kept with the task, and neither a function nor a class can be: leave out on= and "
            "give a delay in seconds, or declare it with the step"
        )
    if retry.limit > _MOST:
        raise EnqueueRefused(f"retry=Retry({retry.limit}): at most {_MOST:,} retries")
    usual = Retry(0)
    words = [str(retry.limit)]
    if seconds(retry.delay) != seconds(usual.delay):  # type: ignore[arg-type]  # no function: see above
        words.append(f"delay={_short(seconds(retry.delay))}")
    if retry.backoff != usual.backoff:
        words.append(f"backoff={retry.backoff:g}")
    if retry.max_delay != usual.max_delay:
        words.append(f"max_delay={_short(retry.max_delay)}")
    if retry.jitter != usual.jitter:
        words.append(f"jitter={retry.jitter:g}")
    return " ".join(words)


def _short(length: float) -> str:
    return in_short(timedelta(seconds=length))
