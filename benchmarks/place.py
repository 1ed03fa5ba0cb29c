"""Where it is measured: a server, fresh databases on it, the machine below, and what they cost."""

import os
import platform
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from holdfast import embedded
from holdfast.embedded import account, binaries

SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "shared_buffers",
    "min_wal_size",
    "max_wal_size",
    "autovacuum",
)
WORK = "holdfast_bench"
"""The database of one measurement; those it is copied from, and those of others meanwhile, have this name and more."""


@dataclass
class Place:
    """A server. `pid` is its postmaster's, if it runs here and is ours; `name` is that of the work database.

    `another` starts one more like it, if it is ours.
    """

    url: str
    pgbench: str
    pid: int | None = None
    name: str = WORK
    another: "Callable[[int], Place] | None" = None

    def database(self, name: str) -> str:
        """The URL of another database of this server."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    @property
    def work(self) -> str:
        return self.database(self.name)

    def apart(self, name: str) -> "Place":
        """The same server with a work database of its own, for what is measured at the same time as others."""
        return replace(self, name=f"{WORK}_{name}")

    def beside(self, number: int) -> "Place":
        """One of several servers that are alike, each of which can stand still while the others go on.

        Started when it is asked for, and there until the end. Of a server elsewhere it is a database of its own.
        """
        return self.apart(f"side_{number}") if self.another is None else self.another(number)

    def stand_still(self) -> None:
        """Stops all processes of this server, in the midst of whatever they do; not those of a server elsewhere."""
        if self.pid is not None:
            _signal([self.pid], signal.SIGSTOP)  # first: it begins no others then
            _signal(_sessions(self.pid), signal.SIGSTOP)

    def go_on(self) -> None:
        """From where they were stopped."""
        if self.pid is not None:
            _signal([*_sessions(self.pid), self.pid], signal.SIGCONT)

    def execute(self, statement: sql.Composed | LiteralString, *, at_work: bool = False) -> list[tuple[Any, ...]]:
        """Executes a statement, in the work database or beside it."""
        with psycopg.connect(self.work if at_work else self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def exists(self, name: str) -> bool:
        found = self.execute(
            sql.SQL("SELECT 1 FROM pg_database WHERE datname = {}").format(sql.Literal(f"{WORK}_{name}"))
        )
        return bool(found)

    def create(self, name: str = "", template: str | None = None) -> None:
        """A fresh database, empty or a copy of a template."""
        target = sql.Identifier(f"{WORK}_{name}" if name else self.name)
        self.drop(target)
        source = sql.Identifier("template1" if template is None else f"{WORK}_{template}")
        self.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(target, source))
        self.execute("CHECKPOINT")

    def drop(self, target: sql.Identifier | None = None) -> None:
        """Drops a database, by default the work database; it need not be there."""
        found = target or sql.Identifier(self.name)
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(found))

    def rename(self, name: str) -> None:
        """Keeps the work database under another name, to be copied."""
        self.execute(self._about("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = {}"))
        names = map(sql.Identifier, (self.name, f"{WORK}_{name}"))
        self.execute(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(*names))

    def drop_all(self) -> None:
        for (name,) in self.execute("SELECT datname FROM pg_database"):
            if name == WORK or name.startswith(f"{WORK}_"):
                self.drop(sql.Identifier(name))

    # --- what it costs

    def written(self) -> tuple[int, int]:
        """Bytes of WAL so far, and commits in the work database. Idle sessions tell their share with a delay."""
        ((lsn, commits),) = self.execute(
            self._about(
                "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, xact_commit FROM pg_stat_database"
                " WHERE datname = {}"
            )
        )
        return int(lsn), int(commits)

    def cpu(self) -> float | None:
        """CPU seconds of the server so far, those of its ended processes included."""
        if self.pid is None:
            return None
        own = _times(self.pid)
        return sum(own) + sum(sum(_times(pid)[:2]) for pid in _children(self.pid))

    @contextmanager
    def counting_statements(self) -> Iterator[None]:
        """Statements of sessions that begin now are counted, if the server can."""
        try:
            self.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements", at_work=True)
            self.execute(
                sql.SQL("ALTER DATABASE {} SET pg_stat_statements.track = 'top'").format(sql.Identifier(self.name))
            )
        except psycopg.Error:
            yield
            return
        yield
        self.execute(sql.SQL("ALTER DATABASE {} RESET pg_stat_statements.track").format(sql.Identifier(self.name)))

    def statements(self) -> int | None:
        """How many were counted so far; None if the server cannot count them."""
        try:
            ((count,),) = self.execute(
                self._about(
                    "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid ="
                    " (SELECT oid FROM pg_database WHERE datname = {}) AND query NOT LIKE '%pg_stat_statements%'"
                ),
                at_work=True,
            )
        except psycopg.Error:
            return None
        return int(count)

    def _about(self, statement: LiteralString) -> sql.Composed:
        """A statement about the work database."""
        return sql.SQL(statement).format(sql.Literal(self.name))

    def facts(self) -> dict[str, Any]:
        """The machine, the versions and the settings."""
        values = {name: self.execute(sql.SQL("SHOW {}").format(sql.Identifier(name)))[0][0] for name in SETTINGS}
        return {
            "machine": {
                "system": platform.platform(),
                "processor": _processor(),
                "cores": os.cpu_count(),
                "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
                "load_before": round(os.getloadavg()[0], 2),
            },
            "python": platform.python_version(),
            "packages": {name: _version(name) for name in ("holdfast", "psycopg", "msgspec", "uvloop")},
            "postgres": values,
        }


@contextmanager
def place(url: str | None) -> Iterator[Place]:
    """The server at a URL, or one that lives for this run only, and others beside it."""
    if url is not None:
        found = Place(url, _pgbench())
        try:
            yield found
        finally:
            found.drop_all()
        return
    with ExitStack() as servers:
        yield _started(servers)


def _started(servers: ExitStack) -> Place:
    folder = Path(mkdtemp(prefix="holdfast-bench-"))
    servers.callback(shutil.rmtree, folder, ignore_errors=True)
    servers.callback(embedded.reset, folder)
    server = embedded.start(folder)
    started = Place(server.url(), str(server.bindir / "pgbench"), server.pid)
    # Its log of changes is recycled, as on a server that has run for a while. Else each measurement would have to
    # make and zero those files first, because the one before it has ended with a checkpoint.
    started.execute("ALTER SYSTEM SET min_wal_size = '1GB'")
    # There to count the statements of an idle worker; otherwise it does nothing.
    started.execute("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
    started.execute("ALTER SYSTEM SET \"pg_stat_statements.track\" = 'none'")
    server.restart()
    started.pid = server.pid
    servers.callback(started.go_on)  # or it could not be ended
    if _children_of(server.pid).exists():  # else nobody knows whom to stop: databases of one server take turns
        started.another = cache(lambda _: _started(servers))
    return started


def _pgbench() -> str:
    """The one on the PATH, else the embedded server's."""
    found = shutil.which("pgbench")
    return found or str(binaries.locate(account.account_for(Path.cwd())).bindir / "pgbench")


