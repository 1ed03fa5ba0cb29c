"""Seeing that a file was saved: which files count, and how several saves are one."""

import asyncio
import os
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from holdfast.cli.dev.reload import Watcher, forget_bytecode, told, watched_folder


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


def test_python_files_and_the_project_file_are_watched(files: Path) -> None:
    watcher = Watcher(files)
    assert watcher.count == 4
    assert watcher.changes() == set()
    for name in ("app.py", "shop/deep/er/x.py", "pyproject.toml"):
        touch(files / name)
        assert watcher.changes() == {files / name}
    touch(files / "notes.txt")
    assert watcher.changes() == set()
    (files / "shop/mail.py").unlink()
    assert watcher.changes() == {files / "shop/mail.py"}
    touch(files / "shop/new/one.py")
    assert watcher.changes() == {files / "shop/new/one.py"}
    assert watcher.changes() == set()


@pytest.mark.parametrize(
    "name",
    [".git/hook.py", ".hidden.py", ".holdfast/x.py", "node_modules/x.py", "__pycache__/x.py", "env/lib/x.py"],
)
def test_what_is_nobodys_code_is_not_watched(files: Path, name: str) -> None:
    (files / "env").mkdir()
    (files / "env" / "pyvenv.cfg").touch()
    (files / "env" / "early.py").touch()  # listed before or after pyvenv.cfg
    watcher = Watcher(files)
    touch(files / name)
    assert watcher.count == 4
    assert watcher.changes() == set()
    touch(files / "app.py")
    assert watcher.changes() == {files / "app.py"}


def test_a_loop_of_links_and_a_folder_that_cannot_be_read_do_no_harm(files: Path) -> None:
    (files / "shop" / "loop").symlink_to(files)
    (files / "broken.py").symlink_to(files / "nowhere.py")
    watcher = Watcher(files)
    assert watcher.count == 4
    (files / "broken.py").unlink()
    assert watcher.changes() == set()


async def test_files_saved_together_and_a_file_that_is_replaced_are_one_change(files: Path) -> None:
    watcher = Watcher(files)
    waiting = asyncio.create_task(watcher.next_changes())
    text = (files / "app.py").read_text()
    (files / "app.py").unlink()  # an editor that is not quick
    for n in range(10):
        await asyncio.sleep(0.02)
        touch(files / f"shop/new{n}.py")
    (files / "app.py").write_text(text + "y = 2\n")
    async with asyncio.timeout(60):
        found = await waiting
    assert found == {files / "app.py", *(files / f"shop/new{n}.py" for n in range(10))}
    assert watcher.changes() == set()


async def test_files_that_never_come_to_rest_do_not_hold_up_a_reload(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.cli.dev.reload.LONGEST_UNREST", 0.5)
    watcher = Watcher(files)

    async def unrest() -> None:
        while True:
            touch(files / "app.py")
            await asyncio.sleep(0.01)

    busy = asyncio.create_task(unrest())
    async with asyncio.timeout(60):
        assert await watcher.next_changes() == {files / "app.py"}
    busy.cancel()


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
