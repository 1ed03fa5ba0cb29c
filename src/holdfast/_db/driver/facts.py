"""Facts about a new connection: whether a pooler is in between, and whether its commits wait for the disk.

Through a pooler in transaction mode, PgBouncer's for one, every transaction may be on another connection of the
server's. Then nothing may be left behind in a session: no prepared statement (its name may be another client's on the
next connection, and another statement would be executed), no SET, no LISTEN. Whether a pooler is in between is found
out on each connection: a server tells every client the number of its process, and a pooler, which has no process for it
yet, makes one up.

Our connections switch the server's compiler off. On PostgreSQL 14 to 17 a plan that may not read whole tables
(`enable_seqscan = off`) looks so expensive that each of its executions would be compiled anew, which takes hundreds of
times as long as a claim. And NULL in an array means NULL on them, though a database or role may have it otherwise.
Straight to a server that is said once, with the same question; through a pooler each transaction says it for itself:
see `opening_queries` and `Link`.

Whether a commit waits until it is on disk is `synchronous_commit`, and is set anew in each transaction that needs it:
never for a session, which a pooler may hand to others. What a connection does by itself is asked once, when it is made,
so an ordinary enqueue on an ordinary server costs nothing more. Through a pooler the next transaction may be on a
connection that does otherwise: there it is set each time.
"""

from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from holdfast._db.config.resolve import setting
from holdfast._db.driver.connection import run, run_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query

# --- poolers

PREPARE_AFTER = 5
"""How often a statement is sent before the driver prepares it; on connections straight to a server only."""

_PROCESS = b"SELECT pg_catalog.pg_backend_pid()"
_PROCESS_AND_SET = b"""
SELECT here.pid, said.* FROM pg_catalog.pg_backend_pid() AS here(pid) LEFT JOIN LATERAL (
    SELECT pg_catalog.set_config('jit', 'off', false), pg_catalog.set_config('array_nulls', 'on', false)) AS said ON %s
"""


async def detect_pooler(connection: AsyncConnection[Any], *, ours: bool = True) -> bool:
    """Whether a pooler is in between; if not, statements that are sent often are prepared from now on.

    `ours`: only statements of ours are sent on this connection.
    """
    row = await (await connection.execute(_question(connection, ours))).fetchone()
    return _is_pooled(connection, row)


def detect_pooler_sync(connection: Connection[Any], *, ours: bool = True) -> bool:
    """As `detect_pooler`, blocking."""
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


# --- durability

_early: WeakKeyDictionary[object, bool] = WeakKeyDictionary()
"""Whether the commits of a connection return before they are on disk, unless a transaction sets it otherwise."""


async def learn_durability(connection: AsyncConnection[Any], queries: Queries) -> None:
    """Asks a new connection whether its commits wait for the disk by themselves."""
    _early[connection] = await run(connection, queries.commits_early())


def learn_durability_sync(connection: Connection[Any], queries: Queries) -> None:
    """As `learn_durability`, blocking."""
    _early[connection] = run_sync(connection, queries.commits_early())


def opening_queries(
    connection: AsyncConnection[Any] | Connection[Any], queries: Queries, durable: bool | None
) -> list[Query[Any]]:
    """The queries that begin a transaction which is to be durable, or not to be; None: as the connection has it."""
    pooled = connection.prepare_threshold is None
    return [queries.set_durable(durable)] if pooled or (durable is not None and durable == _early[connection]) else []
