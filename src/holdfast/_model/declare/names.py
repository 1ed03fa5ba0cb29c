"""The names that are allowed, checked at the door."""

import re

from holdfast.errors import ConfigError

_QUEUE = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,62}", re.ASCII)
_KIND = re.compile(r"[a-z][a-z0-9_-]{0,62}", re.ASCII)
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_QUEUE_RULE = "lower-case letters, digits and _ . - are allowed, beginning with a letter, digit or _"
_KIND_RULE = "lower-case letters, digits and _ - are allowed, beginning with a letter"
_STEP_RULE = "letters, digits and _ are allowed, beginning with a letter or _"


def check_queue(name: object) -> str:
    return _check(name, _QUEUE, "queue", _QUEUE_RULE)


def check_schedule(name: object) -> str:
    return _check(name, _QUEUE, "schedule", _QUEUE_RULE)


def check_kind(name: object) -> str:
    return _check(name, _KIND, "kind", _KIND_RULE)


def check_step(name: object) -> str:
    return _check(name, _STEP, "step", _STEP_RULE)


def check_priority(priority: object) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 9:
        raise ConfigError(f"priority {_shown(priority)}: it must be an int from 0 to 9; 9 goes first")
    return int(priority)


def _check(name: object, allowed: re.Pattern[str], what: str, rule: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"the name of a {what} must be a str, not {_shown(name)}")
    # fullmatch, because `$` would let a trailing newline through
    if allowed.fullmatch(name) is None:
        raise ConfigError(f"{_shown(name)} cannot be the name of a {what}: {rule}, at most 63 characters")
    return str(name)


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."
