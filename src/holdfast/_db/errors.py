"""What can go wrong with a database: which errors pass by themselves, and what they mean in plain words."""

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from holdfast._model.json.redact import redact
from holdfast._model.safe_log import Log
from holdfast.errors import (
    DatabaseUnreachable,
    EnqueueRefused,
    HoldfastError,
    NotPermitted,
    ScheduleError,
    SchemaError,
    TaskNotFound,
    WrongState,
)

log = Log("holdfast.db")

READ_ONLY = (
    "this server is read-only: a standby, or a primary that was replaced. Name all servers in the URL "
    "(host=first,second): then the one that can be written to is found"
)

DEFAULT_SCHEMA = "holdfast"

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
    return state.startswith(_PASSING) or state in _PASSING_STATES or is_old_plan(error) or is_full_of_notices(error)


def is_old_plan(error: BaseException) -> bool:
    """Whether a statement was refused because its tables changed since it was prepared: on a new connection it runs."""
    return isinstance(error, psycopg.errors.FeatureNotSupported) and _OLD_PLAN in str(error)


def is_unusable(error: BaseException) -> bool:
    """Whether a connection is of no use any more: its server only reads now, or it has old plans, or not ours."""
    return isinstance(error, psycopg.Error) and error.sqlstate in _UNUSABLE


def is_read_only(error: BaseException) -> bool:
    """Whether a write was refused because its transaction may only read."""
    return isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


def is_starved(error: BaseException) -> bool:
    """Whether the server lacks something that it needs: room on its disk, memory, connections."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("53")


def is_full(error: BaseException) -> bool:
    """Whether the server's disk is full; not if the statement itself has filled it with what it sorts."""
    return isinstance(error, psycopg.errors.DiskFull) and "pgsql_tmp" not in str(error)


def is_full_of_notices(error: BaseException) -> bool:
    """Whether a commit was refused because the queue of notifications is full: a client listens and does not read."""
    error = error.__cause__ if isinstance(error, DatabaseUnreachable) and error.__cause__ else error
    return isinstance(error, psycopg.errors.ProgramLimitExceeded) and error.diag.source_function == "PreCommit_Notify"


def is_data_error(error: BaseException) -> bool:
    """Whether a value in a statement is what the server objects to."""
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_DATA)


def is_contended(error: BaseException) -> bool:
    """Whether another transaction was in the way: by a lock, a deadlock, or a conflict."""
    return isinstance(error, psycopg.Error) and error.sqlstate in ("55P03", "40P01", "40001")


def is_deadlock(error: BaseException) -> bool:
    """Whether the server has ended this one of two that waited for each other: the other goes on."""
    return isinstance(error, psycopg.errors.DeadlockDetected)


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
    # Not there, no partition any more, just being detached; or cancelled by an operator or a watchdog.
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
        text = redact(str(error)).strip() or type(error).__name__
        if is_unknown(error):
            return DatabaseUnreachable(f"the database went away: {text}")
        return DatabaseUnreachable(f"the database gave this up, and nothing was done: {text}")
    if is_read_only(error):
        return DatabaseUnreachable(READ_ONLY)
    if is_old_plan(error):
        return DatabaseUnreachable("the tables were changed just now, by a migration: ask again")
    if isinstance(error, UnicodeEncodeError):
        return EnqueueRefused(
            f"the database cannot hold {error.object[error.start : error.end]!r}: its encoding, {error.encoding}, "
            "has no such character. Use a database that was created with ENCODING 'UTF8'"
        )
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
def explaining(schema: str, *, writes: bool = True) -> Iterator[None]:
    """Raises the driver's errors in our words, where there are some.

    Without `writes` the transaction itself only reads: a refused write then says nothing about the server.
    """
    try:
        yield
    except Exception as error:
        ours = None if is_read_only(error) and not writes else explained(error, schema)
        if ours is None or ours is error:
            raise
        raise ours from error


def tell_no_hint(error: BaseException) -> None:
    """Logs that workers could not be woken after a commit. The commit stands, so no error is raised."""
    log.debug("workers could not be woken: they look by themselves within their poll interval (%s)", error)


def pause_after(failures: int, *, longest: float) -> float:
    """Seconds to wait after so many failures in a row: longer each time, and not in step with everybody else."""
    longer: float = min(longest, 0.05 * 2.0 ** min(failures, 16))
    return longer * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
