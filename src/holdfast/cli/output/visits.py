"""A task's way through its steps, as its attempts tell it: `ReadName (3.2 s) → SayHello (12 ms) → done`."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast._model.read.formats import between
from holdfast._model.read.visits import Visit
from holdfast.cli.output.printing import line

if TYPE_CHECKING:
    from holdfast._model.enqueue.ref import TaskInfo

TIMES = "\N{MULTIPLICATION SIGN}"
LONGEST = 12
"""Stations that are shown of a long way: its beginning and its end."""


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
    told = ", ".join(filter(None, (several, between(stays[0].began, stays[-1].ended))))
    return f"{line(step)}{again}" + (f" ({told})" if told else "")
