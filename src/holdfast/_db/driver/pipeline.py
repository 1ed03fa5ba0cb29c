"""A connection on which several transactions are under way at once, each answered as soon as it is done.

The driver's own pipelines end with everything answered. Here the answer to a transaction is passed on while later ones
are still under way: an enqueue need not wait for the wake-up that follows it. This uses libpq's pipeline mode directly,
through `psycopg.pq`; statements are prepared once.

Through a pooler nothing is prepared, and each transaction waits for the answer to the one before: if we end in between,
PgBouncer up to 1.18 at least gives the connection to another client, who then reads the answer that was for us.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from holdfast._db.driver.parameters import for_libpq
from holdfast._sql.query import Query, Statement

Answered: TypeAlias = Callable[[list[PGresult], BaseException | None], None]
"""A callback that is given the results of a transaction, or the error with which it failed."""

# By names of our own: to look up a member of an enum takes longer than to compare it.
_BROUGHT = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_ENDED = ExecStatus.PIPELINE_SYNC
_FAILED = ExecStatus.FATAL_ERROR


class PipelinedConnection:
    """Owns a connection until `release` or `close`. `broken`: it is of no use any more."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self.connection = connection
        self.broken = False
        self._pgconn: PGconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._keeps = connection.prepare_threshold is not None  # see `holdfast._db.driver.facts`
        self._sent: deque[Answered] = deque()
        self._later: deque[tuple[Callable[[], None], Answered]] = deque()
        self._results: list[PGresult] = []
        self._error: BaseException | None = None
        self._socket = self._pgconn.socket  # libpq forgets it when the connection breaks
        self._writing = False
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    async def prepare(self, statements: Sequence[Statement]) -> None:
        """Prepares what will be sent, or only has it checked; a schema that is missing is noticed here."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(results: list[PGresult], error: BaseException | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def send() -> None:
            for statement in statements:
                name = statement.name.encode() if self._keeps else b""
                self._pgconn.send_prepare(name, statement.text.encode())

        self._transact(send, answered)
        await done

    def send(self, queries: Sequence[Query[Any]], answered: Answered) -> None:
        """Sends a transaction of what was prepared. `answered` is called in any case, also if the connection breaks."""
        try:
            given = [for_libpq(query.parameters, self._encoding) for query in queries]
        except (UnicodeError, psycopg.DataError) as error:  # the database's encoding has no such character
            answered([], error)
            return

        def send() -> None:
            for query, (values, formats) in zip(queries, given, strict=True):
                if self._keeps:
                    self._pgconn.send_query_prepared(query.statement.name.encode(), values, formats, 1)
                else:
                    self._pgconn.send_query_params(query.statement.text.encode(), values, None, formats, 1)

        self._transact(send, answered)

    async def release(self) -> AsyncConnection[Any]:
        """Waits until all is answered, and gives the connection as it was before."""
        await self.prepare(())
        self._forget()
        self._pgconn.exit_pipeline_mode()
        return self.connection

    def close(self, why: BaseException | None = None) -> None:
        """Closes the connection; whether the transactions under way were committed is then unknown."""
        self._break(why or psycopg.OperationalError("the connection was closed"))

    def _transact(self, send: Callable[[], None], answered: Answered) -> None:
        if self._sent and not self._keeps:
            self._later.append((send, answered))
            return
        self._sent.append(answered)
        try:
            if self.broken:
                raise psycopg.OperationalError("the connection is closed")
            send()
            self._pgconn.pipeline_sync()
        except psycopg.Error as error:
            self._break(error)
        else:
            self._write()

    def _write(self) -> None:
        try:
            left = bool(self._pgconn.flush())
        except psycopg.Error as error:
            self._break(error)
            return
        if left != self._writing:
            self._writing = left
            loop = asyncio.get_running_loop()
            loop.add_writer(self._socket, self._write) if left else loop.remove_writer(self._socket)

    def _read(self) -> None:
        pgconn = self._pgconn
        try:
            pgconn.consume_input()
            while self._sent and not pgconn.is_busy():
                result = pgconn.get_result()
                if result is not None:
                    self._take(result)
        except psycopg.Error as error:
            self._break(error)

    def _take(self, result: PGresult) -> None:
        status = result.status
        if status == _ENDED:
            results, self._results = self._results, []
            error, self._error = self._error, None
            self._sent.popleft()(results, error)
            if self._later and not self._sent:
                self._transact(*self._later.popleft())
        elif status in _BROUGHT:
            self._results.append(result)
        elif status == _FAILED and self._error is None:
            self._error = error_from_result(result, self._encoding)

    def _break(self, error: BaseException) -> None:
        if not self.broken:
            self._forget()
            self._pgconn.finish()
        while self._sent:
            self._sent.popleft()([], error)
        while self._later:
            self._later.popleft()[1]([], error)

    def _forget(self) -> None:
        self.broken = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        loop.remove_writer(self._socket)