@dataclass
class Usage:
    """What a process has used so far."""

    cpu: float
    memory: float
    most_memory: float


def usage(pid: int) -> Usage:
    """CPU seconds and megabytes of a process and its children."""
    pids = [pid, *_children(pid)]
    memory = [_memory(each) for each in pids]
    return Usage(sum(sum(_times(each)) for each in pids), sum(m[0] for m in memory), sum(m[1] for m in memory))


def await_quiet_statistics() -> None:
    """Sessions tell how many commits they made at most once a second."""
    time.sleep(1.2)


def _times(pid: int) -> tuple[float, float, float, float]:
    """User and system time of a process, and of its ended children."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return (0.0, 0.0, 0.0, 0.0)
    ticks = os.sysconf("SC_CLK_TCK")
    user, system, ended_user, ended_system = (int(value) / ticks for value in fields[11:15])
    return user, system, ended_user, ended_system


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(pid, number)


def _sessions(pid: int) -> list[int]:
    """The processes that a postmaster has begun; none if it has ended, or the system does not tell."""
    try:
        return [int(child) for child in _children_of(pid).read_text().split()]
    except OSError:
        return []


def _children_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/task/{pid}/children")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for file in Path(f"/proc/{pid}/task").glob("*/children"):
            found += [int(child) for child in file.read_text().split()]
    except OSError:
        pass  # it has just ended
    return found + [grandchild for child in found for grandchild in _children(child)]


def _memory(pid: int) -> tuple[float, float]:
    """Megabytes resident now, and at most."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return (0.0, 0.0)
    values = {line.partition(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return int(values.get("VmRSS", 0)) / 1024, int(values.get("VmHWM", 0)) / 1024


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
