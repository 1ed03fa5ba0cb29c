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

from holdfast._db.connection import connect_sync
from holdfast._engine.worker import Worker

PATIENCE = 60.0
"""Seconds after which a wait gives up. No test depends on how long anything takes."""
TESTS = Path(__file__).parents[1]


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


def attempts(url: str, id: UUID) -> list[tuple[int, str, str | None]]:
    """The log of one task: number, step, outcome."""
    return sql(url, "SELECT attempt, step, outcome FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt", id)


def row(url: str, id: UUID) -> dict[str, Any]:
    """The row of an unfinished task."""
    with connect_sync(url) as connection:
        cursor = connection.execute(b"SELECT * FROM holdfast.task WHERE id = $1", [id])
        found = cursor.fetchone()
        assert found is not None, f"there is no unfinished task {id}"
        return {column.name: value for column, value in zip(cursor.description or (), found, strict=True)}


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
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "worker.crew", self.url, str(self.log), json.dumps(self.options)]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONWARNINGS": "ignore"}
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


@dataclass(frozen=True)
class Line:
    """What a handler wrote about itself: `begin` and `end` of one attempt."""

    word: str
    task: str
    step: str
    attempt: int
    moves: int
    pid: int
    at: float


def write_line(log: Path, word: str, ctx: Any) -> None:
    """A line in the handlers' own log, in one write: it is there even if the process is killed right after."""
    values = [word, str(ctx.id), ctx.step, ctx.attempt, ctx.moves, os.getpid(), time.monotonic()]
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(values) + "\n").encode())
    finally:
        os.close(file)


def read_lines(log: Path) -> list[Line]:
    return [Line(*json.loads(text)) for text in log.read_text().splitlines()] if log.exists() else []


def check_log(url: str, log: Path) -> Counter[str]:
    """Compares the handlers' own log with the log of attempts; gives the outcomes counted.

    I1: nothing is unfinished. I3: what was recorded never ran again. I4: one accepted end per visit.
    I6: the two logs say the same, but for attempts that were lost or released before they began.
    """
    unfinished = sql(url, "SELECT state, count(*) FROM holdfast.task GROUP BY state")
    assert unfinished == [], f"I1: unfinished tasks: {unfinished}"
    rows = sql(url, "SELECT task_id::text, step, attempt, moves, outcome FROM holdfast.attempts")
    assert len({(task, attempt) for task, _, attempt, _, _ in rows}) == len(rows), "I6: an attempt is logged twice"
    logged = {(task, attempt): (step, moves, outcome) for task, step, attempt, moves, outcome in rows}
    ends = Counter((task, moves) for task, _, _, moves, outcome in rows if outcome in ("advanced", "done"))
    assert max(ends.values(), default=0) <= 1, "I4: a visit has two accepted ends"
    ended_at = {(task, moves): attempt for task, _, attempt, moves, outcome in rows if outcome in ("advanced", "done")}
    begun = set()
    for line in read_lines(log):
        known = logged.get((line.task, line.attempt))
        assert known is not None, f"I6: {line} is not in the log of attempts"
        assert known[:2] == (line.step, line.moves), f"I6: {line} is logged as {known}"
        if line.word == "begin":
            assert (line.task, line.attempt) not in begun, f"I6: attempt ran twice: {line}"
            begun.add((line.task, line.attempt))
            last = ended_at.get((line.task, line.moves))
            assert last is None or line.attempt <= last, f"I3: {line} ran after its end was recorded"
    silent = {outcome for key, (_, _, outcome) in logged.items() if key not in begun}
    assert silent <= {"lost", "released"}, f"I6: attempts that nobody ran are logged as {silent}"
    return Counter(outcome for _, _, outcome in logged.values())
