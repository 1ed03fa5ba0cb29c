"""One database for the session, emptied after each test, with the clock stopped; or one of a test's own."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from holdfast._db.driver.connection import connect_sync, with_database
from holdfast._model.enqueue.ids import uuid7
from pgbouncer import Way

from .support import NOW, Db

TABLES = (
    "task",
    "key",
    "archive",
    "attempt",
    "worker",
    "kind",
    "queue",
    "change",
    "setting",
    "partition",
    "schedule",
    "occurrence",
    "figure",
    "figure_hour",
)


@pytest.fixture(scope="session")
def shared_url(holdfast_server: str, holdfast_template: str, way: Way) -> Iterator[str]:
    name = f"holdfast_lifecycle_{uuid4().hex[:12]}"
    with connect_sync(holdfast_server) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {holdfast_template}".encode())
    yield way.to(with_database(holdfast_server, name), holdfast_server)
    with connect_sync(holdfast_server) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def db(shared_url: str) -> Iterator[Db]:
    """A database with empty tables, at `NOW`."""
    made = Db(shared_url)
    if made.one("SELECT holdfast.now()") != NOW:
        made.clock.set(NOW)
    yield made
    made.close()
    with connect_sync(shared_url) as connection:
        connection.execute("; ".join(f"DELETE FROM holdfast.{table}" for table in TABLES).encode())


OF_TODAY = """DO $$ DECLARE day text; BEGIN
FOR day IN SELECT h.name FROM holdfast.history h WHERE h.until < '2031-01-01' LOOP
    EXECUTE format('DROP TABLE holdfast.%I', day);
END LOOP; END $$"""


@pytest.fixture
def own_db(holdfast_url: str) -> Iterator[Db]:
    """A database that the test may spoil, at `NOW`, without the days around the real one."""
    made = Db(holdfast_url)
    made.sql(OF_TODAY)
    made.sql("UPDATE holdfast.figure_place SET settled = $1, until = $1, seen_at = $1, looked_at = $1", NOW)
    made.clock.set(NOW)
    yield made
    made.close()


@pytest.fixture
def worker() -> UUID:
    return uuid7()


@pytest.fixture
def other_worker() -> UUID:
    return uuid7()
