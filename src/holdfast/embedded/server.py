"""Starting, finding, stopping and deleting embedded servers."""

import contextlib
import json
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from holdfast.embedded import binaries, cluster, paths, postmaster
from holdfast.embedded.errors import explained
from holdfast.embedded.paths import Place
from holdfast.embedded.postmaster import Mode, Postmaster
from holdfast.errors import EmbeddedError

_STOP_TIMEOUT = 60.0


@dataclass
class Server:
    """A running server. Its facts are those of the moment it was started, found or restarted."""

    folder: Path
    pid: int
    version: str
    bindir: Path
    data: Path
    log: Path
    sockets: Path
    port: int
    durable: bool

    def url(self, database: str = "postgres") -> str:
        """The URL of a database of this server, for libpq and all that is built on it."""
        host = quote(str(self.sockets), safe="")
        return f"postgresql://postgres@/{quote(database, safe='')}?host={host}&port={self.port}"

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server and wait until it has ended.

        `smart` waits until all clients have gone, `fast` ends their sessions, `immediate` is a crash
        on purpose: the next start recovers. Stopping a server that has ended already is no error.
        """
        _stop(self.folder, mode)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop the server and start it again; the URL stays, the pid changes."""
        self.stop(mode)
        vars(self).update(vars(start(self.folder, durable=self.durable)))


def start(folder: Path | None = None, *, durable: bool = True) -> Server:
    """The server of this folder: made and started where needed, else the one that is running.

    `durable=False` trades safety for speed, for tests: a crash of the server may lose the last commits,
    a crash of the machine all data. A running server becomes durable when it is asked for as durable.
    """
    folder = _resolved(folder)
    with explained(folder):
        _prepare(folder)
        with paths.locked(folder):
            where, account = paths.settle(folder, durable=durable)
            found = postmaster.running(where.data)
            if found is not None and (ready := cluster.await_ready(where, found)) is not None:
                if durable and not cluster.is_durable(where):
                    cluster.configure(where, account, ready.sockets, durable=True)
                    os.kill(ready.pid, signal.SIGHUP)
                    os.sync()
                return _publish(_server(where, ready))
            where.facts.unlink(missing_ok=True)
            chosen = binaries.locate(account, major=cluster.data_major(where.data))
            if not where.data.is_dir():
                cluster.initialise(where, account, chosen, durable=durable)
            sockets = paths.socket_folder(where.data, account)
            cluster.configure(where, account, sockets, durable=durable)
            return _publish(_server(where, cluster.launch(where, account, chosen, sockets)))


def find(folder: Path | None = None) -> Server | None:
    """The running server of this folder, or None. Never starts anything."""
    folder = _resolved(folder)
    with explained(folder):
        where = paths.recorded(folder)
        found = where and postmaster.running(where.data)
        return _server(where, found) if where and found and found.ready else None


def reset(folder: Path | None = None) -> None:
    """Stop the server of this folder and delete its data. Refuses folders that are not ours."""
    folder = _resolved(folder)
    with explained(folder):
        if not paths.is_marked(folder):
            raise EmbeddedError(
                f"{folder} is no folder of an embedded server: nothing was deleted. "
                "Name the right one with --folder, or delete it yourself."
            )
        with paths.locked(folder):
            for where in (Place(folder, folder), *paths.stand_ins(folder)):
                _end(where, "immediate")
                _delete(where)
            paths.forget(folder)


def _stop(folder: Path, mode: Mode) -> None:
    with explained(folder):
        where = paths.recorded(folder)
        if where is None:
            return
        with paths.locked(folder):
            _end(where, mode)


def _end(where: Place, mode: Mode) -> None:
    """Under the lock: stop what runs here and clean up after it."""
    found = postmaster.running(where.data)
    if found is not None:
        if not postmaster.end(found, mode, timeout=_STOP_TIMEOUT):
            raise _not_stopped(where, found, mode)
        with contextlib.suppress(OSError):  # only left over, and ours to remove only if it is empty
            found.sockets.rmdir()
    where.facts.unlink(missing_ok=True)


def _not_stopped(where: Place, found: Postmaster, mode: Mode) -> EmbeddedError:
    if mode == "smart":
        todo = "It waits until its clients have gone: end them, or stop it with --mode fast."
    else:
        todo = f"Look at {where.log}, or stop it with --mode immediate."
    return EmbeddedError(
        f"the server on {where.data} (pid {found.pid}) was asked to stop ({mode}), "
        f"but still runs after {_STOP_TIMEOUT:g} s. {todo}"
    )


def _delete(where: Place) -> None:
    paths.remove_sockets(where.data)
    for tree in (where.data, where.unfinished):
        if tree.exists():
            shutil.rmtree(tree)
    for file in (where.log, where.log.with_name(f"{where.log.name}.1")):
        file.unlink(missing_ok=True)
    if where.is_elsewhere:
        where.note.unlink(missing_ok=True)
        where.base.rmdir()


def _resolved(folder: Path | None) -> Path:
    return (paths.default_folder() if folder is None else folder.expanduser()).resolve()


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise EmbeddedError(f"{folder} is not a folder. Name another one with --folder.") from None
    else:
        (folder / ".gitignore").write_text("*\n")


def _server(where: Place, found: Postmaster) -> Server:
    bindir = postmaster.program_of(found.pid).parent
    return Server(
        folder=where.folder,
        pid=found.pid,
        version=_version(where, found.pid, bindir),
        bindir=bindir,
        data=where.data,
        log=where.log,
        sockets=found.sockets,
        port=found.port,
        durable=cluster.is_durable(where),
    )


def _version(where: Place, pid: int, bindir: Path) -> str:
    """The version that is running: as published, else that of its program, else at least the major one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts = json.loads(where.facts.read_text())
        if facts["pid"] == pid:
            return str(facts["version"])
    return binaries.version_in(bindir) or str(cluster.data_major(where.data))


def _publish(server: Server) -> Server:
    """Write down what others need to connect: `url` and `pid` are a contract, the rest is for people."""
    paths.write_json(
        Place(server.folder, server.folder).facts,
        {
            "url": server.url(),
            "pid": server.pid,
            "version": server.version,
            "folder": str(server.folder),
            "data": str(server.data),
            "log": str(server.log),
            "bindir": str(server.bindir),
            "durable": server.durable,
        },
    )
    return server
