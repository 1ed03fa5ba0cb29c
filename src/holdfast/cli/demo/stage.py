"""What the demo starts, and ends with itself: the server, the dashboard, worker processes, a folder for files."""

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Self
from uuid import UUID

from holdfast import insights
from holdfast._db.driver.connection import connect_sync
from holdfast._db.migrate import migrate
from holdfast._sql.query import Row, for_schema
from holdfast.cli.dashboard import Beside
from holdfast.cli.demo.screen import Screen
from holdfast.cli.demo.tasks import app as demo_app
from holdfast.cli.input.options import Setup
from holdfast.cli.output.printing import Failure
from holdfast.cli.servers import OwnServer
from holdfast.insights import WorkerInfo

TASKS, QUEUE, LEASE = "holdfast.cli.demo.tasks", "demo", "3s"
SETTINGS = f"-q {QUEUE} -c 3 --lease {LEASE} --reap 0.5s"
_PATIENCE, _STOPS_WITHIN = 60.0, 10.0
_SIGNALS = [getattr(signal, each) for each in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, each)]
# Whether no other demo uses this schema; held until the transaction ends.
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('holdfast demo'), hashtext($1::text))"


@dataclass
class WorkerProcess:
    """A worker that the demo started."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    began: float = field(default_factory=time.monotonic)
    may_end: bool = False

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    @property
    def tail(self) -> str:
        """The end of its log."""
        return "\n".join([f"{self.name}:", *self.log.read_text("utf-8", "replace").splitlines()[-15:]])


class Stage:
    """Everything the story needs. It ends what it started, also when a signal comes."""

    def __init__(self, setup: Setup, screen: Screen, *, stays: bool) -> None:
        self.setup = setup
        self.stays, self.is_users_turn = stays, False
        self.screen = screen
        self.server = OwnServer()
        self.workers: list[WorkerProcess] = []
        self._names: dict[UUID, str] = {}
        self._stack = ExitStack()
        self._obeys, self._was_interrupted = True, False

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._stack.callback(signal.signal, number, signal.signal(number, self._on_signal))
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        self._stack.callback(self._stop_server)
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> bool:
        self._obeys = False
        with self._stack:
            if kind is KeyboardInterrupt:
                self.screen.heading("Ending: all that was started is stopped.")
        return kind is KeyboardInterrupt and self.is_users_turn

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A second signal does not wait for the next pause: something may hang.
        if self._was_interrupted and self._obeys:
            raise KeyboardInterrupt
        self._was_interrupted = True

    def pause(self, seconds: float) -> None:
        """Sleeps; here, where no query is under way, the demo obeys a signal."""
        until = time.monotonic() + seconds
        while not self._was_interrupted and (left := until - time.monotonic()) > 0:
            time.sleep(min(0.05, left))
        if self._was_interrupted:
            raise KeyboardInterrupt

    @contextmanager
    def starting(self) -> Iterator[None]:
        """No signal interrupts this: nothing is started and then forgotten."""
        self._obeys = False
        try:
            yield
        finally:
            self._obeys = True
        self.pause(0)

    def _stop_server(self) -> None:
        if self.server.stop():
            self.screen.say("PostgreSQL is stopped; its data stays.")

    def open(self) -> list[str]:
        """Makes the tables, and connects; the migrations that were applied. Refuses to disturb what is there."""
        url, schema = self.setup.database().url, self.setup.schema
        applied = asyncio.run(migrate(url, schema))
        self._lock = self._stack.enter_context(closing(connect_sync(url, "holdfast demo")))
        self._lock.execute(b"BEGIN")
        if not self.ask(_LOCK, schema)[0][0]:
            self.server.started = None  # the other demo needs it, whoever started it
            raise Failure(
                f"another demo is running on this database, in schema {schema}. End it with Ctrl-C, or give "
                "this one a schema of its own: holdfast demo --schema demo2",
                name="DemoRunning",
            )
        self.app, self.queries = self._stack.enter_context(self.setup.opened())
        kinds = [each for each in self.app.ask(insights.kinds(self.queries)) if each.name in demo_app._kinds]
        for kind in kinds:
            if kind.queue != QUEUE:
                raise Failure(
                    f"this database has tasks of its own of kind {kind.name!r}, as the demo has. Give the demo a "
                    "schema of its own: holdfast demo --schema demo",
                    name="KindTaken",
                )
        paused = [each.name for each in kinds if each.paused_at is not None]
        queues = self.app.ask(insights.queues(self.queries))
        paused += [each.name for each in queues if each.name == QUEUE and each.paused_at is not None]
        for name in paused:
            raise Failure(f"{name!r} is paused here, and the demo needs it: holdfast resume {name}", name="Paused")
        return applied

    def ask(self, sql: str, /, *values: object) -> list[Row]:
        """The rows of a statement, for what the demo asks beyond what every user can ask."""
        return self._lock.execute(for_schema(sql, self.setup.schema).encode(), values).fetchall()

    def start_dashboard(self) -> Beside:
        """The dashboard on this database, until the demo ends."""
        dashboard = Beside(self.setup.database().url, self.setup.schema)
        self._stack.callback(dashboard.stop)
        return dashboard

    # --- workers

    def start_worker(self) -> WorkerProcess:
        """One more worker process; it may need a moment until it works."""
        if not self.workers:
            self._stack.callback(self._stop_workers)
        name = f"demo-{len(self.workers) + 1}"
        command = [sys.executable, "-m", "holdfast.cli", "worker", TASKS, *shlex.split(SETTINGS)]
        log = self.folder / f"{name}.log"
        with log.open("wb") as output, self.starting():
            process = subprocess.Popen(
                [*command, "--grace", "3s", "--name", name, "--schema", self.setup.schema],
                cwd=self.folder,
                env={**os.environ, "HOLDFAST_URL": self.setup.database().url},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo; the demo stops its workers
            )
            self.workers.append(WorkerProcess(name, process, log))
        return self.workers[-1]

    def await_workers(self) -> None:
        """Waits until all running workers are registered."""

        def are_registered() -> bool:
            registered = {(each.name, each.pid) for each in self._live_workers()}
            return registered.issuperset((each.name, each.process.pid) for each in self.workers if each.runs)

        self.until(are_registered, "the workers did not start")

    def stop_leftovers(self) -> int:
        """Asks workers that a killed demo left behind to stop; how many."""
        left = {each.id for each in self._live_workers()}
        for id in left:
            self.app.stop_workers(id)
        until = time.monotonic() + _STOPS_WITHIN
        while left & {each.id for each in self._live_workers()} and time.monotonic() < until:
            self.pause(0.1)
        return len(left)

    def name_of(self, worker_id: UUID | None) -> str:
        """The name of a worker, `demo-1`."""
        if worker_id not in self._names:
            self._names = {each.id: each.name for each in self.app.ask(insights.workers(self.queries))}
        return "" if worker_id is None else self._names.get(worker_id, str(worker_id)[:8])

    def _live_workers(self) -> list[WorkerInfo]:
        workers = self.app.ask(insights.workers(self.queries))
        return [each for each in workers if QUEUE in each.queues and each.live and each.stopped_at is None]

    def _stop_workers(self) -> None:
        for each in self.workers:
            each.process.terminate()
        until = time.monotonic() + _STOPS_WITHIN
        for each in self.workers:
            try:
                each.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
        self.screen.say("The workers are stopped.")

    def until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Waits until something holds. Fails clearly if a worker ends meanwhile, or after a long time."""
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            for each in self.workers:
                if not each.runs and not each.may_end:
                    raise Failure(f"a worker ended with exit code {each.process.returncode}. {each.tail}")
            if time.monotonic() > deadline:
                logs = "\n".join(each.tail for each in self.workers)
                raise Failure(f"{otherwise} within {_PATIENCE:g} s.\n{logs}".rstrip())
            self.pause(0.1)
