"""One verb on everything that a filter lets through, in the background of this process, with its progress.

Nothing of it is needed afterwards but the changes, which the database keeps with each task: what is in memory here is
only how far the work has come. If the process ends, what was done stays done, and the rest can be asked for again.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

from holdfast import verbs
from holdfast._model.read.filter import Filter
from holdfast._model.safe_log import Log
from holdfast._sql.plans import drive
from holdfast._sql.repair import Tally, Verb, in_batches
from holdfast.app import App
from holdfast.web.view.problems import Problem, problem_of

log = Log("holdfast.web")

MOST = 100_000
"""Tasks that one click changes at most."""
AT_ONCE = 4
"""Runs at the same time."""
REMEMBERED = 100
"""Runs that are remembered; the oldest that have ended are forgotten."""

Counts: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class RunInfo:
    """A verb on many tasks: how far it has come. `ended` without `trouble`: all was done."""

    id: str
    verb: str
    filter: str
    by: str
    why: str | None
    expected: int
    began: datetime
    ended: datetime | None
    done: Counts
    passed_over: Counts
    stopping: bool
    trouble: str | None

    @property
    def seen(self) -> int:
        """How many tasks it has come by."""
        return sum(self.done.values()) + sum(self.passed_over.values())


class _Stopped(Exception):
    """Somebody asked it to stop."""


@dataclass
class _Run:
    info: Callable[..., RunInfo]
    began: datetime
    tally: Tally = field(default_factory=Tally)
    stopping: bool = False
    ended: datetime | None = None
    trouble: str | None = None
    task: "asyncio.Task[None] | None" = None

    def now(self) -> RunInfo:
        return self.info(
            began=self.began,
            ended=self.ended,
            done=dict(self.tally.done),
            passed_over=dict(self.tally.passed_over),
            stopping=self.stopping,
            trouble=self.trouble,
        )


class Runs:
    """What is going on in the background of a site."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def begin(self, app: App, verb: Verb, filter: Filter, *, by: str, why: str | None, expected: int) -> RunInfo:
        """Begins to do something to all tasks that a filter lets through, at most `MOST`."""
        if sum(each.ended is None for each in self._runs.values()) >= AT_ONCE:
            raise Problem(429, "Too much at once", f"{AT_ONCE} such actions are going on: wait until one has ended.")
        verbs.many(verb, filter)  # complains now about what cannot be meant
        id = secrets.token_hex(6)

        def info(**told: Any) -> RunInfo:
            return RunInfo(id=id, verb=verb, filter=str(filter), by=by, why=why, expected=expected, **told)

        run = self._runs[id] = _Run(info, datetime.now(UTC))
        run.task = asyncio.create_task(self._do(app, run, verb, filter, by, why), name=f"holdfast {verb} {id}")
        self._forget()
        return run.now()

    def info(self, id: str) -> RunInfo:
        return self._found(id).now()

    def all(self) -> list[RunInfo]:
        """The newest first."""
        return [each.now() for each in reversed(self._runs.values())]

    def stop(self, id: str) -> RunInfo:
        """Asks one to stop after its batch."""
        self._found(id).stopping = True
        return self.info(id)

    async def close(self) -> None:
        """Stops all, and waits for their batches."""
        for each in self._runs.values():
            each.stopping = True
        await asyncio.gather(*(each.task for each in self._runs.values() if each.task is not None))

    async def _do(self, app: App, run: _Run, verb: Verb, filter: Filter, by: str, why: str | None) -> None:
        def after_each_batch(tally: Tally) -> None:
            run.tally = tally
            if run.stopping:
                raise _Stopped

        try:
            repair = verbs.many(verb, filter, by=by, why=why, limit=MOST, progress=after_each_batch)
            run.tally = await drive(in_batches(app._queries, repair), app._run)
        except _Stopped:
            run.trouble = "It was stopped."
        except Exception as error:
            run.trouble = problem_of(error).message
        finally:
            run.ended = datetime.now(UTC)

    def _found(self, id: str) -> _Run:
        if id not in self._runs:
            raise Problem(
                404,
                "Not known here",
                "The process that did this has ended, or it is another one. Each task tells what was done to it.",
            )
        return self._runs[id]

    def _forget(self) -> None:
        ended = [id for id, each in self._runs.items() if each.ended is not None]
        for id in ended[: max(0, len(self._runs) - REMEMBERED)]:
            del self._runs[id]
