"""Making the data folder, its settings, and the server process."""

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

from holdfast.embedded import postmaster
from holdfast.embedded.account import Account, Finished
from holdfast.embedded.binaries import Binaries
from holdfast.embedded.errors import failure
from holdfast.embedded.paths import Place, write_private
from holdfast.embedded.postmaster import Postmaster
from holdfast.errors import EmbeddedError

PORT = 5432  # only a part of the socket's name: nothing listens on TCP
_START_TIMEOUT = 120.0
_ORPHANS_TIMEOUT = 15.0
_LOG_LIMIT = 10 * 1024 * 1024

_SETTINGS = """\
# Written by Holdfast at every start. Your own settings go to the end of postgresql.conf, where they win.
listen_addresses = ''
port = {port}
unix_socket_directories = '{sockets}'
unix_socket_permissions = 0700
max_connections = 200
shared_buffers = 256MB
max_wal_size = 2GB
checkpoint_completion_target = 0.9
max_locks_per_transaction = 256
random_page_cost = 1.1
autovacuum_naptime = 15s
timezone = 'UTC'
log_timezone = 'UTC'
lc_messages = 'C'
log_destination = 'stderr'
logging_collector = off
log_line_prefix = '%m [%p] %a '
"""
_NOT_DURABLE = """\
# For tests: a crash of the server may lose the last commits, a crash of the machine all data.
fsync = off
synchronous_commit = off
full_page_writes = off
"""

# The shell goes away at once, so that the server belongs to no process of ours. The paths are
# arguments, never part of the script.
_LAUNCH = 'log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'


def data_major(data: Path) -> int | None:
    """The major version that made this data, or None if there is none."""
    try:
        text = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        return None
    number = re.match(r"\d+", text)
    return int(number.group()) if number else None


def initialise(place: Place, account: Account, binaries: Binaries, *, durable: bool) -> None:
    """Make the data folder. It appears under its name only when it is complete."""
    making = place.unfinished
    done = Finished(1, "")
    try:
        for locale in _locales(binaries.major):
            _remove_tree(making)
            account.make_private(making)
            done = account.run(
                binaries.bindir / "initdb",
                f"--pgdata={making}",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--lc-messages=C",
                *locale,
                *([] if durable else ["--no-sync"]),
            )
            if done.code == 0 or "locale" not in done.output:
                break
        if done.code:
            raise failure(f"PostgreSQL {binaries.version} could not set up {place.data}", done.output, where=making)
        conf = making / "postgresql.conf"
        write_private(conf, f"{conf.read_text()}\ninclude_if_exists = 'holdfast.conf'\n", account)
        making.rename(place.data)
    finally:
        _remove_tree(making)


def _locales(major: int) -> list[list[str]]:
    """Ways to say C.UTF-8, the best first. Not every system knows it, so PostgreSQL's own goes before."""
    ways = [["--locale=C.UTF-8"], ["--no-locale"]]
    if major >= 17:
        ways.insert(0, ["--no-locale", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"])
    return ways


def configure(place: Place, account: Account, sockets: Path, *, durable: bool) -> None:
    """Write the settings of the next start."""
    quoted = str(sockets).replace("'", "''")
    settings = _SETTINGS.format(port=PORT, sockets=quoted) + ("" if durable else _NOT_DURABLE)
    write_private(place.data / "holdfast.conf", settings, account)


def is_durable(place: Place) -> bool:
    """Whether the settings keep data through a crash of the machine."""
    try:
        return _NOT_DURABLE not in (place.data / "holdfast.conf").read_text()
    except FileNotFoundError:
        return True


def launch(place: Place, account: Account, binaries: Binaries, sockets: Path) -> Postmaster:
    """Start the server and wait until it takes connections."""
    postmaster.remove_stale_pid_file(place.data)
    for left_over in sockets.iterdir():
        left_over.unlink(missing_ok=True)
    patience = time.monotonic() + _ORPHANS_TIMEOUT
    while True:
        before = _prepare_log(place.log, account)
        pid = _spawn(place, account, binaries)
        started = postmaster.wait_until_ready(place.data, pid, timeout=_START_TIMEOUT)
        if started is not None:
            return started
        if postmaster.is_alive(pid):
            raise _not_ready(place)
        output = _log_since(place.log, before)
        # The processes of a killed server need a moment to notice that they are orphans.
        if "pre-existing shared memory block" not in output or time.monotonic() > patience:
            what = f"PostgreSQL {binaries.version} did not start on {place.data} (log: {place.log})"
            raise failure(what, output, where=place.data)
        time.sleep(0.1)


def _spawn(place: Place, account: Account, binaries: Binaries) -> int:
    said = account.run(
        "/bin/sh", "-c", _LAUNCH, "sh", place.log, binaries.bindir / "postgres", "-D", place.data, timeout=60
    )
    if said.code or not said.output.strip().isdigit():
        raise failure(f"PostgreSQL {binaries.version} could not be started", said.output, where=place.data)
    return int(said.output)


def await_ready(place: Place, found: Postmaster) -> Postmaster | None:
    """Wait for a server that somebody else started, or that is recovering from a crash; None if it has ended."""
    ready = postmaster.wait_until_ready(place.data, found.pid, timeout=_START_TIMEOUT)
    if ready is None and postmaster.is_alive(found.pid):
        raise _not_ready(place)
    return ready


def _not_ready(place: Place) -> EmbeddedError:
    return EmbeddedError(
        f"PostgreSQL on {place.data} did not get ready within {_START_TIMEOUT:g} s; after a crash it may "
        f"need longer. Look at {place.log}; start again to go on waiting."
    )


def _prepare_log(log: Path, account: Account) -> int:
    """Make sure the server may write its log; the size it has before."""
    with contextlib.suppress(FileNotFoundError):
        if log.lstat().st_size > _LOG_LIMIT:
            log.rename(log.with_name(f"{log.name}.1"))
    try:
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return log.lstat().st_size
    account.take(log)
    return 0


def _log_since(log: Path, position: int) -> str:
    with log.open("rb") as file:
        file.seek(position)
        return file.read().decode("utf-8", "replace")


def _remove_tree(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
