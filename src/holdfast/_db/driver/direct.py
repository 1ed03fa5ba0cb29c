"""Queries sent by libpq itself, on a connection of our own.

The driver's cursors take more CPU time for a claim than the server does, most of it to find out how values are to be
encoded, and to describe columns that are never asked about. Here values are sent as `parameters` encodes them, and rows
come back binary, read by the driver's own loaders.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error, OperationalError
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from holdfast._db.driver.parameters import for_libpq
from holdfast._model.garbage import no_collecting
from holdfast._sql.query import Query

T = TypeVar("T")

_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class DirectQueries:
    """Runs queries on one connection, straight to a server. A statement is prepared when it is sent the second time."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._rows = Transformer(connection)
        self._sent_before: set[str] = set()
        self._prepared: dict[str, bytes] = {}
        self._ahead: _PendingAnswer | None = None

    async def run(self, query: Query[T]) -> T:
        """Runs one query by itself."""
        return self.read(query, await self.result(query))

    async def result(self, query: Query[Any]) -> PGresult:
        """The same, without reading the rows: `read` does that if they are wanted."""
        statement = query.statement.text
        values, formats = for_libpq(query.parameters, self._encoding)
        name = self._prepared.get(statement) or await self._prepare_if_sent_before(statement)
        if name is None:
            self._pgconn.send_query_params(statement.encode(), values, None, formats, 1)
        else:
            self._pgconn.send_query_prepared(name, values, formats, 1)
        return await self._answer()

    async def sender(
        self, query: Query[Any], arrived: Callable[[], None], hole: str | None = None
    ) -> Callable[[bytes], None]:
        """A function that sends a query at once. `answer` must follow, at the latest when it has `arrived`.

        The function is given the value of the parameter named `hole`, if there is one, in its binary form.
        """
        statement = query.statement.text
        name = self._prepared.get(statement) or await self._prepare(statement)
        values, formats = for_libpq(query.parameters, self._encoding)
        position = None if hole is None else query.statement.parameters.index(hole)
        if position is not None:
            formats = formats or [0] * len(values)
            formats[position] = 1
        context = copy_context()  # that of the caller of `sender`, not of the code that sends

        def send(value: bytes) -> None:
            if position is not None:
                values[position] = value
            self.close()
            self._pgconn.send_query_prepared(name, values, formats, 1)
            if self._pgconn.flush():
                arrived()  # not all is sent yet: `answer` sends the rest
            else:
                self._ahead = context.run(_PendingAnswer, self._pgconn, arrived)

        return send

    async def answer(self, query: Query[T]) -> T:
        """The answer to a query that was sent."""
        ahead, self._ahead = self._ahead, None
        return self.read(query, await self._answer(ahead))

    def answer_now(self, query: Query[T]) -> T:
        """The same when it has arrived."""
        return self.read(query, self._checked([] if self._ahead is None else self._ahead.results))

    def read(self, query: Query[T], result: PGresult) -> T:
        """The answer that the rows of a result give."""
        if not result.nfields:
            return query.read([])
        self._rows.set_pgresult(result)
        with no_collecting(result.ntuples):
            return query.read(self._rows.load_rows(0, result.ntuples, tuple))

    async def _prepare_if_sent_before(self, statement: str) -> bytes | None:
        if statement in self._sent_before:
            return await self._prepare(statement)
        self._sent_before.add(statement)
        return None

    async def _prepare(self, statement: str) -> bytes:
        name = b"holdfast_%d" % len(self._prepared)
        self._pgconn.send_prepare(name, statement.encode())
        await self._answer()
        self._prepared[statement] = name
        return name

    async def _answer(self, arrival: "_PendingAnswer | None" = None) -> PGresult:
        """Waits for the results; `arrival` receives them already, if it is given."""
        if arrival is None:
            if self._pgconn.flush():  # not all is sent yet: the driver sees to both
                return self._checked(await self._connection.wait(execute(self._pgconn)))
            arrival = _PendingAnswer(self._pgconn)
        try:
            return self._checked(await arrival.wait())
        except asyncio.CancelledError:
            arrival.end()
            with suppress(Error):  # the connection is closed next, and the server would go on with the statement
                await self._connection.cancel_safe(timeout=5.0)
            raise

    def _checked(self, results: list[PGresult]) -> PGresult:
        if not results:
            raise OperationalError("no answer")
        for result in results:  # rows are followed by an error if they could not be committed
            if result.status not in _ANSWERED:
                raise error_from_result(result, self._encoding)
        return results[0]

    def close(self) -> None:
        """Stops receiving the answer to a query that was sent ahead."""
        if self._ahead is not None:
            self._ahead.end()
            self._ahead = None


class _PendingAnswer:
    """Receives an answer as it arrives.

    The driver waits for each piece of it anew, with a future, a timer and two system calls. A claim of a thousand tasks
    comes in twenty pieces.
    """

    def __init__(self, pgconn: PGconn, arrived: Callable[[], None] | None = None) -> None:
        self.results: list[PGresult] = []
        self._pgconn = pgconn
        self._socket = pgconn.socket  # libpq forgets it when the connection breaks
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._complete: asyncio.Future[None] = self._loop.create_future()
        self._reads = True
        self._loop.add_reader(self._socket, self._receive)

    async def wait(self) -> list[PGresult]:
        await self._complete
        return self.results

    def end(self) -> None:
        """Stops receiving, before the socket is closed: its number may soon belong to another one."""
        if self._reads:
            self._reads = False
            self._loop.remove_reader(self._socket)

    def _receive(self) -> None:
        try:
            self._pgconn.consume_input()
            while not self._pgconn.is_busy():
                if (result := self._pgconn.get_result()) is None:
                    self._end_with(None)
                    return
                self.results.append(result)
        except Error as error:
            self.results.clear()
            self._end_with(error)

    def _end_with(self, error: Error | None) -> None:
        self.end()
        if self._complete.done():
            return  # cancelled in this turn of the loop: nothing waits for the answer any more
        if error is None:
            self._complete.set_result(None)
        else:
            self._complete.set_exception(error)
        if self._arrived is not None:
            self._arrived()
