"""What user code can do to its worker, and what must become of it: real worker processes, one for each (X9)."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli, Process, eventually

Start = Callable[..., Process]

PAGE = Path(__file__).parents[2] / "docs" / "misdeeds.md"
QUICK = ("--lease", "3s", "--reap", "500ms", "--poll", "500ms")
ATTEMPT = {"fails": "failed", "is done": "done", "is lost, and made again": "lost"}
"""What the page says of an attempt, and its outcome."""


@dataclass(frozen=True)
class Misdeed:
    """One line of the page, and the function of misdeeds.py that does it."""

    name: str
    what: str
    attempt: str
    worker: Literal["goes on", "dies", "ends, and says why", "stops", "goes on until `holdfast stop`"]
    says: str = ""
    has_child: bool = False

    @property
    def line(self) -> str:
        return f"| {self.what} | {self.attempt} | {self.worker} |"


fails, done, lost = ATTEMPT
MISDEEDS = [
    Misdeed("sys_exit", "`sys.exit()` in a step", fails, "goes on"),
    Misdeed("sys_exit_in_a_thread", "… in a `def` step", fails, "goes on"),
    Misdeed("sys_exit_in_a_process", '… in a step with `executor="process"`', fails, "goes on"),
    Misdeed(
        "sys_exit_in_a_task_of_its_own", "… in an asyncio Task that a step has begun", done, "goes on", "SystemExit"
    ),
    Misdeed("sys_exit_in_a_callback", "… in a callback of the event loop", done, "goes on", "SystemExit"),
    Misdeed("stop_the_loop", "`loop.stop()`", done, "goes on", "the worker goes on"),
    Misdeed("close_the_loop", "`loop.close()`", fails, "goes on"),
    Misdeed("os_exit", "`os._exit()`, with whatever exit code", lost, "dies"),
    Misdeed("os_exit_in_a_process", '… in a step with `executor="process"`', fails, "goes on"),
    Misdeed("sigterm", "SIGTERM to its own process", done, "stops"),
    Misdeed("sigkill", "SIGKILL to its own process, a crash of an extension, no memory left", lost, "dies"),
    Misdeed("ignored_signals", "SIGTERM and SIGINT set to be ignored", done, "goes on until `holdfast stop`"),
    Misdeed("cancelled_error", "raises `CancelledError`", fails, "goes on"),
    Misdeed("cancelled_error_in_a_thread", "… in a `def` step", fails, "goes on"),
    Misdeed("keyboard_interrupt", "raises `KeyboardInterrupt`", fails, "goes on"),
    Misdeed("generator_exit", "raises `GeneratorExit`", fails, "goes on"),
    Misdeed("base_exception", "raises a `BaseException` of its own", fails, "goes on"),
    Misdeed("unspeakable", "raises an exception whose `__str__` raises a `BaseException`", fails, "goes on"),
    Misdeed("unspeakable_in_a_process", '… in a step with `executor="process"`', fails, "goes on"),
    Misdeed("endless_recursion", "never ends to recurse", fails, "goes on"),
    Misdeed("hook_raises", "a failure hook raises `CancelledError`", fails, "goes on"),
    Misdeed("cancel_itself", "cancels its own asyncio Task", fails, "goes on"),
    Misdeed(
        "cancel_everything",
        "cancels all asyncio Tasks of the loop",
        lost,
        "ends, and says why",
        "the worker was cancelled, and nobody asked it to stop",
    ),
    Misdeed("fork_and_return", "`os.fork()`, and the child returns from the step", done, "goes on", has_child=True),
    Misdeed("fork_and_wait", "… and the child awaits something", done, "goes on", has_child=True),
    Misdeed("fork_in_a_thread", "… in a `def` step", done, "goes on", has_child=True),
    Misdeed("fork_in_a_process", '… in a step with `executor="process"`', done, "goes on", has_child=True),
    Misdeed("fork_and_exit_in_a_process", "… whose process then dies, while the child lives on", fails, "goes on"),
    Misdeed("fork_and_die", "… and the worker is killed, while the child lives on", lost, "dies"),
    Misdeed("close_descriptors", "closes all descriptors", lost, "dies"),
    Misdeed("close_streams", "closes `sys.stdout` and `sys.stderr`", done, "goes on"),
    Misdeed("log_handler_raises", "a logging handler that raises", fails, "goes on", "a handler of the user"),
    Misdeed("log_filter_exits", "a logging filter that calls `sys.exit()`", fails, "goes on", "a filter of the user"),
    Misdeed("log_factory_raises", "a factory of log records that raises", fails, "goes on", "division by zero"),
    Misdeed("logging_shut_down", "`logging.shutdown()`", fails, "goes on"),
    Misdeed("locale_and_zone", "another locale and time zone, an empty environment", done, "goes on"),
    Misdeed("no_folder_no_rights", "another working directory and umask", done, "goes on"),
    Misdeed("odd_defaults", "warnings as errors, a default timeout of sockets, a low recursion limit", done, "goes on"),
    Misdeed("frozen_time", "`time.monotonic` and `time.time` frozen", done, "goes on"),
    Misdeed("sleepless_time", "`time.sleep` and `time.time` replaced", done, "goes on"),
]


def sql(cli: Cli, text: str, *values: object) -> list[tuple[Any, ...]]:
    with connect_sync(cli.url) as connection:
        return connection.execute(text.encode(), values or None).fetchall()


@pytest.fixture(autouse=True)
def app_file(project: Path) -> Iterator[None]:
    (project / "shop.py").write_text((Path(__file__).parent / "misdeeds.py").read_text())
    yield
    if Path("child").exists():
        with suppress(ProcessLookupError):
            os.kill(int(Path("child").read_text()), signal.SIGKILL)


def outcomes(cli: Cli, id: str) -> list[str | None]:
    found = sql(cli, "SELECT outcome FROM holdfast.attempts WHERE task_id = $1::uuid ORDER BY attempt", id)
    return [row[0] for row in found]


def ended(cli: Cli, id: str) -> str:
    """How its first attempt ended."""
    eventually(lambda: any(outcomes(cli, id)), "it has not ended")
    return str(outcomes(cli, id)[0])


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def at_work(cli: Cli) -> int:
    """The process that makes an attempt now."""
    id = cli.enqueue("who")
    eventually(lambda: outcomes(cli, id) == ["done"], "nobody works")
    pid = cli.show(id)["task"]["result"]
    assert isinstance(pid, int)
    return pid


@pytest.mark.parametrize("misdeed", [m for m in MISDEEDS if m.worker.startswith("goes on")], ids=lambda m: m.name)
def test_X9_what_a_worker_outlives(cli: Cli, start: Start, misdeed: Misdeed) -> None:
    worker = start("worker", "shop.py", "-c", "2", *QUICK, url=cli.url)
    assert at_work(cli) == worker.pid
    for _ in range(3):  # more often than it has slots: none is lost
        id = cli.enqueue(misdeed.name)
        assert ended(cli, id) == ATTEMPT[misdeed.attempt], cli.show(id)
    assert at_work(cli) == worker.pid, worker.stderr
    [(then,)] = sql(cli, "SELECT clock_timestamp()")
    beats = "SELECT 1 FROM holdfast.worker WHERE pid = $1 AND seen_at > $2"
    eventually(lambda: sql(cli, beats, worker.pid, then), f"its beat has ended:\n{worker.stderr}")
    if misdeed.has_child:
        child = int(Path("child").read_text())
        assert child != worker.pid
        eventually(lambda: not is_there(child), "the child goes on")
    if misdeed.says:
        worker.says(misdeed.says)
    if misdeed.worker == "goes on":
        worker.signal(signal.SIGTERM)
    else:
        cli("stop")
    assert worker.ended() == 0, worker.stderr


@pytest.mark.parametrize("misdeed", [m for m in MISDEEDS if m.attempt == lost], ids=lambda m: m.name)
def test_X9_what_ends_a_process_and_another_takes_over(cli: Cli, start: Start, misdeed: Misdeed) -> None:
    worker = start("worker", "shop.py", "--processes", "2", *QUICK, url=cli.url)
    eventually(lambda: sql(cli, "SELECT count(*) FROM holdfast.worker") == [(2,)], "they did not start")
    id = cli.enqueue(misdeed.name)
    eventually(lambda: outcomes(cli, id) == ["lost", "done"], f"it was not taken over:\n{worker.stderr}")
    worker.says("another one is started now")
    if misdeed.says:
        worker.says(misdeed.says)
        worker.says("ended with exit code 1")
    eventually(lambda: sql(cli, "SELECT count(*) FROM holdfast.worker") == [(3,)], "it was not replaced")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.stderr


def test_X9_a_step_that_stops_its_worker(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", *QUICK, url=cli.url)
    eventually(lambda: sql(cli, "SELECT count(*) FROM holdfast.worker") == [(2,)], "they did not start")
    id = cli.enqueue("sigterm")
    eventually(lambda: outcomes(cli, id) == ["done"], "it was not recorded")
    stopped = "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NOT NULL"
    eventually(lambda: sql(cli, stopped) == [(1,)], "it did not stop")
    assert at_work(cli) != worker.pid
    assert "another one is started" not in worker.stderr, "it was asked to stop"
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.stderr


def test_M19_a_forked_child_does_not_keep_what_a_killed_worker_had_open(cli: Cli, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    worker = start("worker", "shop.py", "--http", f"127.0.0.1:{port}", *QUICK, url=cli.url)
    worker.says(f"http://127.0.0.1:{port} has")
    cli.enqueue("fork_and_die")
    assert worker.ended() == -signal.SIGKILL
    assert is_there(int(Path("child").read_text()))
    of_it = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = ANY($1)"
    names = ["holdfast claim", "holdfast beat", "holdfast settle", "holdfast listen"]
    eventually(lambda: sql(cli, of_it, names) == [], "the server takes it for alive")
    socket.create_server(("127.0.0.1", port)).close()


def test_X9_the_page_says_just_this() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert lines[1:] == [misdeed.line for misdeed in MISDEEDS]
