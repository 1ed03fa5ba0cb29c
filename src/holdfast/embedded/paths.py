"""Where an embedded server keeps its files, and the lock that makes its processes take turns."""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast._db.config.resolve import embedded_folder
from holdfast.embedded.account import Account, account_for, is_trusted, name_of
from holdfast.errors import EmbeddedError

_MARKER = "embedded.json"
_LOCK_TIMEOUT = 300.0
# `.s.PGSQL.5432` in this folder must fit in the 104 bytes some systems have for the path of a socket.
_SOCKET_FOLDER_LIMIT = 103 - len("/.s.PGSQL.5432")
_SOCKET_ROOTS = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - the folder in it is private and checked
# Systems clean up /var/tmp after some weeks: good for tests, wrong for data that is to stay.
_LASTING = Path("/var/lib")
_PASSING = Path("/var/tmp")  # noqa: S108 - as above


@dataclass(frozen=True, slots=True)
class Place:
    """The files of one embedded server. `base` is the folder itself, or a stand-in its user can enter."""

    folder: Path
    base: Path

    @property
    def data(self) -> Path:
        return self.base / "postgres"

    @property
    def unfinished(self) -> Path:
        """The data while initdb works on it."""
        return self.base / "postgres.unfinished"

    @property
    def log(self) -> Path:
        return self.base / "postgres.log"

    @property
    def note(self) -> Path:
        """Beside data that is elsewhere: the folder it belongs to."""
        return self.base / "folder.txt"

    @property
    def facts(self) -> Path:
        return self.folder / "server.json"

    @property
    def is_elsewhere(self) -> bool:
        return self.base != self.folder


