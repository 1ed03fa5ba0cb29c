"""Steps that end in every bad way, by name: results that cannot be stored, errors that cannot be told."""

from collections.abc import Callable
from typing import Any


class _Mute(Exception):
    """Cannot be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class _Odd(BaseException):
    """Not even an Exception."""


def _deep(levels: int = 10_000) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _raised(error: BaseException) -> Any:
    raise error


def _in_a_circle() -> Any:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def _chained(levels: int = 500) -> Any:
    error = ValueError("the first")
    for n in range(levels):
        following = ValueError(f"number {n}")
        following.__cause__ = error
        error = following
    raise error


def _grouped(levels: int = 200) -> Any:
    found: list[Exception] = [ValueError("inside")]
    for _ in range(levels):
        found = [ExceptionGroup("around", found)]
    raise found[0]


def _endless() -> int:
    return _endless() + 1


ENDINGS: dict[str, Callable[[], Any]] = {
    "an object": object,
    "a set": lambda: {1, 2},
    "a function": lambda: _deep,
    "bytes": lambda: b"\xff\x00",
    "NaN": lambda: float("nan"),
    "infinity": lambda: [float("inf")],
    "a huge integer": lambda: 2**70,
    "an integer of 6,000 digits": lambda: 10**6000,
    "NUL": lambda: "a\0b",
    "NUL in a name": lambda: {"a\0b": 1},
    "a lone surrogate": lambda: "\ud800",
    "depth 10,000": _deep,
    "a circle": _cyclic,
    "5 MB": lambda: "x" * 5_000_000,
    "keys that are no text": lambda: {(1, 2): 3},
    "an error without words": lambda: _raised(_Mute()),
    "an error with NUL": lambda: _raised(ValueError("a\0b")),
    "an error with a lone surrogate": lambda: _raised(ValueError("\udfff")),
    "an error of 5 MB": lambda: _raised(ValueError("x" * 5_000_000)),
    "an error of escapes": lambda: _raised(ValueError("\x1b]0;title\x07" * 100)),
    "an error with odd arguments": lambda: _raised(ValueError(object(), _Mute(), b"\xff")),
    "errors in a circle": _in_a_circle,
    "500 causes": _chained,
    "200 groups": _grouped,
    "endless recursion": _endless,
    "SystemExit": lambda: _raised(SystemExit(3)),
    "KeyboardInterrupt": lambda: _raised(KeyboardInterrupt()),
    "GeneratorExit": lambda: _raised(GeneratorExit()),
    "StopIteration": lambda: _raised(StopIteration(1)),
    "a BaseException": lambda: _raised(_Odd("odd")),
    "MemoryError": lambda: _raised(MemoryError()),
}
