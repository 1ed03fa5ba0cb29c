"""The systems that are compared, and how to talk with their adapters."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

from benchmarks.place import Place

HERE = Path(__file__).parent
PEERS = HERE / ".peers"
PEER_PYTHON = PEERS / "py" / "bin" / "python"
PEER_NODE = PEERS / "node" / "node_modules" / ".bin" / "node"
PATIENCE = 900.0


class Trouble(Exception):
    """A system cannot do what was asked; the message says why."""


@dataclass(frozen=True)
class System:
    """A system. `left` counts what is due and not done; `does` says what it can; `few`: slow, so it gets a part."""

    name: str
    adapter: str
    settings: str
    keeps: str
    left: LiteralString = ""
    does: frozenset[str] = frozenset({"enqueue", "bulk", "work"})
    package: str | None = None
    few: float = 1.0

    @property
    def command(self) -> list[str]:
        if self.package is None:
            return [sys.executable, "-m", f"benchmarks.adapters.{self.adapter.removesuffix('.py')}"]
        program = PEER_NODE if self.adapter.endswith(".mjs") else PEER_PYTHON
        return [str(program), str(HERE / "adapters" / "peers" / self.adapter)]

    def waiting(self, place: Place) -> int:
        """How many tasks are due and not done."""
        ((count,),) = place.execute(self.left, at_work=True)
        return int(count)


def _can(*more: str) -> frozenset[str]:
    return frozenset({"enqueue", "bulk", "work", *more})


SYSTEMS = [
    System(
        "holdfast",
        "ours.py",
        "defaults: 10 slots, claims ahead by measured pace",
        "every attempt, args and result",
        "SELECT count(*) FROM holdfast.task WHERE run_at <= now() AND kind <> 'unknown'",
        _can("steps", "future", "obstacles", "race"),
    ),
    System(
        "raw SQL",
        "raw.py",
        "pgbench single inserts, COPY by psycopg, claim 500 and delete 500 by pgbench",
        "nothing",
        "SELECT count(*) FROM holdfast.task",
        frozenset({"enqueue", "bulk", "drain"}),
    ),
    System(
        "graphile-worker",
        "graphile.mjs",
        "localQueue 1,000, concurrentJobs 24, completeJobBatchDelay 0, useNodeTime",
        "nothing",
        "SELECT count(*) FROM graphile_worker._private_jobs WHERE run_at <= now()",
        _can("future", "race"),
        "graphile-worker",
    ),
    System(
        "pg-boss",
        "pgboss.mjs",
        "batchSize 1,000 with an array handler, burstWhenBatchFull, notify",
        "the row",
        "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state < 'completed' AND start_after <= now()",
        _can("future"),
        "pg-boss",
    ),
    System(
        "PgQueuer",
        "pgqueuer_.py",
        "asyncpg, uvloop, batch_size 1,000",
        "a log entry",
        "SELECT count(*) FROM pgqueuer WHERE execute_after <= now()",
        _can("future"),
        "pgqueuer",
        1 / 3,
    ),
    System(
        "chancy",
        "chancy_.py",
        "AsyncExecutor, concurrency 100, eager_polling, push_many of 1,000",
        "the row",
        "SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running', 'retrying')",
        package="chancy",
        few=0.1,
    ),
    System(
        "procrastinate",
        "procrastinate_.py",
        "concurrency 20, listen_notify, batch_defer of 5,000",
        "the row and its events",
        "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        package="procrastinate",
        few=0.02,
    ),
    System(
        "absurd",
        "absurd_.py",
        "asyncio, concurrency and batch_size 100, poll_interval 20 ms",
        "the task and its runs",
        "SELECT count(*) FROM absurd.t_default WHERE state NOT IN ('completed', 'failed', 'cancelled')",
        _can("steps"),
        "absurd-sdk",
        0.02,
    ),
    System(
        "DBOS",
        "dbos_.py",
        "asyncio workflows, polling_interval_sec 0.05, no limits",
        "the row and its steps",
        "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')",
        _can("steps"),
        "dbos",
        0.01,
    ),
]


class Child:
    """A running adapter."""

    def __init__(self, system: System, verb: str, url: str, options: dict[str, Any]) -> None:
        self.system = system
        found = str(HERE / "adapters" if system.package else HERE.parent)
        environment = os.environ | {"PYTHONPATH": found, "PEERS": str(PEERS / "node")}
        self._process = subprocess.Popen(
            [*system.command, verb, url, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            process_group=0,  # so that signals reach what it starts as well
        )
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    self._lines.put(json.loads(line))
        except ValueError as error:
            self._errors = [*self._errors, f"what it said is no JSON: {error}"]
            self._process.kill()  # nobody would hear what else it says
        finally:
            self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-30:], line]

    def line(self, timeout: float) -> dict[str, Any] | None:
        """The next line; None if none came in time."""
        try:
            found = self._lines.get(timeout=timeout)
        except queue.Empty:
            return None
        if found is None:
            self._process.wait()
            for reader in self._readers:
                reader.join(1)
            said = "".join(self._errors).strip().splitlines()
            raise Trouble(f"{self.system.name} ended: {said[-1] if said else f'exit code {self._process.returncode}'}")
        return found

    def answer(self) -> dict[str, Any]:
        """The one line it has to say."""
        found = self.line(PATIENCE)
        if found is None:
            raise Trouble(f"{self.system.name} said nothing for {PATIENCE:.0f} s")
        return found

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def stand_still(self) -> None:
        """Stops it, and what it has started, in the midst of whatever they do."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """From where it was stopped."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has ended: whoever reads its lines is told
            os.killpg(self.pid, number)

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def ask(system: System, verb: str, url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Lets an adapter do one thing."""
    child = Child(system, verb, url, options)
    try:
        return child.answer()
    finally:
        child.end()


@dataclass
class Crew:
    """Worker processes of one system, ready to begin. `starts`: when each numbered task began, if asked for."""

    system: System
    place: Place
    children: list[Child]
    counts: list[int] = field(default_factory=list)
    ended: float = 0.0
    starts: list[tuple[int, float]] = field(default_factory=list)

    @classmethod
    def of(cls, system: System, place: Place, processes: int = 1, **options: Any) -> "Crew":
        children = [Child(system, "work", place.work, options) for _ in range(processes)]
        crew = cls(system, place, children, [0] * processes)
        try:
            for child in children:
                child.answer()
        except BaseException:
            crew.end()
            raise
        return crew

    def go(self) -> float:
        for child in self.children:
            child.go()
        return time.monotonic()

    def stand_still(self) -> None:
        """Stops all workers, in the midst of whatever they do."""
        for child in self.children:
            child.stand_still()

    def go_on(self) -> None:
        """From where they were stopped."""
        for child in self.children:
            child.go_on()

    def take_in(self, timeout: float) -> int:
        """What the workers have told, and so how many tasks they have handled."""
        for number, child in enumerate(self.children):
            while (line := child.line(timeout / len(self.children))) is not None:
                self.counts[number] = line["count"]
                self.ended = max(self.ended, line["at"])
                self.starts += [(n, at) for n, at in line["starts"]]
                timeout = 0.001
        return sum(self.counts)

    def until(self, count: int, patience: float = PATIENCE) -> None:
        """Waits until so many tasks are handled, and recorded."""
        end = time.monotonic() + patience
        while self.take_in(0.02) < count:
            if time.monotonic() > end:
                raise Trouble(f"{self.system.name} handled {sum(self.counts):,} of {count:,} in {patience:.0f} s")
        while self.left():
            if time.monotonic() > end:
                raise Trouble(f"{self.system.name} left {self.left():,} tasks unfinished")
            time.sleep(0.1)
        if self.take_in(0.05) != count:
            raise Trouble(f"{self.system.name} handled {sum(self.counts):,} tasks, and there were {count:,}")

    def left(self) -> int:
        return self.system.waiting(self.place)

    def end(self) -> None:
        for child in self.children:
            child.end()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()
