"""Queries asked by libpq itself, on a connection that is all ours.

The driver's cursors take more CPU time for a claim than the server does, most of it to find out how values are to be
put, and to describe columns that nobody asks about. Here values travel as `sending` puts them, and rows come back
binary, read by the driver's own loaders.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error, OperationalError
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import execute
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from holdfast._db.sending import sent
from holdfast._model.collecting import no_collecting
from holdfast._sql.query import Query

T = TypeVar("T")

_ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)


class Asking:
    """Asks over one connection, straight to a server. What is asked again is prepared: loops ask the same for ever."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._rows = Transformer(connection)
        self._asked: set[str] = set()
        self._prepared: dict[str, bytes] = {}

    async def run(self, query: Query[T]) -> T:
        """Asks one query by itself."""
        return self.read(query, await self.result(query))

    async def result(self, query: Query[Any]) -> PGresult:
        """The same; its rows are made by `read`, if anybody wants them."""
        statement = query.statement.text
        values, formats = sent(query.parameters, self._encoding)
        name = self._prepared.get(statement) or await self._prepare_if_asked_again(statement)
        if name is None:
            self._pgconn.send_query_params(statement.encode(), values, None, formats, 1)
        else:
            self._pgconn.send_query_prepared(name, values, formats, 1)
        return await self._answer()

    async def sender(self, query: Query[Any], hole: str | None = None) -> Callable[[bytes], None]:
        """What sends a query, with nothing else left to do: `answer` is to follow.

        It is given the value of the parameter that is the `hole`, if there is one, in its binary form.
        """
        statement = query.statement.text
        name = self._prepared.get(statement) or await self._prepare(statement)
        values, formats = sent(query.parameters, self._encoding)
        if hole is None:
            return lambda _: self._pgconn.send_query_prepared(name, values, formats, 1)
        place = query.statement.parameters.index(hole)
        formats = formats or [0] * len(values)
        formats[place] = 1

        def send(value: bytes) -> None:
            values[place] = value
            self._pgconn.send_query_prepared(name, values, formats, 1)

        return send

    async def answer(self, query: Query[T]) -> T:
        """What comes of a query that was sent."""
        return self.read(query, await self._answer())

    def read(self, query: Query[T], result: PGresult) -> T:
        """What the rows of a result say."""
        if not result.nfields:
            return query.read([])
        self._rows.set_pgresult(result)
        with no_collecting(result.ntuples):
            return query.read(self._rows.load_rows(0, result.ntuples, tuple))

    async def _prepare_if_asked_again(self, statement: str) -> bytes | None:
        if statement in self._asked:
            return await self._prepare(statement)
        self._asked.add(statement)
        return None

    async def _prepare(self, statement: str) -> bytes:
        name = b"holdfast_%d" % len(self._prepared)
        self._pgconn.send_prepare(name, statement.encode())
        await self._answer()
        self._prepared[statement] = name
        return name

    async def _answer(self) -> PGresult:
        if self._pgconn.flush():  # not all is sent yet: the driver sees to both
            results: list[PGresult] = await self._connection.wait(execute(self._pgconn))
        else:
            results = await self._results()
        if not results:
            raise OperationalError("no answer")
        for result in results:  # rows are followed by an error if they could not be committed
            if result.status not in _ANSWERED:
                raise error_from_result(result, self._encoding)
        return results[0]

    async def _results(self) -> list[PGresult]:
        """Takes in what arrives, until there is no more of it.

        The driver waits for each piece of an answer anew, with a future, a timer and two system calls. A claim of a
        thousand tasks comes in twenty pieces.
        """
        pgconn, loop, socket = self._pgconn, asyncio.get_running_loop(), self._pgconn.socket
        answered: asyncio.Future[list[PGresult]] = loop.create_future()
        results: list[PGresult] = []

        def take_in() -> None:
            if answered.done():
                return
            try:
                pgconn.consume_input()
                while not pgconn.is_busy():
                    if (result := pgconn.get_result()) is None:
                        answered.set_result(results)
                        return
                    results.append(result)
            except Error as error:
                answered.set_exception(error)

        loop.add_reader(socket, take_in)
        try:
            return await answered
        except asyncio.CancelledError:
            await self._give_up()
            raise
        finally:
            loop.remove_reader(socket)

    async def _give_up(self) -> None:
        """As the driver does it: the server is asked to give up the statement, and waited for."""
        with suppress(Error):
            await self._connection.cancel_safe(timeout=5.0)
            await self._connection.wait(execute(self._pgconn))
