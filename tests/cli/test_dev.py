"""`holdfast dev` as a real process: it begins, reloads, meets trouble, and ends without leaving anything behind."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import embedded
from holdfast._db.connection import connect_sync

from .conftest import Cli, Process, eventually

Start = Callable[..., Process]

HELLO = """
from holdfast import App

app = App()

@app.task
async def hello(name: str) -> str:
    return f"Hello, {name}"
"""

SLOW = """
import asyncio, os, time
from pathlib import Path
from holdfast import App, Context

app = App()

@app.task
async def slow(ctx: Context, mark: str) -> str:
    Path(f"{mark}.{ctx.attempt}").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "VERSION 1"

@app.task
async def blocking(ctx: Context, mark: str) -> None:
    Path(f"{mark}.{ctx.attempt}").touch()
    time.sleep(600)

@app.task
async def crash(ctx: Context) -> None:
    os._exit(7)

@app.task(queue="mail")
async def mail(to: str) -> str:
    print("mail for", to)
    return f"sent to {to}"
"""


@pytest.fixture
def start(start: Start) -> Iterator[Start]:
    """As elsewhere; and whoever is left in the end is killed."""
    groups: list[int] = []

    def begin(*arguments: object, **more: Any) -> Process:
        process = start(*arguments, **more)
        groups.append(process.pid)
        return process

    yield begin
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@pytest.fixture
def folder(project: Path, start: Start) -> Iterator[Path]:
    """Where the embedded server is. It is deleted after the processes have ended."""
    folder = project / ".holdfast"
    yield folder
    if (folder / "embedded.json").exists():
        embedded.reset(folder)


def in_session(leader: int) -> list[int]:
    """The living processes of the session that a process leads, itself among them."""
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = each.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(each.parent.name))
    return found


def worker_of(process: Process) -> int:
    """The process id of the worker."""

    def look() -> list[int]:
        return [each for each in in_session(process.pid) if each != process.pid]

    eventually(look, "there is no worker process")
    return look()[0]


def interrupt(process: Process) -> None:
    """Ctrl-C at a terminal: everybody at it gets the signal."""
    os.killpg(process.pid, signal.SIGINT)


def all_have_ended(process: Process) -> None:
    eventually(lambda: not in_session(process.pid), f"processes are left: {in_session(process.pid)}")


def answer(cli: Cli, *arguments: str) -> Any:
    """The result of a task, once it has one."""
    return wait_for(cli, cli.enqueue(*arguments))


def wait_for(cli: Cli, id: str) -> Any:
    eventually(lambda: cli.show(id)["task"]["state"] == "done", f"task {id} is not done")
    return cli.show(id)["task"]["result"]


def edit(file: Path, old: str, new: str) -> None:
    """Saves as editors do: the new file takes the place of the old one."""
    text = file.read_text()
    assert old in text
    other = file.with_name(f".{file.name}.tmp")
    other.write_text(text.replace(old, new))
    other.replace(file)


@pytest.fixture
def dev(cli: Cli, start: Start, project: Path) -> Callable[..., Process]:
    """`holdfast dev` on the test's database, once it is ready."""

    def begin(code: str = SLOW, *options: object) -> Process:
        (project / "shop.py").write_text(code)
        process = start("dev", "shop.py", *options, url=cli.url)
        process.says('"loaded"' if "--json" in options else "Ctrl-C ends")
        eventually(lambda: workers(cli) == 1, "no worker has introduced itself")
        return process

    return begin


def workers(cli: Cli) -> int:
    """How many workers live, as the database knows it."""
    with connect_sync(cli.url) as connection:
        row = connection.execute(b"select count(*) from holdfast.worker where stopped_at is null").fetchone()
    return int(row[0]) if row else 0


# --- from the beginning to the end


def test_from_nothing_to_ctrl_c(start: Start, project: Path, folder: Path) -> None:
    file = project / "hello.py"
    file.write_text(HELLO)

    def enqueued(name: str) -> str:
        asked = start("enqueue", "hello", f"name={name}", "--wait")
        assert asked.ended() == 0, asked.stderr
        return asked.stdout.splitlines()[-1].strip('"')

    process = start("dev", "hello.py")
    process.says("Save a file to reload, Ctrl-C ends.")
    assert re.search(r"database  embedded PostgreSQL \d+ in \.holdfast\n", process.stdout)
    assert "%2F" not in process.stdout
    assert "holdfast enqueue hello name=…" in process.stdout
    assert enqueued("Ada") == "Hello, Ada"
    process.says("hello done in")
    process.says('→ "Hello, Ada"')
    edit(file, "Hello,", "Good morning,")
    process.says("hello.py saved: reloading")
    process.says("Reloaded in")
    assert enqueued("Bob") == "Good morning, Bob"
    edit(file, "return f", "return (f")
    process.says("SyntaxError: '(' was never closed")
    process.says("Waiting for the next save")
    assert "Traceback" not in process.stderr
    edit(file, "return (f", "return f")
    eventually(lambda: process.stdout.count("Reloaded in") == 2, "it was not reloaded after the repair")
    assert enqueued("Eve") == "Good morning, Eve"
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    assert embedded.find(folder) is None
    assert "PostgreSQL is stopped" in process.stdout


