"""Why a value cannot be stored as JSON, with the place in it; and the nearest value that can.

The encoder asks here only after something suspicious turned up, so this may be thorough instead of fast.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Mapping, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.json.text import safe_text

MAX_DEPTH = 500

_TIMES = (datetime, date, time, timedelta)
_LEAVES = (type(None), *_TIMES, UUID, Decimal, bytes, bytearray, memoryview, msgspec.Raw)


def problem_in(value: object, *, lenient: bool = False) -> str | None:
    """What keeps `value` from being stored, as `place: problem, cure`; None if nothing does.

    `lenient` passes over what `with_text_escaped` can repair: NUL, lone surrogates, NaN and Infinity.
    """
    # A stack of our own: a value can be nested deeper than Python can call.
    pending: list[tuple[str, object, int]] = [(_root_name(value), value, 0)]
    while pending:
        place, each, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"{_shortened(place)}: nested deeper than {MAX_DEPTH} levels; does it contain itself?"
        match each:
            case Enum():
                problem = None
                pending.append((place, each.value, depth + 1))
            case str():
                problem = None if lenient else _text_problem(each)
            case bool():
                problem = None
            case int():
                problem = _int_problem(each)
            case float():
                problem = None if lenient or math.isfinite(each) else _NOT_FINITE.format(each)
            case _ if isinstance(each, _LEAVES):
                problem = None
            case _:
                children = children_of(each)
                problem = _unsupported(each) if children is None else None
                for name, key, child in children or ():
                    problem = problem or _key_problem(key, lenient=lenient)
                    pending.append((place + name, child, depth + 1))
        if problem is not None:
            return f"{_shortened(place)}: {problem}"
    return None


def children_of(value: object) -> Iterator[tuple[str, object, object]] | None:
    """What a compound value holds, as (place, mapping key or "", child); None if it is not a compound."""
    match value:
        case Mapping():
            return ((f"[{key!r}]", key, child) for key, child in value.items())
        case list() | tuple() | Set() | deque():
            return ((f"[{index}]", "", child) for index, child in enumerate(value))
    names = field_names(type(value))
    if names is None:
        return None
    extra = getattr(value, "__pydantic_extra__", None) or {}
    return ((f".{name}", "", getattr(value, name)) for name in (*names, *extra) if hasattr(value, name))


def field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a dataclass, msgspec Struct, attrs class or pydantic model; None for other classes."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    fields: Any = getattr(cls, "__attrs_attrs__", None)
    if fields is not None:
        return tuple(field.name for field in fields)
    if is_pydantic(cls):
        return tuple(getattr(cls, "model_fields", ()))
    return None


def stored_names(cls: type) -> tuple[str, ...] | None:
    """The names under which the fields of a class are stored; None if it gives them names of its own, or takes any."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_encode_fields__
    if is_pydantic(cls):
        config, fields = getattr(cls, "model_config", {}), getattr(cls, "model_fields", {})
        if config.get("extra") == "allow" or any(each.alias or each.validation_alias for each in fields.values()):
            return None
    return field_names(cls)


def is_pydantic(cls: type) -> bool:
    """Whether pydantic makes this class, without importing pydantic for those who do not use it."""
    return "__pydantic_validator__" in vars(cls)


def unknown_class(hint: Any) -> type | None:
    """The first class in a type hint that cannot be stored; an exception if the hint itself makes no sense."""
    pending: list[Any] = [msgspec.inspect.type_info(hint)]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, msgspec.inspect.CustomType) and not is_pydantic(each.cls):
            return each.cls
        if isinstance(each, (list, tuple)):
            pending.extend(each)
        elif isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)):
            pending.extend(getattr(each, name) for name in each.__struct_fields__ if name not in ("cls", "default"))
    return None


def plain(value: object) -> object:
    """The encoder's hook: a plainer value for what msgspec does not know by itself."""
    match value:
        case str():
            return str.__str__(value)
        case int() if not isinstance(value, bool):
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return dict(value)
        case list() | tuple() | Set() | deque():
            return list(value)
        case _ if is_pydantic(type(value)):
            return adapter_of(type(value)).dump_python(value, round_trip=True, by_alias=True)
    raise NotImplementedError(f"Encoding objects of type {type(value).__name__} is unsupported")


_adapters: dict[type, Any] = {}


def adapter_of(cls: type) -> Any:
    """What reads and writes values of a class that pydantic made."""
    adapter = _adapters.get(cls)
    if adapter is None:
        from pydantic import TypeAdapter

        adapter = _adapters[cls] = TypeAdapter(cls)
    return adapter


def with_text_escaped(value: object) -> object:
    """`value` as builtins with NUL, lone surrogates, NaN and Infinity written out as text."""
    return _escaped(msgspec.to_builtins(value, enc_hook=plain, str_keys=True))


def _escaped(value: Any) -> object:
    match value:
        case str():
            return safe_text(value)
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case dict():
            return {safe_text(key): _escaped(child) for key, child in value.items()}
        case list() | tuple():
            return [_escaped(child) for child in value]
    return value


_NOT_FINITE = "{} is no JSON number; store None or a string instead"


def _text_problem(text: str) -> str | None:
    if "\0" in text:
        return "holds a NUL character, which PostgreSQL cannot store; remove it, or store bytes"
    if safe_text(text) != text:
        return "holds a lone surrogate, which is no valid text; decode it properly, or store bytes"
    return None


def _int_problem(number: int) -> str | None:
    if -(2**63) <= number < 2**64:
        return None
    return "is an int of more than 64 bits, which not every JSON reader keeps exactly; store it as a str"


def _key_problem(key: object, *, lenient: bool) -> str | None:
    match key:
        case Enum():
            return _key_problem(key.value, lenient=lenient)
        case bool() | None:
            return f"the key {key!r} of a mapping cannot be stored; use strings or numbers as keys"
        case str():
            return None if lenient else _text_problem(key)
        case int():
            return _int_problem(key)
        case float():
            return None if lenient or math.isfinite(key) else _NOT_FINITE.format(key)
        case datetime() | date() | time() | timedelta() | UUID() | Decimal() | bytes():
            return None
    return f"a key of type {type(key).__name__} cannot be stored; use strings or numbers as keys"


def _unsupported(value: object) -> str:
    cure = "store its fields, or use a dataclass"
    if type(value).__module__.startswith("pathlib"):
        cure = "store str(path)"
    elif isinstance(value, type):
        return f"the class {value.__name__} cannot be stored; give a value of it"
    elif callable(value):
        cure = "store its name"
    elif isinstance(value, Iterator):
        cure = "store list(...) of it"
    return f"a value of type {type(value).__qualname__} cannot be stored as JSON; {cure}"


def _root_name(value: object) -> str:
    return type(value).__name__ if field_names(type(value)) is not None else "value"


def _shortened(place: str) -> str:
    shown = place if len(place) <= 200 else f"{place[:100]}...{place[-60:]}"
    return safe_text(shown)
