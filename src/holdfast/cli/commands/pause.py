"""`holdfast pause` and `resume`: what may begin."""

from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import relative
from holdfast.cli.input.filters import command_line
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Failure, line, print_json

if TYPE_CHECKING:
    from holdfast._model.read.infos import KindInfo, QueueInfo
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp


def _named(command: Any) -> Any:
    for option in (
        click.option("--why", help="The reason; it is kept."),
        click.option("--kind", "what", flag_value="kind", help="NAME is a kind."),
        click.option("--queue", "what", flag_value="queue", help="NAME is a queue."),
        click.argument("name"),
    ):
        command = option(command)
    return command


@click.command()
@_named
@common_options
@pass_setup
def pause(setup: Setup, /, name: str, what: str | None, why: str | None) -> None:
    """Let no more tasks of a queue or a kind begin, until it is resumed.

    Running steps finish. Tasks can be enqueued all the same; they wait. It holds for all workers, also for those that
    are started later. Say --queue or --kind if NAME is both; say --queue for a queue that is not used yet.

    \b
    Example:
      holdfast pause mail --why "the mail server is down"
      holdfast pause greeter --kind
    """
    from holdfast.cli.input.user import me

    with setup.opened() as (app, queries):
        what = what or _what(app, queries, name)
        app.pause(name, what=what, by=me(), why=why)
    if setup.json:
        print_json({"name": name, "what": what, "state": "paused"})
        return
    again = command_line(setup, "resume", name, f"--{what}")
    click.echo(f"{what} {line(name)} is paused: running steps finish; nothing new of it is claimed until: {again}")


@click.command()
@_named
@common_options
@pass_setup
def resume(setup: Setup, /, name: str, what: str | None, why: str | None) -> None:
    """Take a pause back: tasks of the queue or kind begin again.

    \b
    Example:
      holdfast resume mail
    """
    from holdfast.cli.input.user import me

    with setup.opened() as (app, queries):
        what = what or _what(app, queries, name)
        state = app.resume(name, what=what, by=me(), why=why)
    if setup.json:
        print_json({"name": name, "what": what, "state": state})
        return
    click.echo(f"{what} {line(name)} is {state}." if state == "resumed" else f"{what} {line(name)} was not paused.")


def paused(setup: Setup, what: str, it: "QueueInfo | KindInfo") -> str:
    again = command_line(setup, "resume", it.name, f"--{what}")
    return f"{what} {line(it.name)} was paused {relative(it.paused_at)} by {line(it.paused_by or 'somebody')}: {again}"


def _what(app: "SyncApp", queries: "Queries", name: str) -> str:
    """Whether a name is that of a queue or of a kind."""
    from holdfast import insights

    is_kind = any(each.name == name for each in app.ask(insights.kinds(queries)))
    is_queue = any(each.name == name for each in app.ask(insights.queues(queries)))
    if is_kind and is_queue:
        raise click.UsageError(f"{name!r} is both a queue and a kind: say --queue or --kind.")
    if not is_kind and not is_queue:
        raise Failure(
            f"there is neither a queue nor a kind {line(name, 100)!r}. A kind is known once a worker has declared it; "
            "for a queue that is not used yet, say --queue",
            NOT_FOUND,
            "NotFound",
        )
    return "kind" if is_kind else "queue"
