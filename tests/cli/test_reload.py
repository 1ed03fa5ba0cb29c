"""Seeing that a file was saved: which files count, and how several saves are one."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TypeAlias

import pytest

from holdfast.cli.dev.reload import forget_bytecode, polled, saves, told, watched_folder


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("app.py", "shop/mail.py", "shop/deep/er/x.py", "pyproject.toml", "notes.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n")
    return tmp_path


def touch(file: Path) -> None:
    """A save, however coarse the clock of the file system is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    later = file.stat().st_mtime_ns + 1
    os.utime(file, ns=(later, later))


@pytest.fixture(params=["watchfiles", "polled"])
async def watched(request: pytest.FixtureRequest, files: Path) -> AsyncIterator["asyncio.Queue[set[Path]]"]:
    """What is seen of the files, with watchfiles and without."""
    seen: asyncio.Queue[set[Path]] = asyncio.Queue()

    async def watch() -> None:
        async for each in (saves if request.param == "watchfiles" else polled)(files, pytest.fail):
            seen.put_nowait(each)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    yield seen
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


Seen: TypeAlias = "asyncio.Queue[set[Path]]"


async def saved(watched: Seen) -> set[Path]:
    async with asyncio.timeout(60):
        return await watched.get()


async def test_python_files_and_the_project_file_are_watched(files: Path, watched: Seen) -> None:
    for name in ("app.py", "shop/deep/er/x.py", "pyproject.toml"):
        touch(files / "notes.txt")
        touch(files / name)
        assert await saved(watched) == {files / name}
    (files / "shop/mail.py").unlink()
    assert await saved(watched) == {files / "shop/mail.py"}
    touch(files / "shop/new.py")
    assert await saved(watched) == {files / "shop/new.py"}
    assert watched.empty()


@pytest.mark.parametrize(
    "name",
    [".git/hook.py", ".hidden.py", ".holdfast/x.py", "node_modules/x.py", "__pycache__/x.py", "env/lib/x.py"],
)
async def test_what_is_nobodys_code_is_not_watched(files: Path, watched: Seen, name: str) -> None:
    (files / "env").mkdir()
    (files / "env" / "pyvenv.cfg").touch()
    (files / "env" / "early.py").touch()  # listed before or after pyvenv.cfg
    touch(files / name)
    touch(files / "app.py")
    assert await saved(watched) == {files / "app.py"}


async def test_a_loop_of_links_and_a_link_to_nowhere_do_no_harm(files: Path, watched: Seen) -> None:
    (files / "shop" / "loop").symlink_to(files)
    touch(files / "app.py")
    assert await saved(watched) == {files / "app.py"}


async def test_files_saved_together_and_a_file_that_is_replaced_are_one_save(files: Path, watched: Seen) -> None:
    text = (files / "app.py").read_text()
    (files / "app.py").unlink()  # an editor that is not quick
    for n in range(10):
        await asyncio.sleep(0.02)
        touch(files / f"shop/new{n}.py")
    (files / "app.py").write_text(text + "y = 2\n")
    assert await saved(watched) == {files / "app.py", *(files / f"shop/new{n}.py" for n in range(10))}
    assert watched.empty()


async def test_files_that_never_come_to_rest_do_not_hold_up_a_reload(files: Path, watched: Seen) -> None:
    async def unrest() -> None:
        while True:
            touch(files / "app.py")
            await asyncio.sleep(0.01)

    busy = asyncio.create_task(unrest())
    assert await saved(watched) == {files / "app.py"}
    busy.cancel()


async def test_looking_at_many_files_is_warned_about(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.cli.dev.reload.SLOW", 0.0)
    warnings: list[str] = []
    looking = asyncio.ensure_future(anext(polled(files, warnings.append)))
    await asyncio.sleep(0)
    looking.cancel()
    assert len(warnings) == 1 and "4 files in" in warnings[0] and "holdfast[reload]" in warnings[0]


def test_the_watched_folder_is_the_project_around_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    (project / "src" / "shop").mkdir(parents=True)
    (project / "src" / "shop" / "__init__.py").touch()
    (project / "src" / "shop" / "app.py").touch()
    monkeypatch.chdir(project / "src")
    # Without a project: the folder that the package is in, or where we are.
    assert watched_folder("shop/app.py:app") == project / "src"
    assert watched_folder("shop.app:app") == project / "src"
    (project / "pyproject.toml").touch()
    assert watched_folder("shop/app.py") == project
    assert watched_folder("shop.app") == project
    assert watched_folder(None) == project
    monkeypatch.chdir(tmp_path)
    assert watched_folder("project/src/shop/app.py:app") == project
    # A whole home under git is no project.
    (tmp_path / ".git").mkdir()
    (project / "pyproject.toml").unlink()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert watched_folder("project/src/shop/app.py") == project / "src"


def test_what_was_compiled_from_saved_files_is_forgotten(files: Path) -> None:
    import py_compile

    compiled, other = (Path(cache_from_source(str(files / name))) for name in ("app.py", "shop/mail.py"))
    py_compile.compile(str(files / "app.py"), doraise=True)
    py_compile.compile(str(files / "shop/mail.py"), doraise=True)
    assert compiled.exists()
    forget_bytecode([files / "app.py", files / "gone.py", files / "pyproject.toml"])
    assert not compiled.exists()
    assert other.exists()


def test_files_are_named_in_few_words(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("b.py", "shop/a.py", "c.py")]
    assert told(files[:1], tmp_path) == "b.py"
    assert told(files[:2], tmp_path) == "b.py and shop/a.py"
    assert told(files, tmp_path) == "b.py and 2 other files"