def default_folder() -> Path:
    """`.holdfast` of the project around the current folder, else of the current folder itself."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise EmbeddedError("the current folder no longer exists. Go to another, or use --folder.") from None
    return embedded_folder()


def recorded(folder: Path) -> Place | None:
    """The place written down in this folder, or None where no server of ours was ever set up."""
    try:
        base = json.loads((folder / _MARKER).read_text())["base"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise EmbeddedError(
            f"{folder / _MARKER} cannot be understood, so it is not known where the data is. "
            f"Remove this file and the data beside it, and start anew. ({error!r})"
        ) from error
    if base is None:
        return Place(folder, folder)
    # Root deletes what this file names, and its owner may be somebody else: only our own names count.
    if Path(base) not in _elsewhere(folder):
        raise EmbeddedError(
            f"{folder / _MARKER} says that the data is in {base}, which is not a place for this folder. "
            "Was the folder moved or copied? Move it back, or start anew with `holdfast pg reset`."
        )
    return Place(folder, Path(base))


def settle(folder: Path, *, durable: bool) -> tuple[Place, Account]:
    """Decide where the data is to be and who is to run the server, and write it down. Under the lock."""
    place = recorded(folder)
    if place is not None:
        account = account_for(place.data, place.base)
        _check_owner(place.base if place.is_elsewhere else place.data, account)
        if place.data.is_dir():
            _check_reach(place, account)
            return place, account
    elif (folder / "postgres").exists():
        raise EmbeddedError(
            f"{folder / 'postgres'} exists, but not by our doing. Choose another folder with --folder, or move it away."
        )
    account = account_for(folder)
    if account.is_me or account.can_enter(folder):
        _mark(folder, None)
        return Place(folder, folder), account
    base = _stand_in(folder, durable=durable)
    _mark(folder, base)
    account.make_private(base)
    if not account.can_enter(base):
        raise EmbeddedError(
            f"the user {account.name!r}, who is to run the server, can enter neither {folder} nor {base}. "
            "Choose a folder that user can enter with --folder."
        )
    place = Place(folder, base)
    write_private(place.note, f"{folder}\n", account)
    return place, account


def forget(folder: Path) -> None:
    """Write down that this folder is ours, but that there is no data elsewhere any more."""
    _mark(folder, None)


def stand_ins(folder: Path) -> list[Place]:
    """The places outside of the folder that hold, or once held, its data."""
    return [Place(folder, base) for base in _elsewhere(folder) if base.is_dir()]


def is_marked(folder: Path) -> bool:
    return (folder / _MARKER).is_file()


def _mark(folder: Path, base: Path | None) -> None:
    about = "The embedded PostgreSQL of Holdfast. Delete its data with `holdfast pg reset`."
    write_json(folder / _MARKER, {"about": about, "base": base and str(base)})


def _elsewhere(folder: Path) -> tuple[Path, Path]:
    name = f"holdfast-{_hash(folder)}"
    return _LASTING / name, _PASSING / name


def _stand_in(folder: Path, *, durable: bool) -> Path:
    lasting, passing = _elsewhere(folder)
    return lasting if durable and os.access(_LASTING, os.W_OK) else passing


def _check_owner(path: Path, account: Account) -> None:
    try:
        owner = path.lstat().st_uid
    except FileNotFoundError:
        return
    if owner != account.uid:
        raise EmbeddedError(
            f"the data in {path} belongs to the user {name_of(owner)!r}, and you are {account.name!r}. "
            "Run this as that user or as root, or choose another folder with --folder."
        )


def _check_reach(place: Place, account: Account) -> None:
    if place.is_elsewhere:
        account.check_private(place.base)
        if not is_trusted(account, place.folder):
            raise EmbeddedError(
                f"{place.base} is not safe to use for the embedded server: it was made by {account.name!r}. "
                "Find out why, remove it, and start again."
            )
    if not account.is_me and not account.can_enter(place.data):
        raise EmbeddedError(
            f"the user {account.name!r}, who owns the data in {place.data}, can no longer enter that folder. "
            "Give back the permission to enter the folders above it, or start anew with `holdfast pg reset`."
        )


def _socket_folders(data: Path, uid: int) -> list[Path]:
    roots = dict.fromkeys((Path(tempfile.gettempdir()).resolve(), *_SOCKET_ROOTS))
    return [root / f"holdfast-{_hash(data, str(uid))}" for root in roots]


def remove_sockets(data: Path) -> None:
    """Remove what a server that was killed left of its socket. Only when nothing is running."""
    with contextlib.suppress(FileNotFoundError):
        uid = data.lstat().st_uid
        for folder in _socket_folders(data, uid):
            with contextlib.suppress(OSError):  # not there, or not empty: then it is not ours alone
                if folder.lstat().st_uid == uid and not folder.is_symlink():
                    for socket in folder.glob(".s.PGSQL.*"):
                        socket.unlink()
                    folder.rmdir()


def socket_folder(data: Path, account: Account) -> Path:
    """A private folder for the socket, with a path short enough for one."""
    refused = []
    for folder in _socket_folders(data, account.uid):
        if len(os.fsencode(folder)) > _SOCKET_FOLDER_LIMIT:
            refused.append(f"{folder} is too long a path for a socket ({_SOCKET_FOLDER_LIMIT} bytes at most)")
        elif not account.can_enter(folder.parent):
            refused.append(f"the user {account.name!r} cannot enter {folder.parent}")
        else:
            try:
                account.make_private(folder)
            except (OSError, EmbeddedError) as error:
                refused.append(str(error))
            else:
                return folder
    raise EmbeddedError(
        f"there is no place for the server's socket: {'; '.join(refused)}. "
        "Set TMPDIR to a short path every user can enter, and start again."
    )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: one process at a time starts, stops or resets the server."""
    path = folder / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _give_to_owner(fd, folder)
        deadline = time.monotonic() + _LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise EmbeddedError(
                        f"another process has held {path} for {_LOCK_TIMEOUT:g} s: it starts or stops "
                        f"the server, or hangs. Find it with `fuser {path}`, end it, and try again."
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(fd)


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write a small private file; readers see all of it or the one before."""
    write_private(path, json.dumps(content, indent=2) + "\n")


def write_private(path: Path, text: str, account: Account | None = None) -> None:
    """Replace a file by one only its owner reads: the account, or the owner of the folder it is in."""
    fd, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            if account is not None:
                account.take(Path(name))
            else:
                _give_to_owner(fd, path.parent)
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.replace(name, path)  # noqa: PTH105 - of a name, not a Path
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _give_to_owner(fd: int, folder: Path) -> None:
    """What root writes into somebody's folder is to be readable by that somebody."""
    if os.geteuid() == 0 and os.fstat(fd).st_nlink == 1:
        owner = folder.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _hash(path: Path, *more: str) -> str:
    return hashlib.sha256("\0".join((str(path), *more)).encode("utf-8", "surrogateescape")).hexdigest()[:12]
