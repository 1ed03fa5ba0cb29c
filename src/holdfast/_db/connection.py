"""The only place that knows the driver: connecting, running queries, telling errors apart.

A `Link` is one connection that is opened when needed and again after it broke. Each loop of a worker has
its own, so that none can starve another. `Link.run` never retries by itself: only its caller knows whether
a statement may be sent twice.
"""

import asyncio
import logging
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Connection, RawCursor, postgres
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Format, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.waiting import Wait

from holdfast._db.config import redact
from holdfast._db.pooler import meet
from holdfast._sql.plans import Plan, drive
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import (
    ConfigError,
    DatabaseUnreachable,
    EnqueueRefused,
    HoldfastError,
    NotPermitted,
    ScheduleError,
    SchemaError,
    TaskNotFound,
    WrongState,
)

T = TypeVar("T")
log = logging.getLogger("holdfast.db")
DriverError = psycopg.Error
LockNotAvailable = psycopg.errors.LockNotAvailable

DEFAULT_SCHEMA = "holdfast"
CALL_TIMEOUT = 30.0
"""Seconds after which a call is given up and its connection closed: a stalled socket must not hang a loop."""

_DEFAULTS: dict[str, str] = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class _JsonText(Loader):
    """JSON is handed on as bytes: whoever decodes it knows the type it wants."""

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


