"""A task's way through its steps, as its attempts tell it: `ReadName (3.2 s) → SayHello (12 ms) → done`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.cli.output import lasted, line

if TYPE_CHECKING:
    from holdfast._model.reference import TaskInfo
    from holdfast.insights import AttemptInfo

TIMES = "\N{MULTIPLICATION SIGN}"
LONGEST = 12
"""Stations that are shown of a long way: its beginning and its end."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One stay at a step: its attempts, and from when to when. Without an end it goes on."""

    step: str
    moves: int
    attempts: int
    began: datetime | None
    ended: datetime | None


def visits(task: "TaskInfo", attempts: "Sequence[AttemptInfo]") -> list[Visit]:
    """The visits in order; the last is where the task stands, also if nothing was attempted there yet."""
    found = [
        Visit(step, moves, len(each), each[0].claimed_at, each[-1].finished_at)
        for (moves, step), each in (
            (stay, list(those)) for stay, those in groupby(attempts, lambda attempt: (attempt.moves, attempt.step))
        )
    ]
    if not found or (found[-1].moves, found[-1].step) != (task.moves, task.step):
        found.append(Visit(task.step, task.moves, 0, None, None))
    return found


def way(task: "TaskInfo", stays: Sequence[Visit]) -> str:
    """The same in a line. Visits to the same step in a row, as of a step that polls, are told together."""
    stations = [_station(step, list(those)) for step, those in groupby(stays, lambda stay: stay.step)]
    if len(stations) > LONGEST:
        half = LONGEST // 2
        left_out = len(stations) - 2 * half
        stations = [*stations[:half], f"… {left_out:,} more …", *stations[-half:]]
    return " → ".join([*stations, task.state] if task.finished_at is not None else stations)


def _station(step: str, stays: Sequence[Visit]) -> str:
    attempts = sum(stay.attempts for stay in stays)
    again = f" {TIMES}{attempts:,}" if attempts > 1 else ""
    several = f"{len(stays):,} visits" if len(stays) > 1 else ""
    told = ", ".join(filter(None, (several, lasted(stays[0].began, stays[-1].ended))))
    return f"{line(step)}{again}" + (f" ({told})" if told else "")
