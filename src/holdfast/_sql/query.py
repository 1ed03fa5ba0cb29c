"""A statement is text from a `.sql` file; a query is a statement with its parameters, ready for any driver.

Statements are written with `:name` parameters and `holdfast.` for the schema, so they can be pasted into psql.
They are rendered once per schema with numbered parameters (`$1`), which psycopg's raw cursors and asyncpg
both take. Nothing here knows a driver: running a query is the business of `holdfast._db`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Generic, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)
Row = tuple[Any, ...]

FILES = (
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

_HEADING = re.compile(r"^-- ([a-z_]+) --$", re.MULTILINE)
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_SCHEMA = re.compile(r"\bholdfast\.")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)
_IDS = re.compile(r"/\*ids\*/(\$\d+)::uuid\[\]")
_CHILDREN = re.compile(r"/\*children of (\w+)\*/")
_SUSPECTS = re.compile(r"/\*suspects\*/.*?/\*suspects\*/", re.DOTALL)
_WHICH = re.compile(r"/\*which\*/.*/\*which\*/", re.DOTALL)
_WHICH_WERE = re.compile(r"/\*which were\*/.*/\*which were\*/")


@dataclass(frozen=True, slots=True)
class Statement:
    """One named statement, rendered for one schema."""

    name: str
    prose: str
    text: str
    parameters: tuple[str, ...]
    reads: bool = False
    """Whether it changes nothing."""

    def with_text(self, text: str) -> "Statement":
        """The same statement in other words."""
        return replace(self, text=text)

    def skip_locked(self, schema: str) -> "Statement":
        """The same statement, passing over rows that somebody else has locked."""
        queue = f"${self.parameters.index('queue') + 1}"
        picked = (
            rf"ARRAY(SELECT l.id FROM {quote(schema)}.task l WHERE l.queue = {queue}::text"  # noqa: S608 - quoted
            r" AND l.id = ANY (\1::uuid[]) ORDER BY l.id FOR UPDATE SKIP LOCKED)"
        )
        return self.with_text(_IDS.sub(picked, self.text))


class Query(msgspec.Struct, Generic[T_co], frozen=True):
    """A statement with its parameters and the way to read its rows; for a COPY, with what it is to copy."""

    statement: Statement
    parameters: tuple[object, ...]
    read: Callable[[Sequence[Row]], T_co]
    data: Iterable[bytes] | None = None


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
    bodies: dict[str, str] = {}
    reading = set(READING)
    for file in FILES:
        found = bodies_of(resources.files("holdfast._sql").joinpath("statements", f"{file}.sql").read_text("utf-8"))
        if twice := bodies.keys() & found.keys():
            raise ValueError(f"there twice: {', '.join(sorted(twice))}")
        bodies |= found
        if file in READING_FILES:
            reading |= found.keys()
    children, one = bodies.pop("children"), bodies.pop("one")
    for name, body in list(bodies.items()):
        if place := _CHILDREN.search(body):
            part = children.replace("written", place[1])
            bodies[f"{name}_with_children"] = body.replace(place[0], part)
        if _SUSPECTS.search(body):
            bodies[f"{name}_without_suspects"] = _SUSPECTS.sub("", body)
            bodies[f"{name}_one"] = _WHICH.sub(_COMMENT.sub("", one).strip(), body)
        if _WHICH_WERE.search(body):
            bodies[f"{name}_counted"] = _WHICH_WERE.sub("", body)
    return {name: statement(name, body, schema, reads=name in reading) for name, body in bodies.items()}


def bodies_of(text: str) -> dict[str, str]:
    """The statements of a file by their names, as they are written."""
    parts = _HEADING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def statement(name: str, body: str, schema: str, *, reads: bool = False) -> Statement:
    """A statement as it is written, rendered for a schema."""
    prose = " ".join(line.strip(" -") for line in _COMMENT.findall(body))
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    text = _PARAMETER.sub(number, for_schema(_COMMENT.sub("", body), schema)).strip()
    return Statement(name, prose, text, tuple(names), reads)
