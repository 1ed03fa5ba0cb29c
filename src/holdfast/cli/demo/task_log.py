"""A task and the log of its attempts: what happened to it, and the rows that show it."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from rich.text import Text

from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.formats import between
from holdfast.cli.demo.screen import Screen
from holdfast.cli.output.printing import error_line
from holdfast.insights import AttemptInfo


class TaskLog(NamedTuple):
    """A task and its attempts, as the database has them."""

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
        """Seconds between the end of each attempt and the start of the next, by the database's clock."""
        pairs = zip(self.attempts, self.attempts[1:], strict=False)
        return [(b.claimed_at - a.finished_at).total_seconds() for a, b in pairs if b.claimed_at and a.finished_at]


def attempt_rows(log: TaskLog, screen: Screen, name_of: Callable[[UUID | None], str]) -> list[Text]:
    """The finished attempts of a task: outcome, worker, the wait before it, and its error or duration."""
    rows = []
    for each, wait in zip(log.attempts, [0.0, *log.waits], strict=False):
        if each.outcome is not None:
            after = f"after {wait:.1f} s: " if wait >= 0.1 else ""
            result = error_line(each.error) or between(each.claimed_at, each.finished_at)
            outcome = screen.marked(each.outcome, f"{each.outcome:<8}")
            worker = f"{name_of(each.worker_id):<6}"
            rows.append(
                screen.row(f"attempt {each.attempt}  {each.step:<8}  ", outcome, f"  {worker}  {after}{result}")
            )
    if log.task.phase in ("retrying", "scheduled") and log.task.run_at is not None:
        left = max(0.0, (log.task.run_at - datetime.now(UTC)).total_seconds())
        rows.append(screen.row("           ", (log.task.phase, "yellow"), f", due in {left:.1f} s"))
    return rows


def step_row(label: str, log: TaskLog, screen: Screen, name_of: Callable[[UUID | None], str], dead: str) -> Text:
    """The steps of a task, each with its outcome and the number of its worker; one of the workers may be dead."""
    cells: list[str | tuple[str, str]] = [f"{label:<6}"]
    for each in log.attempts:
        name = name_of(each.worker_id)
        outcome = "lost" if each.outcome is None and name == dead else each.outcome
        cells += [f"  {each.step} ", screen.marked(outcome, "{}" + name.removeprefix("demo-"))]
    return screen.row(*cells)
