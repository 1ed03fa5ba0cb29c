"""The life of an embedded server: started, shared, found, stopped, recovered."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import embedded
from holdfast.embedded import Server, postmaster, server
from holdfast.embedded.account import Account
from holdfast.errors import EmbeddedError
from holdfast.testing import server as servers

from .conftest import RunPython

START = """
import sys, pathlib
from holdfast import embedded
print(embedded.start(pathlib.Path(sys.argv[1]), durable=False).pid)
"""


def ask(where: Server, query: str) -> Any:
    with psycopg.connect(where.url()) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


def facts(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "server.json").read_text()))


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")


@contextmanager
def sleeping(account: Account) -> Iterator[int]:
    """A living process that is no PostgreSQL, of the user that runs PostgreSQL."""
    mine = account.is_me
    process = subprocess.Popen(
        ["sleep", "600"], user=None if mine else account.uid, group=None if mine else account.gid, cwd="/"
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_first_start_sets_up_a_server_that_takes_connections(folder: Path) -> None:
    started = embedded.start(folder)
    assert ask(started, "select 1") == 1
    assert ask(started, "show server_version") == started.version
    assert ask(started, "select pg_backend_pid()") != started.pid
    assert ask(started, "show data_directory") == str(started.data)
    assert started.folder == folder
    assert started.durable
    assert (started.bindir / "postgres").is_file()
    assert "ready to accept connections" in started.log.read_text()


def test_the_facts_are_published_for_the_owner_only(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    published = facts(folder)
    assert published["url"] == started.url("postgres")
    assert published["pid"] == started.pid
    assert published["version"] == started.version
    assert (folder / "server.json").stat().st_mode & 0o777 == 0o600
    assert int((started.data / "postmaster.pid").read_text().splitlines()[0]) == published["pid"]


def test_the_settings(folder: Path) -> None:
    started = embedded.start(folder)
    expected = {
        "listen_addresses": "",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "timezone": "UTC",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "server_encoding": "UTF8",
    }
    assert {name: ask(started, f"show {name}") for name in expected} == expected
    assert ask(started, "select upper('ä')") == "Ä"


def test_the_socket_is_private_and_short(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    socket = started.sockets / f".s.PGSQL.{started.port}"
    assert socket.is_socket()
    assert len(os.fsencode(socket)) <= 103
    assert started.sockets.stat().st_mode & 0o777 == 0o700
    assert started.sockets.stat().st_uid == started.data.stat().st_uid


def test_not_durable_is_fast_and_unsafe(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    assert not started.durable
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert ask(started, f"show {setting}") == "off"


def test_asking_for_durability_makes_a_running_server_durable(folder: Path) -> None:
    first = embedded.start(folder, durable=False)
    second = embedded.start(folder, durable=True)
    assert second.pid == first.pid
    assert second.durable
    # A reload reaches the server by a signal; the log says when it has been read.
    while "received SIGHUP, reloading" not in first.log.read_text():
        pass
    with psycopg.connect(first.url(), autocommit=True) as connection:
        while connection.execute("show fsync").fetchone() != ("on",):
            pass


def test_a_running_server_never_becomes_less_durable(folder: Path) -> None:
    embedded.start(folder, durable=True)
    again = embedded.start(folder, durable=False)
    assert again.durable
    assert ask(again, "show fsync") == "on"


def test_a_second_start_gives_the_same_server(folder: Path, run_python: RunPython) -> None:
    first = embedded.start(folder, durable=False)
    assert embedded.start(folder, durable=False) == first
    elsewhere = run_python(START, folder)
    assert elsewhere.stdout.split() == [str(first.pid)], elsewhere.stderr


def test_processes_that_start_at_once_share_one_server(folder: Path, python_environment: dict[str, str]) -> None:
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(folder)],
            env=python_environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    outputs = [starter.communicate(timeout=120) for starter in starters]
    assert [starter.returncode for starter in starters] == [0] * 4, outputs
    found = embedded.find(folder)
    assert found is not None
    assert [out.strip() for out, _ in outputs] == [str(found.pid)] * 4
    assert found.log.read_text().count("ready to accept connections") == 1


def test_the_server_survives_the_end_of_its_starter(folder: Path, run_python: RunPython) -> None:
    # Its output ends only when nobody holds it any more: the server must not.
    starter = run_python(START, folder)
    assert starter.returncode == 0, starter.stderr
    found = embedded.find(folder)
    assert found is not None
    assert found.pid == int(starter.stdout)
    assert ask(found, "select 1") == 1


def test_ctrl_c_in_the_starters_terminal_does_not_reach_the_server(
    folder: Path, python_environment: dict[str, str]
) -> None:
    code = START + "\nsys.stdout.flush(); import time; time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        env=python_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        groups = os.getpgid(pid), os.getpgid(starter.pid)
        sessions = os.getsid(pid), os.getsid(starter.pid)
        os.killpg(starter.pid, signal.SIGINT)
        assert starter.wait(timeout=60) != 0
    assert groups[0] != groups[1]
    assert sessions[0] != sessions[1]
    found = embedded.find(folder)
    assert found is not None
    assert found.pid == pid
    assert ask(found, "select 1") == 1


def test_the_server_sees_nothing_of_the_starters_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_SECRET", "hunter2")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGHOST", "nowhere.invalid")
    started = embedded.start(folder, durable=False)
    assert ask(started, "select 1") == 1
    if sys.platform == "linux":
        assert b"hunter2" not in Path(f"/proc/{started.pid}/environ").read_bytes()


def test_find_knows_only_running_servers_and_starts_none(folder: Path) -> None:
    assert embedded.find(folder) is None
    assert not folder.exists()
    started = embedded.start(folder, durable=False)
    assert embedded.find(folder) == started
    started.stop()
    assert embedded.find(folder) is None
    assert not is_running(started.pid)


def test_stop_leaves_nothing_but_the_data(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    started.stop()
    assert not is_running(started.pid)
    assert not (folder / "server.json").exists()
    assert not started.sockets.exists()
    assert (started.data / "PG_VERSION").exists()
    started.stop()  # once more is no error


@pytest.mark.parametrize("mode", ["smart", "fast", "immediate"])
def test_data_survives_every_way_to_stop(folder: Path, mode: embedded.Mode) -> None:
    started = embedded.start(folder, durable=True)
    with psycopg.connect(started.url()) as connection:
        connection.execute("create table kept as select 42 as answer")
    started.stop(mode)
    assert not is_running(started.pid)
    again = embedded.start(folder, durable=True)
    assert again.pid != started.pid
    assert ask(again, "select answer from kept") == 42
    assert ("automatic recovery in progress" in again.log.read_text()) == (mode == "immediate")


def test_a_smart_stop_waits_for_clients_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STOP_TIMEOUT", 0.3)
    started = embedded.start(folder, durable=False)
    with psycopg.connect(started.url()) as client:
        with pytest.raises(EmbeddedError, match=r"waits until its clients have gone.*--mode fast"):
            started.stop("smart")
        assert client.execute("select 1").fetchone() == (1,)
    monkeypatch.undo()
    started.stop("fast")
    assert not is_running(started.pid)


def test_restart_keeps_the_url_and_the_durability(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    before, url = started.pid, started.url()
    started.restart("immediate")
    assert started.pid != before
    assert started.url() == url
    assert not started.durable
    assert ask(started, "select 1") == 1
    assert facts(folder)["pid"] == started.pid


def test_a_killed_server_is_not_found_and_starts_again(folder: Path) -> None:
    started = embedded.start(folder, durable=True)
    with psycopg.connect(started.url()) as connection:
        connection.execute("create table kept as select 42 as answer")
    os.kill(started.pid, signal.SIGKILL)
    while is_running(started.pid):
        pass
    assert (folder / "server.json").exists()
    assert (started.data / "postmaster.pid").exists()
    assert embedded.find(folder) is None
    again = embedded.start(folder, durable=True)
    assert again.pid != started.pid
    assert ask(again, "select answer from kept") == 42
    assert facts(folder)["pid"] == again.pid


def test_a_server_that_is_just_ending_is_started_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed is there for a moment longer."""
    started = embedded.start(folder, durable=False)
    dying = postmaster.running(started.data)
    started.stop("immediate")
    running = postmaster.running
    looks = [dying]
    monkeypatch.setattr(postmaster, "running", lambda data: looks.pop() if looks else running(data))
    again = embedded.start(folder, durable=False)
    assert not looks
    assert again.pid != started.pid
    assert embedded.find(folder) == again


