"""The story: seven chapters. What each of them promises is checked in the database."""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Group
from rich.live import Live
from rich.text import Text

from holdfast import embedded, insights, named
from holdfast._db.config.resolve import resolve
from holdfast._model.json.redact import redact
from holdfast.cli.demo.screen import Screen
from holdfast.cli.demo.stage import LEASE, QUEUE, SETTINGS, TASKS, Stage, WorkerProcess
from holdfast.cli.demo.task_log import TaskLog, attempt_rows, step_row
from holdfast.cli.demo.tasks import Pick, Reserve, square
from holdfast.cli.output.printing import Failure, line, value
from holdfast.errors import HoldfastError, NoDatabase

_READING, _LEFTOVERS_TAKE = 1.0, 15.0
_RESTARTED_AFTER = 5.0
"""Seconds a worker must have lived to be started again when it dies."""
_ORDERS = {
    ("lamp", 40, True): ["Reserve", "Charge", "Ship"],
    ("chair", 120, False): ["Reserve", "Restock", "Charge", "Ship"],
    ("ring", 900, True): ["Reserve", "Charge", "Review", "Ship"],
    ("book", 15, True): ["Reserve", "Charge", "Ship"],
    ("piano", 2500, False): ["Reserve", "Restock", "Charge", "Review", "Ship"],
    ("kettle", 35, True): ["Reserve", "Charge", "Ship"],
}
"""Item, price, whether it is in stock; and the steps that such an order takes."""
_PARCELS = ("books", "tea", "maps", "bulbs", "shoes", "clocks")
_WARM_UP, _FEWEST, _MOST, _BURST_SECONDS = 1000, 5000, 20_000, 3
# How much of a burst each worker has done, when it began and ended, and the sum of the results.
_DRAINED = """
SELECT worker_id, count(*), min(claimed_at), max(finished_at), sum((result #>> '{}')::bigint)::bigint
FROM holdfast.archive
WHERE id BETWEEN $1::uuid AND $2::uuid AND kind = 'square' AND state = 'done'
GROUP BY worker_id"""


