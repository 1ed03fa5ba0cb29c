"""One set-up with real worker processes on a database of its own, and what was seen of it."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from faults.history import Attempt
from faults.lab import ROOT
from faults.liveness import tasks
from faults.liveness.rules import Enqueued, Life, Sample, Seen, Spans
from faults.liveness.setup import Burst, Pause, Setup
from faults.oracle import WORKER, executions, read_lines
from faults.places import Place, run_sql
from holdfast import App, Entry, named
from holdfast._db.driver.connection import connect_sync

LEASE, LONG_LEASE = 1.5, 10.0
"""Seconds. Only where a worker is killed the lease is short: a busy machine must not be mistaken for a fault."""
GRACE = 2.0
STARTED_WITHIN = 60.0
SUSPECT_DELAY = 1.0
"""Suspects are due so much later than they are enqueued: until then their crash is on record."""
DONE_WITHIN = 60.0
"""Seconds after which tasks that are not done are found wrong."""

_HELD = "SELECT w.pid, t.id::text, t.attempt FROM holdfast.task t JOIN holdfast.worker w ON w.id = t.worker_id"
_LEFT = "SELECT id::text, state FROM holdfast.task WHERE state <> 'parked' OR error ->> 'message' NOT LIKE '%on_lost%'"
_ATTEMPTS = "SELECT task_id::text, step, attempt, moves, outcome FROM holdfast.attempts"
_CRASHES = "SELECT id::text, crashes FROM holdfast.archive UNION ALL SELECT id::text, crashes FROM holdfast.task"


class Lateness:
    """How late this machine is: a thread that only sleeps writes down by how much it oversleeps."""

    def __init__(self) -> None:
        self._overslept: list[tuple[float, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sleep, daemon=True)

    def __enter__(self) -> "Lateness":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def since(self, moment: float) -> float:
        """The worst since a moment."""
        return max((late for at, late in list(self._overslept) if at >= moment), default=0.0)

    def _sleep(self) -> None:
        before = time.monotonic()
        while not self._end.wait(0.02):
            before, last = time.monotonic(), before
            if before - last > 0.1:
                self._overslept.append((before, before - last - 0.02))


@dataclass
class Run:
    """A set-up that is being tried."""

    setup: Setup
    place: Place
    lateness: Lateness

    def __post_init__(self) -> None:
        self.database = f"liveness_{uuid4().hex[:10]}"
        self.url = self.place.url(self.database)
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-liveness-"))
        self.app = App(self.url)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.lives: dict[str, Life] = {}
        self.tasks: dict[str, Enqueued] = {}
        self.samples: list[Sample] = []
        self.paused: dict[str, Spans] = {}
        self.stops: dict[str, tuple[float, int | None]] = {}
        self.begun = 0.0

    async def seen(self) -> Seen:
        """Tries it, and tells what was seen."""
        await asyncio.to_thread(run_sql, self.place.url(), f"CREATE DATABASE {self.database} TEMPLATE pattern")
        sampling = threading.Event()
        sampler = asyncio.create_task(asyncio.to_thread(self._sample, sampling))
        try:
            await self._work()
            unfinished = await self._until_done()
            await asyncio.gather(*(self._stop(label) for label in self._alive()))
            sampling.set()
            await sampler
            return self._told(unfinished)
        finally:
            sampling.set()
            for process in self.workers.values():
                process.kill()
                process.wait()
            await self.app.close()
            await asyncio.to_thread(run_sql, self.place.url(), f"DROP DATABASE {self.database} WITH (FORCE)")
            shutil.rmtree(self.folder, ignore_errors=True)

    def last_words(self) -> str:
        """The end of what the workers wrote, for people."""
        return "\n".join(
            line for file in sorted(self.folder.glob("*.txt")) for line in file.read_text().splitlines()[-15:]
        )

    async def _work(self) -> None:
        for number in range(self.setup.workers):
            self._start(f"w{number + 1}")
        until = time.monotonic() + STARTED_WITHIN
        while await self._sql("SELECT count(*) FROM holdfast.worker") != [(self.setup.workers,)]:
            if time.monotonic() > until:
                raise TimeoutError(f"the workers did not start:\n{self.last_words()}")
            await asyncio.sleep(0.05)
        self.begun = time.monotonic()
        self.lives = dict.fromkeys(self.workers, Life(self.begun))
        await asyncio.gather(
            *(self._enqueue(burst) for burst in self.setup.bursts),
            *(self._pause(pause) for pause in self.setup.pauses),
            self._harm(),
        )

    def _start(self, label: str) -> None:
        setup = self.setup
        lease = LONG_LEASE if setup.kill_at is None else LEASE
        settings = {"concurrency": setup.concurrency, "poll": setup.poll, "lease": lease, "reap": 0.3, "grace": GRACE}
        given = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HOLDFAST_URL": self.url,
            tasks.FOLDER: str(self.folder / "handlers"),
            WORKER: label,
        }
        with (self.folder / f"{label}.txt").open("wb") as file:
            self.workers[label] = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", "worker", "faults.liveness.tasks", "-q", setup.served, *given],
                cwd=ROOT,
                stdout=file,
                stderr=file,
                env=environment,
            )

    async def _enqueue(self, burst: Burst) -> None:
        await self._at(burst.at)
        entries = [
            Entry(
                named(burst.kind, {"seconds": burst.seconds, "failures": burst.failures}),
                queue=burst.queue,
                priority=burst.priority,
                delay=burst.delay + n * burst.spread if n >= burst.suspects else SUSPECT_DELAY,
            )
            for n in range(burst.count)
        ]
        refs = await self.app.enqueue_many(entries)
        moment = time.monotonic()
        for n, ref in enumerate(refs):
            due = moment + burst.delay + n * burst.spread
            self.tasks[str(ref.id)] = Enqueued(burst.queue, due, suspect=n < burst.suspects)
        if burst.suspects:
            ids = [str(ref.id) for ref in refs[: burst.suspects]]
            await self._sql("UPDATE holdfast.task SET crashes = 1 WHERE id = ANY ($1::uuid[])", ids)

    async def _pause(self, pause: Pause) -> None:
        await self._at(pause.at)
        begin = time.monotonic()
        await self._sql("SELECT holdfast.pause($1)", pause.queue)
        await self._at(pause.until)
        await self._sql("SELECT holdfast.resume($1)", pause.queue)
        self.paused.setdefault(pause.queue, []).append((begin, time.monotonic()))

    async def _harm(self) -> None:
        label = "w1"
        if self.setup.kill_at is not None:
            await self._at(self.setup.kill_at)
            self.workers[label].kill()
            self.workers[label].wait()
            self.lives[label] = Life(self.begun, time.monotonic(), killed=True)
        if self.setup.stop_at is not None:
            await self._at(self.setup.stop_at)
            await self._stop(label)

    async def _stop(self, label: str) -> None:
        """SIGTERM, and how long it takes."""
        asked = time.monotonic()
        self.lives[label] = Life(self.begun, asked)
        process = self.workers[label]
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, GRACE + 30)
        self.stops[label] = time.monotonic() - asked, process.returncode

    def _alive(self) -> list[str]:
        return [label for label, process in self.workers.items() if process.poll() is None]

    async def _until_done(self) -> dict[str, str]:
        until = time.monotonic() + DONE_WITHIN
        while True:
            left = {str(id): str(state) for id, state in await self._sql(_LEFT)}
            if not left or time.monotonic() > until:
                return left
            await asyncio.sleep(0.1)

    def _sample(self, end: threading.Event) -> None:
        """Looks at the leases, again and again."""
        with connect_sync(self.url, "liveness") as connection:
            while not end.wait(0.05):
                rows = connection.execute(_HELD.encode()).fetchall()
                at = time.monotonic()
                labels = {process.pid: label for label, process in list(self.workers.items())}
                self.samples.append(Sample(at, tuple((labels[pid], id, attempt) for pid, id, attempt in rows)))

    def _told(self, unfinished: dict[str, str]) -> Seen:
        return Seen(
            self.setup,
            grace=GRACE,
            late=self.lateness.since(self.begun),
            tasks=self.tasks,
            executions=executions(read_lines(self.folder / "handlers")),
            attempts=[Attempt(*row) for row in run_sql(self.url, _ATTEMPTS)],
            crashes=dict(run_sql(self.url, _CRASHES)),
            unfinished=unfinished,
            lives=self.lives,
            samples=self.samples,
            paused=self.paused,
            silences={file.stem: max(map(float, file.read_text().split())) for file in self.folder.glob("*.silences")},
            stops=self.stops,
        )

    async def _at(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, self.begun + seconds - time.monotonic()))

    async def _sql(self, text: str, *values: object) -> list[tuple[object, ...]]:
        return await asyncio.to_thread(run_sql, self.url, text, *values)
