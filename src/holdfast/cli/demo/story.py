"""The story: seven chapters. What each of them promises is checked in the database."""

import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from rich.console import Group
from rich.live import Live
from rich.text import Text

from holdfast import embedded, insights, named
from holdfast._db.config.resolve import resolve
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.json.redact import redact
from holdfast.cli.demo.screen import Screen
from holdfast.cli.demo.stage import LEASE, QUEUE, SETTINGS, TASKS, Stage, WorkerProcess
from holdfast.cli.demo.tasks import Pick, Reserve, square
from holdfast.cli.output.printing import Failure, error_line, lasted, line, value
from holdfast.errors import HoldfastError, NoDatabase
from holdfast.insights import AttemptInfo

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


class Seen(NamedTuple):
    """A task and the log of its attempts, as the database has them."""

    task: TaskInfo
    attempts: list[AttemptInfo]

    @property
    def has_ended(self) -> bool:
        return self.task.state not in ("ready", "running", "waiting")

    @property
    def path(self) -> list[str]:
        """The steps whose move or end is recorded, in order."""
        return [each.step for each in self.attempts if each.outcome in ("advanced", "done")]

    @property
    def outcomes(self) -> list[str]:
        return [each.outcome for each in self.attempts if each.outcome in ("retried", "failed", "done")]

    @property
    def waits(self) -> list[float]:
        """Seconds between the end of each attempt and the beginning of the next, by the database's clock."""
        pairs = zip(self.attempts, self.attempts[1:], strict=False)
        return [(b.claimed_at - a.finished_at).total_seconds() for a, b in pairs if b.claimed_at and a.finished_at]


