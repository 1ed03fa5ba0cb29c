"""The laboratory: a server that may be stopped, worker processes that may be killed, and a load on both."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from faults import crew, history
from faults.checker import Violation, check
from faults.history import History
from faults.load import Load
from faults.oracle import WORKER, Execution, Line, read_lines
from faults.places import Place, run_sql
from faults.proxy import Proxy
from holdfast import App

ROOT = Path(__file__).parents[1]
LEASE, REAP, POLL = 1.5, 0.3, 0.2
"""Seconds. Where nobody may be charged, the lease is longer: a busy machine must not be mistaken for a fault."""
CONCURRENCY = 8
PATIENCE = 120.0
"""Seconds after which a wait is given up, and a run found wrong."""


@dataclass(eq=False)
class Member:
    """A worker process: `holdfast worker faults.crew`."""

    label: str
    process: "subprocess.Popen[bytes]"
    log: Path
    died: float | None = None
    """When it was killed, or was found dead."""
    dismissed: bool = False
    """Whether it was asked to stop."""

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self.died = time.monotonic()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines(self) -> int:
        """How much it has written to its log."""
        return self.log.read_bytes().count(b"\n")

    async def last_words(self) -> str:
        """The end of its log; if it lives, with where its tasks stand."""
        if self.is_alive:
            self.signal(signal.SIGUSR2)
            await asyncio.sleep(1)
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-60:])


@dataclass
class Lab:
    """One run of one fault, on a database of its own."""

    place: Place
    seed: int
    seconds: float = 5.0
    """How long the fault goes on."""
    rate: float = 30.0
    workers: int = 3
    database: str = field(default_factory=lambda: f"faults_{uuid4().hex[:10]}")
    say: Callable[[str], None] = lambda text: None

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-fault-"))
        self.server = self.place.server
        self.direct = self.place.url(self.database)
        self.url = self.direct
        self.members: list[Member] = []
        self.violations: list[Violation] = []
        self.proxy: Proxy | None = None
        self.lease = LEASE
        self.may_park: frozenset[str] = frozenset()
        self.kills_by_chance = False
        self.ignored: set[str] = set()
        """Tasks that the checker is not to look at."""
        self.environment: dict[str, str] = {}
        self.harmed: list[float] = []
        """When each harm was over, by the clock of the handlers' log."""

    # --- beginning and end

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Lab"]:
        await asyncio.to_thread(run_sql, self.place.url(), f"CREATE DATABASE {self.database} TEMPLATE pattern")
        run_sql(self.place.url(), f"ALTER DATABASE {self.database} SET synchronous_commit = on")
        try:
            yield self
        finally:
            for member in self.members:
                if member.is_alive:
                    member.signal(signal.SIGCONT)
                    member.kill()
            with suppress(Exception):
                await self.app.close()
            if self.proxy is not None:
                self.proxy.stop()
            self.place.ensure()
            run_sql(self.place.url(), f"DROP DATABASE {self.database} WITH (FORCE)")
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def app(self) -> App:
        return crew.app

    def go_through_proxy(self) -> Proxy:
        """From now on everybody but the laboratory itself goes through a proxy."""
        self.proxy = Proxy(self.server.sockets / f".s.PGSQL.{self.server.port}", random.Random(self.seed))
        self.proxy.start()
        self.url = self.proxy.url(self.direct)
        return self.proxy

    def make_load(self, **options: Any) -> Load:
        self.app.use(self.url)
        self.load = Load(self.app, self.url, self.chance, **{"rate": self.rate, **options})
        return self.load

    @asynccontextmanager
    async def under_load(self, **options: Any) -> AsyncIterator[Load]:
        """Workers and load; after the body all that was enqueued is waited for, and the workers are stopped."""
        load = self.make_load(**options)
        for _ in range(self.workers - len(self.members)):
            self.start()
        await self.started()
        load.start()
        try:
            yield load
        finally:
            await load.stop()
        await self.finished()

    async def finished(self) -> None:
        """Waits until all is done, then stops the workers as an operator would, and checks what happened."""
        self.say("waiting for the rest")
        await self.app.close()
        run_sql(self.direct, "SELECT holdfast.pause_schedule('tick')")
        left = "SELECT count(*) FROM holdfast.task WHERE state <> 'parked'"
        await self.wait(lambda: run_sql(self.direct, left) == [(0,)], strict=False)
        await self.stopped()
        self.check()

    async def stopped(self) -> None:
        """SIGTERM to all: they end with 0."""
        await self.started()
        alive = self.alive()
        for member in self.members:
            fell = not member.is_alive and member.died is None and not member.dismissed
            self.require(not fell, "W5", f"{member.label} ended by itself with {member.process.returncode}")
        for member in alive:
            member.signal(signal.SIGTERM)
        await self.wait(lambda: not any(member.is_alive for member in alive), patience=60, strict=False)
        for member in alive:
            if (code := member.process.poll()) != 0:
                self.require(False, "W4", f"{member.label} ended with {code}:\n{await member.last_words()}")

    def check(self) -> History:
        self.history = history.read(
            self.direct,
            self.folder / "handlers",
            self.load.ledger,
            deaths={m.label: m.died for m in self.members if m.died is not None},
            transactional=crew.TRANSACTIONAL,
            may_park=self.may_park,
            by_chance=self.kills_by_chance,
            concurrency=CONCURRENCY,
            patience=self.lease + 4 * REAP,
        )
        self.history.forget(self.ignored)
        self.violations += check(self.history)
        return self.history

    def require(self, holds: object, rule: str, text: str) -> None:
        """An expectation of one fault alone."""
        if not holds:
            self.violations.append(Violation(rule, text))

    def nobody_charged(self, rule: str) -> None:
        """An expectation of many faults: no attempt was taken for lost."""
        if lost := self.lost_executions():
            self.require(False, rule, f"{len(lost)} attempts were charged, such as {lost[0]}")

    def lost_executions(self) -> list[Execution]:
        lost = {(a.task, a.attempt) for a in self.history.attempts if a.outcome == "lost"}
        return [each for each in self.history.executions if (each.task, each.attempt) in lost]

    def state_of(self, id: str | None) -> str | None:
        """What became of a task."""
        rows = run_sql(self.direct, "SELECT state FROM holdfast.tasks WHERE id = $1::uuid", id)
        return rows[0][0] if rows else None

    # --- the server

    async def restart_server(self, away: float) -> None:
        """Crashes the server, and starts it after so many seconds."""
        await asyncio.to_thread(self.server.stop, "immediate")
        await asyncio.sleep(away)
        await asyncio.to_thread(self.server.restart)

    # --- workers

    def start(self, *options: str, **environment: str) -> Member:
        """A worker process more."""
        label = f"w{len(self.members) + 1}"
        log = self.folder / f"{label}.txt"
        settings = {"lease": self.lease, "reap": REAP, "poll": POLL, "grace": 10, "concurrency": CONCURRENCY}
        given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        worker = [sys.executable, "-m", "holdfast.cli", "worker", "faults.crew:app", *given, *options]
        with log.open("wb") as file:
            process = subprocess.Popen(
                worker,
                cwd=ROOT,
                stdout=file,
                stderr=file,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "HOLDFAST_URL": self.url,
                    crew.FOLDER: str(self.folder / "handlers"),
                    WORKER: label,
                    **self.environment,
                    **environment,
                },
            )
        member = Member(label, process, log)
        self.members.append(member)
        return member

    async def started(self) -> None:
        """Waits until each worker that lives has introduced itself."""

        def introduced() -> bool:
            known = {pid for (pid,) in run_sql(self.direct, "SELECT pid FROM holdfast.worker")}
            return {member.process.pid for member in self.alive()} <= known

        await self.wait(introduced)

    def dismiss(self, member: Member) -> None:
        """Asks it to stop."""
        member.dismissed = True
        member.signal(signal.SIGTERM)

    async def supervise(self) -> None:
        """Replaces those that die."""
        while True:
            for member in self.members:
                if not member.is_alive and member.died is None:
                    member.died = time.monotonic()
                    self.start()
            await asyncio.sleep(0.05)

    def alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    def victim(self) -> Member:
        """Somebody who works, by chance."""
        return self.chance.choice([member for member in self.alive() if not member.dismissed])

    def lines(self) -> list[Line]:
        """What handlers have written so far."""
        return read_lines(self.folder / "handlers")

    def log_lines(self) -> int:
        """How much all workers together have written to their logs."""
        return sum(member.lines() for member in self.members)

    # --- waiting

    async def wait(self, condition: Callable[[], object], *, patience: float = PATIENCE, strict: bool = True) -> bool:
        """Waits until a condition holds; gives up after a while, with an error if `strict`."""
        end = time.monotonic() + patience
        while not await asyncio.to_thread(condition):
            if time.monotonic() > end:
                if strict:
                    raise TimeoutError(f"waited {patience:g} s in vain")
                return False
            await asyncio.sleep(0.05)
        return True

    async def every(self, shortest: float, longest: float) -> AsyncIterator[int]:
        """Moments to do harm at, as far apart as chance wants, until the time is over."""
        end, number = time.monotonic() + self.seconds, 0
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self.chance.uniform(shortest, longest)))
            number += 1
            self.say(f"{number} times")
            yield number
            self.harmed.append(time.monotonic())
