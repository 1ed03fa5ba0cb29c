"""`holdfast demo`, as a user runs it in a fresh project."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import embedded

from .conftest import Process, eventually

Start = Callable[..., Process]


@pytest.fixture
def folder(project: Path, start: Start) -> Iterator[Path]:
    """Where the demo's server is. It is deleted after the processes have ended."""
    folder = project / ".holdfast"
    yield folder
    if (folder / "embedded.json").exists():
        embedded.reset(folder)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def worker_of(demo: Process) -> int:
    found = re.search(r"Process (\d+) runs", demo.stdout)
    assert found, demo.stdout
    return int(found[1])


def test_once_tells_everything_ends_and_leaves_nothing_running(start: Start, folder: Path) -> None:
    for _ in range(2):
        demo = start("demo", "--once")
        assert demo.ended() == 0, demo.stdout + demo.stderr
        told = demo.stdout
        assert "add gives 42" in told
        assert "Ada has a box with books" in told
        assert re.findall(r"attempt (\d)  ReadName  (\w+) .*No such file or directory", told) == [
            *((str(n), "retried") for n in range(1, 6)),
            ("6", "failed"),
        ]
        assert "Now it is parked" in told
        assert re.search(r"\$ holdfast retry [0-9a-f-]{36}\n", told)
        assert '"Hello, Ada!"' in told
        assert "\x1b" not in told
        assert not exists(worker_of(demo))
        assert embedded.find(folder) is None


def test_a_server_that_was_running_goes_on(start: Start, folder: Path) -> None:
    server = embedded.start(folder, durable=False)
    demo = start("demo", "--once", "--json")
    assert demo.ended() == 0, demo.stderr
    told = json.loads(demo.stdout)
    assert told["ok"] is True
    assert {task["state"] for task in told["tasks"]} == {"done"}
    found = embedded.find(folder)
    assert found is not None
    assert found.pid == server.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_stays_until_it_is_told_to_end(start: Start, folder: Path, number: signal.Signals) -> None:
    demo = start("demo")
    demo.says("Your turn")
    demo.says("holdfast stop --wait")
    tasks = start("tasks", "--kind", "greeter", "--json")  # it finds the database by itself
    assert tasks.ended() == 0, tasks.stderr
    assert json.loads(tasks.stdout)[0]["result"] == "Hello, Ada!"
    worker = worker_of(demo)
    assert exists(worker)
    demo.signal(number)
    assert demo.ended() == 0
    assert not exists(worker)
    assert embedded.find(folder) is None


def test_interrupted_in_the_middle_it_cleans_up(start: Start, folder: Path) -> None:
    demo = start("demo", "--once")
    demo.says("runs the tasks of that module")
    worker = worker_of(demo)
    demo.signal(signal.SIGINT)
    assert demo.ended() == 130
    eventually(lambda: not exists(worker), "the worker goes on")
    assert embedded.find(folder) is None


def test_a_demo_that_goes_wrong_says_so(start: Start, folder: Path, holdfast_url: str) -> None:
    """A worker that cannot work: the schema is there, but the demo's tables are broken."""
    from holdfast._db.connection import connect_sync

    with connect_sync(holdfast_url) as connection:
        connection.execute(b"alter table holdfast.worker rename to no_worker")
    demo = start("demo", "--once", "--url", holdfast_url)
    assert demo.ended() == 1
    assert "error: " in demo.stderr
    assert "Traceback" not in demo.stderr
