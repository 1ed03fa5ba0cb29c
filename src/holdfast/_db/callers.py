"""Running a query on the connection a caller gives with `conn=`, inside the caller's own transaction.

It may be a connection of psycopg, psycopg2, asyncpg, SQLAlchemy or Django, or a session of SQLAlchemy. They are
recognised by the names of their classes, so none of these libraries is imported here unless it is our own driver.
Each is used through its own interface: then its transaction has begun, its log and hooks see the statement, and an
error is raised as that library raises it for any other statement.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias, TypeVar

from psycopg import AsyncRawCursor, RawCursor
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

from holdfast._db.driver.connection import run, run_sync
from holdfast._db.driver.parameters import Portable
from holdfast._sql.query import Query
from holdfast.errors import ConfigError

T = TypeVar("T")

NO_TABLES = {"42P01", "3F000"}
"""The codes of PostgreSQL for a table or a schema that is not there."""

Name: TypeAlias = tuple[str, str]
"""A class: the package it comes from, and its own name."""


async def run_on(conn: object, query: Query[T]) -> T:
    """Runs a query on a caller's asynchronous connection."""
    known = _recognised(conn, _ASYNC)
    if known is not None:
        with _noting_missing_tables():
            answer: T = await known.run(conn, Portable(query))
        return answer
    blocking = _recognised(conn, _BLOCKING)
    if blocking is not None:
        advice = blocking.advice or "use app.sync.enqueue(…, conn=conn)"
        raise ConfigError(f"conn= is a blocking {blocking.what}: {advice}")
    raise _unsupported(conn)


def run_on_sync(conn: object, query: Query[T]) -> T:
    """Runs a query on a caller's blocking connection."""
    known = _recognised(conn, _BLOCKING)
    if known is not None:
        with _noting_missing_tables():
            answer: T = known.run(conn, Portable(query))
        return answer
    awaited = _recognised(conn, _ASYNC)
    if awaited is not None:
        raise ConfigError(f"conn= is an asynchronous {awaited.what}: use await app.enqueue(…, conn=conn)")
    raise _unsupported(conn)


def can_copy(conn: object) -> bool:
    """Whether a COPY can be run here: on a connection of psycopg, outside of its pipelines."""
    known = _recognised(conn, _ASYNC) or _recognised(conn, _BLOCKING)
    if known is None or known.run not in (_psycopg_async, _psycopg):
        return False
    psycopg_conn: Any = conn
    return bool(psycopg_conn.pgconn.pipeline_status == PipelineStatus.OFF)


@contextmanager
def _noting_missing_tables() -> Iterator[None]:
    """The error is that of the caller's library; a note under it says what to do."""
    try:
        yield
    except Exception as error:
        # SQLAlchemy has the driver's error in `orig`, Django as the cause; psycopg2 calls the code pgcode.
        causes = (error, getattr(error, "orig", None), error.__cause__, getattr(error, "orig", error).__cause__)
        codes = {getattr(each, name, None) for each in causes for name in ("sqlstate", "pgcode")}
        if codes & NO_TABLES:
            error.add_note(
                "holdfast: its tables are missing in the database of this conn=, or the schema has another name. "
                "Make them there: holdfast migrate"
            )
        raise


# Drivers --------------------------------------------------------------------------------------------


async def _psycopg_async(conn: Any, query: Portable[T]) -> T:
    # Cursors of our own kind, whatever factories the connection has.
    cursor = AsyncRawCursor(conn, row_factory=tuple_row)
    if query.query.data is not None:
        return await run(conn, query.query, adapted=True)
    await cursor.execute(query.numbered.encode(), query.values)
    found = await cursor.fetchall()  # first: in a pipeline of the caller, the columns are not known before
    return query.read(_columns(cursor), found)


def _psycopg(conn: Any, query: Portable[T]) -> T:
    cursor = RawCursor(conn, row_factory=tuple_row)
    if query.query.data is not None:
        return run_sync(conn, query.query, adapted=True)
    cursor.execute(query.numbered.encode(), query.values)
    found = cursor.fetchall()
    return query.read(_columns(cursor), found)


def _psycopg2(conn: Any, query: Portable[T]) -> T:
    with conn.cursor(cursor_factory=sys.modules["psycopg2.extensions"].cursor) as cursor:
        cursor.execute(query.named, query.values_by_name)
        return query.read(_columns(cursor), cursor.fetchall() if cursor.description else [])


async def _asyncpg(conn: Any, query: Portable[T]) -> T:
    records = await conn.fetch(query.numbered, *query.values)
    return query.read(records[0].keys() if records else (), [tuple(record.values()) for record in records])


# SQLAlchemy and Django ------------------------------------------------------------------------------

_OPTIONS = {"stream_results": False}
"""A connection that streams would declare a cursor for the statement, which only a SELECT can have."""


async def _sqlalchemy_async(conn: Any, query: Portable[T]) -> T:
    return _sqlalchemy_answer(await conn.exec_driver_sql(*_sqlalchemy_call(conn, query), _OPTIONS), query)


