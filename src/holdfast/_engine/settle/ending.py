"""How an attempt ended, until that is recorded, and what a row says of it afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import msgspec

from holdfast._engine.run.attempt import Attempt
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.request import Request
from holdfast._model.run.outcome import LOST, NO_RESULT, Advanced, Failed, Finished, Outcome, Retried
from holdfast._sql.rows import Fence

LARGEST_FLUSH = 1000
LARGEST_BYTES = 8 * 1024 * 1024

Times: TypeAlias = dict[UUID, float | None]
"""The ids that were written, and when a kept one began anew."""

_encode = msgspec.json.Encoder().encode


class Ending(msgspec.Struct, eq=False):
    """An attempt and how it ended, until that is recorded.

    `kept`: it goes on here; `sent`: when it was written; `children`: the tasks that become real with it; `tries`: how
    often another session had one of their keys; `otherwise`: what to record in its place if the transaction of the
    step, which should have recorded it, turns out not to have.
    """

    attempt: Attempt
    outcome: Outcome
    kept: bool = False
    sent: float = 0.0
    children: Sequence[Request] = ()
    tries: int = 0
    otherwise: Outcome | None = None


@dataclass(frozen=True, slots=True)
class AlreadyRecorded:
    """The outcome is already written, with the step's own writes. `claimed_at`: when a kept move began anew."""

    ending: Ending
    claimed_at: float | None


@dataclass(frozen=True, slots=True)
class MaybeRecorded:
    """The outcome may have been written, by a transaction whose end we do not know."""

    ending: Ending


def plain(outcome: "Outcome | AlreadyRecorded | MaybeRecorded | None") -> Outcome | None:
    """How an attempt ended, by whichever transaction that is recorded; None if its lease is lost."""
    return outcome.ending.outcome if isinstance(outcome, (AlreadyRecorded, MaybeRecorded)) else outcome


def word(outcome: Outcome | None) -> str:
    """An outcome as the log of attempts calls it."""
    return LOST if outcome is None else outcome.word


def continued(ending: Ending, tasks: Tasks, claimed_at: float) -> Attempt:
    """The attempt that follows a kept move."""
    assert isinstance(ending.outcome, Advanced)  # noqa: S101 - only moves are kept
    definition = tasks._steps[ending.attempt.definition.kind, ending.outcome.step]
    # The lease began when the move was written, which may be a while ago if its answer was lost.
    return ending.attempt.next(ending.outcome, definition, claimed_at, ending.sent)


def with_details(endings: list[Ending]) -> list[Ending]:
    """The endings of which a statement needs more than the id: another outcome, children, or progress.

    As a rule there are none, and no other code goes through a thousand endings.
    """
    return [e for e in endings if e.outcome is not NO_RESULT or e.attempt.children or e.attempt.told is not None]


def affordable(endings: list[Ending]) -> int:
    """How many of these one flush takes: bounded by number and by bytes, or a large one would never come through."""
    size = 0
    for count, ending in enumerate(endings[:LARGEST_FLUSH]):
        match ending.outcome:
            case Finished(result=bytes() as json) | Advanced(args=json) | Retried(error=json) | Failed(error=json):
                size += len(json)
        if ending.attempt.children:
            size += sum(len(child.args) for child in ending.attempt.children)
        if size > LARGEST_BYTES:
            return max(1, count)
    return LARGEST_FLUSH


def intact(ending: Ending, fence: Fence) -> bool:
    """Whether the row still waits for the end of this attempt."""
    attempt = ending.attempt
    return (fence.worker_id, fence.attempt) == (attempt.worker_id, attempt.number)


def moved_on(ending: Ending, fence: Fence) -> bool:
    """Whether the row is where a kept move would have brought it: only this worker can have done that."""
    attempt = ending.attempt
    return ending.kept and (fence.worker_id, fence.attempt, fence.moves) == (
        attempt.worker_id,
        attempt.number + 1,
        attempt.moves + 1,
    )


def by_queue(endings: list[Ending]) -> list[tuple[str, list[Ending]]]:
    queues: dict[str, list[Ending]] = {}
    for ending in endings:
        queues.setdefault(ending.attempt.queue, []).append(ending)
    return list(queues.items())
