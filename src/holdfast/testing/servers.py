"""Servers and databases for tests: one server for the session, one template, one copy of it for each test."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from holdfast import embedded
from holdfast._db.config import setting
from holdfast._db.connection import connect_sync, with_database
from holdfast._db.migrate import migrate
from holdfast.testing.blocking import blocking

URL_VARIABLE = "HOLDFAST_TEST_URL"
"""A server to test on instead of the embedded one; its role must be allowed to create databases."""

_FOLDER, _OWNER = "holdfast-test-", "owner"


@contextmanager
def server() -> Iterator[str]:
    """A server for tests: of the environment, or an embedded one without fsync."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield given
        return
    _clear_abandoned()
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    (folder / _OWNER).write_text(str(owner))
    started = embedded.start(folder, durable=False)
    try:
        yield started.url()
    finally:
        if os.getpid() == owner:  # not in a forked child
            started.stop("immediate")
            embedded.reset(folder)
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def template(server: str) -> Iterator[str]:
    """The name of a migrated database."""
    name = f"holdfast_template_{uuid4().hex[:12]}"
    with connect_sync(server) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    blocking(migrate(with_database(server, name), setting("schema").value))
    try:
        yield name
    finally:
        _drop(server, name)


@contextmanager
def database(server: str, template: str) -> Iterator[str]:
    """A copy of the template."""
    name = f"holdfast_test_{uuid4().hex[:12]}"
    with connect_sync(server) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
    try:
        yield with_database(server, name)
    finally:
        _drop(server, name)


@cache
def of_this_process() -> tuple[str, str]:
    """A server and a template that live as long as this process: for tests without fixtures."""
    stack = ExitStack()
    url = stack.enter_context(server())
    name = stack.enter_context(template(url))
    atexit.register(_close, stack, os.getpid())
    return url, name


def _close(stack: ExitStack, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked child
        stack.close()


def _drop(server: str, name: str) -> None:
    with connect_sync(server) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _clear_abandoned() -> None:
    """Ends the servers of test runs that were killed before they could do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(_FOLDER + "*"):
        try:
            os.kill(int((folder / _OWNER).read_text()), 0)
        except ProcessLookupError:
            with suppress(Exception):
                embedded.reset(folder)
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # somebody else's
