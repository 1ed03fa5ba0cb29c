"""The story: its chapters in their order, what is expected of each, and what came of it."""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.cli.demo.screen import Row, Screen
from holdfast.cli.demo.stage import Stage
from holdfast.cli.output.printing import Cell, Failure, coloured, error_line, lasted, line, value

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast.insights import AttemptInfo

_READING = 1.0
"""Seconds after each chapter for those who sit before a terminal."""


@dataclass
class Chapter:
    """What a chapter was about, and what was measured."""

    title: str
    seconds: float = 0.0
    figures: dict[str, Any] = field(default_factory=dict)
    tasks: "list[UUID]" = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """A task and the log of its attempts, as the database has them."""

    task: "TaskInfo"
    attempts: "list[AttemptInfo]"

    @property
    def has_ended(self) -> bool:
        return self.task.state not in ("ready", "running", "waiting")

    @property
    def finished(self) -> "list[AttemptInfo]":
        return [each for each in self.attempts if each.outcome is not None]

    @property
    def path(self) -> list[str]:
        """The steps whose move or end is recorded, in order."""
        return [each.step for each in self.attempts if each.outcome in ("advanced", "done")]

    @property
    def outcomes(self) -> list[str]:
        return [each.outcome or "running" for each in self.attempts]


class Story:
    """Tells, and checks in the database that it was true."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage = stage
        self.screen = screen
        self.chapters: list[Chapter] = []
        self._began = time.monotonic()

    def tell(self) -> None:
        """All chapters. A problem is told and remembered; only what makes it senseless to go on ends it."""
        from holdfast.cli.demo import chapters, frame, trouble

        self.screen.title(
            "Holdfast: durable, resumable tasks on PostgreSQL.",
            "Seven chapters, about half a minute. Ctrl-C ends it, and all it started.",
        )
        try:
            for each in (
                frame.beginning,
                chapters.orders,
                chapters.flaky_call,
                chapters.delayed_step,
                chapters.burst,
                trouble.killed_worker,
                trouble.parked_task,
            ):
                each(self)
        except Failure as failure:
            if failure.name != "Failed":
                raise
            self.expect(False, failure.message)
        if not self.problems:
            self.screen.heading(f"All was as told, in {time.monotonic() - self._began:.0f} s.")

    # --- chapters

    @contextmanager
    def chapter(self, title: str, why: str) -> "Iterator[Chapter]":
        """A chapter, from its heading to its last line."""
        chapter = Chapter(title)
        self.chapters.append(chapter)
        self.screen.heading(f"{len(self.chapters)}. {title}", why)
        began = time.monotonic()
        try:
            yield chapter
            if self.screen.rewrites:
                self.stage.ending.pause(_READING)
        finally:
            chapter.seconds = round(time.monotonic() - began, 3)

    def expect(self, condition: bool, otherwise: str) -> None:
        """Remembers a problem unless something is as told."""
        if not condition:
            self.chapters[-1].problems.append(otherwise)
            self.screen.say(f"This is not as it should be: {line(otherwise)}", "red")

    def expect_done(self, seen: Seen, result: Any) -> None:
        """A task is done with this result, and each of its moves is recorded exactly once."""
        task = seen.task
        what = f"{task.kind} {task.id}"
        self.expect(
            task.state == "done" and task.result == result,
            f"{what} should be done with {value(result, 80)}, but is {task.state} with {value(task.result, 80)}",
        )
        moves = [each.moves for each in seen.attempts if each.outcome in ("advanced", "done")]
        self.expect(
            moves == list(range(task.moves + 1)),
            f"{what} should have each move recorded once, but they are {moves}",
        )

    @property
    def problems(self) -> list[str]:
        return [
            f"{number}. {chapter.title}: {problem}"
            for number, chapter in enumerate(self.chapters, 1)
            for problem in chapter.problems
        ]

    def summary(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "seconds": round(time.monotonic() - self._began, 3),
            "chapters": [
                {"number": number, "ok": not each.problems, **vars(each)}
                for number, each in enumerate(self.chapters, 1)
            ],
            "tasks": [self.stage.app.info(id) for each in self.chapters for id in each.tasks],
        }

    # --- doing

    def enqueue(self, kind: str, args: dict[str, Any]) -> "UUID":
        """Enqueues a task, and shows the command that does the same."""
        from holdfast import named

        shown = " ".join(f"{n}={shlex.quote(v)}" if isinstance(v, str) else f"{n}:={value(v)}" for n, v in args.items())
        self.command(f"holdfast enqueue {kind} {shown}")
        id = self.stage.app.enqueue(named(kind, args)).id
        self.chapters[-1].tasks.append(id)
        return id

    def look(self, id: "UUID") -> Seen:
        from holdfast import insights

        task = self.stage.app.info(id)
        return Seen(task, self.stage.app.ask(insights.attempts(self.stage.queries, id)))

    def watch(
        self,
        ids: "Sequence[UUID]",
        draw: Callable[[list[Seen]], list[Row]],
        until: Callable[[list[Seen]], bool] | None = None,
    ) -> list[Seen]:
        """Shows tasks as they change, until all have ended or are parked, or until something else."""
        latest: list[Seen] = []
        with self.screen.board() as board:

            def is_so() -> bool:
                latest[:] = map(self.look, ids)
                board.show(draw(latest))
                return all(each.has_ended for each in latest) if until is None else until(latest)

            self.stage.until(is_so, f"{len(ids)} tasks did not end")
        return latest

    def attempt_cells(self, attempt: "AttemptInfo", result: str = "") -> list[Cell]:
        """An attempt as one line: number, step, outcome, worker, and its error, result or duration."""
        end = error_line(attempt.error) or result or lasted(attempt.claimed_at, attempt.finished_at)
        outcome = attempt.outcome or "running"
        return [
            f"attempt {attempt.attempt}  {attempt.step:<8}  ",
            (outcome.ljust(8), colour_of(outcome)),
            f"  {self.stage.name_of(attempt.worker_id):<6}  ",
            end,
        ]

    def command(self, text: str) -> None:
        """A command that a person could type; with the schema if one was chosen."""
        schema = self.stage.setup.chosen_schema
        self.screen.command(f"{text} --schema {schema}" if schema else text)

    # --- the end

    def stay(self) -> None:
        """Lets the user try commands until Ctrl-C."""
        from holdfast.cli.demo import frame

        frame.your_turn(self)


def colour_of(outcome: str | None) -> str:
    """The colour of an attempt's outcome; none yet: it is running."""
    cell = coloured(outcome or "running")
    return cell[1] if isinstance(cell, tuple) else ""


def as_text(cells: Sequence[Cell]) -> str:
    """Cells without their colours."""
    return "".join(cell[0] if isinstance(cell, tuple) else cell for cell in cells).rstrip()
