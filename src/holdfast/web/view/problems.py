"""What went wrong, for people: errors of the model and of the database as a heading, a sentence and a status."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from holdfast._db.driver.connection import DriverError
from holdfast._model.json.redact import redact
from holdfast._model.safe_log import Log
from holdfast.errors import (
    ConfigError,
    DatabaseUnreachable,
    EncodeError,
    FilterError,
    HoldfastError,
    NotPermitted,
    TaskNotFound,
    WrongState,
)

log = Log("holdfast.web")

_STATUS: list[tuple[type[Exception], int, str]] = [
    (TaskNotFound, 404, "Not found"),
    (FilterError, 400, "The filter is not understood"),
    (WrongState, 409, "Not possible now"),
    (NotPermitted, 403, "The database does not permit this"),
    (DatabaseUnreachable, 503, "The database cannot be reached"),
    (EncodeError, 400, "This cannot be stored"),
    (ConfigError, 400, "Not understood"),
]
_TOO_LONG = "57014"


@dataclass
class Problem(Exception):
    """Why a request is not answered as was hoped."""

    status: int
    title: str
    message: str


Refuse: TypeAlias = Callable[[HTTPConnection, Problem], Response]


def problem_of(error: Exception) -> Problem:
    """What an error is to whoever sent the request. One that nobody expected is only in the log."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, msgspec.ValidationError):
        return Problem(400, "Not understood", str(error))
    if isinstance(error, TimeoutError) or getattr(error.__cause__, "sqlstate", None) == _TOO_LONG:
        return Problem(
            503, "This took too long", "The database did not answer in time. Narrow the filter, or try again."
        )
    for known, status, title in _STATUS:
        if isinstance(error, known):
            return Problem(status, title, redact(str(error)))
    if isinstance(error, HoldfastError):
        return Problem(400, "Not possible", redact(str(error)))
    if isinstance(error, DriverError) and error.sqlstate is not None:
        said = (error.diag.message_primary or "").removeprefix("holdfast: ")
        return Problem(409, "The database refused this", redact(said))
    log.error("a page of the dashboard failed", exc_info=error)
    return Problem(500, "This should not have happened", "It is a mistake in the dashboard; the log has more.")
