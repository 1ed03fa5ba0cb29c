"""What happened, as the database tells it and as the oracle does: everything the checker needs, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from faults.oracle import Execution, Ledger, executions, read_lines
from holdfast._db.driver.connection import connect_sync

UNLIMITED = b"SET statement_timeout = 0; SET lock_timeout = 0"
FINAL = frozenset({"done", "cancelled", "expired", "discarded"})

_TASKS = """
SELECT id::text, headers ->> 'tag', kind, state, key, 0 FROM holdfast.archive
UNION ALL
SELECT id::text, headers ->> 'tag', kind, state, key,
    coalesce(extract(epoch FROM holdfast.now() - lease_expires_at), 0)::float FROM holdfast.task
"""
_ATTEMPTS = "SELECT task_id::text, step, attempt, moves, outcome FROM holdfast.attempts"
_OCCURRENCES = "SELECT schedule, scope, plan_time, task_id::text FROM holdfast.occurrence ORDER BY 1, 2, 3"


@dataclass(frozen=True)
class Task:
    """A task as it stands at the end. `overdue`: seconds since its lease ran out, if it is running."""

    id: str
    tag: str | None = None
    kind: str = "trip"
    state: str = "done"
    key: str | None = None
    overdue: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """An entry of the log of attempts; without an outcome if it runs."""

    task: str
    step: str
    attempt: int
    moves: int
    outcome: str | None

    @property
    def is_accepted(self) -> bool:
        """Whether it ended its visit for good."""
        return self.outcome in ("advanced", "done")


@dataclass(frozen=True)
class Occurrence:
    """An instant of a schedule, and the task that was made for it."""

    schedule: str
    scope: str
    plan_time: datetime
    task: str | None


@dataclass
class History:
    """Everything about one run."""

    ledger: Ledger = field(default_factory=Ledger)
    executions: list[Execution] = field(default_factory=list)
    deaths: Mapping[str, float] = field(default_factory=dict)
    """When workers were killed, by their labels."""
    tasks: list[Task] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)
    effects: list[tuple[str, int]] = field(default_factory=list)
    """What transactional steps wrote: task and moves."""
    transactional: frozenset[str] = frozenset()
    """The steps that write one effect for each accepted attempt."""
    may_park: frozenset[str] = frozenset()
    """The kinds whose tasks may end parked."""
    by_chance: bool = False
    """Workers are killed at random: a task that was on four of them is parked, as is promised."""
    period: float = 1.0
    """Seconds between the instants of each schedule."""
    concurrency: int | None = None
    """Steps at once in one worker."""
    patience: float = 0.0
    """Seconds that an expired lease may wait for a reaper."""

    def forget(self, tasks: set[str]) -> None:
        """As if some tasks had never been there."""
        self.tasks = [each for each in self.tasks if each.id not in tasks]
        self.attempts = [each for each in self.attempts if each.task not in tasks]
        self.executions = [each for each in self.executions if each.task not in tasks]


def read(url: str, folder: Path, ledger: Ledger | None = None, **more: Any) -> History:
    """The history of a database and of a folder of handlers' logs."""
    with connect_sync(url) as connection:
        connection.execute(UNLIMITED)

        def rows(text: str) -> list[tuple[Any, ...]]:
            return connection.execute(text.encode()).fetchall()

        has_effects = rows("SELECT to_regclass('public.effect') IS NOT NULL")[0][0]
        return History(
            ledger=ledger or Ledger(),
            executions=executions(read_lines(folder)),
            tasks=[Task(*row) for row in rows(_TASKS)],
            attempts=[Attempt(*row) for row in rows(_ATTEMPTS)],
            occurrences=[Occurrence(*row) for row in rows(_OCCURRENCES)],
            effects=[(t, m) for t, m in rows("SELECT task, moves FROM public.effect")] if has_effects else [],
            **more,
        )
