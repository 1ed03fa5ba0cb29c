"""Connections for callers: opened lazily, one pool per event loop, apart from those of workers."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncRawCursor, IsolationLevel, OperationalError, Rollback
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from holdfast._db.coalescer import Alone, Coalescer
from holdfast._db.driver.connection import CALL_TIMEOUT, DriverError, _adapt, connect, conninfo, only_reads, run
from holdfast._db.driver.facts import detect_pooler, learn_durability, opening_queries
from holdfast._db.driver.parameters import for_cursor
from holdfast._db.driver.pools import Patience, SoundAsyncPool
from holdfast._db.errors import READ_ONLY, explained, explaining, tell_no_hint
from holdfast._model.enqueue.request import Request
from holdfast._sql.plans import Plan, drive
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import DatabaseUnreachable

T = TypeVar("T")

SIZE = 10
HINT_TIMEOUT = 5.0
"""Seconds that a caller waits for workers to be woken, after what he asked for is committed, or for a sign of life."""
LARGE = 8 * 1024
"""Characters of parameters up to which a query is pipelined: `Pipeline.sync()` of psycopg waits for answers with the
last of a larger one still unsent, for ever."""


class Pool:
    """Connections of one event loop."""

    def __init__(self, url: str, queries: Queries) -> None:
        self.pid = os.getpid()  # a forked child needs a pool of its own
        self._url = url
        self._queries = queries
        self._schema = queries.schema
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._connections: weakref.WeakSet[AsyncConnection[Any]] = weakref.WeakSet()
        self._readers: weakref.WeakSet[AsyncConnection[Any]] = weakref.WeakSet()
        self._coalescer = Coalescer(queries, self._open)

    async def enqueue(self, task: Request, *, durable: bool) -> bool:
        """Writes a task without a key, with those that others want at the same time; False if its id exists."""
        try:
            return await self._coalescer.enqueue(task, durable=durable)
        except Alone:
            wake = self._queries.notify_if_idle(task.queue)
            return await self.run(self._queries.enqueue(task), wake, durable=durable)
        except Exception as error:
            raise explained(error, self._schema) or error from error

    async def run(self, query: Query[T], then: Query[Any] | None = None, *, durable: bool | None = None) -> T:
        """Runs a query, and after its commit another one, in the same round trip."""
        with explaining(self._schema):
            pool = self._pool or await self._open()
            if then is None:
                async with asyncio.timeout(CALL_TIMEOUT):
                    return await self._ask(pool, query)
            async with asyncio.timeout(CALL_TIMEOUT), pool.connection(CALL_TIMEOUT) as connection:
                if opening_queries(connection, self._queries, durable):
                    answer = await self._in_transaction(connection, query, durable)
                    await _hint(connection, then)
                    return answer
                return await _run_then(connection, query, then)

    async def together(self, plan: Plan[T], then: Callable[[T], Sequence[Query[Any]]], *, durable: bool) -> T:
        """Follows a plan in one transaction; after its commit, the queries that its answer asks for.

        It may take as long as it likes, while it goes on.
        """
        with explaining(self._schema):
            pool = self._pool or await self._open()
            async with pool.connection(CALL_TIMEOUT) as connection:
                async with asyncio.timeout(CALL_TIMEOUT) as limit, connection.transaction():
                    for query in opening_queries(connection, self._queries, durable):
                        await run(connection, query)
                    going_on = partial(_extend, limit)
                    answer = await drive(plan, partial(run, connection, going_on=going_on))
                    going_on()
                for query in then(answer):
                    await _hint(connection, query)
                return answer

    @asynccontextmanager
    async def reading(self, within: timedelta) -> AsyncIterator[Callable[[Query[T]], Awaitable[T]]]:
        """Runs queries in a transaction that cannot write, and in which no statement may take longer than `within`."""
        with explaining(self._schema, writes=False):
            pool = self._pool or await self._open()
            async with asyncio.timeout(CALL_TIMEOUT), AsyncExitStack() as stack:
                for _ in range(pool.max_size + 1):
                    connection = await stack.enter_async_context(pool.connection(CALL_TIMEOUT))
                    await stack.enter_async_context(connection.transaction())
                    await run(connection, self._queries.only_look(within))
                    if not self._is_left_behind(connection):
                        break
                    await connection.close()
                    await stack.aclose()
                else:
                    raise DatabaseUnreachable(READ_ONLY)
                yield partial(run, connection)

    async def again(self, plan: Plan[T], ended: Query[bool], then: Sequence[Query[Any]], *, durable: bool) -> T | None:
        """Follows a plan whose answer was lost before; None if it turns out that one of its tasks has run and ended.

        That is asked second, in the same transaction: asked first, it could miss what commits in between.
        """
        with explaining(self._schema):
            pool = self._pool or await self._open()
            answer: T | None = None
            async with _sound_connection(pool, self._queries) as connection:
                async with asyncio.timeout(CALL_TIMEOUT), connection.transaction() as transaction:
                    for query in opening_queries(connection, self._queries, durable):
                        await run(connection, query)
                    answer = await drive(plan, partial(run, connection))
                    if await run(connection, ended):
                        answer = None
                        raise Rollback(transaction)
                for query in then:
                    await _hint(connection, query)
            return answer

    async def close(self) -> None:
        """Closes it for good, once what is on its way is answered."""
        self._closed = True
        try:
            async with self._opening:
                pass  # a caller that was opening it has noticed
            await self._coalescer.close()
        finally:
            await self._close()

    async def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            await pool.close()
        except BaseException:
            # Given up in the middle of it, the driver forgets connections without closing them.
            for connection in self._connections:
                if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                    connection.pgconn.finish()
            raise

    def abandon(self) -> None:
        """Closes the connections as they are: nothing can be awaited on their loop any more."""
        for connection in self._connections:
            connection.pgconn.finish()

    async def _ask(self, pool: AsyncConnectionPool[AsyncConnection[Any]], query: Query[T]) -> T:
        """An answer, but not from a primary that was replaced: for long it may go on to answer what was true then.

        Whatever such a server has answered was only read, so it can be asked again elsewhere. So can what only reads if
        its connection breaks.
        """
        patience = Patience(CALL_TIMEOUT, pool.max_size)
        while True:
            try:
                async with pool.connection(CALL_TIMEOUT) as connection:
                    answer = await self._in_transaction(connection, query, None)
                    if not self._is_left_behind(connection):
                        return answer
                    await connection.close()
            except DriverError as error:
                if not query.statement.reads:
                    raise
                await asyncio.sleep(patience.after(error))
            else:
                patience.after(DatabaseUnreachable(READ_ONLY))

    async def _in_transaction(self, connection: AsyncConnection[Any], query: Query[T], durable: bool | None) -> T:
        """The answer to a query, after the queries that must come first in its transaction, if there are any."""
        first = opening_queries(connection, self._queries, durable)
        async with connection.transaction() if first else nullcontext():
            for each in first:
                await run(connection, each)
            return await run(connection, query)

    def _is_left_behind(self, connection: AsyncConnection[Any]) -> bool:
        """Whether the server could be written to when it was met, and only reads now."""
        return only_reads(connection) and connection not in self._readers

    async def _open(self) -> AsyncConnectionPool[AsyncConnection[Any]]:
        async with self._opening:
            if self._pool is None and not self._closed:
                # The pool would try in the background and raise nothing: the first connection is made here.
                await (await connect(self._url)).close()
                pool = SoundAsyncPool(
                    conninfo(self._url, "holdfast"),
                    min_size=1,
                    max_size=SIZE + 1,  # one is kept for enqueues
                    open=False,
                    configure=self._configure,
                    kwargs={"autocommit": True, "cursor_factory": AsyncRawCursor, "row_factory": tuple_row},
                )
                try:
                    await pool.open()
                finally:
                    self._pool = pool  # whatever becomes of us, it is closed with everything else
            if self._closed or self._pool is None:
                await self._close()
                raise OperationalError("the app was closed meanwhile")
            return self._pool

    async def _configure(self, connection: AsyncConnection[Any]) -> None:
        self._connections.add(connection)
        _adapt(connection)
        # Whatever the role's default is: what follows a plan must see what was committed meanwhile.
        await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
        await detect_pooler(connection)
        await learn_durability(connection, self._queries)
        if only_reads(connection):
            self._readers.add(connection)  # it is a standby that was asked for by its name


@asynccontextmanager
async def _sound_connection(
    pool: AsyncConnectionPool[AsyncConnection[Any]], queries: Queries
) -> AsyncIterator[AsyncConnection[Any]]:
    """A connection that answers and can write: after an outage the pool may have some that do not, and never will.

    Not by `pool.check()`, which waits for each of them without limit, and cannot be cancelled.
    """
    async with asyncio.timeout(CALL_TIMEOUT):
        tries = 0
        while True:
            tries += 1
            connection = await pool.getconn(CALL_TIMEOUT)
            try:
                async with asyncio.timeout(HINT_TIMEOUT):
                    _, read_only = await run(connection, queries.isolation())
                if read_only == "on":
                    raise DatabaseUnreachable(READ_ONLY)
                break
            except BaseException as error:
                await connection.close()
                await pool.putconn(connection)
                old = isinstance(error, DatabaseUnreachable) and tries <= pool.max_size
                if not old and not isinstance(error, (DriverError, TimeoutError)):
                    raise
    try:
        yield connection
    finally:
        await pool.putconn(connection)


def _extend(limit: asyncio.Timeout) -> None:
    limit.reschedule(asyncio.get_running_loop().time() + CALL_TIMEOUT)


async def _run_then(connection: AsyncConnection[Any], query: Query[T], then: Query[Any]) -> T:
    statement, values = for_cursor(query)
    if connection.prepare_threshold is None or sum(len(each) for each in values if isinstance(each, str)) > LARGE:
        answer = await run(connection, query)
        await _hint(connection, then)
        return answer
    cursor = AsyncRawCursor(connection, row_factory=tuple_row)
    rows: Sequence[Any] | None = None
    try:
        async with connection.pipeline() as pipeline:
            await cursor.execute(statement, values, binary=True)
            # What follows must see what was committed meanwhile: a transaction of its own.
            await pipeline.sync()
            rows = await cursor.fetchall() if cursor.description else []
            await connection.execute(*for_cursor(then))
    except BaseException as error:
        # After a failed pipeline the driver believes statements to be prepared that the server has skipped.
        await connection.close()
        if not isinstance(error, Exception):
            raise
        if rows is None and not isinstance(error, DriverError):
            # A commit that fails is answered where the driver expects nothing any more, and it loses count.
            raise OperationalError(f"the answer could not be read: {error!r}") from error
        if rows is None:
            raise
        tell_no_hint(error)
    return query.read(rows)


async def _hint(connection: AsyncConnection[Any], query: Query[Any]) -> None:
    """Runs a query that follows a commit. If it fails, the commit stands: the caller must not see an error."""
    try:
        async with asyncio.timeout(HINT_TIMEOUT):
            await run(connection, query)
    except (DriverError, TimeoutError) as error:
        await connection.close()
        tell_no_hint(error)
