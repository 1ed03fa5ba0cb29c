"""`holdfast queues`: which queues there are, and who serves them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast._model.read.formats import amount, duration, relative, things
from holdfast._model.read.infos import COUNTED
from holdfast.cli.commands.pause import paused
from holdfast.cli.input.filters import command_line
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import Cell, advise, alarming, attention, line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast._model.read.infos import QueueInfo


@click.command()
@common_options
@pass_setup
def queues(setup: Setup, /) -> None:
    """Show the queues: how many tasks they have, since when the oldest is due, and who serves them.

    \b
    Example:
      holdfast queues
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        found = app.ask(insights.queues(queries))
    if setup.json:
        print_json(found)
    elif found:
        headings = ("QUEUE", "DUE", "SCHEDULED", "RUNNING", "PARKED", "OLDEST DUE", "WORKERS", "NOTE")
        fitted_table(headings, [_queue_row(each) for each in found], spare=("SCHEDULED", "WORKERS"))
        advise([each for queue in found for each in _queue_advice(setup, queue)])
    else:
        note("no queues: there are no tasks and no workers.")


def _queue_row(queue: "QueueInfo") -> list[Cell]:
    notes = ["paused"] if queue.paused_at else []
    notes += ["no worker"] if _is_deserted(queue) else []
    notes += [f"{amount(queue.unroutable)} unroutable"] if _has_strangers(queue) else []
    notes += [f"kept {duration(queue.retention)}"] if queue.retention is not None else []
    return [
        line(queue.name),
        amount(queue.due),
        amount(queue.scheduled),
        amount(queue.running),
        alarming(queue.parked, amount(queue.parked)),
        relative(queue.oldest_due),
        f"{queue.workers:,}",
        attention(", ".join(notes)),
    ]


def _is_deserted(queue: "QueueInfo") -> bool:
    return queue.due > 0 and queue.workers == 0


def _has_strangers(queue: "QueueInfo") -> bool:
    """Whether there are tasks that nobody there knows, and nothing else keeps them from being executed."""
    return queue.unroutable > 0 and queue.workers > 0 and queue.paused_at is None


def _queue_advice(setup: Setup, queue: "QueueInfo") -> Iterator[str]:
    if queue.paused_at:
        yield paused(setup, "queue", queue)
    if _is_deserted(queue):
        name, due = line(queue.name), things(queue.due, "task", COUNTED)
        yield f"queue {name} has {due} due, and no live worker: holdfast worker APP -q {name}"
    elif _has_strangers(queue):
        listed = command_line(setup, "tasks", "state:unroutable", f"queue:{queue.name}")
        unroutable = things(queue.unroutable, "task", COUNTED)
        yield f"queue {line(queue.name)} has {unroutable} that no live worker there knows: {listed}"