def test_a_pid_that_now_belongs_to_another_program_confuses_nobody(folder: Path, account: Account) -> None:
    started = embedded.start(folder, durable=False)
    pid_file = started.data / "postmaster.pid"
    published, claimed = (folder / "server.json").read_text(), pid_file.read_text()
    started.stop()
    with sleeping(account) as pid:
        old = str(started.pid)
        (folder / "server.json").write_text(published.replace(old, str(pid)))
        pid_file.write_text(claimed.replace(old, str(pid)))
        account.take(pid_file)
        assert embedded.find(folder) is None
        started.stop()
        assert is_running(pid)
        pid_file.write_text(claimed.replace(old, str(pid)))
        account.take(pid_file)
        again = embedded.start(folder, durable=False)
        assert again.pid != pid
        assert ask(again, "select 1") == 1
        assert is_running(pid)


def test_a_pid_that_now_belongs_to_another_server_confuses_nobody(folder: Path, other_folder: Path) -> None:
    other = embedded.start(other_folder, durable=False)
    started = embedded.start(folder, durable=False)
    claimed = (started.data / "postmaster.pid").read_text()
    started.stop()
    shutil.copy(other_folder / "server.json", folder / "server.json")
    (started.data / "postmaster.pid").write_text(claimed.replace(str(started.pid), str(other.pid), 1))
    assert embedded.find(folder) is None
    again = embedded.start(folder, durable=False)
    assert again.pid != other.pid
    again.stop()
    assert embedded.find(other_folder) == other


