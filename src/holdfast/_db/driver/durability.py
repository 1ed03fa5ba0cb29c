"""Whether a commit waits until it is on disk: `synchronous_commit`, said anew in each transaction.

Never for a session, which a pooler may hand to others. What a connection does by itself is asked once, when it is
made; so an ordinary enqueue, on an ordinary server, costs nothing more. Through a pooler the next transaction may be
on a connection that does otherwise: there it is said each time, and with it what else `pooler` sets for a session.
"""

from typing import Any
from weakref import WeakKeyDictionary

from psycopg import AsyncConnection, Connection

from holdfast._db.driver.connection import run, run_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query

_early: WeakKeyDictionary[object, bool] = WeakKeyDictionary()
"""The connections whose commits do not wait, unless told to."""


async def learn(connection: AsyncConnection[Any], queries: Queries) -> None:
    """Asks a new connection what it does by itself."""
    _early[connection] = await run(connection, queries.commits_early())


def learn_sync(connection: Connection[Any], queries: Queries) -> None:
    """As `learn`, blocking."""
    _early[connection] = run_sync(connection, queries.commits_early())


def to_say(
    connection: AsyncConnection[Any] | Connection[Any], queries: Queries, durable: bool | None
) -> list[Query[Any]]:
    """What comes first in a transaction that is to be durable, or is not to be; None: as it comes."""
    pooled = connection.prepare_threshold is None
    return [queries.set_durable(durable)] if pooled or (durable is not None and durable == _early[connection]) else []
