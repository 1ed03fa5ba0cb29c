"""A server of our own, for tests that stop it or end all its sessions."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import embedded
from holdfast._db.driver.connection import with_database
from holdfast._db.migrate import migrate
from holdfast.embedded import Server
from holdfast.testing.server import new_folder
from pgbouncer import Way

from .support import sql


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    """A server that may be stopped and restarted."""
    folder = new_folder("holdfast-own-")
    server = embedded.start(folder, durable=False)
    asyncio.run(migrate(server.url()))
    sql(server.url(), "CREATE DATABASE pattern TEMPLATE postgres")
    try:
        yield server
    finally:
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_url(own_server: Server, way: Way) -> Iterator[str]:
    """A migrated database on that server, whose commits outlive an immediate stop."""
    name = f"own_{uuid4().hex[:12]}"
    sql(own_server.url(), f"CREATE DATABASE {name} TEMPLATE pattern")
    sql(own_server.url(), f"ALTER DATABASE {name} SET synchronous_commit = on")
    yield way.to(with_database(own_server.url(), name), own_server.url())
    embedded.start(own_server.folder, durable=False)
    sql(own_server.url(), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The folder of the handlers' own log."""
    return tmp_path / "handlers"
