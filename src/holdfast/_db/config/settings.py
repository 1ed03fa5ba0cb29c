"""The table of settings: what can be configured, what is expected, and what holds unless said otherwise."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast._model.address import EXPECTED as EXPECTED_ADDRESS
from holdfast._model.address import parse_address
from holdfast._model.declare.queues import EXPECTED, parse_queues, spelled
from holdfast._model.time.duration import DAY, in_short, seconds
from holdfast.errors import ConfigError, InvalidDuration

_UNITS = {"GB": 1024**3, "MB": 1024**2, "KB": 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?B)?", re.IGNORECASE | re.ASCII)
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, slots=True)
class Setting:
    """Something that can be configured. `read` checks a value of Python or TOML, `parse` makes one from a text."""

    name: str
    about: str
    expects: str
    read: Callable[[Any], Any]
    parse: Callable[[str], Any] = str
    default: Any = None
    worked_out: str = ""
    """The default in words, if it depends on other settings."""

    @property
    def variable(self) -> str:
        return f"HOLDFAST_{self.name.upper()}"

    @property
    def default_text(self) -> str:
        return self.worked_out or shown(self.default)


def shown(value: Any) -> str:
    """The value of a setting as people write it."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}s"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def checked(about: Setting, value: Any, place: str = "", *, is_text: bool = False) -> Any:
    """A value as it is used, or a `ConfigError` that says where it is and what was expected there."""
    try:
        return about.read(about.parse(value) if is_text else value)
    except (ValueError, TypeError, KeyError, ConfigError) as error:
        if isinstance(error, ConfigError) and not isinstance(error, InvalidDuration):
            raise ConfigError(f"{place}: {error}" if place else str(error)) from None
        # A URL may hold a password.
        shown = f"a {type(value).__name__}" if about.name in ("url", "direct_url") else repr(value)
        kind = InvalidDuration if isinstance(error, InvalidDuration) else ConfigError
        raise kind(f"{place or about.name} must be {about.expects}, not {shown}") from None


# Reading --------------------------------------------------------------------------------------------


def check_schema(name: str) -> str:
    """The name of a schema, if it can be one."""
    if not _SCHEMA.fullmatch(name):
        raise ConfigError(
            f"schema {name!r} cannot be used: write at most 48 lower-case letters, digits and _, no digit first"
        )
    return name


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _schema(value: object) -> str:
    return check_schema(_text(value))


def _queues(value: object) -> tuple[str, ...]:
    if not value or not isinstance(value, str | list | tuple | dict):
        raise ValueError
    return spelled(parse_queues(value))


def _names(value: object) -> tuple[str, ...]:
    names = [each.strip() for each in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(each, str) and each for each in names):
        raise ValueError
    return tuple(names)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError
    return value


class Size(int):
    """A number of bytes that people read as `500MB`."""

    def __str__(self) -> str:
        for unit, size in _UNITS.items():
            if self >= size and (self % size == 0 or self >= 10 * size):
                return f"{self // size}{unit}"
        return f"{int(self)}B"


