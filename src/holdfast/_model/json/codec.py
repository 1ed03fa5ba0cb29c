"""JSON in and out: the args of steps and the results of tasks.

`encode` refuses what PostgreSQL or a strict reader could not give back exactly. msgspec writes first, because
that takes less than a microsecond; only if its bytes look suspicious (an escaped NUL, a null that may have
been NaN, a very long number, much nesting) does `storable` walk through the value. Decoding is strict about
types, ignores unknown fields and takes defaults for missing ones: old and new code can live side by side.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any

import msgspec

from holdfast._model.json.error_json import encode_error, simple_error
from holdfast._model.json.problems import MAX_DEPTH, adapter_of, is_pydantic, plain, problem_in, with_text_escaped
from holdfast._model.json.text import safe_text
from holdfast.errors import DecodeError, EncodeError

__all__ = [
    "MAX_BYTES",
    "decoder_for",
    "encode",
    "encode_error",
    "encode_result",
    "safe_text",
    "simple_error",
]

MAX_BYTES = 1024 * 1024

_write = msgspec.json.Encoder(enc_hook=plain).encode
_DIGITS_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
_NINETEEN_DIGITS = b"0" * 19


def encode(value: object, *, limit: int = MAX_BYTES) -> bytes:
    """The JSON of `value`, or an EncodeError that names the field and says what to do."""
    try:
        data = _dump(value)
    except Exception as error:
        raise EncodeError(problem_in(value) or f"{_name(type(value))} cannot be stored as JSON: {error}") from error
    if _suspicious(data, value):
        problem = problem_in(value)
        if problem is not None:
            raise EncodeError(problem)
    return _within(data, limit, value)


def encode_result(value: object, *, limit: int = MAX_BYTES) -> bytes:
    """Like `encode`, but what Postgres cannot hold is written out as text: work done is not thrown away."""
    try:
        data = _dump(value)
        if not _suspicious(data, value) or problem_in(value) is None:
            return _within(data, limit, value)
    except EncodeError:
        raise
    except Exception:  # noqa: S110  # a lone surrogate, perhaps; what follows finds out
        pass
    problem = problem_in(value, lenient=True)
    if problem is not None:
        raise EncodeError(problem)
    try:
        return _within(_write(with_text_escaped(value)), limit, value)
    except EncodeError:
        raise
    except Exception as error:
        raise EncodeError(f"{type(value).__name__} cannot be stored as JSON: {error}") from error


def decoder_for(cls: Any) -> Callable[[bytes], Any]:
    """A function that makes a `cls` (a class or type hint) from JSON; its DecodeError names the field."""
    if isinstance(cls, type) and is_pydantic(cls):
        return _pydantic_decoder(cls)
    return _msgspec_decoder(cls)


def _dump(value: object) -> bytes:
    if type(value) is not dict and is_pydantic(type(value)):
        data: bytes = adapter_of(type(value)).dump_json(value, round_trip=True, by_alias=True)
        return data
    return _write(value)


def _suspicious(data: bytes, value: object) -> bool:
    return (
        (b"null" in data and _may_hold_nan(value))  # msgspec writes NaN and Infinity as null
        or b"\\u0000" in data
        or (len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH)
        or (len(data) >= len(_NINETEEN_DIGITS) and _NINETEEN_DIGITS in data.translate(_DIGITS_AS_ZERO))
    )


def _may_hold_nan(value: object) -> bool:
    try:
        return _holds_nan(msgspec.to_builtins(value))
    except Exception:  # something that only `storable` knows how to look into
        return True


def _holds_nan(value: Any) -> bool:
    cls = type(value)
    if cls is float:
        return not isfinite(value)
    if cls is dict:
        return any(map(_holds_nan, value.values()))
    if cls is list or cls is tuple:
        return any(map(_holds_nan, value))
    return False


def _within(data: bytes, limit: int, value: object) -> bytes:
    if len(data) <= limit:
        return data
    raise EncodeError(
        f"{type(value).__name__} takes {len(data):,} bytes as JSON and the limit is {limit:,}; "
        "store the data elsewhere and pass a reference to it"
    )


def _msgspec_decoder(cls: Any) -> Callable[[bytes], Any]:
    read = msgspec.json.Decoder(cls, dec_hook=_decode_nested).decode
    name = _name(cls)

    def decode(data: bytes) -> Any:
        try:
            return read(data)
        except msgspec.MsgspecError as error:
            raise DecodeError(_placed(name, str(error))) from None
        except RecursionError:
            raise DecodeError(f"{name}: nested too deep to be read") from None
        except Exception as error:  # whatever the class's own __post_init__ raises
            raise DecodeError(f"{name}: {error}") from error

    return decode


def _pydantic_decoder(cls: type) -> Callable[[bytes], Any]:
    from pydantic import ValidationError

    read = adapter_of(cls).validate_json
    name = _name(cls)

    def decode(data: bytes) -> Any:
        try:
            return read(data, strict=True)
        except ValidationError as error:
            raise DecodeError("; ".join(_pydantic_problems(name, error))) from None

    return decode


def _pydantic_problems(name: str, error: Any) -> list[str]:
    listed = error.errors(include_url=False, include_input=False, include_context=False)
    return [f"{name}{_path(each['loc'])}: {each['msg']}" for each in listed[:5]]


def _path(places: tuple[str | int, ...]) -> str:
    return "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)


def _decode_nested(cls: type, value: Any) -> Any:
    """msgspec's hook for classes it does not know: pydantic models inside other things."""
    if is_pydantic(cls):
        from pydantic import ValidationError

        try:
            return adapter_of(cls).validate_json(msgspec.json.encode(value), strict=True)
        except ValidationError as error:
            raise ValueError("; ".join(_pydantic_problems(_name(cls), error))) from None
    raise NotImplementedError(f"a value of type {cls.__name__} cannot be read from JSON")


def _placed(name: str, message: str) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.a`": put the place first, after the class."""
    problem, found, place = message.rpartition(" - at `$")
    return f"{name}{place.rstrip('`')}: {problem}" if found else f"{name}: {message}"


def _name(cls: Any) -> str:
    return cls.__name__ if isinstance(cls, type) else str(cls)
