"""`holdfast failures`: what was parked, as it happens."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import moment
from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import error_line, note, print_json_line

if TYPE_CHECKING:
    from holdfast._model.enqueue.ref import Failure


@click.command()
@click.option("--since", type=duration, metavar="DURATION", help="Begin that long ago.  [default: 1h; --follow: now]")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@common_options
@pass_setup
def failures(setup: Setup, /, since: float | None, follow: bool) -> None:
    """Show every failure that parked a task, the oldest first, each once.

    Tasks that were retried or discarded since are told of as well: see `holdfast parked` for what waits for a person
    now. With --json, one object per line.

    \b
    Example:
      holdfast failures --since 1d
      holdfast failures --follow --json
    """
    from holdfast._db.background_loop import blocking
    from holdfast._db.failures import FailureFeed

    with setup.opened() as (app, queries):

        async def ask(query: Any) -> Any:
            return await asyncio.to_thread(app.ask, query)

        begin = 3600.0 if since is None and not follow else since
        feed = FailureFeed(setup.database().listen_url, queries, ask, begin)
        found = 0
        for failure in blocking(feed.follow() if follow else feed.so_far()):
            found += 1
            _tell(setup, failure)
    if not found and not setup.json:
        note("no task was parked in that time.")


def _tell(setup: Setup, failure: "Failure") -> None:
    if setup.json:
        print_json_line(failure)
        return
    task = failure.task
    click.echo(f"{moment(failure.at)}  {click.style(f'{task.kind}.{task.step}', fg='red')}  {task.id}")
    click.echo(f"  attempt {failure.attempt}: {error_line(failure.error)}")
