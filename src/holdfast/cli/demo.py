"""`holdfast demo`: a database, a worker and a few tasks, told step by step."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import Setup, common_options, pass_setup
from holdfast.cli.output import FAILED, Failure, coloured, error_line, lasted, print_json, styled, value
from holdfast.cli.tasks import print_tasks
from holdfast.errors import NoDatabase

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.reference import TaskInfo
    from holdfast.insights import AttemptInfo

PATIENCE = 60.0
"""Seconds within which everything here must happen."""
_TASKS = "holdfast.cli.demo_tasks"


@click.command()
@click.option("--once", is_flag=True, help="End when all is told. Exit code 1 if a task did not end as told.")
@common_options
@pass_setup
def demo(setup: Setup, /, once: bool) -> None:
    """Show what Holdfast does, in a few seconds.

    It starts the embedded server of this project and a worker, runs tasks, lets one fail, repairs it, and tells
    everything it does. Without --once it stays until Ctrl-C, for you to try commands. With --url it uses that
    database instead.

    \b
    Example:
      holdfast demo
      holdfast demo --once
    """
    with _ended_by_signals() as ignore_signals, ExitStack() as stack:
        try:
            story = Story(setup, stack)
            story.tell()
            if setup.json:
                print_json({"ok": not story.problems, "problems": story.problems, "tasks": story.tasks})
            if not once and not story.problems:
                story.stay()
        finally:
            ignore_signals()  # while everything is ended
    if story.problems:
        raise Failure("the demo did not end as told: " + "; ".join(story.problems), FAILED, "DemoFailed")


class Story:
    """What is told and what happens meanwhile. Everything it starts is ended by the stack."""

    def __init__(self, setup: Setup, stack: ExitStack) -> None:
        self._setup = setup
        self._stack = stack
        self._quiet = setup.json
        self._chapter = 0
        self.problems: list[str] = []
        self.tasks: list[TaskInfo] = []
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-demo-")))
        self._name_file = self._folder / "name.txt"

    def tell(self) -> None:
        self._say(click.style("Holdfast: durable, resumable tasks on PostgreSQL", bold=True))
        self._database()
        self._app, self._queries = self._stack.enter_context(self._setup.opened())
        self._worker()
        self._functions()
        self._steps()
        self._failure()
        self._repair()
        self._look()

    # --- chapters

    def _database(self) -> None:
        import asyncio

        from holdfast._db.migrate import migrate

        self._heading("A database, and tables in it")
        if self._setup.url is None:
            self._start_server()
        self._command(f"holdfast migrate{self._where()}")
        applied = asyncio.run(migrate(self._setup.database().url, self._setup.schema))
        self._say("The tables are made." if applied else "The tables are already there.")

    def _start_server(self) -> None:
        from holdfast import embedded

        self._command("holdfast pg start")
        was_running = embedded.find() is not None
        server = embedded.start()
        if not was_running:
            self._stack.callback(self._stop_server, server)
        self._setup.url = server.url()
        said = "is already running" if was_running else "is started; it listens on a private socket only"
        self._say(f"PostgreSQL {server.version} {said}.")
        self._say(f"Its data is in {server.data}.")

    def _stop_server(self, server: Any) -> None:
        server.stop()
        self._say("PostgreSQL is stopped; its data stays.")

    def _worker(self) -> None:
        self._heading("A worker")
        self._command(f"holdfast worker {_TASKS}{self._where()}")
        log = self._folder / "worker.log"
        command = [sys.executable, "-m", "holdfast.cli", "worker", _TASKS, "--name", "demo"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--schema", self._setup.schema],
                cwd=self._folder,
                env={**os.environ, "HOLDFAST_URL": self._setup.url or ""},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the demo; the demo stops its worker
            )
        self._stack.callback(self._stop_worker)
        self._until(self._is_introduced, "the worker did not start", log)
        self._say(f"Process {self._process.pid} runs the tasks of that module.")

    def _is_introduced(self) -> bool:
        from holdfast import insights

        return any(
            each.pid == self._process.pid and each.stopped_at is None
            for each in self._app.ask(insights.workers(self._queries))
        )

    def _stop_worker(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._say(f"\n   The worker is stopped (exit code {self._process.returncode}).")

    def _functions(self) -> None:
        self._heading("Plain functions in the background")
        for kind, args in (
            ("add", {"x": 2, "y": 3}),
            ("add", {"x": 40, "y": 2}),
            ("count_words", {"text": "tasks that hold fast"}),
        ):
            id = self._enqueue(kind, args, " --wait")
            task = self._follow(id, show=False)
            self._say(f"{kind} gives {click.style(value(task.result), fg='green')}")
            expected = 4 if kind == "count_words" else args["x"] + args["y"]  # type: ignore[operator]
            self._expect(task.state == "done" and task.result == expected, f"{kind} should have given {expected}")

    def _steps(self) -> None:
        self._heading("A task of three steps, with a wait of one second after the first")
        id = self._enqueue("parcel.Pack", {"what": "books"})
        self._say("Each move is recorded: after a crash it would go on from its last step.")
        task = self._follow(id)
        self._say(f"Result: {click.style(value(task.result), fg='green')}")
        self._expect(task.result == "Ada has a box with books" and task.moves == 2, "the parcel should have arrived")

    def _failure(self) -> None:
        self._heading("A step that fails")
        self._say(f"It reads a file that is not there: {self._name_file}")
        self._greeter = self._enqueue("greeter.ReadName", {"filename": str(self._name_file)})
        self._say("Its step says Retry(5, delay='300ms'): six attempts in all.")
        task = self._follow(self._greeter)
        self._say(f"Now it is {styled(coloured(task.state))}: it keeps its place and waits for a person.")
        message = str((task.error or {}).get("message"))
        self._expect(task.state == "parked" and task.attempt == 6, "the greeter should be parked after 6 attempts")
        self._expect("No such file or directory" in message, "the greeter should tell the operating system's message")

    def _repair(self) -> None:
        self._heading("Somebody repairs the cause and says: retry")
        self._command(f"echo Ada > {self._name_file}")
        self._name_file.write_text("Ada\n", encoding="utf-8")
        self._command(f"holdfast retry {self._greeter}{self._where()}")
        before = len(self._attempts(self._greeter))
        self._app.retry(self._greeter, by="holdfast demo", why="the file is there now")
        task = self._follow(self._greeter, after=before)
        self._say(f"Result: {click.style(value(task.result), fg='green')}")
        self._expect(task.state == "done" and task.result == "Hello, Ada!", "the greeting should have appeared")

    def _look(self) -> None:
        self._heading("Everything is in the database")
        self._command(f"holdfast tasks{self._where()}")
        if not self._quiet:
            print_tasks([self._app.info(each.id) for each in reversed(self.tasks)], "   ")

    def stay(self) -> None:
        """Lets the user try commands until Ctrl-C."""
        self._heading("Your turn, in another terminal. Ctrl-C here ends the demo")
        other = self._folder / "other.txt"
        for command in (
            f"holdfast show {self._greeter}",
            "holdfast enqueue add x:=20 y:=22 --wait",
            f"holdfast enqueue greeter.ReadName filename={other}",
            "holdfast tasks --state parked",
            "holdfast stop --wait",
        ):
            self._command(command + self._where())
        try:
            code = self._process.wait()
        except KeyboardInterrupt:
            self._say("")
            return
        self._expect(code == 0, f"the worker ended with exit code {code}")
        self._say("The worker was stopped.")

    # --- doing

    def _enqueue(self, kind: str, args: dict[str, Any], more: str = "") -> "UUID":
        from holdfast import named

        shown = " ".join(f"{n}={shlex.quote(v)}" if isinstance(v, str) else f"{n}:={v}" for n, v in args.items())
        self._command(f"holdfast enqueue {kind} {shown}{more}{self._where()}")
        return self._app.enqueue(named(kind, args)).id

    def _follow(self, id: "UUID", *, after: int = 0, show: bool = True) -> "TaskInfo":
        """Tells the attempts of a task as they end, until it has ended or is parked."""
        told = after

        def has_ended() -> bool:
            nonlocal told
            state = self._app.info(id).state
            ended = [each for each in self._attempts(id) if each.outcome is not None]
            for each in ended[told:] if show else []:
                self._say(_attempt_line(each))
            told = len(ended)
            return state not in ("ready", "running", "waiting")

        self._until(has_ended, f"task {id} did not end", self._folder / "worker.log")
        task = self._app.info(id)
        self.tasks = [each for each in self.tasks if each.id != id] + [task]
        return task

    def _attempts(self, id: "UUID") -> "list[AttemptInfo]":
        from holdfast import insights

        return self._app.ask(insights.attempts(self._queries, id))

    def _until(self, condition: Callable[[], bool], otherwise: str, log: Path) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self._process.poll() is not None:
                raise Failure(f"the worker ended with exit code {self._process.returncode}:\n{_tail(log)}")
            if time.monotonic() > deadline:
                raise Failure(f"{otherwise} within {PATIENCE:g} s:\n{_tail(log)}")
            time.sleep(0.05)

    def _expect(self, condition: bool, otherwise: str) -> None:
        if not condition:
            self.problems.append(otherwise)
            self._say(click.style(f"This is not as it should be: {otherwise}.", fg="red"))

    # --- telling

    def _heading(self, text: str) -> None:
        self._chapter += 1
        self._say(f"\n{click.style(f'{self._chapter}. {text}', bold=True)}", indent="")

    def _command(self, text: str) -> None:
        self._say(click.style(f"$ {text}", fg="cyan"))

    def _say(self, text: str, indent: str = "   ") -> None:
        if not self._quiet:
            click.echo(f"{indent if self._chapter else ''}{text}")

    def _where(self) -> str:
        """What a user has to add to the commands told: nothing if they find the database by themselves."""
        from holdfast._db.config import redact, resolve

        schema = "" if self._setup.schema == "holdfast" else f" --schema {self._setup.schema}"
        try:
            if resolve().url == self._setup.url:
                return schema
        except NoDatabase:
            pass
        return f" --url {shlex.quote(redact(self._setup.url or ''))}{schema}"


def _attempt_line(attempt: "AttemptInfo") -> str:
    outcome = styled(coloured(attempt.outcome or ""), 9)
    took = lasted(attempt.claimed_at, attempt.finished_at)
    error = error_line(attempt.error)
    return f"attempt {attempt.attempt}  {attempt.step:<9} {outcome} {error or took}"


def _tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text("utf-8", "replace").splitlines()[-20:])
    except OSError:
        return ""


@contextmanager
def _ended_by_signals() -> Iterator[Callable[[], None]]:
    """SIGTERM and a closed terminal end the demo as Ctrl-C does: with everything it started."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    names = ("SIGTERM", "SIGHUP", "SIGINT")
    known: list[signal.Signals] = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {each: signal.signal(each, interrupt) for each in known}

    def ignore() -> None:
        for each in known:
            signal.signal(each, signal.SIG_IGN)

    try:
        yield ignore
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
