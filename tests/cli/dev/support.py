"""Apps to develop, and what becomes of the processes of `holdfast dev`."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast._db.driver.connection import connect_sync

from ..conftest import Cli, Process, eventually

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


def workers(cli: Cli) -> int:
    """How many workers live, as the database knows it."""
    with connect_sync(cli.url) as connection:
        row = connection.execute(b"select count(*) from holdfast.worker where stopped_at is null").fetchone()
    return int(row[0]) if row else 0