class Story:
    """Tells the story, and checks in the database that it is true."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage = stage
        self.screen = screen
        self.chapters: list[dict[str, Any]] = []
        self._labels: dict[UUID, str] = {}
        self._killed = ""
        self._began = time.monotonic()

    def tell(self) -> None:
        """Tells all chapters. A broken promise does not end the story; what makes it pointless to go on does."""
        self.screen.print(Text("Holdfast: durable, resumable tasks on PostgreSQL.", "bold"))
        self.screen.say("Seven chapters, about half a minute. Ctrl-C ends it, and all it started.")
        try:
            for title, why, tell in (
                ("A database and two workers", "Holdfast keeps everything in PostgreSQL.", self._database_and_workers),
                ("Orders, step by step", "The move to the next step is recorded before that begins.", self._orders),
                ("A flaky call", "An error uses up one retry; the next attempt waits longer.", self._flaky_call),
                ("A delayed step", "The wait is a column of the row, no process sleeps.", self._delayed_step),
                ("A burst of small tasks", "One call enqueues them, and two workers drain the queue.", self._burst),
                ("A worker is killed", "Another worker takes over its tasks where they stood.", self._crash),
                ("A task is parked, and repaired", "Out of retries, it waits for a person.", self._parked_task),
            ):
                self._chapter(title, why, tell)
        except Failure as failure:
            if failure.name != "Failed":
                raise
            self._expect(False, failure.message)
        if not self.problems:
            self.screen.heading(f"Everything happened as promised, in {time.monotonic() - self._began:.0f} s.")

    def _chapter(self, title: str, why: str, tell: Callable[[], dict[str, Any]]) -> None:
        """One chapter; what it measured is in its figures."""
        chapter: dict[str, Any] = {"title": title, "seconds": 0.0, "figures": {}, "tasks": [], "problems": []}
        self.chapters.append(chapter)
        self.screen.heading(f"{len(self.chapters)}. {title}", why)
        began = time.monotonic()
        try:
            chapter["figures"] = tell()
            if self.screen.rewrites:
                self.stage.pause(_READING)
        finally:
            chapter["seconds"] = round(time.monotonic() - began, 3)

    @property
    def problems(self) -> list[str]:
        return [f"{n}. {c['title']}: {each}" for n, c in enumerate(self.chapters, 1) for each in c["problems"]]

    def summary(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "seconds": round(time.monotonic() - self._began, 3),
            "chapters": [{"number": n, "ok": not c["problems"], **c} for n, c in enumerate(self.chapters, 1)],
            "tasks": [self.stage.app.info(id) for chapter in self.chapters for id in chapter["tasks"]],
        }

    # --- the chapters

    def _database_and_workers(self) -> dict[str, Any]:
        stage, say = self.stage, self.screen.say
        figures = self._start_server() if stage.setup.url is None else {}
        url, schema = stage.setup.url or "", stage.setup.schema
        if not figures:
            say(f"It uses {redact(url)}: tables in the schema {schema}, tasks, which stay, in the queue {QUEUE}.")
        if not _is_default(url):
            say("Commands in another terminal need its URL:")
            self.screen.command(f"$ export HOLDFAST_URL={shlex.quote(redact(url))}")
        self._command("holdfast migrate")
        with self.screen.waiting("The tables are made"):
            figures["migrations"] = len(stage.open())
        say("The tables are made." if figures["migrations"] else "The tables are there already.")
        if stage.stays:
            self._command("holdfast web")
            dashboard = stage.start_dashboard()
            address = dashboard.address
            say(f"All this can be watched in a browser: {address}" if address else line(dashboard.trouble))
        if left := stage.stop_leftovers():
            say(f"Workers of an earlier demo are asked to stop: {left}.")
        self._command(f"holdfast worker {TASKS} {SETTINGS}")
        one, two = stage.start_worker(), stage.start_worker()
        with self.screen.waiting("Two such processes start"):
            stage.await_workers()
        say(f"Twice: {one.name} (process {one.process.pid}) and {two.name} (process {two.process.pid}).")
        until = time.monotonic() + _LEFTOVERS_TAKE
        if left := sum(self._standing().values()):
            say(f"Tasks that an earlier demo left unfinished come first: {left:,}.")
            stage.until(lambda: not any(self._standing().values()) or time.monotonic() > until, "they were not done")
        return figures | {"workers": {each.name: each.process.pid for each in stage.workers}}

    def _start_server(self) -> dict[str, Any]:
        self._command("holdfast pg start")
        began, was_running = time.monotonic(), embedded.find() is not None
        if not was_running:
            self.screen.say("PostgreSQL starts; the first time it sets up its data.")
        with self.screen.waiting("It starts"), self.stage.starting():
            server = self.stage.server.start()
        self.stage.setup.url = server.url()
        took = time.monotonic() - began
        how = "was already running" if was_running else f"started in {took:.1f} s"
        self.screen.say(f"PostgreSQL {server.version} {how}. Only a private socket leads to it.")
        self.screen.say(f"Its data: {server.data}")
        return {"postgresql": server.version, "was_running": was_running, "start_seconds": round(took, 3)}

    def _orders(self) -> dict[str, Any]:
        self._command("holdfast enqueue order.Reserve item=lamp price:=40")
        ids = self._enqueue_all([item for item, *_ in _ORDERS], [Reserve(*order) for order in _ORDERS])
        self.screen.say("And five more. What is out of stock or expensive takes other steps.")
        logs = self._watch(ids)
        for each, ((item, *_), path) in zip(logs, _ORDERS.items(), strict=True):
            self._expect_done(each, f"{item} shipped", path)
        moves = sum(each.task.moves for each in logs)
        self.screen.say(f"{len(logs)} orders done in {moves} moves, each recorded exactly once.")
        return {"orders": len(logs), "moves": moves, "attempts": sum(len(each.attempts) for each in logs)}

    def _flaky_call(self) -> dict[str, Any]:
        self.screen.say("Its task says Retry(3, delay='600ms', backoff=2). The bank fails twice.")
        (log,) = self._watch([self._enqueue("exchange_rate", currency="USD")])
        self._expect_done(log, 1.09)
        self._expect_outcomes(log, "retried", "retried", "done")
        waited = [round(each, 2) for each in log.waits]
        as_promised = all(wait >= delay for wait, delay in zip(log.waits, (0.6, 1.2), strict=False))
        self._expect(as_promised, f"it should have waited 0.6 s and 1.2 s, but waited {waited}")
        return {"attempts": len(log.attempts), "waited_seconds": waited}

    def _delayed_step(self) -> dict[str, Any]:
        self.screen.say("Its first step returns Later(Ask('Ada'), '3s').")
        id = self._enqueue("survey.Deliver", customer="Ada")
        self._command("holdfast tasks state:scheduled")
        (log,) = self._watch([id])
        self._expect_done(log, "Ada was asked", ["Deliver", "Ask"])
        self._expect(max(log.waits, default=0) >= 3, f"Ask should have waited 3 s, but waited {log.waits}")
        return {"waited_seconds": [round(each, 2) for each in log.waits]}

    def _burst(self) -> dict[str, Any]:
        warm_up = self._drain(_WARM_UP)
        many = max(_FEWEST, min(_MOST, round(warm_up["per_second"] * _BURST_SECONDS, -3)))
        self.screen.say(f"{_WARM_UP:,} to warm up took {warm_up['seconds']:.1f} s. Now {many:,}.")
        self.screen.command(f">>> app.sync.enqueue_many(square.bind(n) for n in range({many:_}))")
        figures = self._drain(many)
        rate, shares = figures["per_second"], sorted(figures["by_worker"].items())
        self.screen.say(f"{rate:,} a second on this machine, from the first claim to the last result.")
        self.screen.say(", ".join(f"{name} did {tasks:,}" for name, tasks in shares) + ".")
        return figures

    def _drain(self, many: int) -> dict[str, Any]:
        """Enqueues small tasks by one call, and waits until they are done; what was measured."""
        began = time.monotonic()
        with self.screen.waiting(f"{many:,} tasks are enqueued") as status:
            ids = [ref.id for ref in self.stage.app.enqueue_many(square.bind(n) for n in range(many))]
            enqueued = time.monotonic() - began
            rows: list[Any] = []

            def is_drained() -> bool:
                rows[:] = self.stage.ask(_DRAINED, min(ids), max(ids))
                done = sum(row[1] for row in rows)
                status.update(f"{done:,} of {many:,} tasks are done")
                return bool(done >= many)

            self.stage.until(is_drained, f"{many:,} tasks were not done")
        workers, counts, begins, ends, totals = zip(*rows, strict=True)
        self._expect(sum(counts) == many, f"{many} tasks should be done once, but {sum(counts)} are")
        total = sum(n * n for n in range(many))
        self._expect(sum(totals) == total, f"the results should add up to {total}, but make {sum(totals)}")
        seconds = (max(ends) - min(begins)).total_seconds()
        return {
            "tasks": many,
            "enqueue_seconds": round(enqueued, 3),
            "seconds": round(seconds, 3),
            "per_second": round(many / max(seconds, 0.001)),
            "by_worker": {self.stage.name_of(id): count for id, count in zip(workers, counts, strict=True)},
        }

    def _crash(self) -> dict[str, Any]:
        # Fresh from thousands of small tasks, a worker claims ahead for a moment; here each is to have its share.
        self.stage.pause(1.5)
        self.screen.say(f"{len(_PARCELS)} parcels of four steps. Behind each step: the number of its worker.")
        ids = self._enqueue_all(_PARCELS, [Pick(what) for what in _PARCELS])
        with self.screen.board() as board:
            logs = self._watch(ids, board, until=lambda logs: self._busiest(logs) is not None)
            victim = self._busiest(logs) or self.stage.workers[0]
            victim.may_end, self._killed = True, victim.name
            victim.process.kill()
            victim.process.wait()
            killed_at = time.monotonic()
            self.screen.say(
                f"$ kill -9 {victim.process.pid}: {victim.name} is dead. Its lease of {LEASE} runs out.", "red"
            )
            self._watch(ids, board, until=lambda logs: not self._has_orphan(logs))
            after = time.monotonic() - killed_at
            self.screen.say(f"Its tasks were taken over {after:.1f} s later.")
            logs = self._watch(ids, board)
        taken_over = [each for each in logs if self._lost(each) is not None]
        self._expect(bool(taken_over), "a worker should have died with its tasks, by their log")
        for each, what in zip(logs, _PARCELS, strict=True):
            self._expect_done(each, f"a box of {what} for Ada", ["Pick", "Pack", "Label", "Load"])
            if (at := self._lost(each)) is not None:
                lost, *rest = each.attempts[at:]
                went_on = [attempt.moves for attempt in rest][:1] == [lost.moves]
                elsewhere = all(attempt.worker_id != lost.worker_id for attempt in rest)
                self._expect(went_on and elsewhere, f"the {what} should have gone on at {lost.step} at another worker")
        for each in taken_over[:1]:
            self._command(f"holdfast show {each.task.id}")
            self.screen.print(Group(*attempt_rows(each, self.screen, self.stage.name_of)))
            self.screen.say("What was recorded did not run again; what was under way did.")
        self.stage.start_worker()
        self.screen.say(f"The lease is {LEASE} here; the default is 30s. A new worker is started.")
        return {
            "killed": victim.name,
            "parcels": len(logs),
            "taken_over": [each.task.id for each in taken_over],
            "taken_over_after_seconds": round(after, 2),
        }

    def _busiest(self, logs: list[TaskLog]) -> WorkerProcess | None:
        """The worker with most tasks that have a step behind them, if it has two at least."""
        running = [each.task.worker_id for each in logs if each.task.state == "running" and each.task.moves]
        name, tasks = Counter(map(self.stage.name_of, running)).most_common(1)[0] if running else ("", 0)
        return next((each for each in self.stage.workers if each.name == name and tasks > 1), None)

    def _has_orphan(self, logs: list[TaskLog]) -> bool:
        """Whether the killed worker still has a task, until its lease runs out."""
        return self._killed in [self.stage.name_of(e.task.worker_id) for e in logs if e.task.state == "running"]

    def _lost(self, log: TaskLog) -> int | None:
        """Which of its attempts ended with the killed worker."""
        names = [self.stage.name_of(each.worker_id) if each.outcome == "lost" else "" for each in log.attempts]
        return names.index(self._killed) if self._killed in names else None

    def _parked_task(self) -> dict[str, Any]:
        file = self.stage.folder / "name.txt"
        id = self._enqueue("greeter.ReadName", filename=str(file))
        (log,) = self._watch([id])
        error = str((log.task.error or {}).get("message"))
        self._expect(log.task.state == "parked", f"it should be parked, but is {log.task.state}")
        self._expect_outcomes(log, "retried", "retried", "failed")
        self._expect("No such file" in error, f"the error should name the file, but is {error}")
        if log.task.state != "parked":
            return {"error": error}
        self.screen.say(f"It is parked: {error}", "red")
        self.screen.command(f"$ echo Ada > {file}")
        file.write_text("Ada\n", encoding="utf-8")
        self._command(f"holdfast retry {id}")
        self.stage.app.retry(id, by="holdfast demo", why="the file is there now")
        (log,) = self._watch([id], after=len(log.attempts))
        self._expect_done(log, "Hello, Ada!", ["ReadName", "SayHello"])
        return {"attempts": len(log.attempts), "error": error, "result": log.task.result}

    # --- what chapters do

    def _expect(self, condition: bool, otherwise: str) -> None:
        """Prints and remembers a broken promise, unless the condition holds."""
        if not condition:
            self.chapters[-1]["problems"].append(otherwise)
            self.screen.say(f"Not as promised: {line(otherwise)}", "red")

    def _expect_outcomes(self, log: TaskLog, *outcomes: str) -> None:
        self._expect(log.outcomes == [*outcomes], f"its attempts should be {[*outcomes]}, but are {log.outcomes}")

    def _expect_done(self, log: TaskLog, result: Any, path: list[str] | None = None) -> None:
        """A task is done with this result, by these steps, and each of its moves is recorded exactly once."""
        task = log.task
        what = f"{task.kind} {task.id} should"
        is_done = task.state == "done" and task.result == result
        state = f"{task.state} with {value(task.result, 80)}"
        self._expect(is_done, f"{what} be done with {value(result, 80)}, but is {state}")
        moves = [each.moves for each in log.attempts if each.outcome in ("advanced", "done")]
        once = moves == list(range(task.moves + 1))
        self._expect(once, f"{what} have each move recorded once, but they are {moves}")
        self._expect(path in (None, log.path), f"{what} go {path}, but went {log.path}")

    def _command(self, text: str) -> None:
        """A command that a person could type; with the schema if one was chosen."""
        schema = self.stage.setup.chosen_schema
        self.screen.command(f"$ {text} --schema {schema}" if schema else f"$ {text}")

    def _enqueue(self, kind: str, **args: str) -> UUID:
        """Enqueues a task, and shows the command that does the same."""
        self._command(f"holdfast enqueue {kind} " + " ".join(f"{n}={shlex.quote(v)}" for n, v in args.items()))
        return self._enqueue_all([kind], [named(kind, args)])[0]

    def _enqueue_all(self, labels: Sequence[str], calls: Sequence[Any]) -> list[UUID]:
        ids = [ref.id for ref in self.stage.app.enqueue_many(calls)]
        self._labels.update(zip(ids, labels, strict=True))
        self.chapters[-1]["tasks"] += ids
        return ids

    def _watch(
        self,
        ids: list[UUID],
        board: Live | None = None,
        *,
        after: int = 0,
        until: Callable[[list[TaskLog]], bool] = lambda logs: False,
    ) -> list[TaskLog]:
        """Shows tasks as they change, until something holds, or until all have ended or are parked."""
        app, queries, name_of = self.stage.app, self.stage.queries, self.stage.name_of
        logs: list[TaskLog] = []

        def has_come() -> bool:
            logs[:] = [TaskLog(app.info(id), app.ask(insights.attempts(queries, id))) for id in ids]
            rows = attempt_rows(logs[0], self.screen, name_of)[after:]
            if len(ids) > 1:
                rows = [step_row(self._labels[e.task.id], e, self.screen, name_of, self._killed) for e in logs]
            shown.update(Group(*rows), refresh=True)
            return until(logs) or all(each.has_ended for each in logs)

        with self.screen.board() if board is None else nullcontext(board) as shown:
            self.stage.until(has_come, f"{len(ids)} tasks did not end")
        if len(ids) == 1 and logs[0].task.state == "done":
            self.screen.say(f"Result: {value(logs[0].task.result)}", "green")
        return logs

    def _standing(self) -> dict[str, int]:
        """How many tasks of the demo are under way."""
        queues = self.stage.app.ask(insights.queues(self.stage.queries))
        ours = [each for each in queues if each.name == QUEUE]
        return {name: sum(getattr(each, name) for each in ours) for name in ("due", "running", "scheduled")}

    # --- the user's turn

    def stay(self) -> None:
        """Suggests commands, and keeps the workers running until Ctrl-C."""
        screen, folder = self.screen, self.stage.folder
        self.stage.is_users_turn = True
        screen.heading("Your turn, in another terminal, in this folder. Ctrl-C here ends the demo.")
        if shutil.which("holdfast") is None:
            screen.command(f'$ export PATH="{Path(sys.executable).parent}:$PATH"')
        for command in (
            "tasks kind:order",
            f"show {self.chapters[5]['figures']['taken_over'][0]}",
            "enqueue add x:=20 y:=22 --wait",
            f"enqueue greeter.ReadName filename={folder}/other.txt",
            "parked",
            "tasks state:parked",
            "workers",
            f"graph {TASKS}",
        ):
            self._command(f"holdfast {command}")
        screen.say(f"The logs of the workers: {folder}/demo-*.log")
        screen.say("To begin with a file of your own: holdfast init, then holdfast dev tasks.py.")
        with screen.board(stays=False) as board:
            while True:
                try:
                    standing = ", ".join(f"{number:,} {phase}" for phase, number in self._standing().items())
                except HoldfastError as error:
                    standing = f"the database does not answer: {line(error)}"
                running = ", ".join(each.name for each in self.stage.workers if each.runs) or "no worker"
                board.update(screen.row(f"{running}: {standing}"), refresh=True)
                for each in self.stage.workers:
                    if not each.runs and not each.may_end:
                        self._replace(each)
                self.stage.pause(0.5)

    def _replace(self, worker: WorkerProcess) -> None:
        """Starts another worker for one that died, unless it was asked to stop, or died at its start."""
        worker.may_end = True
        code = worker.process.returncode
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == 0:
            how, after = "was asked to stop, and has", f"A new one: holdfast worker {TASKS} -q {QUEUE}"
        elif time.monotonic() - worker.began < _RESTARTED_AFTER:
            after = f"It is not started again; see {worker.log}"
        else:
            new = self.stage.start_worker()
            after = f"{new.name} (process {new.process.pid}) takes its place."
        self.screen.say(f"{worker.name} {how}. {after}")


def _is_default(url: str) -> bool:
    """Whether commands use this database without being given its URL."""
    with suppress(NoDatabase):
        return resolve().url == url
    return False
