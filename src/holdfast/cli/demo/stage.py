"""What the demo starts, and ends with itself: the embedded server, two worker processes, a folder for files."""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.cli.demo.background import Background
from holdfast.cli.demo.ending import Ending
from holdfast.cli.input.options import Setup
from holdfast.cli.output.printing import Failure

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast.cli.dashboard import Beside
    from holdfast.cli.servers import OwnServer
    from holdfast.embedded import Server
    from holdfast.insights import WorkerInfo

T = TypeVar("T")

TASKS = "holdfast.cli.demo.tasks"
QUEUE = "demo"
LEASE = "3s"
SETTINGS = f"-q {QUEUE} -c 3 --lease {LEASE} --reap 0.5s"
PATIENCE = 60.0
"""Seconds within which anything here must happen."""
_STOPS_WITHIN = 10.0
_SILENT = 60.0
_TAIL = 15


@dataclass
class WorkerProcess:
    """A worker that the demo started."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path
    id: "UUID | None" = None
    began: float = field(default_factory=time.monotonic)
    given_up: bool = False

    @property
    def runs(self) -> bool:
        return self.process.poll() is None


class Stage:
    """Everything the story happens on. What it starts is ended by the stack."""

    def __init__(self, setup: Setup, stack: ExitStack, ending: Ending, say: Callable[[str], None]) -> None:
        self.setup = setup
        self._say = say
        self.ending = ending
        self.stays = False
        """Whether it goes on after the story."""
        self.workers: list[WorkerProcess] = []
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        self._stack = stack
        self._names: dict[UUID, str] = {}
        self._keeps_server = False

    # --- the database

    def start_server(self, tick: Callable[[], None]) -> "tuple[Server, bool]":
        """The embedded server of this project, and whether it was running before."""
        from holdfast.cli.servers import OwnServer

        own = OwnServer()
        starting = Background(own.start)
        self._stack.callback(self._stop_server, own, starting)
        server = self._await(starting, tick)
        self.setup.url = server.url()
        return server, own.started is None

    def _stop_server(self, own: "OwnServer", starting: "Background[Server]") -> None:
        starting.join()
        if not self._keeps_server and own.stop():
            self._say("PostgreSQL is stopped; its data stays.")

    def start_dashboard(self) -> "Beside":
        """The dashboard on this database, until the demo ends."""
        from holdfast.cli.dashboard import Beside

        made = Beside(self.setup.database().url, self.setup.schema)
        self._stack.callback(made.stop)
        return made

    def migrate(self, tick: Callable[[], None]) -> list[str]:
        """Makes the tables, and tells what was applied."""
        import asyncio

        from holdfast._db.migrate import migrate

        url, schema = self.setup.database().url, self.setup.schema
        return self.meanwhile(lambda: asyncio.run(migrate(url, schema)), tick)

    def open(self) -> None:
        """Connects; refuses what would disturb somebody."""
        from holdfast._db.driver.connection import connect_sync, run_sync
        from holdfast.cli.demo.measures import lock_demo

        lock = connect_sync(self.setup.database().url, "holdfast demo")
        self._stack.callback(lambda: _quietly(lock.close))
        lock.execute(b"BEGIN")
        if not run_sync(lock, lock_demo(self.setup.schema)):
            self._keeps_server = True  # the other one needs it, whoever started it
            raise Failure(
                f"another demo is running on this database, in schema {self.setup.schema}. End it with Ctrl-C, or give "
                "this one a schema of its own: holdfast demo --schema demo2",
                name="DemoRunning",
            )
        self.app, self.queries = self._stack.enter_context(self.setup.opened())
        self._refuse_obstacles()

    def _refuse_obstacles(self) -> None:
        """Somebody's own kinds must not be declared anew by the demo's workers; and what is paused would never end."""
        from holdfast import insights
        from holdfast.cli.demo.tasks import app

        for kind in self.app.ask(insights.kinds(self.queries)):
            if kind.name in app._kinds and kind.queue != QUEUE:
                raise Failure(
                    f"this database has tasks of its own of kind {kind.name!r}, as the demo has. Give the demo a "
                    "schema of its own: holdfast demo --schema demo",
                    name="KindTaken",
                )
            if kind.name in app._kinds and kind.paused_at is not None:
                raise _paused("kind", kind.name)
        for queue in self.app.ask(insights.queues(self.queries)):
            if queue.name == QUEUE and queue.paused_at is not None:
                raise _paused("queue", QUEUE)

    # --- workers

    def stop_leftovers(self) -> int:
        """Asks workers that a killed demo left behind to stop; tells how many."""
        left = [each for each in self._registered() if QUEUE in each.queues and _may_live(each)]
        for each in left:
            self.app.stop_workers(each.id)
        waiting = {each.id for each in left}
        until = time.monotonic() + _STOPS_WITHIN
        while waiting and time.monotonic() < until:
            self.ending.pause(0.1)
            waiting &= {each.id for each in self._registered() if _may_live(each)}
        return len(left)

    def start_worker(self) -> WorkerProcess:
        """One more worker process; it may need a moment until it works."""
        name = f"demo-{len(self.workers) + 1}"
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "holdfast.cli", "worker", TASKS, *shlex.split(SETTINGS)]
        with log.open("wb") as output, self.ending.shield():
            process = subprocess.Popen(
                [*command, "--grace", "3s", "--name", name, "--schema", self.setup.schema],
                cwd=self.folder,
                env={**os.environ, "HOLDFAST_URL": self.setup.database().url},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo; the demo stops its workers
            )
            if not self.workers:
                self._stack.callback(self._stop_workers)
            self.workers.append(WorkerProcess(name, process, log))
        return self.workers[-1]

    def await_workers(self, tick: Callable[[], None] = lambda: None) -> None:
        """Waits until all running workers have introduced themselves."""

        def are_introduced() -> bool:
            tick()
            self._learn_names()
            return all(each.id for each in self.workers if each.runs)

        self.until(are_introduced, "the workers did not start")

    def kill(self, worker: WorkerProcess) -> None:
        """As a crash would: SIGKILL, nothing is tidied up."""
        worker.given_up = True
        worker.process.kill()
        worker.process.wait()

    def name_of(self, worker_id: "UUID | None") -> str:
        """The name of a worker, `demo-1`."""
        if worker_id is None:
            return ""
        if worker_id not in self._names:
            self._learn_names()
        return self._names.get(worker_id, str(worker_id)[:8])

    def _learn_names(self) -> None:
        ours = {each.process.pid: each for each in self.workers}
        for each in reversed(self._registered()):  # of several with the same process id the newest counts
            self._names[each.id] = each.name
            mine = ours.get(each.pid)
            if mine is not None and mine.name == each.name:
                mine.id = each.id

    def _registered(self) -> "list[WorkerInfo]":
        from holdfast import insights

        return [each for each in self.app.ask(insights.workers(self.queries)) if each.stopped_at is None]

    def _stop_workers(self) -> None:
        for each in self.workers:
            if each.runs:
                each.process.terminate()
        until = time.monotonic() + _STOPS_WITHIN
        for each in self.workers:
            try:
                each.process.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()
        self._say("The workers are stopped.")

    # --- waiting

    def until(self, condition: Callable[[], bool], otherwise: str, every: float = 0.1) -> None:
        """Waits until something holds. Fails clearly if a worker ends meanwhile, or after a long time."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for each in self.workers:
                if not each.runs and not each.given_up:
                    code = each.process.returncode
                    raise Failure(f"worker {each.name} ended with exit code {code}:\n{_tail(each.log)}")
            if time.monotonic() > deadline:
                logs = "\n".join(f"{each.name}: {_tail(each.log)}" for each in self.workers)
                raise Failure(f"{otherwise} within {PATIENCE:g} s.\n{logs}".rstrip())
            self.ending.pause(every)

    def meanwhile(self, call: Callable[[], T], tick: Callable[[], None]) -> T:
        """What a call gives that takes a while, while something is shown."""
        return self._await(Background(call), tick)

    def _await(self, background: "Background[T]", tick: Callable[[], None]) -> T:
        """What a call gives, while something is shown. Interrupted, it is left to whoever cleans up."""
        while background.goes_on:
            tick()
            self.ending.pause(0.1)
        return background.result()


def _paused(what: str, name: str) -> Failure:
    return Failure(f"the {what} {name!r} is paused here, and the demo needs it: holdfast resume {name}", name="Paused")


def _may_live(worker: "WorkerInfo") -> bool:
    """Not known to be dead: by its long silence when it was asked to stop, or, on this machine, by its process."""
    import socket

    asked = worker.stop_requested_at
    if asked is not None and (asked - worker.seen_at).total_seconds() > _SILENT:
        return False
    if worker.host != socket.gethostname():
        return True
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_TAIL:])
    except OSError:
        return ""


def _quietly(act: Callable[[], Any]) -> None:
    with suppress(Exception):
        act()
