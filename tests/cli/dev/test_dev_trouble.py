"""`holdfast dev`: it meets trouble, and ends without leaving anything behind."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import embedded

from ..conftest import Cli, Process, eventually
from .support import HELLO, SLOW, Start, all_have_ended, answer, edit, in_session, interrupt, worker_of, workers

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
