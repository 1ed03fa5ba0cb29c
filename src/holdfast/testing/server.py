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
from holdfast._db.config.resolve import setting
from holdfast._db.driver.connection import connect_sync, with_database
from holdfast._db.migrate import migrate
from holdfast.testing.blocking import blocking

URL_VARIABLE = "HOLDFAST_TEST_URL"
"""A server to test on instead of the embedded one; its role must be allowed to create databases."""

_FOLDER, _OWNER = "holdfast-test-", "owner"
_MEMORY, _ROOM = Path("/dev/shm"), 4 << 30  # noqa: S108 - the folder in it is private


@contextmanager
def server() -> Iterator[str]:
    """A server for tests: of the environment, or an embedded one without fsync."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield given
        return
    _clear_abandoned()
    owner = os.getpid()
    folder = new_folder(_FOLDER)
    (folder / _OWNER).write_text(str(owner))
    started = embedded.start(folder, durable=False)
    try:
        yield started.url()
    finally:
        if os.getpid() == owner:  # not in a forked child
            started.stop("immediate")
            embedded.reset(folder)
            shutil.rmtree(folder, ignore_errors=True)


def new_folder(prefix: str) -> Path:
    """A folder for a server that does not stay: in memory, if there is room, unless TMPDIR says where.

    A database for each test means hundreds of files made and deleted each time, and disks are slow at that.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_roots()[0]))
    if os.geteuid() == 0:
        folder.chmod(0o711)  # another user runs the server, in a private folder in it
    return folder


def _roots() -> list[Path]:
    """Where servers of tests are, the best place first."""
    roots = [Path(tempfile.gettempdir())]
    with suppress(OSError):
        if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM:
            roots.insert(0, _MEMORY)
    return roots


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
    # Twice as fast; it makes checkpoints, which cost nothing without fsync, but much on the server of somebody else.
    strategy = "" if URL_VARIABLE in os.environ else "STRATEGY FILE_COPY"
    with connect_sync(server) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}".encode())
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
    for folder in (found for root in {*_roots(), _MEMORY} for found in root.glob(_FOLDER + "*")):
        try:
            os.kill(int((folder / _OWNER).read_text()), 0)
        except ProcessLookupError:
            with suppress(Exception):
                embedded.reset(folder)
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # somebody else's
