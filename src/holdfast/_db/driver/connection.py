"""Connections to the database: how they are made, what they read and how long they wait, and queries on them."""

import asyncio
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import AdaptersMap, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format
from psycopg.pq.abc import PGconn
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.waiting import Wait

from holdfast._db.driver.forks import not_for_children
from holdfast._db.driver.parameters import Portable, for_cursor, register_ids
from holdfast._db.errors import is_unusable, unreachable
from holdfast._sql.query import Query
from holdfast.errors import (
    ConfigError,
)

T = TypeVar("T")
DriverError = psycopg.Error
LockNotAvailable = psycopg.errors.LockNotAvailable

CALL_TIMEOUT = 30.0
"""Seconds after which a call is given up and its connection closed: a stalled socket must not hang a loop."""

CANCEL_SECONDS = 5.0

_DEFAULTS: dict[str, str] = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class _JsonText(Loader):
    """JSON is handed on as bytes: the code that decodes it knows the type."""

    format = Format.TEXT

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class _JsonbBinary(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        return bytes(data)[1:]  # the first byte is a version number


class _Time(TimestamptzBinaryLoader):
    """Times that Python cannot hold, infinity among them, as the nearest it can: one odd row must not stop a worker."""

    def load(self, data: Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            late = int.from_bytes(bytes(data), signed=True) > 0
            return datetime.max.replace(tzinfo=UTC) if late else datetime.min.replace(tzinfo=UTC)


class _Adapted(Protocol):
    @property
    def adapters(self) -> AdaptersMap: ...


def _adapt(connection: _Adapted) -> None:
    adapters = connection.adapters
    for name in ("json", "jsonb"):
        adapters.register_loader(name, _JsonText)
    adapters.register_loader("jsonb", _JsonbBinary)
    adapters.register_loader("timestamptz", _Time)
    register_ids(adapters)


class CancellableConnection(AsyncConnection[Any]):
    """The driver's connection, on which a task that was cancelled ends.

    Cancelled in a statement, the driver asks the server to give it up and waits for that. If the connection breaks
    meanwhile, the driver raises that error instead, and a loop that goes on after errors would go on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        not_for_children(self)

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Waits as the driver does. Raises the cancellation in place of an error, if there was one."""
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            return await super().wait(gen, *args, **options)
        except psycopg.Error as error:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from error
            raise


class LimitedConnection(Connection[Any]):
    """A blocking connection that is closed when the server has not answered a statement for `CALL_TIMEOUT` seconds.

    A socket may be stalled, and nothing may wait for ever.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        not_for_children(self)

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """Waits as the driver does, with a limit."""
        try:
            return super().wait(_within(gen, CALL_TIMEOUT), *args, **options)
        except TimeoutError as error:
            with suppress(Exception):
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.close()
            raise psycopg.OperationalError(
                f"no answer for {CALL_TIMEOUT:g} seconds, and the connection was closed"
            ) from error


def _within(gen: PQGen[T], seconds: float) -> Generator[Any, Any, T]:
    """The same, passed on step by step: the driver also wakes it when nothing has come."""
    until = monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and monotonic() > until:
                raise TimeoutError
            wanted = gen.send(ready)
    except StopIteration as ended:
        result: T = ended.value
        return result


def conninfo(url: str, name: str) -> str:
    """libpq's connection string, with our defaults where the user chose nothing."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        # libpq quotes the part that it does not understand, which may be the password alone.
        said = re.sub(r'"[^\n]*"', "it", str(error)).strip()
        raise ConfigError(
            f"this is not a PostgreSQL URL or connection string: {said}. "
            "Write for example postgresql://user@host:5432/database"
        ) from None
    defaults = {**_DEFAULTS, "application_name": name}
    if "," in f"{given.get('host')}{given.get('hostaddr')}":
        # Of several servers the one that can be written to, or a standby in front would hide it.
        defaults["target_session_attrs"] = "read-write"
    return make_conninfo("", **{**defaults, **given})


def with_database(url: str, name: str) -> str:
    """The same server's connection string for another database."""
    return make_conninfo("", **{**conninfo_to_dict(url), "dbname": name})


def where(url: str) -> tuple[str, str]:
    """The host and the name of a database, to be shown. The host is empty if it is this machine."""
    known = conninfo_to_dict(url)
    host = str(known.get("host") or known.get("hostaddr") or "")
    return ("" if host.startswith("/") else host), str(known.get("dbname") or known.get("user") or "postgres")


async def connect(url: str, name: str = "holdfast") -> AsyncConnection[Any]:
    """A new connection in autocommit mode; nothing is prepared on it, for there may be a pooler in between."""
    try:
        connection = await CancellableConnection.connect(
            conninfo(url, name),
            autocommit=True,
            cursor_factory=AsyncRawCursor,
            row_factory=tuple_row,
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        raise unreachable(error) from None
    _adapt(connection)
    return connection


def connect_sync(url: str, name: str = "holdfast") -> Connection[Any]:
    """A new blocking connection in autocommit mode."""
    try:
        connection = Connection.connect(
            conninfo(url, name),
            autocommit=True,
            cursor_factory=RawCursor,
            row_factory=tuple_row,
            prepare_threshold=None,
        )
    except psycopg.Error as error:
        raise unreachable(error) from None
    _adapt(connection)
    return connection


def only_reads(connection: AsyncConnection[Any] | Connection[Any]) -> bool:
    """Whether the server only reads, or has come to, as servers report by themselves (from PostgreSQL 14 on)."""
    reported = connection.info.parameter_status
    return "on" in (reported("default_transaction_read_only"), reported("in_hot_standby"))


def _nothing() -> None: ...


def _flush(pgconn: PGconn) -> PQGen[None]:
    """Waits until all is sent: else the driver would gather the whole of a COPY in memory."""
    while pgconn.flush():
        yield Wait.W


def _sent(query: Query[Any], adapted: bool) -> tuple[bytes, Sequence[object]]:
    """A statement and its values, as they are sent on a connection of ours or on another."""
    if adapted:
        portable = Portable(query)
        return portable.numbered.encode(), portable.values
    return for_cursor(query)


async def run(
    connection: AsyncConnection[Any], query: Query[T], *, adapted: bool = False, going_on: Callable[[], None] = _nothing
) -> T:
    """Runs a query on an asynchronous connection; `adapted`: on one that is not of our making.

    `going_on` is called before, and now and then while much is sent.
    """
    try:
        return await _run(connection, query, adapted, going_on)
    except psycopg.Error as error:
        if is_unusable(error) and not adapted:
            await connection.close()  # a pool would hand it out again and again
        raise


async def _run(connection: AsyncConnection[Any], query: Query[T], adapted: bool, going_on: Callable[[], None]) -> T:
    going_on()
    cursor = AsyncRawCursor(connection, row_factory=tuple_row)
    if query.data is not None:
        async with cursor.copy(query.statement.text.encode()) as copy:
            for piece in query.data:
                await copy.write(piece)
                await connection.wait(_flush(connection.pgconn))
                going_on()
        return query.read([])
    if adapted:
        _adapt(cursor)
    await cursor.execute(*_sent(query, adapted), binary=True)
    return query.read(await cursor.fetchall() if cursor.description else [])


def run_sync(connection: Connection[Any], query: Query[T], *, adapted: bool = False) -> T:
    """Runs a query on a blocking connection; `adapted`: on one that is not of our making."""
    try:
        return _run_sync(connection, query, adapted)
    except psycopg.Error as error:
        if is_unusable(error) and not adapted:
            connection.close()
        raise


def _run_sync(connection: Connection[Any], query: Query[T], adapted: bool) -> T:
    cursor = RawCursor(connection, row_factory=tuple_row)
    if query.data is not None:
        with cursor.copy(query.statement.text.encode()) as copy:
            for piece in query.data:
                copy.write(piece)
                connection.wait(_flush(connection.pgconn))
        return query.read([])
    if adapted:
        _adapt(cursor)
    cursor.execute(*_sent(query, adapted), binary=True)
    return query.read(cursor.fetchall() if cursor.description else [])
