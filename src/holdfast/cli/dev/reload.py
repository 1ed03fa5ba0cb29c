"""Seeing that a file was saved: watchfiles tells it, or modification times are looked at if it is not installed."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TypeAlias

PAUSE = 0.25
"""Seconds between two looks, without watchfiles."""
QUIET = 0.15
"""Seconds without a further change after which the saving of several files is over."""
LONGEST_UNREST = 3.0
SLOW = 5.0
SHARE = 30
"""Looking may take one part in so many of the time."""
NEVER = frozenset({"__pycache__", "node_modules", "site-packages"})

Stamps: TypeAlias = dict[Path, tuple[int, int]]
"""When files were modified, and their sizes."""


async def saves(folder: Path, warn: Callable[[str], None]) -> AsyncIterator[set[Path]]:
    """The Python files and pyproject.toml of a project, as they are saved, made or removed.

    Several files saved together are one save; so is a file that is replaced by another. Nothing is overlooked from the
    first step of this generator on, before it first waits.
    """
    try:
        from watchfiles import awatch

        step, debounce = int(QUIET * 1000), int(LONGEST_UNREST * 1000)
        watched = awatch(folder, watch_filter=lambda _, path: is_code(Path(path), folder), step=step, debounce=debounce)
        async for changes in watched:
            yield {Path(path) for _, path in changes}
    except ImportError:
        pass
    except (OSError, RuntimeError) as error:  # such as too many folders for the operating system
        warn(f"watchfiles cannot watch {folder} ({error}), so modification times are looked at")
    async for files in polled(folder, warn):
        yield files


async def polled(folder: Path, warn: Callable[[str], None]) -> AsyncIterator[set[Path]]:
    """The same, by looking again and again."""
    began = time.monotonic()
    seen = _stamps(folder)
    pause = SHARE * (time.monotonic() - began)
    if pause > SLOW:
        warn(
            f"{len(seen):,} files in {folder} are watched, so a save is noticed late. For large projects: "
            "pip install 'holdfast[reload]'. A pyproject.toml in the folder of the App makes that its project."
        )
    changed: set[Path] = set()
    until = 0.0
    while True:
        await asyncio.sleep(QUIET if changed else max(PAUSE, pause))
        before, seen = seen, await asyncio.to_thread(_stamps, folder)
        new = {path for path, _ in before.items() ^ seen.items()}
        until = until if changed else time.monotonic() + LONGEST_UNREST
        changed |= new
        if changed and (not new or time.monotonic() > until):
            yield changed
            changed = set()


def is_code(path: Path, folder: Path) -> bool:
    """Whether a file is code of the project: not hidden, and not of a virtual environment."""
    inner = path.relative_to(folder)
    return (
        (path.suffix == ".py" or path.name == "pyproject.toml")
        and not any(part[0] == "." or part in NEVER for part in inner.parts)
        and not any((folder / each / "pyvenv.cfg").exists() for each in inner.parents)
    )


def _stamps(folder: Path) -> Stamps:
    found: Stamps = {}
    for at, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        folders[:] = [each for each in folders if each[0] != "." and each not in NEVER]
        for each in files:
            if each[0] != "." and (each.endswith(".py") or each == "pyproject.toml"):
                with suppress(OSError):  # it was removed a moment ago, or is a link to nowhere
                    stat = Path(at, each).stat()
                    found[Path(at, each)] = (stat.st_mtime_ns, stat.st_size)
    return found


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
