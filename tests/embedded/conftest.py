"""Folders for embedded servers that are always stopped and deleted, and processes of their own."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from holdfast import embedded
from holdfast.embedded import binaries
from holdfast.embedded.account import Account, account_for

BECOME = "os.setgroups([]); os.setgid({user.gid}); os.setuid({user.uid})\n"
SOURCES = Path(embedded.__file__).parents[2]


class RunPython(Protocol):
    def __call__(
        self, code: str, *arguments: object, user: Account | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def _delete(folder: Path) -> None:
    if (folder / "embedded.json").exists():
        embedded.reset(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for a server; for root it lies where no other user can enter."""
    folder = tmp_path / "project" / ".holdfast"
    yield folder
    _delete(folder)


@pytest.fixture
def other_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "other" / ".holdfast"
    yield folder
    _delete(folder)


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A folder every user can enter. The servers in it are the test's own to delete."""
    root = Path(tempfile.mkdtemp(prefix="holdfast-test-")).resolve()
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def open_folder(open_root: Path) -> Iterator[Path]:
    """A folder for a server that every user can enter: the data lies in it, for root too."""
    folder = open_root / ".holdfast"
    yield folder
    _delete(folder)


@pytest.fixture
def python_environment() -> dict[str, str]:
    paths = [str(SOURCES), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@pytest.fixture
def run_python(python_environment: dict[str, str]) -> RunPython:
    """Run a program in a process of its own, and wait until it and its output have ended."""

    def run(code: str, *arguments: object, user: Account | None = None) -> subprocess.CompletedProcess[str]:
        # It becomes another user only after its imports: that user may not be able to read Python.
        become = f"import os, json, psycopg, holdfast.embedded\n{BECOME.format(user=user)}" if user else ""
        return subprocess.run(
            [sys.executable, "-B", "-c", become + code, *map(str, arguments)],
            env=python_environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def account() -> Account:
    """The user that runs servers in folders of this user."""
    return account_for()


@pytest.fixture
def nobody() -> Account:
    """An ordinary user."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a process as another user")
    entry = pwd.getpwnam("nobody")
    return Account("nobody", entry.pw_uid, entry.pw_gid)


@pytest.fixture
def nobody_with_postgres(nobody: Account) -> Account:
    """An ordinary user that can run the PostgreSQL we would choose."""
    initdb = next(binaries._bindirs()) / "initdb"
    if nobody.run(initdb, "--version").code:
        pytest.skip(f"the user nobody cannot run {initdb}")
    return nobody


@pytest.fixture
def small_disk(open_root: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a disk of the given size that every user can enter."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("only root on Linux can mount a small disk")
    disk = open_root / "disk"
    disk.mkdir()

    def mount(size: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        return disk

    yield mount
    if disk.is_mount():
        _delete(disk / ".holdfast")
        subprocess.run(["umount", str(disk)], check=True)