def test_lost_facts_are_found_and_published_again(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    (folder / "server.json").unlink()
    assert embedded.find(folder) == started
    assert embedded.start(folder, durable=False) == started
    assert facts(folder)["pid"] == started.pid


def test_a_setup_that_was_interrupted_is_done_anew(open_folder: Path) -> None:
    open_folder.mkdir()
    (open_folder / "postgres.unfinished").mkdir(mode=0o700)
    (open_folder / "postgres.unfinished" / "PG_VERSION").write_text("half of it")
    started = embedded.start(open_folder, durable=False)
    assert ask(started, "select 1") == 1
    assert not (open_folder / "postgres.unfinished").exists()


def test_a_folder_with_a_difficult_name(open_root: Path) -> None:
    folder = open_root / 'it\'s "a" $HOME `id` 100% \\ ü'
    try:
        started = embedded.start(folder, durable=False)
        assert started.data.parent == folder
        assert ask(started, "show data_directory") == str(started.data)
        assert embedded.find(folder) == started
    finally:
        embedded.reset(folder)


def test_a_moved_folder_keeps_its_data(open_folder: Path, open_root: Path) -> None:
    started = embedded.start(open_folder, durable=False)
    with psycopg.connect(started.url()) as connection:
        connection.execute("create table kept as select 42 as answer")
    started.stop()
    moved = open_folder.rename(open_root / "moved")
    try:
        again = embedded.start(moved, durable=False)
        assert ask(again, "select answer from kept") == 42
    finally:
        embedded.reset(moved)


def test_a_copy_of_a_running_servers_folder_is_not_running(open_folder: Path, open_root: Path) -> None:
    started = embedded.start(open_folder, durable=False)
    copy = Path(shutil.copytree(open_folder, open_root / "copy", ignore=shutil.ignore_patterns("lock")))
    assert facts(copy)["pid"] == started.pid
    assert embedded.find(copy) is None


def test_names_of_databases_are_quoted_in_urls(folder: Path) -> None:
    started = embedded.start(folder, durable=False)
    with psycopg.connect(started.url(), autocommit=True) as connection:
        connection.execute('create database "a b/ü?&%"')
    with psycopg.connect(started.url("a b/ü?&%")) as connection:
        assert connection.info.dbname == "a b/ü?&%"


@pytest.mark.parametrize("sign", [".holdfast/", "pyproject.toml", ".git/", ".git"])
def test_the_default_folder_is_that_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    inside = tmp_path / "project" / "src" / "shop"
    inside.mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()  # further away: must not win
    path = tmp_path / "project" / sign
    if sign.endswith("/"):
        path.mkdir()
    else:
        path.touch()
    monkeypatch.chdir(inside)
    assert embedded.default_folder() == tmp_path / "project" / ".holdfast"


def test_a_folder_without_any_sign_is_a_project_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scratch folders never share a server, and what lies below one that has a server belongs to it."""
    shop, mail = tmp_path / "shop", tmp_path / "mail"
    for folder in (shop / "below", mail):
        folder.mkdir(parents=True)
    (tmp_path / ".holdfast").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (shop, mail):
        monkeypatch.chdir(folder)
        assert embedded.default_folder() == folder / ".holdfast"
    (shop / ".holdfast").mkdir()
    monkeypatch.chdir(shop / "below")
    assert embedded.default_folder() == shop / ".holdfast"


@pytest.mark.parametrize("shared", ["home", "above home", "writable for all"])
@pytest.mark.parametrize("sign", [".holdfast", ".git"])
def test_a_folder_that_many_programs_share_is_a_project_for_itself_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str, sign: str
) -> None:
    inside = tmp_path / "shop"
    inside.mkdir()
    (tmp_path / sign).mkdir()
    monkeypatch.setenv("HOME", str({"home": tmp_path, "above home": tmp_path / "ada"}.get(shared, "/nowhere")))
    if shared == "writable for all":
        tmp_path.chmod(0o1777)
    monkeypatch.chdir(inside)
    assert embedded.default_folder() == inside / ".holdfast"
    monkeypatch.chdir(tmp_path)
    assert embedded.default_folder() == tmp_path / ".holdfast"


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(EmbeddedError, match="current folder no longer exists"):
        embedded.find()


def test_without_a_folder_the_default_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    try:
        started = embedded.start(durable=False)
        assert started.folder == tmp_path / ".holdfast"
        assert embedded.find() == started
        assert (tmp_path / ".holdfast" / ".gitignore").read_text() == "*\n"
    finally:
        embedded.reset()
    assert embedded.find() is None


def test_the_server_of_a_killed_test_run_is_ended_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    abandoned, running = tmp_path / "holdfast-test-a", tmp_path / "holdfast-test-b"
    for folder, owner in ((abandoned, ended.pid), (running, os.getpid())):
        folder.mkdir()
        (folder / "owner").write_text(str(owner))
    started = embedded.start(abandoned, durable=False)
    try:
        servers._clear_abandoned()
        assert not abandoned.exists() and running.exists()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(started.url())
    finally:
        if abandoned.exists():
            embedded.reset(abandoned)