def test_a_server_that_ran_before_goes_on_and_one_that_ends_is_started_again(
    start: Start, project: Path, folder: Path
) -> None:
    (project / "hello.py").write_text(HELLO)
    server = embedded.start(folder, durable=False)
    process = start("dev", "hello.py")
    process.says("Ctrl-C ends")
    server.stop()
    process.says("PostgreSQL had ended: it is started again.")
    again = embedded.find(folder)
    assert again is not None
    asked = start("enqueue", "hello", "name=Ada", "--wait")
    assert asked.ended() == 0, asked.stderr
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert embedded.find(folder) is None  # that one was started by dev

    server = embedded.start(folder, durable=False)
    process = start("dev", "hello.py")
    process.says("Ctrl-C ends")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert "PostgreSQL is stopped" not in process.stdout
    found = embedded.find(folder)
    assert found is not None
    assert found.pid == server.pid


def test_outside_of_projects_it_is_the_users_server(
    start: Start, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").unlink()
    (project / "hello.py").write_text(HELLO)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "data" / "holdfast"
    try:
        process = start("dev", "hello.py")
        process.says("Ctrl-C ends")
        assert re.search(rf"embedded PostgreSQL \d+ in {re.escape(str(folder))}\n", process.stdout)
        assert embedded.find(folder) is not None
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
        assert embedded.find(folder) is None
    finally:
        embedded.reset(folder)


def test_interrupted_while_the_server_starts_it_leaves_none(start: Start, project: Path, folder: Path) -> None:
    (project / "hello.py").write_text(HELLO)
    process = start("dev", "hello.py")
    process.says("Starting PostgreSQL")
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    assert embedded.find(folder) is None
    assert "Traceback" not in process.stderr


# --- reloading


def test_a_step_in_flight_may_end_at_a_reload(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "60s")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says("Waiting for 1 step that runs, 60 s at most")
    Path("go").touch()
    process.says("Reloaded in")
    assert wait_for(cli, id) == "VERSION 1"  # by the code that had begun it
    told = cli.show(id)
    assert [each["outcome"] for each in told["attempts"]] == ["done"]
    assert (told["task"]["errors"], told["task"]["crashes"]) == (0, 0)
    assert answer(cli, "slow", "mark=again") == "VERSION 2"


def test_a_step_that_does_not_end_is_given_back_uncharged(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "100ms")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says("Reloaded in")
    eventually(Path("began.2").exists, "the step did not begin again")
    Path("go").touch()
    assert wait_for(cli, id) == "VERSION 2"
    told = cli.show(id)
    assert [each["outcome"] for each in told["attempts"]] == ["released", "done"]
    assert (told["task"]["errors"], told["task"]["crashes"]) == (0, 0)


def test_a_save_within_the_same_second_and_of_the_same_size_is_new_code(
    cli: Cli, dev: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python alone would take what it compiled before for up to date."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    file = Path("shop.py")
    file.write_text(HELLO)
    second = int(time.time()) - 100
    process = dev(HELLO)
    os.utime(file, ns=(second * 10**9, second * 10**9))
    process.says("Reloaded in")
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    other = file.with_name("other")
    other.write_text(HELLO.replace("Hello,", "Howdy,"))
    os.utime(other, ns=(second * 10**9 + 1, second * 10**9 + 1))
    other.replace(file)
    eventually(lambda: process.stdout.count("Reloaded in") == 2, "it was not reloaded")
    assert answer(cli, "hello", "name=Ada") == "Howdy, Ada"


def test_what_is_saved_while_a_worker_ends_is_loaded_with_the_rest(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "60s", "--json")
    cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says('"waiting"')
    edit(Path("shop.py"), "VERSION 2", "VERSION 3")
    Path("go").touch()
    eventually(lambda: process.stdout.count('"started"') >= 2, "it was not reloaded")
    assert answer(cli, "slow", "mark=again") == "VERSION 3"


def test_new_tasks_and_new_warnings_are_told_at_a_reload(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(HELLO)
    with Path("shop.py").open("a") as file:
        file.write(
            "\n@app.task(queue='mail')\nasync def mail(to: str, copies: int = 2) -> None: ...\n"
            "\nkind = app.kind('odd')\n\nfrom dataclasses import dataclass\n\n"
            "@kind.step\n@dataclass\nclass Odd:\n    n: int\n    def run(self) -> 'Nowhere': ...\n"
        )
    process.says("new: holdfast enqueue mail to=… copies:=2")
    process.says("new: holdfast enqueue odd.Odd n:=…")
    process.says("warning: odd.Odd: its return annotation names Nowhere")
    assert answer(cli, "mail", "to=Ada") is None  # its queue is served as well


def test_without_reload_nothing_is_watched(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(HELLO, "--no-reload")
    assert "Save a file" not in process.stdout
    edit(Path("shop.py"), "Hello,", "Howdy,")
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    process.signal(signal.SIGTERM)
    assert process.ended() == 0


# --- queues and databases


def test_all_declared_queues_are_served_and_what_steps_print_is_seen(
    cli: Cli, dev: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "4")
    process = dev(SLOW)
    with connect_sync(cli.url) as connection:
        rows = connection.execute(b"select slots, queues from holdfast.worker").fetchall()
    assert rows == [(4, ["default", "mail"])]
    assert "queues    default, mail" in process.stdout
    assert answer(cli, "mail", "to=Ada") == "sent to Ada"
    process.says("mail for Ada")


def test_chosen_queues_are_served_alone(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "-q", "other,default", "-c", "3", "--json")
    events = [json.loads(each) for each in process.stdout.splitlines()]
    [loaded] = [each for each in events if each["event"] == "loaded"]
    assert loaded["queues"] == ["other", "default"]
    assert "mail goes to the queue mail, which this worker does not serve: add -q mail" in process.stdout
    with connect_sync(cli.url) as connection:
        rows = connection.execute(b"select slots, queues from holdfast.worker").fetchall()
    assert rows == [(3, ["other", "default"])]


@pytest.mark.parametrize("how", ["HOLDFAST_URL", "pyproject.toml", "DATABASE_URL", "--url", "the App"])
def test_a_database_that_is_named_is_used_and_no_server_started(
    cli: Cli, start: Start, project: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    code, options = HELLO, []
    if how == "pyproject.toml":
        (project / how).write_text(f"[tool.holdfast]\nurl = '{cli.url}'\n")
    elif how == "--url":
        options = ["--url", cli.url]
    elif how == "the App":
        code = code.replace("App()", f"App('{cli.url}')")
    else:
        monkeypatch.setenv(how, cli.url)
    (project / "hello.py").write_text(code)
    process = start("dev", "hello.py", *options)
    process.says("Ctrl-C ends")
    assert "database  PostgreSQL at holdfast_test_" in process.stdout
    assert "%2F" not in process.stdout.partition("enqueue")[0]
    # A command that would not find the database by itself is told it.
    assert ("name=… --url" in process.stdout) == (how in ("--url", "the App"))
    assert not (project / ".holdfast").exists()
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    process.signal(signal.SIGTERM)
    assert process.ended() == 0


# --- trouble


def test_an_app_that_is_not_there_is_exit_code_2_at_once(start: Start, project: Path) -> None:
    (project / "no_app.py").write_text("x = 1\n")
    for arguments, text in (
        (["dev", "nowhere.py"], "nowhere.py does not exist"),
        (["dev", "no.where"], "there is no module 'no'"),
        (["dev", "no_app.py"], "there is no App in no_app.py"),
        (["dev"], "no APP was named"),
        (["dev", "no_app.py", "-c", "0"], "--concurrency"),
    ):
        process = start(*arguments)
        assert process.ended() == 2, process.stdout
        assert text in process.stderr
        assert "Traceback" not in process.stderr
    assert not (project / ".holdfast").exists()


def test_a_database_that_cannot_be_reached_is_exit_code_4(cli: Cli, start: Start, project: Path) -> None:
    (project / "hello.py").write_text(HELLO)
    process = start("dev", "hello.py", url="postgresql://joe:topsecret@127.0.0.1:1/shop")
    assert process.ended() == 4
    assert process.stderr.count("Is the server running") == 1
    assert "topsecret" not in process.stdout + process.stderr
    all_have_ended(process)


def test_code_that_cannot_be_loaded_at_the_beginning_is_waited_for(cli: Cli, start: Start, project: Path) -> None:
    (project / "shop.py").write_text("import nowhere_to_be_found\n" + HELLO)
    process = start("dev", "shop.py", url=cli.url)
    process.says("ModuleNotFoundError: No module named 'nowhere_to_be_found'")
    process.says("Waiting for the next save")
    (project / "nowhere_to_be_found.py").touch()
    process.says("Ctrl-C ends")
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"


def test_a_worker_that_dies_is_told_and_followed_by_another(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW)
    before = worker_of(process)
    cli.enqueue("crash")
    process.says("The worker ended with exit code 7.")
    eventually(lambda: in_session(process.pid) != [process.pid], "no other worker was started")
    assert worker_of(process) != before
    Path("go").touch()
    assert answer(cli, "slow", "mark=began") == "VERSION 1"
    os.kill(worker_of(process), signal.SIGKILL)
    process.says("The worker ended by SIGKILL.")
    assert answer(cli, "slow", "mark=again") == "VERSION 1"


def test_a_worker_that_was_asked_to_stop_comes_back_with_the_next_save(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW)
    cli("stop", "--wait")
    process.says("The worker was asked to stop. Save a file to start it again.")
    Path("shop.py").touch()
    process.says("Reloaded in")
    Path("go").touch()
    assert answer(cli, "slow", "mark=began") == "VERSION 1"


def test_a_blocked_event_loop_is_told_with_its_place_and_does_not_stop_a_reload(
    cli: Cli, dev: Callable[..., Process]
) -> None:
    process = dev(SLOW, "--grace", "100ms")
    id = cli.enqueue("blocking", "mark=began")
    process.says("s by blocking (")
    line = 1 + SLOW.splitlines().index("    time.sleep(600)")
    assert f"shop.py:{line})" in process.stderr
    assert "Write def instead of async def" in process.stderr
    assert f"task={id}" in process.stderr
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says("The worker did not end and was killed")
    Path("go").touch()
    assert answer(cli, "slow", "mark=began") == "VERSION 2"


# --- the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_ends_everything_gracefully(cli: Cli, dev: Callable[..., Process], number: signal.Signals) -> None:
    process = dev(SLOW, "--grace", "60s")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    os.killpg(process.pid, number)
    process.says("Waiting for 1 step")
    Path("go").touch()
    assert process.ended() == 0
    all_have_ended(process)
    assert cli.show(id)["task"]["result"] == "VERSION 1"
    assert workers(cli) == 0


def test_a_second_ctrl_c_ends_at_once_and_gives_back(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "1h")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    interrupt(process)
    process.says("Waiting for 1 step")
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    told = cli.show(id)
    assert [each["outcome"] for each in told["attempts"]] == ["released"]
    assert (told["task"]["state"], told["task"]["errors"], told["task"]["crashes"]) == ("ready", 0, 0)


def test_a_step_that_blocks_does_not_keep_it_from_ending(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "1h")
    cli.enqueue("blocking", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    interrupt(process)
    process.says("Ending")
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)


def test_killed_it_takes_worker_and_server_along(start: Start, project: Path, folder: Path) -> None:
    (project / "shop.py").write_text(SLOW)
    process = start("dev", "shop.py")
    process.says("Ctrl-C ends")
    worker = worker_of(process)
    process.signal(signal.SIGKILL)
    process.ended()
    all_have_ended(process)
    assert worker not in in_session(process.pid)
    eventually(lambda: embedded.find(folder) is None, "the server goes on")


def test_killed_while_it_loads_it_leaves_nothing(start: Start, project: Path) -> None:
    (project / "shop.py").write_text("import time\ntime.sleep(600)\n")
    process = start("dev", "shop.py")
    worker_of(process)
    process.signal(signal.SIGKILL)
    process.ended()
    all_have_ended(process)


def test_ended_while_it_loads_it_ends(start: Start, project: Path) -> None:
    (project / "shop.py").write_text(
        "import time\nfrom pathlib import Path\nPath('loading').touch()\ntime.sleep(600)\n"
    )
    process = start("dev", "shop.py")
    eventually(Path("loading").exists, "the code was not loaded")
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)


def test_ctrl_c_in_the_first_moment_of_a_worker_is_quiet(start: Start, project: Path) -> None:
    """The signal reaches a Python that has only just begun, and knows nothing of it yet."""
    (project / "shop.py").write_text(SLOW)
    process = start("dev", "shop.py")
    worker_of(process)
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    assert process.stderr == ""


def test_a_closed_terminal_ends_everything(cli: Cli, project: Path) -> None:
    (project / "shop.py").write_text(SLOW)
    terminal, other = pty.openpty()
    command = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, "-m", "holdfast.cli", "dev", "shop.py"],
        env={**os.environ, "HOLDFAST_URL": cli.url},
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    )
    os.close(other)
    try:
        told = b""
        while b"Ctrl-C ends" not in told:
            told += os.read(terminal, 4096)
        eventually(lambda: workers(cli) == 1, "no worker has introduced itself")
        assert b"\x1b[1mholdfast dev shop.py" in told  # in colour
        os.close(terminal)
        assert process.wait(90) == 0
        eventually(lambda: not in_session(process.pid), "processes are left")
        assert workers(cli) == 0
    finally:
        process.kill()
        process.wait()
