"""What an exception carries beside its message, such as a code and details: bounded, and none of its code is called."""

import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.json.text import cut_middle, safe_text

MAX_ATTRIBUTES = 20
MAX_MEMBERS = 20
MAX_DEPTH = 4
MAX_TEXT = 1000
MAX_BYTES = 8 * 1024

_encode = msgspec.json.Encoder().encode


class _Unstorable(Exception):
    """It is no JSON, and none can be made of it without calling a stranger's code."""


def attributes(error: BaseException) -> dict[str, Any]:
    """The public attributes of an exception that JSON can hold: its own, then those of its class."""
    found: dict[str, Any] = {}
    size = 0
    for name, value in _public(error).items():
        try:
            stored = _stored(value, MAX_DEPTH)
            size += len(_encode({name: stored}))
        except (_Unstorable, UnicodeEncodeError):
            continue
        if len(found) >= MAX_ATTRIBUTES or size > MAX_BYTES:
            break
        found[_text(name)] = stored
    return found


def _public(error: BaseException) -> dict[str, Any]:
    """Read without asking the exception: a property of it may do anything."""
    own = object.__getattribute__(error, "__dict__")
    named: dict[Any, Any] = dict(own) if isinstance(own, dict) else {}
    for cls in type(error).__mro__:
        if cls.__module__ != "builtins":
            for name, value in vars(cls).items():
                if isinstance(value, (str, int, float, Enum)):
                    named.setdefault(name, value)
    said = error.args[0] if len(error.args) == 1 else None
    return {
        name: value
        for name, value in named.items()
        if isinstance(name, str) and not name.startswith("_") and not (isinstance(value, str) and value == said)
    }


def _stored(value: object, depth: int) -> Any:
    if isinstance(value, Enum):
        value = value.value
    match value:
        case None | bool():
            return value
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str():
            return _text(value)
        case datetime() | date():
            return value.isoformat()
        case UUID() | Decimal():
            return str(value)
        case Mapping() if depth and type(value) is dict:
            return dict(_members(value, depth))
        case list() | tuple() | set() | frozenset() if depth:
            return [_stored(each, depth - 1) for _, each in zip(range(MAX_MEMBERS), value, strict=False)]
    raise _Unstorable


def _members(value: dict[Any, Any], depth: int) -> Iterator[tuple[str, Any]]:
    for _, (name, each) in zip(range(MAX_MEMBERS), value.items(), strict=False):
        yield _text(name) if isinstance(name, str) else str(_stored(name, 0)), _stored(each, depth - 1)


def _text(text: str) -> str:
    return cut_middle(safe_text(str.__str__(text)), MAX_TEXT)
