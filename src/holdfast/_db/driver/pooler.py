"""Poolers in transaction mode, PgBouncer's for one: every transaction may be on another connection of the server's.

Then nothing may be left behind in a session: no prepared statement (its name may be another client's on the next
connection, and another statement would be executed), no SET, no LISTEN. Whether a pooler is in between is found out
on each connection: a server tells every client the number of its process, and a pooler, which has no process for it
yet, makes one up.

Our connections switch the server's compiler off. On PostgreSQL 14 to 17 a plan that may not read whole tables
(`enable_seqscan = off`) looks so expensive that each of its executions would be compiled anew, which takes hundreds of
times as long as a claim. And NULL in an array means NULL on them, though a database or role may have it otherwise.
Straight to a server that is said once, with the same question; through a pooler each transaction says it for itself:
see `durability.to_say` and `Link`.
"""

from typing import Any

from psycopg import AsyncConnection, Connection

from holdfast._db.config.resolve import setting

PREPARE_AFTER = 5
"""How often a statement is sent before the driver prepares it; on connections straight to a server only."""

_PROCESS = b"SELECT pg_catalog.pg_backend_pid()"
_PROCESS_AND_SET = b"""
SELECT here.pid, said.* FROM pg_catalog.pg_backend_pid() AS here(pid) LEFT JOIN LATERAL (
    SELECT pg_catalog.set_config('jit', 'off', false), pg_catalog.set_config('array_nulls', 'on', false)) AS said ON %s
"""


async def meet(connection: AsyncConnection[Any], *, ours: bool = True) -> bool:
    """Whether a pooler is in between; if not, statements that are sent often are prepared from now on.

    `ours`: nobody else's statements are sent on this connection.
    """
    row = await (await connection.execute(_question(connection, ours))).fetchone()
    return _is_pooled(connection, row)


def meet_sync(connection: Connection[Any], *, ours: bool = True) -> bool:
    """As `meet`, blocking."""
    return _is_pooled(connection, connection.execute(_question(connection, ours)).fetchone())


def _question(connection: AsyncConnection[Any] | Connection[Any], ours: bool) -> bytes:
    known = setting("pooler").value
    if not ours or known == "transaction":
        return _PROCESS
    return _PROCESS_AND_SET % (b"true" if known == "none" else b"here.pid = %d" % connection.info.backend_pid)


def _is_pooled(connection: AsyncConnection[Any] | Connection[Any], row: Any) -> bool:
    known = setting("pooler").value
    pooled: bool = known == "transaction" or (known == "auto" and row[0] != connection.info.backend_pid)
    connection.prepare_threshold = None if pooled else PREPARE_AFTER
    return pooled