def _size(value: object) -> Size:
    """`500MB`, `2GB` or a number of bytes; at least 1 MB, or no process could live."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError
        value = int(float(match[1]) * _UNITS.get((match[2] or "").upper(), 1))
    if isinstance(value, bool) or not isinstance(value, int) or value < _UNITS["MB"]:
        raise ValueError
    return Size(value)


def _address(value: object) -> str:
    # A port alone is a number in TOML.
    text = str(value) if type(value) is int else _text(value)
    parse_address(text)
    return text


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or value.lower() not in words:
            raise ValueError
        return value.lower()

    return read


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _yes_or_no(text: str) -> bool:
    return {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}[text.lower()]


def _duration(name: str, about: str, default: float | None, *, least: float, example: str = "30s") -> Setting:
    bound = f"of at least {in_short(timedelta(seconds=least))}, " if least else ""
    expects = f'a duration {bound}such as "{example}", or a number of seconds'
    return Setting(name, about, expects, partial(seconds, least=least), _number_or_text, default)


LEAST_LEASE = 1.0
"""Seconds. A lease has room for three beats, and a pause of half a second is nothing unusual on a busy machine."""
LEAST_PAUSE = 0.05
"""Seconds between two rounds of what a worker does again and again: more of them would only burn the database."""
POOLERS = ("auto", "transaction", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("pretty", "json")
SETTINGS = {
    each.name: each
    for each in (
        Setting("url", "The database.", 'a text such as "postgresql://user@host/database"', _text),
        Setting("schema", "The schema that holds the tables.", "the name of a schema", _schema, default="holdfast"),
        Setting("app", "The App that commands load.", 'a text such as "shop.app:app" or "hello.py"', _text),
        Setting(
            "queues",
            "The queues a worker serves, with limits: mail:5,default.",
            EXPECTED,
            _queues,
            default=("default",),
        ),
        Setting("durable", "Enqueues wait until they are on disk.", "true or false", _flag, _yes_or_no, True),
        Setting(
            "only",
            "The kinds and steps it knows: video.Encode.",
            'names of kinds and steps, "greeter,video.Encode" or ["greeter", "video.Encode"]',
            _names,
            default=(),
            worked_out="all",
        ),
        Setting(
            "concurrency",
            "Steps at once.",
            "a whole number of at least 1",
            _count,
            int,
            worked_out="10, or the sum of the limits if that is more or every queue has one",
        ),
        _duration("lease", "Others take over after this silence.", 30.0, least=LEAST_LEASE),
        replace(
            _duration("beat", "How often leases are renewed.", None, least=LEAST_PAUSE, example="10s"),
            worked_out="a third of the lease, 10s at most",
        ),
        _duration("poll", "Look for tasks this often in any case.", 1.0, least=LEAST_PAUSE, example="1s"),
        _duration("reap", "Look for lost workers this often.", 5.0, least=LEAST_PAUSE, example="5s"),
        _duration("grace", "Time for steps to end when stopping.", 30.0, least=0),
        replace(
            _duration(
                "retention", "History is kept so long, unless the database says it.", None, least=DAY, example="14d"
            ),
            worked_out="7d",
        ),
        Setting("processes", "Worker processes.", "a whole number of at least 1", _count, int, 1),
        Setting(
            "max_tasks",
            "Replace a process after so many attempts.",
            "a whole number of at least 1",
            _count,
            int,
            worked_out="never",
        ),
        Setting(
            "max_memory",
            "Replace a process that uses more memory.",
            'a size of at least 1MB, such as "500MB" or "2GB"',
            _size,
            worked_out="never",
        ),
        Setting(
            "http",
            "Where a worker answers: /healthz, /readyz, /metrics.",
            EXPECTED_ADDRESS,
            _address,
            worked_out="nowhere",
        ),
        Setting(
            "direct_url",
            "The same database without the pooler: for notifications and beats.",
            'a text such as "postgresql://user@host/database"',
            _text,
        ),
        Setting(
            "pooler",
            "Whether a pooler is in between; auto finds out.",
            f"one of {', '.join(POOLERS)}",
            _one_of(*POOLERS),
            default="auto",
        ),
        Setting(
            "log_level",
            "What a worker writes.",
            f"one of {', '.join(LOG_LEVELS)}",
            _one_of(*LOG_LEVELS),
            default="info",
        ),
        Setting(
            "log_format",
            "How it writes it.",
            f"one of {', '.join(LOG_FORMATS)}",
            _one_of(*LOG_FORMATS),
            default="pretty",
        ),
    )
}
"""All settings. Each is also a variable, `HOLDFAST_LOG_LEVEL`, and a key under `[tool.holdfast]`, `log_level`."""

WORKER_SETTINGS = ("queues", "only", "concurrency", "lease", "beat", "poll", "reap", "grace", "retention", "http")
"""Those that are `WorkerOptions`."""