async def _sqlalchemy_async_session(conn: Any, query: Portable[T]) -> T:
    return await _sqlalchemy_async(await conn.connection(), query)


def _sqlalchemy(conn: Any, query: Portable[T]) -> T:
    return _sqlalchemy_answer(conn.exec_driver_sql(*_sqlalchemy_call(conn, query), _OPTIONS), query)


def _sqlalchemy_session(conn: Any, query: Portable[T]) -> T:
    return _sqlalchemy(conn.connection(), query)


def _sqlalchemy_call(conn: Any, query: Portable[Any]) -> tuple[str, Any]:
    match f"{conn.dialect.name}+{conn.dialect.driver}":
        case "postgresql+asyncpg":
            return query.numbered, query.values
        case "postgresql+psycopg" | "postgresql+psycopg2":
            return query.named, query.values_by_name
        case other:
            raise ConfigError(
                f"conn= is a SQLAlchemy connection by {other}: Holdfast can use postgresql+psycopg, "
                "postgresql+psycopg2 and postgresql+asyncpg"
            )


def _sqlalchemy_answer(result: Any, query: Portable[T]) -> T:
    return query.read(result.keys(), result.fetchall()) if result.returns_rows else query.read((), [])


def _django(conn: Any, query: Portable[T]) -> T:
    if getattr(conn, "vendor", None) != "postgresql":
        vendor = getattr(conn, "vendor", None) or type(conn).__qualname__
        raise ConfigError(f"conn= is a Django connection to {vendor}: tasks live in PostgreSQL")
    with conn.cursor() as cursor:
        cursor.execute(query.named, query.values_by_name)
        return query.read(_columns(cursor), cursor.fetchall() if cursor.description else [])


def _columns(cursor: Any) -> list[str]:
    return [column[0] for column in cursor.description or ()]


# Which is which -------------------------------------------------------------------------------------


class _ConnectionClass(NamedTuple):
    """A class of connections: how to use one, and what to call it."""

    run: Any
    what: str
    advice: str = ""


_ASYNC: Mapping[Name, _ConnectionClass] = {
    ("psycopg", "AsyncConnection"): _ConnectionClass(_psycopg_async, "psycopg connection"),
    ("asyncpg", "Connection"): _ConnectionClass(_asyncpg, "asyncpg connection"),
    ("asyncpg", "PoolConnectionProxy"): _ConnectionClass(_asyncpg, "asyncpg connection"),
    ("sqlalchemy", "AsyncConnection"): _ConnectionClass(_sqlalchemy_async, "SQLAlchemy connection"),
    ("sqlalchemy", "AsyncSession"): _ConnectionClass(_sqlalchemy_async_session, "SQLAlchemy session"),
    ("sqlalchemy", "async_scoped_session"): _ConnectionClass(_sqlalchemy_async_session, "SQLAlchemy session"),
}

_IN_A_VIEW = (
    "use app.sync.enqueue(…, conn=connection); from an async view, put it with its transaction.atomic() into a "
    "function and await sync_to_async(function)()"
)

_BLOCKING: Mapping[Name, _ConnectionClass] = {
    ("psycopg", "Connection"): _ConnectionClass(_psycopg, "psycopg connection"),
    ("psycopg2", "connection"): _ConnectionClass(_psycopg2, "psycopg2 connection"),
    ("sqlalchemy", "Connection"): _ConnectionClass(_sqlalchemy, "SQLAlchemy connection"),
    ("sqlalchemy", "Session"): _ConnectionClass(_sqlalchemy_session, "SQLAlchemy session"),
    ("sqlalchemy", "scoped_session"): _ConnectionClass(_sqlalchemy_session, "SQLAlchemy session"),
    ("django", "BaseDatabaseWrapper"): _ConnectionClass(_django, "Django connection", _IN_A_VIEW),
    ("django", "ConnectionProxy"): _ConnectionClass(_django, "Django connection", _IN_A_VIEW),
}


def _recognised(conn: object, known: Mapping[Name, _ConnectionClass]) -> _ConnectionClass | None:
    """What is known about the nearest class of this object, so that subclasses count too."""
    for name in map(_name, type(conn).__mro__):
        if name in known:
            return known[name]
    return None


def _name(cls: type) -> Name:
    return cls.__module__.partition(".")[0], cls.__name__


def _unsupported(conn: object) -> ConfigError:
    cls = type(conn)
    advice = ""
    if "pool" in cls.__name__.lower() or "engine" in cls.__name__.lower() or "maker" in cls.__name__.lower():
        advice = ". It has no transaction: give a connection or session that was taken from it, with its transaction"
    elif hasattr(conn, "connection") and hasattr(conn, "fetchall"):
        advice = ". A cursor belongs to a connection: give that one"
    return ConfigError(
        f"conn= takes a psycopg connection, a psycopg2 or asyncpg connection, a session or connection of SQLAlchemy, "
        f"or Django's connection, not {cls.__module__}.{cls.__qualname__}{advice}"
    )