class _Span(Dumper):
    """A time span in microseconds alone: a day of the server's calendar may have 23 or 25 hours."""

    oid = postgres.types["interval"].oid

    def dump(self, obj: timedelta) -> bytes:
        return b"%d microseconds" % (obj // timedelta(microseconds=1))


class _Adapted(Protocol):
    @property
    def adapters(self) -> AdaptersMap: ...


def _adapt(connection: _Adapted) -> None:
    adapters = connection.adapters
    for name in ("json", "jsonb"):
        adapters.register_loader(name, _JsonText)
    adapters.register_loader("jsonb", _JsonbBinary)
    adapters.register_loader("timestamptz", _Time)
    adapters.register_dumper(timedelta, _Span)


def conninfo(url: str, name: str) -> str:
    """libpq's connection string, with our defaults where the user chose nothing."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise ConfigError(
            f"this is not a PostgreSQL URL or connection string: {redact(str(error)).strip()}. "
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


async def connect(url: str, name: str = "holdfast") -> AsyncConnection[Any]:
    """A new connection in autocommit mode; nothing is prepared on it, for there may be a pooler in between."""
    try:
        connection = await AsyncConnection.connect(
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


def _nothing() -> None: ...


def _flush(pgconn: PGconn) -> PQGen[None]:
    """Waits until all is sent: else the driver would gather the whole of a COPY in memory."""
    while pgconn.flush():
        yield Wait.W


async def run(
    connection: AsyncConnection[Any], query: Query[T], *, adapted: bool = False, going_on: Callable[[], None] = _nothing
) -> T:
    """Runs a query on an asynchronous connection; `adapted`: on one that is not of our making.

    `going_on` is called before, and now and then while much is sent.
    """
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
    try:
        await cursor.execute(query.statement.text.encode(), query.parameters, binary=True)
    except psycopg.errors.FeatureNotSupported as error:
        if is_old_plan(error) and not adapted:
            await connection.close()  # the driver would send the old plan again and again
        raise
    return query.read(await cursor.fetchall() if cursor.description else [])


def run_sync(connection: Connection[Any], query: Query[T], *, adapted: bool = False) -> T:
    """Runs a query on a blocking connection; `adapted`: on one that is not of our making."""
    cursor = RawCursor(connection, row_factory=tuple_row)
    if query.data is not None:
        with cursor.copy(query.statement.text.encode()) as copy:
            for piece in query.data:
                copy.write(piece)
                connection.wait(_flush(connection.pgconn))
        return query.read([])
    if adapted:
        _adapt(cursor)
    try:
        cursor.execute(query.statement.text.encode(), query.parameters, binary=True)
    except psycopg.errors.FeatureNotSupported as error:
        if is_old_plan(error) and not adapted:
            connection.close()
        raise
    return query.read(cursor.fetchall() if cursor.description else [])


# Errors ---------------------------------------------------------------------------------------------

_PASSING = ("08", "53", "57", "40")
_PASSING_STATES = {"25006", "26000", "55P03", "55006", "25P03", "25P04"}
_UNUSABLE = {"25006", "26000", "0A000"}
_OLD_PLAN = "cached plan must not change result type"
_NO_SCHEMA = {"3F000", "42P01", "42883", "42704", "42703"}
_DATA = ("22", "23", "54")
_REFUSED = ("28", "3D")
_LIBPQ_ADVICE = re.compile(r"\n\s*Is the server running[^\n]*")
_SAID_BEFORE = re.compile(r"^connection (?:failed|is bad): (?=connection to server)")
_REFUSED_BECAUSE = {
    'database ".*" does not exist': "Create it (createdb), or correct the name of the database in the URL.",
    'role ".*" does not exist': "Create it (createuser), or correct the user in the URL.",
    "password authentication failed": "Check the user and the password in the URL; in it, @ is written %40, and / %2F.",
    "no password supplied": "Give it in the URL, behind the user and a colon, or in PGPASSWORD.",
    "no pg_hba.conf entry": "The server's pg_hba.conf lets nobody in like this: ask who looks after the server.",
    "peer authentication failed": "Become that user, or name another one in the URL, with a password.",
    "is not permitted to log in": "Name another user in the URL, or let this one in: ALTER ROLE … LOGIN.",
    "does not exist": "Check the user, the password and the name of the database in the URL.",
}
"""What a server says that will not let us in, however long we wait; and what to do about it."""

_ADVICE = {
    "failed to resolve host": "Check the name of the host in the URL.",
    "too many clients|remaining connection slots": "It has no connection left: close some, or raise max_connections.",
    "": "Is the server running, and does the URL name the right host and port?",
}
_WHICH_URL = "`holdfast config` shows the URL and where it comes from."


def is_passing(error: BaseException) -> bool:
    """Whether an error is likely to pass by itself: the server restarts, the network is cut, a lock was taken."""
    if isinstance(error, DatabaseUnreachable):
        return not error.permanent
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    return state.startswith(_PASSING) or state in _PASSING_STATES or is_old_plan(error)


def is_old_plan(error: BaseException) -> bool:
    """Whether a statement was refused because its tables changed since it was prepared: on a new connection it runs."""
    return isinstance(error, psycopg.errors.FeatureNotSupported) and _OLD_PLAN in str(error)


def is_data_error(error: BaseException) -> bool:
    """Whether a value in a statement is what the server objects to."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_DATA)


def is_contended(error: BaseException) -> bool:
    """Whether somebody else was in the way: a lock, a deadlock, or a conflict of transactions."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("55P03", "40P01", "40001")


def is_outdated(error: BaseException) -> bool:
    """Whether a row has changed since a transaction of stricter isolation began to read."""
    return isinstance(error, psycopg.errors.SerializationFailure)


def is_in_failed_transaction(error: BaseException) -> bool:
    """Whether an earlier error of the same transaction is the reason."""
    return isinstance(error, psycopg.errors.InFailedSqlTransaction)


def is_missing_partition(error: BaseException) -> bool:
    """Whether a row of archive or attempt found no partition for its day."""
    # The words of the message depend on the server's language; every other check has a name.
    return isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None


def gave_way(error: BaseException) -> bool:
    """Whether a change of tables was given up for others: they were faster, or at work there for too long."""
    if isinstance(error, TimeoutError) or is_contended(error):
        return True
    # Not there, no partition any more, just being detached; or given up by whoever watches over long statements.
    return isinstance(error, psycopg.Error) and error.sqlstate in ("42P01", "55000", "57014")


def is_unknown(error: BaseException) -> bool:
    """Whether the server may have committed although we saw an error: the connection broke under it."""
    if isinstance(error, (TimeoutError, ConnectionError)):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return False  # the driver refused it, and nothing was sent
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P"))


def unreachable(error: BaseException) -> DatabaseUnreachable:
    """The driver's connection error as ours, without passwords; `permanent` if waiting will not help."""
    # libpq asks whether the server is running: our advice does that, once.
    text = _SAID_BEFORE.sub("", _LIBPQ_ADVICE.sub("", redact(str(error))).strip())
    state = getattr(error, "sqlstate", None) or ""
    refused = _first(_REFUSED_BECAUSE, text)
    if refused is None and state.startswith(_REFUSED):
        refused = _REFUSED_BECAUSE["does not exist"]
    made = DatabaseUnreachable(f"cannot connect to PostgreSQL: {text}\n{refused or _first(_ADVICE, text)} {_WHICH_URL}")
    made.permanent = refused is not None
    return made


def _first(advice: dict[str, str], text: str) -> str | None:
    return next((cure for pattern, cure in advice.items() if re.search(pattern, text)), None)


def explained(error: BaseException, schema: str) -> HoldfastError | None:
    """The driver's error in our words, if it is one a user can do something about."""
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, (psycopg.OperationalError, TimeoutError)) and is_passing(error):
        return DatabaseUnreachable(f"the database went away: {redact(str(error)).strip() or type(error).__name__}")
    if is_old_plan(error):
        return DatabaseUnreachable("the tables were changed just now, by a migration: ask again")
    if not isinstance(error, psycopg.Error):
        return None
    text = (error.diag.message_primary or str(error)).removeprefix("holdfast: ")
    hint = f"\n{error.diag.message_hint}" if error.diag.message_hint else ""
    match error.sqlstate:
        case "HF404":
            return TaskNotFound(text + hint)
        case "HF409":
            return WrongState(text + hint)
        case "HF454" | "HF459":
            return ScheduleError(text + hint)
        case state if state in _NO_SCHEMA:
            return SchemaError(
                f"schema {schema!r} is missing in this database, or older than the code ({text}). "
                f"Run: {migrate_command(schema)}"
            )
        case "23505" if error.diag.constraint_name == "task_pkey":
            return EnqueueRefused(f"there is already a task with one of these ids. {error.diag.message_detail}")
        case state if state is not None and state.startswith(_DATA):
            return HoldfastError(f"the database refused this: {text}{hint}")
        case "42501":
            return NotPermitted(
                f"this database role may not do that: {text}. Let the owner of schema {schema!r} give it its part: "
                "holdfast roles grant producer|worker|viewer|operator ROLE"
            )
    return None


