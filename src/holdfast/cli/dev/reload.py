"""Seeing that somebody saved a file: modification times are looked at every quarter of a second."""

import asyncio
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TypeAlias

PAUSE = 0.25
QUIET = 0.15
"""Seconds without a further change after which the saving of several files is over."""
LONGEST_UNREST = 3.0
SLOW = 5.0
SHARE = 30
"""Looking may take one part in so many of the time."""
NEVER = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamp: TypeAlias = tuple[int, int]
"""When a file was modified, and its size."""


class Watcher:
    """The Python files and pyproject.toml of a project, and what changed in them since the last look."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pause = PAUSE
        self._seen = self._look()

    @property
    def is_slow(self) -> bool:
        """Whether there is so much to look at that a save is noticed late."""
        return self._pause > SLOW

    @property
    def count(self) -> int:
        """How many files are watched."""
        return len(self._seen)

    def changes(self) -> set[Path]:
        """The files that were saved, made or removed since the last look."""
        before, self._seen = self._seen, self._look()
        return {Path(name) for name, _ in before.items() ^ self._seen.items()}

    async def next_changes(self) -> set[Path]:
        """Waits for the next save. Several files saved together are one; so is a file that is replaced by another."""
        while not (found := await asyncio.to_thread(self.changes)):  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(self._pause)
        until = time.monotonic() + LONGEST_UNREST
        while time.monotonic() < until:
            await asyncio.sleep(QUIET)
            more = await asyncio.to_thread(self.changes)
            if not more:
                break
            found |= more
        return found

    def _look(self) -> dict[str, Stamp]:
        began = time.monotonic()
        seen: dict[str, Stamp] = {}
        folders = [str(self.folder)]
        while folders:
            # A folder that is gone by now, or not ours to read, has nothing to say.
            with suppress(OSError), os.scandir(folders.pop()) as entries:
                folders += _look_into(entries, seen)
        self._pause = max(PAUSE, SHARE * (time.monotonic() - began))
        return seen


def _look_into(entries: Iterable["os.DirEntry[str]"], seen: dict[str, Stamp]) -> list[str]:
    """Notes the files of a folder, and gives the folders in it; none for a virtual environment."""
    inner: list[str] = []
    files: dict[str, Stamp] = {}
    for entry in entries:
        name = entry.name
        if name[0] == "." or name in NEVER:
            continue
        if name == "pyvenv.cfg":
            return []
        try:
            if name.endswith(".py") or name == "pyproject.toml":
                found = entry.stat()
                files[entry.path] = (found.st_mtime_ns, found.st_size)
            elif entry.is_dir(follow_symlinks=False):
                inner.append(entry.path)
        except OSError:  # it was removed a moment ago, or is a link to nowhere
            continue
    seen.update(files)
    return inner


def watched_folder(app: str | None) -> Path:
    """The project that an APP of the command line is in, else the folder it is in."""
    target = (app or "").rpartition(":")[0] or app or ""
    start = Path.cwd()
    if target.endswith(".py"):
        start = Path(target).resolve().parent
        while (start / "__init__.py").is_file():
            start = start.parent
    home = Path.home()
    for folder in (start, *start.parents):
        if folder in (home, Path(folder.anchor)):
            break  # somebody keeps his whole home under git
        if any((folder / sign).exists() for sign in ("pyproject.toml", ".git")):
            return folder
    return start


def forget_bytecode(files: Iterable[Path]) -> None:
    """Removes what Python compiled from these files.

    It takes a file for unchanged if its size and the second of its modification are the same: too coarse for a
    second save within a second.
    """
    for file in files:
        with suppress(OSError, NotImplementedError, ValueError):
            Path(cache_from_source(str(file))).unlink(missing_ok=True)


def told(files: Iterable[Path], folder: Path) -> str:
    """`hello.py`, `hello.py and mail.py`, `hello.py and 7 other files`."""
    names = sorted(str(each.relative_to(folder)) for each in files)
    if len(names) <= 2:
        return " and ".join(names)
    return f"{names[0]} and {len(names) - 1} other files"