class Story:
    """Tells the story, and checks that it was true."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage = stage
        self.screen = screen
        self.chapters: list[dict[str, Any]] = []
        self._labels: dict[UUID, str] = {}
        self._killed = ""
        self._began = time.monotonic()

    def tell(self) -> None:
        """All chapters. A problem is told and remembered; only what makes it senseless to go on ends it."""
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
            self.screen.heading(f"All was as told, in {time.monotonic() - self._began:.0f} s.")

    def _chapter(self, title: str, why: str, tell: Callable[[], dict[str, Any]]) -> None:
        """One chapter; what it measured is in its figures."""
        chapter: dict[str, Any] = {"title": title, "seconds": 0.0, "figures": {}, "tasks": [], "problems": []}
        self.chapters.append(chapter)
        self.screen.heading(f"{len(self.chapters)}. {title}", why)
        began = time.monotonic()
        chapter["figures"] = tell()
        if self.screen.rewrites:
            self.stage.pause(_READING)
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
        if not _is_found(url):
            say("Commands in another terminal find it by this:")
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
        seen = self._watch(ids)
        for each, ((item, *_), path) in zip(seen, _ORDERS.items(), strict=True):
            self._expect_done(each, f"{item} shipped", path)
        moves = sum(each.task.moves for each in seen)
        self.screen.say(f"{len(seen)} orders done in {moves} moves, each recorded exactly once.")
        return {"orders": len(seen), "moves": moves, "attempts": sum(len(each.attempts) for each in seen)}

    def _flaky_call(self) -> dict[str, Any]:
        self.screen.say("Its task says Retry(3, delay='600ms', backoff=2). The bank fails twice.")
        (seen,) = self._watch([self._enqueue("exchange_rate", currency="USD")])
        self._expect_done(seen, 1.09)
        self._expect_outcomes(seen, "retried", "retried", "done")
        waited = [round(each, 2) for each in seen.waits]
        as_told = all(wait >= delay for wait, delay in zip(seen.waits, (0.6, 1.2), strict=False))
        self._expect(as_told, f"it should have waited 0.6 s and 1.2 s, but waited {waited}")
        return {"attempts": len(seen.attempts), "waited_seconds": waited}

    def _delayed_step(self) -> dict[str, Any]:
        self.screen.say("Its first step returns Later(Ask('Ada'), '3s').")
        id = self._enqueue("survey.Deliver", customer="Ada")
        self._command("holdfast tasks state:scheduled")
        (seen,) = self._watch([id])
        self._expect_done(seen, "Ada was asked", ["Deliver", "Ask"])
        self._expect(max(seen.waits, default=0) >= 3, f"Ask should have waited 3 s, but waited {seen.waits}")
        return {"waited_seconds": [round(each, 2) for each in seen.waits]}

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
            seen = self._watch(ids, board, until=lambda seen: self._busiest(seen) is not None)
            victim = self._busiest(seen) or self.stage.workers[0]
            victim.may_end, self._killed = True, victim.name
            victim.process.kill()
            victim.process.wait()
            killed_at = time.monotonic()
            self.screen.say(
                f"$ kill -9 {victim.process.pid}: {victim.name} is dead. Its lease of {LEASE} runs out.", "red"
            )
            self._watch(ids, board, until=lambda seen: not self._has_orphan(seen))
            after = time.monotonic() - killed_at
            self.screen.say(f"Its tasks were taken over {after:.1f} s later.")
            seen = self._watch(ids, board)
        taken_over = [each for each in seen if self._lost(each) is not None]
        self._expect(bool(taken_over), "a worker should have died with its tasks, by their log")
        for each, what in zip(seen, _PARCELS, strict=True):
            self._expect_done(each, f"a box of {what} for Ada", ["Pick", "Pack", "Label", "Load"])
            if (at := self._lost(each)) is not None:
                lost, *rest = each.attempts[at:]
                went_on = [attempt.moves for attempt in rest][:1] == [lost.moves]
                elsewhere = all(attempt.worker_id != lost.worker_id for attempt in rest)
                self._expect(went_on and elsewhere, f"the {what} should have gone on at {lost.step} at another worker")
        for each in taken_over[:1]:
            self._command(f"holdfast show {each.task.id}")
            self.screen.print(Group(*self._log(each)))
            self.screen.say("What was recorded did not run again; what was under way did.")
        self.stage.start_worker()
        self.screen.say(f"The lease is {LEASE} here; the default is 30s. A new worker is started.")
        return {
            "killed": victim.name,
            "parcels": len(seen),
            "taken_over": [each.task.id for each in taken_over],
            "taken_over_after_seconds": round(after, 2),
        }

    def _busiest(self, seen: list[Seen]) -> WorkerProcess | None:
        """The worker with most tasks that have a step behind them, if it has two at least."""
        running = [each.task.worker_id for each in seen if each.task.state == "running" and each.task.moves]
        name, tasks = Counter(map(self.stage.name_of, running)).most_common(1)[0] if running else ("", 0)
        return next((each for each in self.stage.workers if each.name == name and tasks > 1), None)

    def _has_orphan(self, seen: list[Seen]) -> bool:
        """Whether the killed worker still has a task, until its lease runs out."""
        return self._killed in [self.stage.name_of(e.task.worker_id) for e in seen if e.task.state == "running"]

    def _lost(self, seen: Seen) -> int | None:
        """Which of its attempts ended with the killed worker."""
        names = [self.stage.name_of(each.worker_id) if each.outcome == "lost" else "" for each in seen.attempts]
        return names.index(self._killed) if self._killed in names else None

    def _parked_task(self) -> dict[str, Any]:
        file = self.stage.folder / "name.txt"
        id = self._enqueue("greeter.ReadName", filename=str(file))
        (seen,) = self._watch([id])
        error = str((seen.task.error or {}).get("message"))
        self._expect(seen.task.state == "parked", f"it should be parked, but is {seen.task.state}")
        self._expect_outcomes(seen, "retried", "retried", "failed")
        self._expect("No such file" in error, f"the error should name the file, but is {error}")
        self.screen.say(f"It is parked: {error}", "red")
        self.screen.command(f"$ echo Ada > {file}")
        file.write_text("Ada\n", encoding="utf-8")
        self._command(f"holdfast retry {id}")
        self.stage.app.retry(id, by="holdfast demo", why="the file is there now")
        (seen,) = self._watch([id], after=len(seen.attempts))
        self._expect_done(seen, "Hello, Ada!", ["ReadName", "SayHello"])
        return {"attempts": len(seen.attempts), "error": error, "result": seen.task.result}

    # --- what chapters do

    def _expect(self, condition: bool, otherwise: str) -> None:
        """Remembers a problem unless something is as told."""
        if not condition:
            self.chapters[-1]["problems"].append(otherwise)
            self.screen.say(f"This is not as it should be: {line(otherwise)}", "red")

    def _expect_outcomes(self, seen: Seen, *outcomes: str) -> None:
        self._expect(seen.outcomes == [*outcomes], f"its attempts should be {[*outcomes]}, but are {seen.outcomes}")

    def _expect_done(self, seen: Seen, result: Any, path: list[str] | None = None) -> None:
        """A task is done with this result, by these steps, and each of its moves is recorded exactly once."""
        task = seen.task
        what = f"{task.kind} {task.id} should"
        is_done = task.state == "done" and task.result == result
        told = f"{task.state} with {value(task.result, 80)}"
        self._expect(is_done, f"{what} be done with {value(result, 80)}, but is {told}")
        moves = [each.moves for each in seen.attempts if each.outcome in ("advanced", "done")]
        once = moves == list(range(task.moves + 1))
        self._expect(once, f"{what} have each move recorded once, but they are {moves}")
        self._expect(path in (None, seen.path), f"{what} go {path}, but went {seen.path}")

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
        until: Callable[[list[Seen]], bool] = lambda seen: False,
    ) -> list[Seen]:
        """Shows tasks as they change, until something holds, or until all have ended or are parked."""
        app, queries = self.stage.app, self.stage.queries
        seen: list[Seen] = []

        def has_come() -> bool:
            seen[:] = [Seen(app.info(id), app.ask(insights.attempts(queries, id))) for id in ids]
            rows = [self._path(each) for each in seen] if len(ids) > 1 else self._log(seen[0])[after:]
            shown.update(Group(*rows), refresh=True)
            return until(seen) or all(each.has_ended for each in seen)

        with self.screen.board() if board is None else nullcontext(board) as shown:
            self.stage.until(has_come, f"{len(ids)} tasks did not end")
        if len(ids) == 1 and seen[0].task.state == "done":
            self.screen.say(f"Result: {value(seen[0].task.result)}", "green")
        return seen

    def _log(self, seen: Seen) -> list[Text]:
        """Its finished attempts: outcome, worker, how long it waited before, its error or how long it took."""
        rows = []
        for each, wait in zip(seen.attempts, [0.0, *seen.waits], strict=False):
            if each.outcome is not None:
                waited = f"after {wait:.1f} s: " if wait >= 0.1 else ""
                told = error_line(each.error) or lasted(each.claimed_at, each.finished_at)
                head = f"attempt {each.attempt}  {each.step:<8}  "
                tail = f"  {self.stage.name_of(each.worker_id):<6}  {waited}{told}"
                rows.append(self.screen.row(head, self.screen.marked(each.outcome, f"{each.outcome:<8}"), tail))
        if seen.task.phase in ("retrying", "scheduled") and seen.task.run_at is not None:
            left = max(0.0, (seen.task.run_at - datetime.now(UTC)).total_seconds())
            rows.append(self.screen.row("           ", (seen.task.phase, "yellow"), f", due in {left:.1f} s"))
        return rows

    def _path(self, seen: Seen) -> Text:
        """The steps of a task, each with its outcome and the number of its worker."""
        cells: list[str | tuple[str, str]] = [f"{self._labels[seen.task.id]:<6}"]
        for each in seen.attempts:
            name = self.stage.name_of(each.worker_id)
            outcome = "lost" if each.outcome is None and name == self._killed else each.outcome
            cells += [f"  {each.step} ", self.screen.marked(outcome, "{}" + name.removeprefix("demo-"))]
        return self.screen.row(*cells)

    def _standing(self) -> dict[str, int]:
        """How many tasks of the demo are under way."""
        queues = self.stage.app.ask(insights.queues(self.stage.queries))
        found = [each for each in queues if each.name == QUEUE]
        return {name: sum(getattr(each, name) for each in found) for name in ("due", "running", "scheduled")}

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


def _is_found(url: str) -> bool:
    """Whether commands find this database by themselves."""
    with suppress(NoDatabase):
        return resolve().url == url
    return False
