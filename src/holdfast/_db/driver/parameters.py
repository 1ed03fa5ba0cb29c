"""Parameters as they are sent: every value as a text, which the server casts to the type that the statement names.

`as_text` is the one table of conversions. What it gives is put in three forms, by what sends it:

- `for_libpq`: bytes in the connection's encoding. `direct` and `pipeline` send them.
- `for_cursor`: texts for the driver's cursors on connections of our own.
- `Portable`: texts and arrays of texts for a connection that the caller or a step has set up. Such a connection may
  read `jsonb` as dicts, `uuid` as texts or times as another library's objects, and write them accordingly. None of
  that may change what is stored.

Only the ids of many tasks are sent binary: see `Ids`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import UUID

from psycopg import DataError, postgres
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from holdfast._sql.queries.base import Ids, Utf8, texts
from holdfast._sql.query import Query, Statement

T = TypeVar("T")


# --- the conversions


def _time(value: datetime) -> str:
    return value.astimezone(UTC).isoformat()


def _span(value: timedelta) -> str:
    # Never days: the day on which the clocks of the session's time zone change has not 24 hours. Nor
    # microseconds alone: PostgreSQL 14 reads no more than 2^31 of anything.
    # With its sign each: in the SQL standard's style of intervals the first sign counts for all that follow.
    hours, rest = divmod(value, timedelta(hours=1))
    return f"{hours:+} hours {rest.seconds:+} seconds {rest.microseconds:+} microseconds"


_TEXT_OF: Mapping[type, Callable[[Any], str]] = {
    str: lambda value: value,
    bool: str,
    int: str,
    float: str,
    UUID: str,
    datetime: _time,
    date: date.isoformat,
    timedelta: _span,
}


def as_text(value: object) -> str | None:
    """A value as the server reads it."""
    if value is None:
        return None
    for cls in type(value).__mro__:  # as a rule the first
        if (convert := _TEXT_OF.get(cls)) is not None:
            return convert(value)
    raise TypeError(f"no way to send a {type(value).__name__} as text")


def _literal(value: object) -> str | None:
    """A value or the literal of an array."""
    return texts(map(as_text, value)) if isinstance(value, (list, tuple)) else as_text(value)


# --- for libpq


def for_libpq(parameters: Sequence[object], encoding: str) -> tuple[list[bytes | None], list[int] | None]:
    """The values, for a connection with that encoding, and the format of each: 1 is binary, None that all are texts."""
    if type(parameters) is Utf8:
        _refuse_nul(b"".join(parameters))
        return (list(parameters) if encoding == "utf-8" else [v.decode().encode(encoding) for v in parameters]), None
    formats = [int(type(value) is Ids) for value in parameters] if Ids in map(type, parameters) else None
    return [_bytes(value, encoding) for value in parameters], formats


def _bytes(value: object, encoding: str) -> bytes | None:
    if type(value) is Ids:
        return value.binary
    text = value if type(value) is str else _literal(value)  # as a rule it is
    if text is None:
        return None
    encoded = text.encode(encoding)
    _refuse_nul(encoded)
    return encoded


def _refuse_nul(encoded: bytes) -> None:
    if b"\0" in encoded:  # for libpq the value would end there
        raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")


# --- for the driver's cursors


def for_cursor(query: Query[Any]) -> tuple[bytes, list[str | Ids | None]]:
    """The statement and its values, for a cursor of a connection that `register_ids` has prepared."""
    return query.statement.text.encode(), [_for_cursor(value) for value in query.parameters]


def _for_cursor(value: object) -> str | Ids | None:
    if type(value) is bytes:  # one of Utf8
        return value.decode()
    return value if type(value) is Ids else _literal(value)


class _IdsDumper(Dumper):
    """Ids of tasks, which are in the server's format already."""

    format = Format.BINARY
    oid = postgres.types["uuid"].array_oid

    def dump(self, obj: Ids) -> bytes:
        return obj.binary


def register_ids(adapters: AdaptersMap) -> None:
    """Teaches the driver to send `Ids`."""
    adapters.register_dumper(Ids, _IdsDumper)


# --- for connections that others have set up

_CAST = re.compile(r"\$(\d+)::(\w+)(\[\])?")
_NUMBER = re.compile(r"\$(\d+)")
_IDS = {"id", "worker_id"}
"""The columns that hold ids, in every statement."""


@dataclass(frozen=True, slots=True)
class Portable(Generic[T]):
    """A query with texts as its only parameters, for drivers that number them and for those that name them."""

    query: Query[T]

    @property
    def numbered(self) -> str:
        """The statement with `$1`."""
        return _rendered(self.query.statement)[0]

    @property
    def named(self) -> str:
        """The statement with `%(p1)s`."""
        return _rendered(self.query.statement)[1]

    @property
    def values(self) -> tuple[Any, ...]:
        """What the numbers stand for."""
        arrays = _rendered(self.query.statement)[2]
        return tuple(
            _texts(value) if number in arrays else as_text(value)
            for number, value in enumerate(self.query.parameters, 1)
        )

    @property
    def values_by_name(self) -> dict[str, Any]:
        """What the names stand for."""
        return {f"p{number}": value for number, value in enumerate(self.values, 1)}

    def read(self, columns: Iterable[str], rows: Sequence[Sequence[Any]]) -> T:
        """The answer, from rows as this connection gives them."""
        ids = [column for column, name in enumerate(columns) if name in _IDS]
        return self.query.read([_row(row, ids) for row in rows])


@cache
def _rendered(statement: Statement) -> tuple[str, str, frozenset[int]]:
    """The statement with numbers, with names, and which numbers are arrays."""
    arrays = frozenset(int(number) for number, _, array in _CAST.findall(statement.text) if array)
    numbered = _CAST.sub(_cast, statement.text)
    named = _NUMBER.sub(r"%(p\1)s", numbered.replace("%", "%%"))
    return numbered, named, arrays


def _cast(match: "re.Match[str]") -> str:
    number, kind, array = match.groups()
    if array is None or kind == "text":
        return f"${number}::text{array or ''}::{kind}{array or ''}"
    # Where array_nulls is off, NULL comes as a text, which no type but text itself could read.
    return f"array_replace(${number}::text[], 'NULL', NULL)::{kind}[]"


def _texts(values: Any) -> list[str | None]:
    if isinstance(values, Ids):
        return [*values.texts]
    return [as_text(value) for value in values]


def _row(row: Sequence[Any], ids: list[int]) -> tuple[Any, ...]:
    values = list(row)
    for column in ids:
        if isinstance(values[column], str):
            values[column] = UUID(values[column])
    return tuple(values)
