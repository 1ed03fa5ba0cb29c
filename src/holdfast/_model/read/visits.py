"""A task's way through its steps, as its attempts tell it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Protocol


class Attempted(Protocol):
    """What is needed of an attempt."""

    @property
    def step(self) -> str: ...
    @property
    def moves(self) -> int: ...
    @property
    def claimed_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...


class Standing(Protocol):
    """What is needed of the task."""

    @property
    def step(self) -> str: ...
    @property
    def moves(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Visit:
    """One stay at a step: its attempts, and from when to when. Without an end it goes on."""

    step: str
    moves: int
    attempts: int
    began: datetime | None
    ended: datetime | None


def visits(task: Standing, attempts: Sequence[Attempted]) -> list[Visit]:
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
