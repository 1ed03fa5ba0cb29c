"""One check of `holdfast doctor`, made on a database that a test has made sick."""

from collections.abc import Collection
from contextlib import closing
from functools import partial

from holdfast._db.config.resolve import Database
from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._sql.queries import queries
from holdfast.doctor import Diagnosis, Limits, Patient, examine

from .conftest import Cli


def diagnosed(
    cli: Cli,
    check: str,
    *,
    limits: Limits | None = None,
    direct_url: str | None = None,
    steps: Collection[str] | None = None,
    version: str = "",
) -> Diagnosis:
    """What a check finds; it must not break."""
    database = Database(cli.url, "this test", direct_url)
    with closing(connect_sync(cli.url)) as connection:
        ask = partial(run_sync, connection)
        patient = Patient(ask, queries("holdfast"), database, limits=limits, steps=steps, version=version)
        (found,) = examine(patient, only=[check])
    assert "could not be checked" not in found.found, found
    assert (found.level == "fine") == (not found.why) == (not found.cure), "if it is not fine: why, and what to do"
    return found
