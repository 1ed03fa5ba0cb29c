"""Servers for faults: an ordinary one, one on a small disk, a pair of two, one with a clock of its own, and so on.

Each has a pattern for databases, is in memory where there is room, and is gone afterwards.
"""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from faults import crew
from faults.history import UNLIMITED
from holdfast import embedded
from holdfast._db.driver.connection import connect_sync
from holdfast._db.migrate import migrate
from holdfast.embedded import Server
from holdfast.embedded.account import account_for
from holdfast.errors import DatabaseUnreachable
from holdfast.testing.server import new_folder

_FAKETIME = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
_STEADY = {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
"""Only the time of day is another, by the old name of this switch and by the new."""


class NotHere(Exception):
    """This machine does not allow a fault: it is skipped, and the report says why."""


def run_sql(url: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    """Runs SQL with numbered parameters, whatever limits a fault has set for others."""
    with connect_sync(url, "lab") as connection:
        connection.execute(UNLIMITED)
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


@dataclass
class Place:
    """A server that may be stopped."""

    server: Server

    def url(self, database: str = "postgres") -> str:
        return self.server.url(database)

    def ensure(self) -> None:
        """It runs, whatever a fault has done to it."""
        embedded.start(self.server.folder, durable=False)


@contextmanager
def own_server() -> Iterator[Place]:
    """An ordinary server."""
    with _server(new_folder("holdfast-faults-")) as server:
        yield Place(server)


@contextmanager
def _server(folder: Path, *, pattern: bool = True) -> Iterator[Server]:
    try:
        server = embedded.start(folder, durable=False)
        if pattern:
            asyncio.run(migrate(server.url()))
            run_sql(server.url(), crew.EFFECTS)
            run_sql(server.url(), "CREATE DATABASE pattern TEMPLATE postgres")
        yield server
    finally:
        with suppress(Exception):
            embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def small_notice_board() -> Iterator[Place]:
    """A server that keeps as few notifications as it may."""
    with _server(new_folder("holdfast-notices-")) as server:
        if not run_sql(server.url(), "SELECT 1 FROM pg_settings WHERE name = 'max_notify_queue_pages'"):
            raise NotHere("the size of the queue of notifications can be set from PostgreSQL 17 on")
        run_sql(server.url(), "ALTER SYSTEM SET max_notify_queue_pages = 64")
        server.restart()
        yield Place(server)


# --- a small disk


@dataclass
class Disk(Place):
    """A server on a disk of its own, which may be full."""

    folder: Path

    def fill(self) -> None:
        """Not one byte is left."""
        with suppress(OSError), (self.folder / "ballast").open("ab", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass

    def fill_and_crash(self) -> None:
        """The write-ahead log too asks for more: the server crashes, and may not come back by itself."""
        with suppress(DatabaseUnreachable, psycopg.Error), connect_sync(self.url(), "lab") as connection:
            self.fill()
            for _ in range(64):
                connection.execute("SELECT pg_logical_emit_message(true, 'faults', 'more'), pg_switch_wal()")

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)


@contextmanager
def small_disk(megabytes: int = 300) -> Iterator[Disk]:
    """A disk in memory: whoever is not root, or in a container that may not mount, cannot have one."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-disk-"))
    options = f"size={megabytes}m,mode=0711"
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode:
        folder.rmdir()
        raise NotHere(f"a small disk cannot be mounted here ({made.stderr.strip()})")
    try:
        with _server(folder / "server") as server:
            # Else, crash by crash, the write-ahead log would fill the disk by itself, for ever.
            run_sql(server.url(), "ALTER SYSTEM SET max_wal_size = '64MB'")
            run_sql(server.url(), "ALTER SYSTEM SET min_wal_size = '32MB'")
            run_sql(server.url(), "SELECT pg_reload_conf()")
            disk = Disk(server, folder)
            try:
                yield disk
            finally:
                disk.free()
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


# --- a pair


@dataclass
class Pair(Place):
    """A primary and its streaming standby. Everybody's URL names both."""

    standby: Server

    def url(self, database: str = "postgres") -> str:
        both = (self.server, self.standby)
        hosts = ",".join(quote(str(each.sockets), safe="") for each in both)
        ports = ",".join(str(each.port) for each in both)
        return f"postgresql://postgres@/{database}?host={hosts}&port={ports}&target_session_attrs=read-write"

    def ensure(self) -> None:
        """One of the two is enough."""

    def promote(self) -> None:
        """The standby becomes the primary."""
        run_sql(self.standby.url(), "SELECT pg_promote()")


@contextmanager
def pair() -> Iterator[Pair]:
    """A primary that acknowledges nothing before its standby has it."""
    folder = new_folder("holdfast-standby-")
    with _server(new_folder("holdfast-primary-")) as primary, _server(folder, pattern=False) as standby:
        standby.stop()
        account = account_for(standby.data)
        shutil.rmtree(standby.data)
        account.make_private(standby.data)
        made = account.run(
            standby.bindir / "pg_basebackup", "-D", standby.data, "-R", "-c", "fast", "-h", primary.sockets
        )
        if made.code:
            raise RuntimeError(f"no standby could be made: {made.output}")
        follower = embedded.start(folder, durable=False)
        run_sql(primary.url(), "ALTER SYSTEM SET synchronous_standby_names = '*'")
        run_sql(primary.url(), "SELECT pg_reload_conf()")
        yield Pair(primary, follower)


# --- a clock


def with_clock(offset: str) -> dict[str, str]:
    """The environment of a process whose clock is ahead or behind by this much: `+1h`."""
    return {"LD_PRELOAD": _library(), "FAKETIME": offset, **_STEADY}


@dataclass
class Clock(Place):
    """A server whose clock steps."""

    file: Path

    def step(self, seconds: float) -> None:
        """From now on it is so many seconds ahead of everybody else's, or behind."""
        self.file.write_text(f"{seconds:+g}s\n")


@contextmanager
def own_clock() -> Iterator[Clock]:
    """A server that is told by a file what time it is."""
    library = _library()
    folder = new_folder("holdfast-clock-")
    with _server(folder) as server:
        server.stop()
        clock = Clock(server, folder / "clock")
        clock.step(0)
        clock.file.chmod(0o644)
        account = account_for(server.data)
        account.make_private(server.sockets)
        environment = [
            f"LD_PRELOAD={library}",
            f"FAKETIME_TIMESTAMP_FILE={clock.file}",
            "FAKETIME_NO_CACHE=1",  # all its processes see a step at once
            *(f"{name}={value}" for name, value in _STEADY.items()),
        ]
        launch = '"$@" </dev/null >>"$0" 2>&1 & echo $!'
        postgres = (server.bindir / "postgres", "-D", server.data)
        said = account.run("/bin/sh", "-c", launch, server.log, "env", *environment, *postgres)
        if said.code:
            raise RuntimeError(f"no server with a clock of its own: {said.output}")
        clock.server = embedded.start(folder, durable=False)  # waits until it is ready
        yield clock


def _library() -> str:
    for pattern in _FAKETIME:
        if found := sorted(Path("/").glob(pattern.removeprefix("/"))):
            return str(found[0])
    raise NotHere("libfaketime is not installed (apt-get install faketime)")
