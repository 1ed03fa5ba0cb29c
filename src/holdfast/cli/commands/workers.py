"""`holdfast workers`: which workers there are, and whether they are alive."""

from typing import TYPE_CHECKING

import click

from holdfast._model.read.formats import relative
from holdfast.cli.commands.kinds import differing
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import ATTENTION, Cell, advise, line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast.insights import WorkerInfo


@click.command()
@click.option("--all", "everyone", is_flag=True, help="Also those that have stopped.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@common_options
@pass_setup
def workers(setup: Setup, /, everyone: bool, limit: int) -> None:
    """Show the workers: where they run, what they serve, and whether they are alive.

    One that vanished without a word is shown for some minutes as lost.

    \b
    Example:
      holdfast workers
      holdfast workers --all --json
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        found = app.ask(insights.workers(queries, limit=limit if everyone else 10_000))
        kinds = [] if setup.json else app.ask(insights.kinds(queries))
    shown = found if everyone else [each for each in found if each.stopped_at is None][:limit]
    if setup.json:
        print_json(shown)
    elif shown:
        headings = ("ID", "NAME", "WHERE", "CONDITION", "QUEUES", "SLOTS", "SEEN", "VERSION")
        rows = [_worker_row(each) for each in shown]
        fitted_table(headings, rows, spare=("VERSION", "WHERE", "SEEN", "QUEUES"))
        advise(differing(kinds))
    else:
        note("no workers." if everyone else "no worker is running; --all shows those that have stopped.")


def _worker_row(worker: "WorkerInfo") -> list[Cell]:
    colours = {"running": "green", "stopped": "", "lost": "red"}
    condition: Cell = (worker.condition, colours.get(worker.condition, ATTENTION))
    if worker.late and worker.live:
        condition = (line(f"{worker.condition}, late: {', '.join(worker.late)}"), "red")
    return [
        str(worker.id),
        line(worker.name, 60),
        line(f"{worker.host}:{worker.pid}", 60),
        condition,
        line(_serves(worker), 60),
        f"{worker.running:,}/{worker.slots:,}" + (f" ({worker.stuck} stuck)" if worker.stuck else ""),
        relative(worker.seen_at),
        line(worker.version),
    ]


def _serves(worker: "WorkerInfo") -> str:
    """`mail:5, default`, and what it was told to keep to."""
    queues = ", ".join(f"{name}:{worker.limits[name]}" if name in worker.limits else name for name in worker.queues)
    return f"{queues} (only {', '.join(worker.only)})" if worker.only else queues
