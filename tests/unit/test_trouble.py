"""What people read when the database does not do what they ask."""

import psycopg
import pytest

from holdfast._db.errors import explained
from holdfast.errors import DatabaseUnreachable


@pytest.mark.parametrize(
    "error",
    [
        psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"),
        psycopg.errors.QueryCanceled("canceling statement due to statement timeout"),
        psycopg.errors.DeadlockDetected("deadlock detected"),
        psycopg.errors.DiskFull("could not extend file"),
    ],
)
def test_F26_what_the_server_gave_up_is_not_called_an_outage(error: psycopg.Error) -> None:
    ours = explained(error, "holdfast")
    assert isinstance(ours, DatabaseUnreachable)
    assert str(ours) == f"the database gave this up, and nothing was done: {error}"


@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("server closed the connection unexpectedly"),
        psycopg.errors.AdminShutdown("terminating connection due to administrator command"),
        TimeoutError("no answer"),
    ],
)
def test_L12_after_an_outage_nobody_says_that_nothing_was_done(error: Exception) -> None:
    assert str(explained(error, "holdfast")) == f"the database went away: {error}"
