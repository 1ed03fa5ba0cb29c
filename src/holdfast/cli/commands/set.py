"""`holdfast set`: how long history and figures are kept."""

from typing import TYPE_CHECKING

import click

from holdfast._model.read.formats import duration
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import line, print_json

if TYPE_CHECKING:
    pass


@click.command("set")
@click.argument("queue", required=False)
@click.option("--retention", metavar="DURATION", help="How long history is kept: 14d; default takes it back.")
@click.option("--figures", metavar="DURATION", help="How long figures are kept, of all queues: 90d; or default.")
@click.option("--why", help="The reason; it is kept.")
@common_options
@pass_setup
def set_(setup: Setup, /, queue: str | None, retention: str | None, figures: str | None, why: str | None) -> None:
    """Change a setting of QUEUE, or what holds for all queues that say nothing else.

    The retention is how long finished tasks and their attempts are kept, a day at least. It holds for all workers. What
    is older is deleted soon, and is gone for good. Figures (holdfast stats) are kept longer, for 30 days.

    \b
    Example:
      holdfast set --retention 14d
      holdfast set mail --retention 2d --why "a million mails a day"
      holdfast set mail --retention default
      holdfast set --figures 90d
    """
    from holdfast._sql import history
    from holdfast.cli.input.user import me

    if retention is None and figures is None:
        raise click.UsageError("say what to set, for example --retention 14d.")
    if queue is not None and figures is not None:
        raise click.UsageError("figures are kept for all queues alike: say --figures without QUEUE.")
    with setup.opened() as (app, queries):
        if queue is None:
            app.set_default(retention=retention, figures=figures, by=me(), why=why)
        else:
            app.set_queue(queue, retention=retention, by=me(), why=why)
        kept = app.retention(queue)
        counts = app.ask(history.figures_kept(queries))
    if setup.json:
        all_alike = {"figures": counts.total_seconds()} if queue is None else {}
        print_json({"queue": queue, "retention": kept.total_seconds(), **all_alike})
        return
    whose = "history" if queue is None else f"history of queue {line(queue)}"
    if retention is not None:
        click.echo(f"{whose} is kept for {duration(kept)}.")
    if figures is not None:
        click.echo(f"figures are kept for {duration(counts)}.")
