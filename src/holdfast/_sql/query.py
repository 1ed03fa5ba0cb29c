"""A statement is text from a `.sql` file; a query is a statement with its parameters, ready for any driver.

Statements are written with `:name` parameters and `holdfast.` for the schema, as psql reads them; `_sql.template` says
how they share fragments. They are rendered once per schema with numbered parameters (`$1`), which psycopg's raw cursors
and asyncpg both take. Nothing here knows a driver: running a query is the business of `holdfast._db`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

import msgspec

from holdfast._sql.template import SLOTS, compose, filled, prose_of, slots_of, without_comments

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
Row = tuple[Any, ...]

FILES = (
    "claimable",
    "enqueue",
    "lifecycle",
    "leases",
    "workers",
    "verbs",
    "maintenance",
    "schedules",
    "insights",
    "looks",
    "health",
    "figures",
    "migrate",
    "roles",
)

READING_FILES = ("insights", "looks", "health")
READING = {
    *("clock", "declared", "archived", "isolation", "figures", "retention", "list_schedules", "list_scopes"),
    *("list_occurrences", "recent_occurrences", "occurrences_between"),
}
"""Statements that change nothing, besides those of such files: they can be sent again if their connection breaks."""

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_SCHEMA = re.compile(r"\bholdfast\.")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement, rendered for one schema."""

    name: str
    prose: str
    text: str
    parameters: tuple[str, ...]
    reads: bool = False
    """Whether it changes nothing."""

    pattern: str = ""
    """The text with its slots still open, if it has any."""

    @property
    def slots(self) -> set[str]:
        """The slots that are still open."""
        return slots_of(self.pattern)

    def with_text(self, text: str) -> "Statement":
        """The same statement in other words."""
        return replace(self, text=text, pattern="")

    def filled(self, **texts: str) -> "Statement":
        """The same statement with these texts in its slots; `:name` in them is a parameter that it has."""
        if unknown := texts.keys() - self.slots:
            raise ValueError(f"{self.name} has no slot {', '.join(sorted(unknown))}")
        wanted = {slot: _numbered(texts.get(slot, SLOTS[slot]), self.parameters) for slot in self.slots}
        return self.with_text(filled(self.pattern, wanted))


class Query(msgspec.Struct, Generic[T_co], frozen=True):
    """A statement with its parameters and the way to read its rows; for a COPY, with what it is to copy."""

    statement: Statement
    parameters: tuple[object, ...]
    read: Callable[[Sequence[Row]], T_co]
    data: Iterable[bytes] | None = None

    def into(self, make: Callable[[T_co], S]) -> "Query[S]":
        """The same query, which makes something else of its answer."""
        return Query(self.statement, self.parameters, lambda rows: make(self.read(rows)), self.data)

    def filled(self, **texts: str) -> "Query[T_co]":
        """The same query, with these texts in the slots of its statement."""
        return Query(self.statement.filled(**texts), self.parameters, self.read, self.data)


def quote(identifier: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + identifier.replace('"', '""') + '"'


def for_schema(text: str, schema: str) -> str:
    """SQL text with the schema's name filled in: for `holdfast.` and, as in psql, `:"schema"` and `:'schema'`."""
    literal = "'" + schema.replace("'", "''") + "'"
    named = text.replace(":'schema'", literal).replace(':"schema"', quote(schema))
    return _SCHEMA.sub(lambda _: quote(schema) + ".", named)


@cache
def statements(schema: str) -> Mapping[str, Statement]:
    """All named statements, rendered for a schema."""
    folder = resources.files("holdfast._sql").joinpath("statements")
    found: dict[str, Statement] = {}
    for file, bodies in zip(
        FILES, compose(folder.joinpath(f"{file}.sql").read_text("utf-8") for file in FILES), strict=True
    ):
        for name, body in bodies.items():
            reads = file in READING_FILES or name in READING
            found[name] = statement(name, body, schema, reads=reads)
    return found


def statement(name: str, body: str, schema: str, *, reads: bool = False) -> Statement:
    """A composed statement, rendered for a schema."""
    pattern = for_schema(without_comments(body), schema)
    text = filled(pattern)
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    pattern = _numbered(pattern, parameters) if slots_of(pattern) else ""
    return Statement(name, prose_of(body), _numbered(text, parameters), parameters, reads, pattern)


def _numbered(text: str, parameters: Sequence[str]) -> str:
    """SQL with its parameters by their numbers."""
    return _PARAMETER.sub(lambda match: f"${parameters.index(match[1]) + 1}", text)
