"""The system user the server runs as, and running commands as that user.

PostgreSQL refuses to run as root. A process of root therefore hands every command of PostgreSQL to
an ordinary user that exists already; every other process runs them as itself.
"""

import contextlib
import errno
import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import EmbeddedError

_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended: its exit code and all it printed."""

    code: int
    output: str


@dataclass(frozen=True, slots=True)
class Account:
    """A system user."""

    name: str
    uid: int
    gid: int

    @property
    def is_me(self) -> bool:
        return self.uid == os.geteuid()

    def run(self, *command: str | Path, timeout: float = 300) -> Finished:
        """Run a command as this user, away from our terminal, our folder and our environment."""
        try:
            done = subprocess.run(
                command,
                user=None if self.is_me else self.uid,
                group=None if self.is_me else self.gid,
                extra_groups=None if self.is_me else [],
                cwd="/",
                env=_environment(),
                umask=0o077,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise EmbeddedError(
                f"{command[0]} did not end within {timeout:g} s. The machine or its disk may be overloaded: "
                "try again when it is calmer."
            ) from error
        except OSError as error:
            if not self.is_me and error.errno in (errno.EPERM, errno.EINVAL):
                raise EmbeddedError(
                    f"PostgreSQL refuses to run as root, and switching to the user {self.name!r} is "
                    f"not allowed here ({error.strerror}). Run this as an ordinary user, or give the URL of "
                    "a server."
                ) from error
            return Finished(126, str(error))
        return Finished(done.returncode, done.stdout)

    def can_enter(self, folder: Path) -> bool:
        """Whether this user can reach what lies in the folder. Tried, not computed: ACLs count too."""
        return self.run("/bin/sh", "-c", 'test -x "$1"', "sh", folder).code == 0

    def take(self, path: Path) -> None:
        """Make a file or folder of ours belong to this user."""
        if not self.is_me:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def make_private(self, folder: Path) -> None:
        """Create a folder only this user may enter. One that exists must be exactly that, and no symlink."""
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            self.check_private(folder)
        else:
            self.take(folder)

    def check_private(self, folder: Path) -> None:
        """Refuse a folder that another user could have prepared for us, or can look into."""
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            wrong = "it is not a folder"
        elif found.st_uid != self.uid:
            wrong = f"it belongs to {name_of(found.st_uid)}, not to {self.name}"
        elif found.st_mode & 0o077:
            wrong = "other users can enter it"
        else:
            return
        raise EmbeddedError(
            f"{folder} is not safe to use for the embedded server: {wrong}. "
            "Find out who made it, remove it, and start again."
        )


def account_for(*owned: Path) -> Account:
    """Who runs the server: this user; for root, the owner of the first of these that root does not own."""
    if os.geteuid() != 0:
        return Account(name_of(os.geteuid()), os.geteuid(), os.getegid())
    for path in owned:
        try:
            found = path.lstat()
        except FileNotFoundError:
            continue
        if found.st_uid != 0:
            return Account(name_of(found.st_uid), found.st_uid, found.st_gid)
    for account in _unprivileged():
        return account
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and this system has neither a user `postgres` nor `nobody` "
        "to run it. Run this as an ordinary user, or give the URL of a server."
    )


def is_trusted(account: Account, folder: Path) -> bool:
    """Whether this may be the user that runs the server of this folder: its owner, or one of our choice."""
    trusted = {folder.stat().st_uid, os.geteuid(), *(each.uid for each in _unprivileged())}
    return account.uid in trusted


def _unprivileged() -> list[Account]:
    found = []
    for name in _UNPRIVILEGED:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            found.append(Account(name, entry.pw_uid, entry.pw_gid))
    return found


def name_of(uid: int) -> str:
    """The name of a user, or its number when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _environment() -> dict[str, str]:
    """What commands of PostgreSQL get to see: no secrets of ours, no PG* settings, messages in English."""
    kept = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"LC_ALL": "C", "TZ": "UTC"}
