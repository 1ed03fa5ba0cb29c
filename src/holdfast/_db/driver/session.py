"""A link: one connection that is opened when needed, and again after it broke.

Each loop of a worker has its own, so that none can starve another. `Link.run` never retries by itself: only its caller
knows whether a statement may be sent twice.
"""

import asyncio
import math
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast._db.driver.connection import CALL_TIMEOUT, connect, run
from holdfast._db.driver.direct import DirectQueries
from holdfast._db.driver.facts import detect_pooler
from holdfast._db.driver.parameters import for_cursor
from holdfast._db.errors import READ_ONLY, is_starved, is_unknown, is_unusable
from holdfast._sql.plans import Plan, drive
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import (
    DatabaseUnreachable,
    HoldfastError,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """The answer to a query of a transaction: how many rows it gave or wrote. They are decoded only by `read`."""

    count: int
    read: Callable[[], Awaitable[T]]


class Link:
    """One connection, opened when needed and again after it broke.

    `by_index`: its queries about tasks always use an index. `lock_timeout`: that of most of its transactions, so
    that it need not be set for each.
    """

    _direct: DirectQueries

    def __init__(
        self,
        url: str,
        queries: Queries,
        name: str,
        timeout: float = CALL_TIMEOUT,
        *,
        by_index: bool = False,
        lock_timeout: str | None = None,
    ) -> None:
        self._pid = os.getpid()
        self._by_index = by_index
        self._lock_timeout = lock_timeout
        self._timeout = timeout
        self._url = url
        self._queries = queries
        self._name = name
        self._connection: AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._wrap = False
        self._pooled = False
        self._pipelined = False
        self.server: str | None = None
        self.contact_since: float | None = None
        self.starved_at = -math.inf

    async def run(self, query: Query[T]) -> T:
        """Runs one query by itself. Any broken connection is dropped before the error is raised."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                    if self._wrap:
                        (answer,) = await self._together(connection, [query], None)
                        return await answer.read()
                    return await self._direct.run(query)
            except BaseException as error:
                await self._after(error)
                raise

    async def sender(
        self, query: Query[Any], arrived: Callable[[], None], hole: str | None = None
    ) -> Callable[[bytes], None] | None:
        """A function that sends a query at once, called from anywhere. `answer` must follow, at the latest when it has
        `arrived`. None if that cannot be done now.

        For a link with one user, who does not use it in between. The function is given the value of the parameter named
        `hole`, if there is one, in its binary form.
        """
        async with self._lock:
            if self._connection is None or self._wrap:
                return None
            try:
                self._refuse_children()
                async with asyncio.timeout(self._timeout):
                    send = await self._direct.sender(query, arrived, hole)
            except BaseException as error:
                await self._after(error)
                raise

        def send_once(value: bytes = b"") -> None:
            if os.getpid() == self._pid:
                try:
                    send(value)
                except psycopg.Error:
                    arrived()  # `answer` raises the error

        return send_once

    async def answer(self, query: Query[T]) -> T:
        """The answer to the query that was sent ahead. It is never sent twice: the server may have executed it."""
        async with self._lock:
            try:
                self._refuse_children()
                async with asyncio.timeout(self._timeout):
                    return await self._direct.answer(query)
            except BaseException as error:
                await self._after(error)
                raise

    def answer_now(self, query: Query[T]) -> T:
        """The same when it has arrived. After an error `answer` must follow, which raises it again."""
        self._refuse_children()
        return self._direct.answer_now(query)

    async def transact(self, queries: Sequence[Query[T]], *, lock_timeout: str | None = None) -> list[Answer[T]]:
        """Runs queries in one transaction and one round trip."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                    if len(queries) == 1 and lock_timeout == self._lock_timeout and not self._wrap:
                        return [await self._alone(queries[0])]  # a statement is a transaction
                    return await self._together(connection, queries, lock_timeout)
            except BaseException as error:
                await self._after(error)
                raise

    async def follow(self, plan: Plan[T], *, lock_timeout: str) -> T:
        """Follows a plan in one transaction; what the plan refuses takes everything back."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                    await connection.execute(f"SET LOCAL lock_timeout = '{lock_timeout}'".encode())
                    if self._pooled:
                        await run(connection, self._same_server())
                    try:
                        answer = await drive(plan, partial(run, connection))
                    except HoldfastError:
                        await connection.execute("ROLLBACK")
                        raise
                    await connection.execute("COMMIT")
                    return answer
            except BaseException as error:
                if not isinstance(error, HoldfastError):
                    await self._after(error)
                raise

    async def outside(self, query: Query[T], *, within: float) -> T:
        """Runs a statement that must not be in a transaction. After so many seconds the server is asked to give it up.

        Behind a pooler nothing can be set for one statement alone, so the clock is ours.
        """
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                async with asyncio.timeout(within):
                    return await run(connection, query)
            except BaseException as error:
                await self._after(error)
                raise

    async def read_only(self, text: str, limit: float) -> list[Any]:
        """The first column of a query that users wrote: it can change nothing, nor take longer than `limit` seconds."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                    async with connection.transaction():
                        await connection.execute("SET TRANSACTION READ ONLY")
                        await connection.execute(f"SET LOCAL statement_timeout = '{limit:g}s'".encode())
                        cursor = await connection.execute(text.encode())
                        return [row[0] for row in await cursor.fetchall()]
            except BaseException as error:
                await self._after(error)
                raise

    async def aside(self, text: str, limit: float) -> list[Any]:
        """The same on a connection for this alone: other users of this link need not wait."""
        another = Link(self._url, self._queries, self._name, self._timeout)
        try:
            return await another.read_only(text, limit)
        finally:
            await another.close()

    async def close(self) -> None:
        """Closes the connection; a later call opens a new one."""
        connection, self._connection = self._connection, None
        self.contact_since = None
        if connection is not None and os.getpid() == self._pid:  # a forked child would end its parent's session
            self._direct.close()
            await connection.close()

    def _refuse_children(self) -> None:
        """A forked child shares the socket, but neither the identity nor the leases of its parent."""
        if os.getpid() != self._pid:
            raise HoldfastError("this worker belongs to the parent process: a forked child must not go on with it")

    async def _open(self) -> AsyncConnection[Any]:
        self._refuse_children()
        if self._connection is not None and not self._connection.broken and not self._connection.closed:
            return self._connection
        await self.close()
        connection = await connect(self._url, self._name)
        self._connection = connection
        self._direct = DirectQueries(connection)
        self._pooled = await detect_pooler(connection)
        if self._by_index and not self._pooled:
            # A prepared statement keeps its plan. One that was made while there were few tasks would read the whole
            # table when there are many, until that is analyzed. Behind a pooler nothing is prepared.
            await connection.execute("SET enable_seqscan = off")
            # The plan is the same whatever the values are: the server need not make another to find that out.
            await connection.execute("SET plan_cache_mode = force_generic_plan")
        if self._lock_timeout is not None and not self._pooled:
            await connection.execute(f"SET lock_timeout = '{self._lock_timeout}'".encode())
        isolation, read_only = await run(connection, self._queries.isolation())
        if read_only == "on":
            raise DatabaseUnreachable(READ_ONLY)
        # Claims with SKIP LOCKED fail under stricter isolation; no SET, which a pooler would leak to others.
        # What holds for one connection of a pooler's need not hold for the next.
        self._wrap = self._pooled or isolation != "read committed"
        self.server = await run(connection, self._queries.server())
        self.contact_since = time.monotonic()
        return connection

    async def _alone(self, query: Query[T]) -> Answer[T]:
        direct = self._direct
        result = await direct.result(query)

        async def read() -> T:
            return direct.read(query, result)

        return Answer(result.ntuples if result.nfields else result.command_tuples or 0, read)

    async def _together(
        self, connection: AsyncConnection[Any], queries: Sequence[Query[T]], lock_timeout: str | None
    ) -> list[Answer[T]]:
        cursors: list[AsyncRawCursor[Any]] = []
        self._pipelined = True
        async with connection.pipeline():
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            if lock_timeout is not None:
                await connection.execute(f"SET LOCAL lock_timeout = '{lock_timeout}'".encode())
            if self._pooled:
                await connection.execute(*for_cursor(self._same_server()))
            for query in queries:
                cursor = AsyncRawCursor(connection, row_factory=tuple_row)
                await cursor.execute(*for_cursor(query), binary=True)
                cursors.append(cursor)
            await connection.execute("COMMIT")
        self._pipelined = False
        return [
            Answer(cursor.rowcount, partial(_rows, cursor, query))
            for cursor, query in zip(cursors, queries, strict=True)
        ]

    def _same_server(self) -> Query[None]:
        """Fails on another server than when the link was opened: a pooler outlives its servers without a sign."""
        return self._queries.same_server(self.server or "")

    async def _after(self, error: BaseException) -> None:
        """Leaves the connection usable, or drops it."""
        if is_starved(error):
            self.starved_at = time.monotonic()
        connection = self._connection
        if connection is None:
            return
        if self._pooled and isinstance(error, psycopg.errors.DivisionByZero):
            await self.close()
            raise ConnectionError("behind the pooler is another server than before") from None
        # After a failed pipeline the driver believes statements to be prepared that the server has skipped.
        broken, self._pipelined = self._pipelined and not self._pooled, False
        usable = isinstance(error, psycopg.Error) and not is_unknown(error) and not is_unusable(error)
        if usable and not broken and not connection.closed:
            try:
                if connection.info.transaction_status is not TransactionStatus.IDLE:
                    async with asyncio.timeout(5):
                        await connection.execute("ROLLBACK")
                return
            except Exception:  # noqa: S110 - a connection that cannot roll back is dropped, whatever the reason
                pass
        await self.close()


async def _rows(cursor: AsyncRawCursor[Any], query: Query[T]) -> T:
    return query.read(await cursor.fetchall() if cursor.description else [])
