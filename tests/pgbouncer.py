"""A PgBouncer in transaction mode in front of a server, for tests."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
MISSING = "pgbouncer is not installed (apt-get install pgbouncer, brew install pgbouncer)"
PORT = 6432
PATIENCE = 60.0

CONFIGURATION = """
[databases]
* = host={host} port={port} {login} connect_query='SET statement_timeout = 60000'

[pgbouncer]
pool_mode = transaction
unix_socket_dir = {folder}
listen_port = {listen}
listen_addr =
auth_type = {kind}
auth_file = {folder}/users
max_client_conn = 1000
default_pool_size = {size}
server_login_retry = 1
ignore_startup_parameters = extra_float_digits, options
logfile = {folder}/log
"""


class Pooler:
    """A running PgBouncer."""

    def __init__(self, folder: Path, server_url: str, process: "subprocess.Popen[bytes]") -> None:
        self.folder = folder
        self._process = process
        self._server = conninfo_to_dict(server_url)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def url(self, direct: str) -> str:
        """The URL of a database of that server, through the pooler."""
        given = conninfo_to_dict(direct)
        return make_conninfo("", **{**given, "host": str(self.folder), "port": PORT})

    def direct(self, url: str) -> str:
        """The other way round."""
        given = conninfo_to_dict(url)
        return make_conninfo("", **{**given, "host": self._server["host"], "port": self._server.get("port", 5432)})


@contextmanager
def pgbouncer(server_url: str, *, size: int = 20) -> Iterator[Pooler]:
    """Starts one, and ends it afterwards."""
    assert PROGRAM is not None, MISSING
    server = conninfo_to_dict(server_url)
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
    host = str(server.get("host") or "localhost")
    user = server.get("user", "postgres")
    # Everybody logs in as himself, unless that takes passwords which the pooler does not know.
    login, kind = f"auth_user={user}", "trust"
    if server.get("password"):
        login, kind = f"user={user} password={server['password']}", "any"
    (folder / "users").write_text(f'"{user}" ""\n')
    (folder / "pgbouncer.ini").write_text(
        CONFIGURATION.format(
            host=host,
            port=server.get("port", 5432),
            login=login,
            kind=kind,
            folder=folder,
            listen=PORT,
            size=size,
        )
    )
    # It refuses to run as root; whoever owns the server's socket may use it.
    owner = Path(host).stat().st_uid if host.startswith("/") else 65534
    if os.getuid() == 0:
        for each in (folder, folder / "pgbouncer.ini", folder / "users"):
            os.chown(each, owner, -1)
    process = subprocess.Popen(
        [PROGRAM, "-q", str(folder / "pgbouncer.ini")],
        stderr=subprocess.DEVNULL,
        user=owner if os.getuid() == 0 else None,
    )
    pooler = Pooler(folder, server_url, process)
    try:
        _wait_for(pooler.url(server_url), process)
        yield pooler
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url, connect_timeout=10).close()
        except psycopg.OperationalError:
            assert process.poll() is None and time.monotonic() < until, "pgbouncer does not start"
            time.sleep(0.05)
        else:
            return


class Way:
    """How tests reach their databases."""

    def __init__(self, pooled: bool, poolers: ExitStack) -> None:
        self.pooled = pooled
        self._poolers = poolers
        self._started: dict[str, Pooler] = {}

    def to(self, url: str, server: str) -> str:
        """The URL to use for a database of a server."""
        if not self.pooled:
            return url
        if server not in self._started or not self._started[server].lives:  # one test's trouble is not that of others
            self._started[server] = self._poolers.enter_context(pgbouncer(server))
        return self._started[server].url(url)
