"""A query for a connection that somebody else has set up.

Such a connection may be told to read `jsonb` as dicts, `uuid` as texts or times as another library's objects, and
to write them accordingly. None of that may change what is stored. So only texts travel there: every parameter is
sent as a text, or an array of texts, and the server casts it to the type that the statement names.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Generic, TypeVar
from uuid import UUID

from holdfast._sql.queries.base import Ids
from holdfast._sql.query import Query, Statement

T = TypeVar("T")

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
        ids = [place for place, name in enumerate(columns) if name in _IDS]
        return self.query.read([_row(row, ids) for row in rows])


@cache
def _rendered(statement: Statement) -> tuple[str, str, frozenset[int]]:
    """The statement with numbers, with names, and which numbers are arrays."""
    arrays = frozenset(int(number) for number, _, array in _CAST.findall(statement.text) if array)
    numbered = _CAST.sub(_cast, statement.text)
    named = _NUMBER.sub(r"%(p\1)s", numbered.replace("%", "%%"))
    return numbered, named, arrays


def _cast(found: "re.Match[str]") -> str:
    number, kind, array = found.groups()
    if array is None or kind == "text":
        return f"${number}::text{array or ''}::{kind}{array or ''}"
    # Where array_nulls is off, NULL comes as a text, which no type but text itself could read.
    return f"array_replace(${number}::text[], 'NULL', NULL)::{kind}[]"


def _texts(values: Any) -> list[str | None]:
    if isinstance(values, Ids):
        return [*values.texts]
    return [as_text(value) for value in values]


def as_text(value: object) -> str | None:
    """A value as the server reads it."""
    match value:
        case None | str():
            return value
        case bool() | int() | float() | UUID():
            return str(value)
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            # Never days: the day on which the clocks of the session's time zone change has not 24 hours. Nor
            # microseconds alone: PostgreSQL 14 reads no more than 2^31 of anything.
            # With its sign each: in the SQL standard's style of intervals the first sign counts for all that follow.
            hours, rest = divmod(value, timedelta(hours=1))
            return f"{hours:+} hours {rest.seconds:+} seconds {rest.microseconds:+} microseconds"
    raise TypeError(f"no way to send a {type(value).__name__} as text")


def _row(row: Sequence[Any], ids: list[int]) -> tuple[Any, ...]:
    values = list(row)
    for place in ids:
        if isinstance(values[place], str):
            values[place] = UUID(values[place])
    return tuple(values)
