"""Running a query on the connection a caller gives with `conn=`, inside the caller's own transaction."""

from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from holdfast._db.connection import run, run_sync
from holdfast._sql.query import Query
from holdfast.errors import ConfigError

T = TypeVar("T")


async def run_on(conn: object, query: Query[T]) -> T:
    """Runs a query on a caller's asynchronous connection."""
    if isinstance(conn, AsyncConnection):
        return await run(conn, query)
    if isinstance(conn, Connection):
        raise ConfigError("conn= is a blocking psycopg connection: use app.sync.enqueue(…, conn=conn)")
    raise _unsupported(conn)


def run_on_sync(conn: object, query: Query[T]) -> T:
    """Runs a query on a caller's blocking connection."""
    if isinstance(conn, Connection):
        return run_sync(conn, query)
    if isinstance(conn, AsyncConnection):
        raise ConfigError("conn= is an asynchronous psycopg connection: use await app.enqueue(…, conn=conn)")
    raise _unsupported(conn)


def _unsupported(conn: Any) -> ConfigError:
    cls = type(conn)
    return ConfigError(
        f"conn= takes a psycopg connection (psycopg.AsyncConnection, or psycopg.Connection with app.sync), "
        f"not {cls.__module__}.{cls.__qualname__}"
    )
