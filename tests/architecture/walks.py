"""How many modules of Holdfast a task passes, traced with `sys.setprofile` on a real server.

Each walk is made once untraced, so that connections are open, statements are prepared and modules are imported. Of a
worker in the traced process, the loops that have nothing to do with the walk are left out by their names.
"""

import asyncio
import contextlib
import io
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import psycopg

import holdfast
from holdfast import App, Every, Retry
from holdfast.cli import main
from holdfast.testing import harness

SOURCE = str(Path(holdfast.__file__).parent) + os.sep
PATIENCE = 30.0
"""Seconds after which a walk gives up."""
BACKGROUND = {"holdfast " + each for each in ("tick", "learn", "maintain", "schedule", "reap", "idle", "worker")}
"""The asyncio tasks of a worker that go on beside any walk. Its heartbeat is a thread of its own."""
SCHEDULE = "holdfast schedule"


@dataclass
class Walk:
    """What was called, in order. Of a coroutine, each time it goes on counts as a call."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """The modules, in the order in which they came."""
        return list(dict.fromkeys(file for file, _ in self.calls))

    @property
    def figures(self) -> dict[str, Any]:
        changes = sum(a[0] != b[0] for a, b in zip(self.calls, self.calls[1:], strict=False))
        return {"files": len(self.files), "functions": len(set(self.calls)), "changes of file": changes}


@contextmanager
def traced(is_part: Callable[[], bool]) -> Iterator[Walk]:
    """Notes the calls into Holdfast that `is_part` of, in this thread and in threads that begin meanwhile."""
    walk = Walk()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE) and code.co_name != "<module>" and is_part():
            walk.calls.append((code.co_filename.removeprefix(SOURCE), code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _task_name() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    return "" if task is None else task.get_name()


def _in_front() -> bool:
    return "holdfast" not in threading.current_thread().name and _task_name() not in BACKGROUND


def _in_scheduler() -> bool:
    return _task_name() == SCHEDULE


app = App()


@app.task
async def hello(name: str) -> str:
    return f"Hello, {name}!"


@app.task(retry=Retry(1, delay="50ms"))
async def broken() -> None:
    raise ValueError("broken")


async def walks() -> dict[str, Walk]:
    """All walks by what they begin and end with."""
    with harness(app) as made:
        url = made.url
        async with app:
            found = {'hello.enqueue("Ada") until answered': await _twice(lambda: hello.enqueue("Ada"))}
        async with app, app.worker():
            found |= {
                "notification to the row in archive": await _twice(lambda: _from_sql_to_archive(url)),
                "enqueue, one retry, parked": await _twice(lambda: _until_parked(url)),
                "holdfast retry ID": await _retry(url),
            }
        app.schedule("walk", Every("1s"), hello.bind("Ada"), queue="elsewhere")
        async with app, app.worker():
            await _occurrence(url)
            with traced(_in_scheduler) as walk:
                await _occurrence(url)
            found["one schedule tick"] = walk
    return found


async def _twice(go: Callable[[], Awaitable[object]]) -> Walk:
    await go()
    await asyncio.sleep(0.5)  # the worker rests again
    with traced(_in_front) as walk:
        await go()
    return walk


async def _from_sql_to_archive(url: str) -> None:
    (id,) = await _ask(url, "SELECT holdfast.enqueue('hello', '{\"name\": \"Ada\"}')")
    await _until(url, "SELECT true FROM holdfast.archive WHERE id = %s", id)


async def _until_parked(url: str) -> UUID:
    ref = await broken.enqueue()
    await _until(url, "SELECT true FROM holdfast.task WHERE id = %s AND state = 'parked'", ref.id)
    return ref.id


async def _retry(url: str) -> Walk:
    """The command is run in a thread of its own, as it blocks; the worker is not part of the walk."""
    first, second = await _until_parked(url), await _until_parked(url)

    def retry(id: UUID) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            main.main(["--url", url, "retry", str(id)], standalone_mode=False)

    await asyncio.to_thread(retry, first)
    walk = Walk()

    def traced_retry() -> None:
        thread = threading.get_ident()
        with traced(lambda: threading.get_ident() == thread) as found:
            retry(second)
        walk.calls = found.calls

    await asyncio.to_thread(traced_retry)
    return walk


async def _occurrence(url: str) -> None:
    """Waits for the next occurrence and its task."""
    (count,) = await _ask(url, "SELECT count(*) FROM holdfast.occurrence WHERE task_id IS NOT NULL")
    await _until(url, "SELECT count(*) > %s FROM holdfast.occurrence WHERE task_id IS NOT NULL", count)


async def _until(url: str, question: str, *values: object) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await _ask(url, question, *values))[:1] != (True,):
            await asyncio.sleep(0.01)


async def _ask(url: str, question: Any, *values: object) -> tuple[Any, ...]:
    """Asks in a thread, on a connection that nothing traces."""

    def ask() -> tuple[Any, ...]:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(question, values or None).fetchone() or ()

    return await asyncio.to_thread(ask)
