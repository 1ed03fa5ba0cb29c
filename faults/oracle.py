"""What is known from outside the tested database: what handlers did, and what callers were told.

Handlers write lines into a folder, each process into a file of its own, in one write each: a line is there even if
its process is killed right after it. Times are those of the machine's monotonic clock, the same for all processes.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from uuid import UUID

WORKER = "FAULTS_WORKER"
"""The environment variable in which a worker process, and each of its children, finds the worker's label."""


class Executing(Protocol):
    """What the oracle asks of a context."""

    @property
    def id(self) -> UUID: ...
    @property
    def step(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def moves(self) -> int: ...


@dataclass(frozen=True)
class Line:
    """What a handler wrote about itself: the `begin` of an attempt, its `end`, or that it was `broken off`."""

    word: str
    task: str
    step: str
    attempt: int
    moves: int
    worker: str
    pid: int
    at: float


@dataclass
class Execution:
    """An attempt as its handler saw it. `end` is None if nobody lived to tell."""

    task: str
    step: str
    attempt: int
    moves: int
    worker: str
    begin: float
    end: float | None = None
    broken_off: bool = False
    pid: int = 0


def write_line(folder: Path, word: str, ctx: Executing) -> None:
    """A line in the handlers' own log."""
    worker = os.environ.get(WORKER, str(os.getpid()))
    values = [word, str(ctx.id), ctx.step, ctx.attempt, ctx.moves, worker, os.getpid(), time.monotonic()]
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / f"{os.getpid()}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(values) + "\n").encode())
    finally:
        os.close(file)


@contextmanager
def witnessed(folder: Path, ctx: Executing) -> Iterator[None]:
    """Writes down that an attempt began, and how the handler left it."""
    write_line(folder, "begin", ctx)
    try:
        yield
    except BaseException:
        write_line(folder, "broken off", ctx)
        raise
    write_line(folder, "end", ctx)


def read_lines(folder: Path) -> list[Line]:
    """All that was written so far, in the order of time."""
    files = sorted(folder.glob("*.log")) if folder.is_dir() else []
    lines = [Line(*json.loads(text)) for file in files for text in file.read_text().splitlines()]
    return sorted(lines, key=lambda line: line.at)


def executions(lines: list[Line]) -> list[Execution]:
    """Lines put together, in the order of their beginnings. A beginning is never overwritten by another."""
    found: list[Execution] = []
    open_: dict[tuple[str, int, int], Execution] = {}
    for line in lines:
        key = (line.task, line.attempt, line.pid)
        if line.word == "begin":
            open_[key] = Execution(line.task, line.step, line.attempt, line.moves, line.worker, line.at, pid=line.pid)
            found.append(open_[key])
        elif (execution := open_.pop(key, None)) is not None:
            execution.end, execution.broken_off = line.at, line.word != "end"
    return found


@dataclass
class Ledger:
    """What callers asked for, by a tag that travels in the task's headers, and what they were told."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """The ids of tasks that were promised to exist."""
    rolled_back: set[str] = field(default_factory=set)
    """Never to exist."""
    unknown: set[str] = field(default_factory=set)
    """The caller saw an error: exists once or not at all."""
    children: dict[str, list[str]] = field(default_factory=dict)
    """What the steps of a task enqueue: exist exactly if that task came to its end."""
