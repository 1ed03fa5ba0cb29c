"""Connections for blocking callers, shared by all threads."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from psycopg import Connection, IsolationLevel, RawCursor, Rollback
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool

from holdfast._db.driver.connection import (
    CALL_TIMEOUT,
    DriverError,
    LimitedConnection,
    _adapt,
    connect_sync,
    conninfo,
    only_reads,
    run_sync,
)
from holdfast._db.driver.facts import detect_pooler_sync, learn_durability_sync, opening_queries
from holdfast._db.driver.pools import Patience, SoundPool
from holdfast._db.errors import READ_ONLY, explaining, tell_no_hint
from holdfast._db.pool import SIZE
from holdfast._sql.plans import Plan, drive_sync
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import DatabaseUnreachable

T = TypeVar("T")


class SyncPool:
    """Connections for blocking callers; shared by all threads."""

    def __init__(self, url: str, queries: Queries) -> None:
        self.pid = os.getpid()  # a forked child needs a pool of its own
        self._url = url
        self._queries = queries
        self._schema = queries.schema
        self._pool: ConnectionPool[Connection[Any]] | None = None
        self._opening = threading.Lock()
        self._readers: weakref.WeakSet[Connection[Any]] = weakref.WeakSet()

    def run(self, query: Query[T], then: Query[Any] | None = None, *, durable: bool | None = None) -> T:
        """Runs a query, and after its commit another one."""
        with explaining(self._schema):
            pool = self._pool or self._open()
            if then is None and durable is None:
                return self._ask(pool, query)
            with pool.connection(CALL_TIMEOUT) as connection:
                answer = self._in_transaction(connection, query, durable)
                if then is not None:
                    _hint_sync(connection, then)
                return answer

    def together(self, plan: Plan[T], then: Callable[[T], Sequence[Query[Any]]], *, durable: bool) -> T:
        """As `Pool.together`, blocking."""
        with explaining(self._schema):
            pool = self._pool or self._open()
            with pool.connection(CALL_TIMEOUT) as connection:
                with connection.transaction():
                    for query in opening_queries(connection, self._queries, durable):
                        run_sync(connection, query)
                    answer = drive_sync(plan, partial(run_sync, connection))
                for query in then(answer):
                    _hint_sync(connection, query)
                return answer

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def again(self, plan: Plan[T], ended: Query[bool], then: Sequence[Query[Any]], *, durable: bool) -> T | None:
        """As `Pool.again`, blocking."""
        with explaining(self._schema):
            pool = self._pool or self._open()
            answer: T | None = None
            with _sound_connection(pool, self._queries) as connection:
                with connection.transaction() as transaction:
                    for query in opening_queries(connection, self._queries, durable):
                        run_sync(connection, query)
                    answer = drive_sync(plan, partial(run_sync, connection))
                    if run_sync(connection, ended):
                        answer = None
                        raise Rollback(transaction)
                for query in then:
                    _hint_sync(connection, query)
            return answer

    def _ask(self, pool: ConnectionPool[Connection[Any]], query: Query[T]) -> T:
        """As in `Pool`: not from a primary that was replaced."""
        patience = Patience(CALL_TIMEOUT, pool.max_size)
        while True:
            try:
                with pool.connection(CALL_TIMEOUT) as connection:
                    answer = self._in_transaction(connection, query, None)
                    if not only_reads(connection) or connection in self._readers:
                        return answer
                    connection.close()
            except DriverError as error:
                if not query.statement.reads:
                    raise
                time.sleep(patience.after(error))
            else:
                patience.after(DatabaseUnreachable(READ_ONLY))

    def _in_transaction(self, connection: Connection[Any], query: Query[T], durable: bool | None) -> T:
        """As in `Pool`, blocking."""
        first = opening_queries(connection, self._queries, durable)
        with connection.transaction() if first else nullcontext():
            for each in first:
                run_sync(connection, each)
            return run_sync(connection, query)

    def _open(self) -> ConnectionPool[Connection[Any]]:
        with self._opening:
            if self._pool is None:
                connect_sync(self._url).close()
                pool = SoundPool(
                    conninfo(self._url, "holdfast"),
                    connection_class=LimitedConnection,
                    min_size=1,
                    max_size=SIZE,
                    open=False,
                    configure=self._configure,
                    kwargs={"autocommit": True, "cursor_factory": RawCursor, "row_factory": tuple_row},
                )
                pool.open()
                self._pool = pool
            return self._pool

    def _configure(self, connection: Connection[Any]) -> None:
        _adapt(connection)
        connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        detect_pooler_sync(connection)
        learn_durability_sync(connection, self._queries)
        if only_reads(connection):
            self._readers.add(connection)


@contextmanager
def _sound_connection(pool: ConnectionPool[Connection[Any]], queries: Queries) -> Iterator[Connection[Any]]:
    """As in `Pool`: a connection that answers and can write."""
    patience = Patience(CALL_TIMEOUT, pool.max_size)
    while True:
        connection = pool.getconn(CALL_TIMEOUT)
        sound = False
        try:
            _, read_only = run_sync(connection, queries.isolation())
            sound = read_only == "off"
            if sound:
                break
            patience.after(DatabaseUnreachable(READ_ONLY))
        except DriverError as error:
            time.sleep(patience.after(error))
        finally:
            if not sound:
                connection.close()
                pool.putconn(connection)
    try:
        yield connection
    finally:
        pool.putconn(connection)


def _hint_sync(connection: Connection[Any], query: Query[Any]) -> None:
    try:
        run_sync(connection, query)
    except DriverError as error:
        connection.close()
        tell_no_hint(error)
