"""What the tests of workers share: waiting, workers beside a test, workers as processes, and the oracle."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from faults import history
from faults.checker import INVARIANTS
from faults.oracle import read_lines as read_lines
from faults.oracle import write_line as write_line
from holdfast._db.driver.connection import connect_sync
from holdfast._engine.worker import Worker
from holdfast.errors import DatabaseUnreachable
from holdfast.testing import Harness

PATIENCE = 60.0
"""Seconds after which a wait gives up. No test depends on how long anything takes."""
TESTS = Path(__file__).parents[1]
SOURCES = os.pathsep.join([str(TESTS), str(TESTS.parent)])
"""Where processes of tests find their modules."""


WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
"""How many sessions wait for a lock."""


async def until(condition: Callable[[], Any], what: str = "", patience: float = PATIENCE) -> Any:
    """Waits until a condition holds, and gives what it answered."""
    end = time.monotonic() + patience
    while not (answer := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {patience:g} s in vain {what}".strip())
        await asyncio.sleep(0.02)
    return answer


def sql(url: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    """Runs SQL with numbered parameters on a database."""
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def values(holdfast: Harness) -> list[Any]:
    """The argument `value` of each unfinished task."""
    return [row[0] for row in holdfast.sql("SELECT (args -> 'value')::int FROM holdfast.task ORDER BY 1")]


async def waiting(holdfast: Harness, count: int) -> None:
    """Until so many sessions wait for a lock."""
    await until(lambda: holdfast.sql(WAITING)[0][0] == count, f"for {count} to wait for a lock")


def answers(url: str) -> bool:
    """Whether the database can be used; a pooler notices only after a while that it can be again."""
    try:
        return sql(url, "SELECT 1") == [(1,)]
    except (psycopg.Error, DatabaseUnreachable):
        return False


def attempts(url: str, id: UUID) -> list[tuple[int, str, str | None]]:
    """The log of one task: number, step, outcome."""
    return sql(url, "SELECT attempt, step, outcome FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt", id)


def rows(url: str) -> dict[UUID, dict[str, Any]]:
    """The rows of all unfinished tasks."""
    with connect_sync(url) as connection:
        cursor = connection.execute(b"SELECT * FROM holdfast.task")
        names = [column.name for column in cursor.description or ()]
        found = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    return {each["id"]: each for each in found}


def row(url: str, id: UUID) -> dict[str, Any]:
    """The row of an unfinished task."""
    found = rows(url)
    assert id in found, f"there is no unfinished task {id}"
    return found[id]


def _started(worker: Worker, task: "asyncio.Task[None]") -> bool:
    return worker.started.is_set() or task.done()


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[list["asyncio.Task[None]"]]:
    """Workers beside the body of a test, stopped at its end; their errors are the test's."""
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    for pair in zip(workers, tasks, strict=True):
        await until(partial(_started, *pair), "for a worker to start")
    try:
        yield tasks
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)


# --- workers as processes


@dataclass
class Crew:
    """A worker process of `crew.py`."""

    url: str
    log: Path
    options: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "worker.crew", self.url, str(self.log), json.dumps(self.options)]
        environment = {**os.environ, "PYTHONPATH": SOURCES, "PYTHONWARNINGS": "ignore", **self.environment}
        self.process = subprocess.Popen(command, cwd=TESTS, env=environment)

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and what it leaves behind."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def started(self) -> None:
        """Waits until it has introduced itself."""
        await until(
            lambda: sql(self.url, "SELECT 1 FROM holdfast.worker WHERE pid = $1", self.pid) or self.process.poll(),
            "for a worker process",
        )
        assert self.process.poll() is None, f"the worker process ended with {self.process.returncode}"

    async def ended(self) -> int:
        """Waits for its end and gives its exit code."""
        await until(lambda: self.process.poll() is not None, "for a worker process to end")
        return self.process.returncode


@contextmanager
def crew(url: str, log: Path, count: int = 1, **options: Any) -> Iterator[list[Crew]]:
    """Worker processes, killed at the end if they are still there."""
    members = [Crew(url, log, options) for _ in range(count)]
    try:
        yield members
    finally:
        for member in members:
            if member.process.poll() is None:
                member.signal(signal.SIGCONT)
                member.kill()


# --- the oracle

CHECKED = ("I1", "I3", "I4", "I6")


def check_log(url: str, log: Path) -> Counter[str | None]:
    """Compares the handlers' own log with the log of attempts, by the rules of `faults`; gives the outcomes."""
    found = history.read(url, log)
    wrong = [f"{rule}: {text}" for rule in CHECKED for text in INVARIANTS[rule](found)]
    assert wrong == [], "\n".join(wrong[:10])
    return Counter(attempt.outcome for attempt in found.attempts)
