"""Transactions for steps: connections of their own, apart from those that the engine needs.

A step gets a plain psycopg connection inside a `transaction()` block: it cannot commit by itself. Beginning and ending
are the worker's business, which writes the move in the same transaction.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, IsolationLevel
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast._db.driver.connection import conninfo, only_reads, run, run_sync
from holdfast._db.driver.facts import PREPARE_AFTER, detect_pooler, detect_pooler_sync
from holdfast._db.driver.forks import not_for_children
from holdfast._db.driver.pools import SoundAsyncPool, SoundPool
from holdfast._db.errors import READ_ONLY
from holdfast._sql.query import Query
from holdfast.errors import DatabaseUnreachable

T = TypeVar("T")

NAME = "holdfast step"
OPEN_SECONDS = 10.0

_LEVEL = IsolationLevel.READ_COMMITTED
"""Under a stricter one, which may be the role's default, our own beats would be in the way of every longer step."""
_FORGET = "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DISCARD TEMP; SELECT pg_catalog.pg_advisory_unlock_all()"
"""What one step has set must not reach the next: a search_path, say, of another customer."""
_FORGET_INSIDE = f"SET CONSTRAINTS ALL IMMEDIATE; {_FORGET}"
"""The same before the commit: a pooler takes the connection away with it. Deferred triggers still see what was set."""


class StepTransaction(Protocol):
    """One transaction, from before a step begins until its outcome is written."""

    tx: AsyncConnection[Any] | None
    tx_sync: Connection[Any] | None

    async def begin(self) -> None: ...
    async def run(self, query: Query[T]) -> T: ...
    async def commit(self) -> None: ...
    async def roll_back(self, *, drop: bool = False) -> None: ...


class Transactions:
    """The connections that transactional steps of one worker use, at most one for each slot; opened when needed."""

    def __init__(self, url: str, slots: int) -> None:
        self._conninfo = conninfo(url, NAME)
        self._slots = slots
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] | None = None
        self._sync_pool: ConnectionPool[Connection[Any]] | None = None
        self.pooled = False

    async def for_loop(self) -> "StepTransaction":
        """A transaction for an `async def` step."""
        if self._pool is None:
            self._pool = SoundAsyncPool(
                self._conninfo,
                min_size=0,
                max_size=self._slots,
                open=False,
                kwargs={"autocommit": True},
                configure=self._prepare,
                reset=self._clean,
            )
            await self._pool.open()
        return _OnLoop(self._pool, self)

    async def for_thread(self) -> "StepTransaction":
        """A transaction for a `def` step."""
        if self._sync_pool is None:
            self._sync_pool = SoundPool(
                self._conninfo,
                min_size=0,
                max_size=self._slots,
                open=False,
                kwargs={"autocommit": True},
                configure=self._prepare_sync,
                reset=self._clean_sync,
            )
            self._sync_pool.open()
        return _InThread(self._sync_pool, self)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close(timeout=1)
        if self._sync_pool is not None:
            await asyncio.to_thread(self._sync_pool.close, timeout=1)

    async def _prepare(self, connection: AsyncConnection[Any]) -> None:
        await connection.set_isolation_level(_LEVEL)
        self.pooled = await detect_pooler(connection, ours=False)

    async def _clean(self, connection: AsyncConnection[Any]) -> None:
        connection.row_factory, connection.cursor_factory = tuple_row, AsyncCursor
        connection.prepare_threshold = None if self.pooled else PREPARE_AFTER
        if not self.pooled:
            await connection.execute(_FORGET)

    def _prepare_sync(self, connection: Connection[Any]) -> None:
        not_for_children(connection)
        connection.set_isolation_level(_LEVEL)
        self.pooled = detect_pooler_sync(connection, ours=False)

    def _clean_sync(self, connection: Connection[Any]) -> None:
        connection.row_factory, connection.cursor_factory = tuple_row, Cursor
        connection.prepare_threshold = None if self.pooled else PREPARE_AFTER
        if not self.pooled:
            connection.execute(_FORGET)


class _OnLoop:
    def __init__(self, pool: AsyncConnectionPool[AsyncConnection[Any]], of: Transactions) -> None:
        self._pool = pool
        self._of = of
        self.tx: AsyncConnection[Any] | None = None
        self.tx_sync: Connection[Any] | None = None

    async def begin(self) -> None:
        connection = await self._pool.getconn(OPEN_SECONDS)
        try:
            self._block = connection.transaction()
            await self._block.__aenter__()
            if only_reads(connection):
                await connection.close()
                raise DatabaseUnreachable(READ_ONLY)
        except BaseException:
            await self._pool.putconn(connection)
            raise
        self.tx = connection

    async def run(self, query: Query[T]) -> T:
        assert self.tx is not None  # noqa: S101 - begun
        return await run(self.tx, query, adapted=True)

    async def commit(self) -> None:
        assert self.tx is not None  # noqa: S101 - begun
        if self._of.pooled:
            try:
                await self.tx.execute(_FORGET_INSIDE)
            except BaseException:
                await self.roll_back()
                raise
        await self._end(None)

    async def roll_back(self, *, drop: bool = False) -> None:
        assert self.tx is not None  # noqa: S101 - begun
        if drop:
            await self.tx.close()
        with suppress(psycopg.ProgrammingError):
            await self._end(psycopg.Rollback())

    async def _end(self, error: BaseException | None) -> None:
        assert self.tx is not None  # noqa: S101 - begun
        try:
            await self._block.__aexit__(None if error is None else type(error), error, None)
        except psycopg.ProgrammingError:  # a block inside of it is still open: no other step may get this connection
            await self.tx.close()
            raise
        finally:
            await self._pool.putconn(self.tx)


class _InThread:
    def __init__(self, pool: ConnectionPool[Connection[Any]], of: Transactions) -> None:
        self._pool = pool
        self._of = of
        self.tx: AsyncConnection[Any] | None = None
        self.tx_sync: Connection[Any] | None = None

    async def begin(self) -> None:
        await asyncio.to_thread(self._begin)

    async def run(self, query: Query[T]) -> T:
        assert self.tx_sync is not None  # noqa: S101 - begun
        return await asyncio.to_thread(partial(run_sync, self.tx_sync, query, adapted=True))

    async def commit(self) -> None:
        await asyncio.to_thread(self._commit)

    async def roll_back(self, *, drop: bool = False) -> None:
        assert self.tx_sync is not None  # noqa: S101 - begun
        if drop:
            # A thread that could not be stopped may go on: it must find the door closed.
            self.tx_sync.close()
        with suppress(psycopg.ProgrammingError):
            await asyncio.to_thread(self._end, psycopg.Rollback())

    def _begin(self) -> None:
        connection = self._pool.getconn(OPEN_SECONDS)
        try:
            self._block = connection.transaction()
            self._block.__enter__()
            if only_reads(connection):
                connection.close()
                raise DatabaseUnreachable(READ_ONLY)
        except BaseException:
            self._pool.putconn(connection)
            raise
        self.tx_sync = connection

    def _commit(self) -> None:
        assert self.tx_sync is not None  # noqa: S101 - begun
        if self._of.pooled:
            try:
                self.tx_sync.execute(_FORGET_INSIDE)
            except BaseException:
                with suppress(psycopg.ProgrammingError):
                    self._end(psycopg.Rollback())
                raise
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        assert self.tx_sync is not None  # noqa: S101 - begun
        try:
            self._block.__exit__(None if error is None else type(error), error, None)
        except psycopg.ProgrammingError:
            self.tx_sync.close()
            raise
        finally:
            self._pool.putconn(self.tx_sync)
