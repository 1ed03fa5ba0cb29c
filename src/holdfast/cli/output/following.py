"""Following a task until it ends, with a line on the terminal that says how it stands."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.cli.output.printing import line, note
from holdfast.errors import NoResult, ResultTimeout

if TYPE_CHECKING:
    from rich.live import Live

    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp

PATIENCE = 2.0
"""Seconds without a start after which a person wants to know why."""


def follow(
    app: "SyncApp",
    queries: "Queries",
    id: UUID,
    timeout: float | None,
    *,
    quiet: bool = False,
    label: str = "",
    told: "TaskInfo | None" = None,
) -> "TaskInfo":
    """The task once it has ended or is parked, or as it stands when time is up: `has_ended` tells which.

    On a terminal a line shows how it stands. If it does not start, the reason is told once; `quiet` leaves out both.
    `told` is the task as it stood when the reason was told already.
    """
    from holdfast import insights

    until = None if timeout is None else time.monotonic() + timeout
    reasons = _Reasons(app, id, told)
    with _going_on(id), ProgressLine(quiet=quiet) as progress:
        for pause in insights.patiently():
            task = app.info(id)
            left = pause if until is None else min(pause, until - time.monotonic())
            if has_ended(task) or left <= 0:
                return task
            if not quiet and (reason := reasons.worth_telling(task)):
                progress.say(reason)
            progress.show(label + _standing(task))
            time.sleep(left)
    raise AssertionError("patience has no end")


def has_ended(task: "TaskInfo") -> bool:
    """Whether nothing more will happen to it by itself."""
    return task.finished_at is not None or task.state == "parked"


def why_no_result(app: "SyncApp", task: "TaskInfo", timeout: float | None) -> NoResult | None:
    """Why a task that was followed has no result to give; None if it has one."""
    from holdfast import insights
    from holdfast._model.enqueue.ref import Ref

    if not has_ended(task):
        within = "" if timeout is None else f" within {timeout:g} s"
        return ResultTimeout(f"task {task.id} was not finished{within}: it is {task.phase}. {app.explain(task.id)}")
    try:
        insights.outcome_of(task, Ref(task.id, task.kind))
    except NoResult as error:
        return error
    return None


@contextmanager
def _going_on(id: UUID) -> Iterator[None]:
    """Ctrl-C ends the waiting; who is in doubt about the task is told."""
    try:
        yield
    except KeyboardInterrupt:
        note(f"the task goes on: holdfast show {id}")
        raise


class ProgressLine:
    """One line at the bottom of a terminal that says how far the work is; nothing anywhere else."""

    _live: "Live | None" = None

    def __init__(self, *, quiet: bool = False) -> None:
        if sys.stderr.isatty() and not quiet:
            from rich.console import Console
            from rich.live import Live

            # Results go to stdout meanwhile, perhaps to a file: it is left as it is.
            self._live = Live(
                console=Console(stderr=True, highlight=False),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str) -> None:
        if self._live is not None:
            from rich.text import Text

            self._live.start()
            self._live.update(Text(line(text), no_wrap=True, overflow="ellipsis"), refresh=True)

    def say(self, text: str) -> None:
        """A line above, which stays."""
        if self._live is not None:
            self._live.console.print(text, markup=False, soft_wrap=True)
        else:
            note(text)


class _Reasons:
    """Why a task does not start: told when it has stood still for a while, once for each way to stand still."""

    def __init__(self, app: "SyncApp", id: UUID, told: "TaskInfo | None") -> None:
        self._app = app
        self._id = id
        self._now = ("", "")
        self._since = time.monotonic()
        self._told = {(told.step, told.phase)} if told is not None else set()

    def worth_telling(self, task: "TaskInfo") -> str | None:
        now = (task.step, task.phase)
        if now != self._now:
            self._now, self._since = now, time.monotonic()
        if task.state == "running" or now in self._told or time.monotonic() - self._since < PATIENCE:
            return None
        self._told.add(now)
        return line(self._app.explain(self._id))


def _standing(task: "TaskInfo") -> str:
    errors = f", {task.errors} error{'s' * (task.errors != 1)}" if task.errors else ""
    progress = f", {task.progress}" if task.progress is not None else ""
    return f"{task.kind}.{task.step} {task.phase}, attempt {task.attempt}{errors}{progress}"
