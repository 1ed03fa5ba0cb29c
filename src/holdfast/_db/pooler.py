"""Poolers in transaction mode, PgBouncer's for one: every transaction may be on another connection of the server's.

Then nothing may be left behind in a session: no prepared statement (its name may be another client's on the next
connection, and another statement would be executed), no SET, no LISTEN. Whether a pooler is in between is found out
on each connection: a server tells every client the number of its process, and a pooler, which has no process for it
yet, makes one up.
"""

from typing import Any

from psycopg import AsyncConnection, Connection

from holdfast._db.config import setting

PREPARE_AFTER = 5
"""How often a statement is sent before the driver prepares it; on connections straight to a server only."""

_PROCESS = b"SELECT pg_catalog.pg_backend_pid()"


async def meet(connection: AsyncConnection[Any]) -> bool:
    """Whether a pooler is in between; if not, statements that are sent often are prepared from now on."""
    row = await (await connection.execute(_PROCESS)).fetchone()
    return _is_pooled(connection, row)


def meet_sync(connection: Connection[Any]) -> bool:
    """As `meet`, blocking."""
    return _is_pooled(connection, connection.execute(_PROCESS).fetchone())


def _is_pooled(connection: AsyncConnection[Any] | Connection[Any], row: Any) -> bool:
    known = setting("pooler").value
    pooled: bool = known == "transaction" or (known == "auto" and row[0] != connection.info.backend_pid)
    connection.prepare_threshold = None if pooled else PREPARE_AFTER
    return pooled
