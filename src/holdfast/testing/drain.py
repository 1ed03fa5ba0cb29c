"""What a drain did: the attempts that ended in it, and how."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from holdfast._engine.settle.ending import Ending
from holdfast._engine.worker import Worker
from holdfast._model.declare.step import MAIN
from holdfast._model.json.text import told
from holdfast._model.run.outcome import Failed, Retried
from holdfast._sql.rows import Reaped
from holdfast.errors import TaskParked


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt that ended in a drain.

    `outcome` is a word of the log of attempts, such as `done`, `retried` or `lost`. `parked`: its task waits for a
    person now. `exception` is what the step raised, `error` how that is kept in the database.
    """

    task_id: UUID
    queue: str
    kind: str
    step: str
    attempt: int
    outcome: str
    parked: bool = False
    error: Mapping[str, Any] | None = None
    exception: BaseException | None = None

    def __str__(self) -> str:
        name = self.kind if self.step == MAIN else f"{self.kind}.{self.step}"
        why = f": {told(self.error)}" if self.error else ""
        return f"{name} (task {self.task_id}, attempt {self.attempt}) {self.outcome}{why}"


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain did: its attempts, in the order in which they were recorded. `crashed`: a crash ended it."""

    attempts: Sequence[Attempted] = ()
    crashed: bool = False

    @property
    def counts(self) -> Counter[str]:
        """How many attempts ended with which outcome: `drained.counts["done"]`."""
        return Counter(each.outcome for each in self.attempts)

    @property
    def failed(self) -> list[Attempted]:
        """The attempts that ended with their task parked."""
        return [each for each in self.attempts if each.parked]

    def raise_failures(self) -> None:
        """Raises what the steps of parked tasks raised: the exception itself, or a group if there are several."""
        errors = [exception_of(each) for each in self.failed]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} tasks were parked", errors)

    def raise_first_error(self) -> None:
        """Raises what the first failing attempt raised, also if its task will be tried again."""
        for each in self.attempts:
            if each.parked or each.outcome == "retried":
                raise exception_of(each)

    def __str__(self) -> str:
        counted = ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items()) or "nothing ran"
        return "\n  ".join([counted + (", then a crash" if self.crashed else ""), *map(str, self.failed)])


class Watch:
    """Listens to what a worker records."""

    def __init__(self) -> None:
        self.attempts: list[Attempted] = []

    def over(self, worker: Worker) -> None:
        """Hears of every recorded end before the worker acts on it."""
        worker.consequences.observe(self._recorded, self._reaped)

    def _recorded(self, ending: Ending) -> None:
        self.attempts.append(_of_ending(ending))

    def _reaped(self, queue: str, tasks: list[Reaped]) -> None:
        self.attempts.extend(_of_reaped(queue, task) for task in tasks)


def exception_of(attempt: Attempted) -> Exception:
    """What to raise for a failed attempt: what its step raised, unless that would end more than a test."""
    raised = attempt.exception
    if isinstance(raised, Exception):
        raised.add_note(f"raised in {attempt.kind}.{attempt.step}, attempt {attempt.attempt} of task {attempt.task_id}")
        return raised
    parked = TaskParked(str(attempt))
    parked.__cause__ = raised
    return parked


def _of_ending(ending: Ending) -> Attempted:
    attempt, outcome = ending.attempt, ending.outcome
    is_error = isinstance(outcome, (Retried, Failed))
    return Attempted(
        attempt.id,
        attempt.queue,
        attempt.kind,
        attempt.step,
        attempt.number,
        outcome.word,
        parked=isinstance(outcome, Failed),
        error=msgspec.json.decode(outcome.error) if isinstance(outcome, (Retried, Failed)) else None,
        exception=attempt.raised if is_error else None,
    )


def _of_reaped(queue: str, task: Reaped) -> Attempted:
    return Attempted(
        task.id, queue, task.kind, task.step, task.attempt, "lost", parked=task.state == "parked"
    )  # fmt: skip
