"""Turning what went wrong into an `EmbeddedError` that says what, why and what to do next."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import EmbeddedError

_CAUSES = (
    (
        r"no space left on device|disk quota exceeded",
        "the disk is full",
        "Free some space, or choose a folder on another disk with --folder.",
    ),
    (
        r"pre-existing shared memory block|is another postmaster|lock file .* already exists",
        "another server, or what is left of one, still uses this data",
        "End it (`holdfast pg stop`), or wait until its last process has gone, and start again.",
    ),
    (
        r"could not (create|map|resize).*shared memory|cannot allocate memory|could not allocate",
        "there is not enough memory",
        "Free some memory, or lower shared_buffers at the end of postgresql.conf in the data folder.",
    ),
    (
        r"permission denied|operation not permitted",
        "a permission is missing",
        "Check who owns the files named below, or choose another folder with --folder.",
    ),
    (
        r"database files are incompatible|could not locate a valid checkpoint|invalid (data|checksum)",
        "the data is damaged or was made by another build of PostgreSQL",
        "Restore a backup, or delete the data with `holdfast pg reset`.",
    ),
    (
        r"(unrecognized configuration|configuration file .* contains errors|invalid value for parameter)",
        "a setting in the data folder is wrong",
        "Correct postgresql.conf or postgresql.auto.conf in the data folder.",
    ),
)

# A start needs room for at least one segment of write-ahead log.
_ROOM_TO_START = 16 * 1024 * 1024


def failure(what: str, output: str, *, where: Path) -> EmbeddedError:
    """The error for a command of PostgreSQL that failed while working in `where`."""
    why, todo = _cause(output, where)
    lines = output.strip().splitlines()[-15:]
    said = "".join(f"\n    {line}" for line in lines) or " nothing"
    return EmbeddedError(f"{what}: {why}. {todo}\nIt said:{said}")


def _cause(output: str, where: Path) -> tuple[str, str]:
    for pattern, why, todo in _CAUSES:
        if re.search(pattern, output, re.IGNORECASE):
            return why, todo
    if _free_bytes(where) < _ROOM_TO_START:
        # On a full disk the log cannot be written either, so there may be no word about it.
        return _CAUSES[0][1:]
    return "the reason is in its last lines", "Correct that and start again."


def _free_bytes(where: Path) -> int:
    while not where.exists() and where != where.parent:
        where = where.parent
    return shutil.disk_usage(where).free


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn errors of the operating system into an `EmbeddedError` about this folder."""
    try:
        yield
    except OSError as error:
        raise EmbeddedError(_explain(error, folder)) from error


def _explain(error: OSError, folder: Path) -> str:
    path = error.filename or folder
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return f"cannot write {path}: the disk is full. {_CAUSES[0][2]}"
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"cannot use {path} for the embedded server in {folder}: {error.strerror}. "
                "Go to a folder that you may write to, run this as its owner, or name another folder with --folder."
            )
        case errno.ENOTDIR:
            return (
                f"{folder} cannot be a folder: there is a file in its place, or above it. "
                "Move that away, or choose another folder with --folder."
            )
        case _:
            return (
                f"the embedded server in {folder} met an error of the system: {error}. "
                "Correct that and try again, or choose another folder with --folder."
            )