def migrate_command(schema: str) -> str:
    """What to type when the tables of a schema are missing or old."""
    return "holdfast migrate" + ("" if schema == DEFAULT_SCHEMA else f" --schema {schema}")


@contextmanager
def explaining(schema: str) -> Iterator[None]:
    """Raises the driver's errors in our words, where there are some."""
    try:
        yield
    except Exception as error:
        ours = explained(error, schema)
        if ours is None or ours is error:
            raise
        raise ours from error


def tell_no_hint(error: BaseException) -> None:
    """What follows a commit went wrong. The commit stands: nobody may be told that it failed."""
    log.debug("workers could not be woken: they look by themselves within their poll interval (%s)", error)


def pause_after(failures: int, *, longest: float) -> float:
    """Seconds to wait after so many failures in a row: longer each time, and not in step with everybody else."""
    longer: float = min(longest, 0.05 * 2.0 ** min(failures, 16))
    return longer * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


# Links ----------------------------------------------------------------------------------------------


class Link:
    """One connection, opened when needed and again after it broke."""

    def __init__(self, url: str, queries: Queries, name: str, timeout: float = CALL_TIMEOUT) -> None:
        self._pid = os.getpid()
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

    async def run(self, query: Query[T]) -> T:
        """Runs one query by itself. Any broken connection is dropped before the error is raised."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._open()
                    if self._wrap:
                        answers: list[T] = await self._together(connection, [query], None)
                        return answers[0]
                    return await run(connection, query)
            except BaseException as error:
                await self._after(error)
                raise

    async def transact(self, queries: Sequence[Query[Any]], *, lock_timeout: str | None = None) -> list[Any]:
        """Runs queries in one transaction and one round trip."""
        async with self._lock:
            try:
                async with asyncio.timeout(self._timeout):
                    return await self._together(await self._open(), queries, lock_timeout)
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
        """The same on a connection for this alone: whatever else this one is wanted for need not wait."""
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
            await connection.close()

    async def _open(self) -> AsyncConnection[Any]:
        if os.getpid() != self._pid:
            # A forked child shares the socket, but neither the identity nor the leases of its parent.
            raise HoldfastError("this worker belongs to the parent process: a forked child must not go on with it")
        if self._connection is not None and not self._connection.broken and not self._connection.closed:
            return self._connection
        await self.close()
        connection = await connect(self._url, self._name)
        self._connection = connection
        self._pooled = await meet(connection)
        isolation, read_only = await run(connection, self._queries.isolation())
        if read_only == "on":
            raise DatabaseUnreachable("this server is read-only: a standby, or a primary that was replaced")
        # Claims with SKIP LOCKED fail under stricter isolation; no SET, which a pooler would leak to others.
        # What holds for one connection of a pooler's need not hold for the next.
        self._wrap = self._pooled or isolation != "read committed"
        self.server = await run(connection, self._queries.server())
        self.contact_since = time.monotonic()
        return connection

    async def _together(
        self, connection: AsyncConnection[Any], queries: Sequence[Query[Any]], lock_timeout: str | None
    ) -> list[Any]:
        cursors = []
        self._pipelined = True
        async with connection.pipeline():
            await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            if lock_timeout is not None:
                await connection.execute(f"SET LOCAL lock_timeout = '{lock_timeout}'".encode())
            if self._pooled:
                check = self._same_server()
                await connection.execute(check.statement.text.encode(), check.parameters)
            for query in queries:
                cursor = AsyncRawCursor(connection, row_factory=tuple_row)
                await cursor.execute(query.statement.text.encode(), query.parameters, binary=True)
                cursors.append(cursor)
            await connection.execute("COMMIT")
        self._pipelined = False
        return [
            query.read(await cursor.fetchall() if cursor.description else [])
            for query, cursor in zip(queries, cursors, strict=True)
        ]

    def _same_server(self) -> Query[None]:
        """Fails on another server than the one that was met: a pooler outlives its servers, and does not tell."""
        return self._queries.same_server(self.server or "")

    async def _after(self, error: BaseException) -> None:
        """Leaves the connection usable, or drops it."""
        connection = self._connection
        if connection is None:
            return
        if self._pooled and isinstance(error, psycopg.errors.DivisionByZero):
            await self.close()
            raise ConnectionError("behind the pooler is another server than before") from None
        # After a failed pipeline the driver believes statements to be prepared that the server has skipped.
        broken, self._pipelined = self._pipelined and not self._pooled, False
        usable = isinstance(error, psycopg.Error) and not is_unknown(error) and error.sqlstate not in _UNUSABLE
        if usable and not broken and not connection.closed:
            try:
                if connection.info.transaction_status is not TransactionStatus.IDLE:
                    async with asyncio.timeout(5):
                        await connection.execute("ROLLBACK")
                return
            except Exception:  # noqa: S110 - a connection that cannot roll back is dropped, whatever the reason
                pass
        await self.close()


def as_uuid(text: str | UUID) -> UUID:
    """An id as given by people."""
    if isinstance(text, UUID):
        return text
    try:
        return UUID(text)
    except (ValueError, AttributeError, TypeError):
        raise TaskNotFound(
            f"{text!r} is not the id of a task: it should look like 01890a5d-ac96-774b-bcce-b302099a8057"
        ) from None
