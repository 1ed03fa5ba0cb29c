"""The driver's pools, made sound: they survive cut connections, a server that restarts, and cancelled tasks.

A pool gives out no connection that was cut while it was idle, and tries again and again to reach its server. What
breaks with its connection all the same is done again if it only reads, or if it is certain that nothing was committed:
see `Patience`. The driver's pool ignores some cancellations; here it obeys them.
"""

import asyncio
import logging
import time
from select import POLLIN, poll
from typing import Any

from psycopg import AsyncConnection, Connection, Error
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from holdfast._db.driver.connection import CancellableConnection
from holdfast._db.errors import is_unknown, pause_after
from holdfast.errors import DatabaseUnreachable

RECONNECT = 5.0
"""Seconds after which a pool that finds no server begins anew. By itself it waits longer each time, up to minutes."""


def is_cut(connection: AsyncConnection[Any] | Connection[Any]) -> bool:
    """Whether an idle connection was closed by the other side.

    Nothing is sent to find out, so whatever was to be sent has certainly not been done. A server says nothing to an
    idle connection but that it ends, and hardly ever that a setting has changed: then a new one is as good.
    """
    try:
        arrivals = poll()
        arrivals.register(connection.pgconn.socket, POLLIN)
        return bool(arrivals.poll(0))
    except (Error, OSError):
        return True


class Patience:
    """For how long, and how often, what broke with its connection is done again."""

    def __init__(self, seconds: float, connections: int) -> None:
        self._until = time.monotonic() + seconds
        self._most = connections + 1  # each connection of a pool may be broken, though it does not show
        self._failures = 0

    def after(self, error: BaseException) -> float:
        """Seconds to wait before the next try. Raises the error if there is to be none."""
        self._failures += 1
        passing = is_unknown(error) or isinstance(error, DatabaseUnreachable)
        # A caller that has waited for a connection in vain has waited long enough.
        over = isinstance(error, PoolTimeout) or self._failures > self._most or time.monotonic() > self._until
        if over or not passing:
            raise error
        return pause_after(self._failures, longest=1.0)


class _ConnectionWait:
    """A caller's wait for a connection, in parts: after each the pool tries anew to reach its server."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until = time.monotonic() + seconds

    def next_part(self) -> float:
        return max(0.0, min(RECONNECT, self._until - time.monotonic()))

    def end_if_over(self) -> None:
        if time.monotonic() >= self._until:
            raise PoolTimeout(f"no connection for {self._seconds:g} seconds") from None


class SoundAsyncPool(AsyncConnectionPool[AsyncConnection[Any]]):
    """The driver's pool, without connections that were cut.

    Its background tasks end when they are cancelled, whatever they were doing: else the event loop never ends.
    """

    def __init__(self, conninfo: str, **options: Any) -> None:
        super().__init__(conninfo, reconnect_timeout=RECONNECT, connection_class=CancellableConnection, **options)

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]

    async def getconn(self, timeout: float | None = None) -> AsyncConnection[Any]:
        """A connection that was not cut."""
        waiting = _ConnectionWait(self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = await super().getconn(waiting.next_part())
            except PoolTimeout:
                waiting.end_if_over()
                continue
            if not is_cut(connection):
                return connection
            await connection.close()
            await self.putconn(connection)
            waiting.end_if_over()


class _UntilCancelled:
    """A queue that has nothing more for a task that was cancelled, though the task took no notice."""

    def __init__(self, queue: "asyncio.Queue[Any]") -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


class SoundPool(ConnectionPool[Connection[Any]]):
    """The same for blocking code."""

    def __init__(self, conninfo: str, **options: Any) -> None:
        super().__init__(conninfo, reconnect_timeout=RECONNECT, **options)

    def getconn(self, timeout: float | None = None) -> Connection[Any]:
        """A connection that was not cut."""
        waiting = _ConnectionWait(self.timeout if timeout is None else timeout)
        while True:
            try:
                connection = super().getconn(waiting.next_part())
            except PoolTimeout:
                waiting.end_if_over()
                continue
            if not is_cut(connection):
                return connection
            connection.close()
            self.putconn(connection)
            waiting.end_if_over()


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Whether the pool's log says more than that a connection was given up with its event loop."""
    given = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, asyncio.CancelledError) for each in given)


logging.getLogger("psycopg.pool").addFilter(_is_worth_logging)
