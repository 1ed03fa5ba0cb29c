"""What all groups of queries share: how a statement becomes a query, and how its values and rows are put."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

from holdfast._sql.query import Query, Row, statements

T = TypeVar("T")
Made = TypeVar("Made", bound=tuple[Any, ...])


class Ids:
    """Ids of tasks as one parameter, as the server reads an array binary: from a text it takes ten times as long.

    `texts` is for connections on which only texts travel.
    """

    __slots__ = ("binary",)

    def __init__(self, ids: Sequence[bytes]) -> None:
        # One dimension, no nulls, of uuid, so many, counted from 1; then the length of each, and its bytes.
        self.binary = _HEAD.pack(1, 0, 2950, len(ids), 1) + (_SIZE + _SIZE.join(ids) if ids else b"")

    @property
    def texts(self) -> list[str]:
        """The ids one by one."""
        first, step, size = _HEAD.size + len(_SIZE), len(_SIZE) + 16, len(self.binary)
        return [self.binary[place : place + 16].hex() for place in range(first, size, step)]


class Utf8(tuple[bytes, ...]):
    """Parameters that are all texts in UTF-8 already: nobody need look at each of them again."""

    __slots__ = ()


_HEAD = Struct("!5i")
_SIZE = (16).to_bytes(4)


class Base:
    """The statements of one schema."""

    def __init__(self, schema: str = "holdfast") -> None:
        self.schema = schema
        self._statements = statements(schema)

    def _query(self, name: str, read: Callable[[Sequence[Row]], T], /, **values: object) -> Query[T]:
        statement = self._statements[name]
        return Query(statement, tuple([values[p] for p in statement.parameters]), read)


# How values are put.


def text(json: bytes | None) -> str | None:
    return None if json is None else json.decode()


def array(ids: Sequence[UUID] | Ids) -> Ids:
    return ids if isinstance(ids, Ids) else Ids([id.bytes for id in ids])


def texts(values: Iterable[str | None]) -> str:
    """The literal of an array."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: str | None) -> str:
    return "NULL" if value is None else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@lru_cache(32)
def names(values: tuple[str, ...]) -> str:
    """The literal of an array that is sent again and again."""
    return texts(values)


@lru_cache(32)
def times(values: tuple[datetime, ...]) -> str:
    """The same of times."""
    return texts(value.isoformat() for value in values)


# How rows are read.


def nothing(rows: Sequence[Row]) -> None:
    return None


def some(rows: Sequence[Row]) -> bool:
    return bool(rows)


def value(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def maybe_value(rows: Sequence[Row]) -> Any:
    return rows[0][0] if rows else None


def first_set(rows: Sequence[Row]) -> set[Any]:
    return {row[0] for row in rows}


def first_list(rows: Sequence[Row]) -> list[Any]:
    return [row[0] for row in rows]


def by_id(rows: Sequence[Row]) -> dict[UUID, Any]:
    return {row[0]: row[1] for row in rows}


def rows_of(cls: type[Made]) -> Callable[[Sequence[Row]], list[Made]]:
    # As `_make` does, but not by way of Python: claims give many rows.
    make: Callable[[Row], Made] = partial(tuple.__new__, cls)
    return lambda rows: list(map(make, rows))


def maybe(cls: type[Made]) -> Callable[[Sequence[Row]], Made | None]:
    make: Callable[[Row], Made] = cls._make  # type: ignore[attr-defined]
    return lambda rows: make(rows[0]) if rows else None
