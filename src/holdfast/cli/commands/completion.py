"""`holdfast completion`, and what a shell is told about names that live in the database.

Completion happens between two key strokes: it asks for half a second at most, and whatever goes wrong, there is just
nothing to complete.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.input.options import Setup, json_option, pass_setup
from holdfast.cli.input.time_limit import quickly
from holdfast.cli.output.printing import line, print_json

if TYPE_CHECKING:
    from holdfast._sql.queries import Queries
    from holdfast._sql.query import Query

T = TypeVar("T")
PATIENCE = 0.5


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@pass_setup
def completion(setup: Setup, /, shell: str) -> None:
    """Print a script that completes commands, options and names in your shell.

    Kinds, steps and queues are completed as well, where a database answers at once.

    \b
    Example:
      echo 'eval "$(holdfast completion bash)"' >> ~/.bashrc
      echo 'eval "$(holdfast completion zsh)"' >> ~/.zshrc
      holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"this version of click does not know {shell}.")
    script = found(click.get_current_context().find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE").source()
    if setup.json:
        print_json({"shell": shell, "script": script})
    else:
        click.echo(script)


# Names in the database ------------------------------------------------------------------------------


def complete_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The kinds that workers have declared: `shell_complete=complete_kind`."""
    return [name for name in _kinds(ctx) if name.startswith(incomplete)]


def complete_step(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """KIND, or KIND.STEP where a kind has several."""
    kinds = _kinds(ctx)
    names = [
        f"{kind}.{step}" if step != "main" else kind for kind, steps in kinds.items() for step in steps or ["main"]
    ]
    return [name for name in names if name.startswith(incomplete)]


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The queues there are."""
    from holdfast import insights

    names = _asked(ctx, insights.queues)
    return [each.name for each in names or () if each.name.startswith(incomplete) and line(each.name) == each.name]


def _kinds(ctx: click.Context) -> dict[str, list[str]]:
    from holdfast import insights

    found = _asked(ctx, insights.kinds)
    # What would do something to a terminal is no name.
    return {each.name: list(each.graph) for each in found or () if line(each.name) == each.name}


def _asked(ctx: click.Context, ask: "Callable[[Queries], Query[T]]") -> T | None:
    """The answer of the database that the line so far names, if it comes at once."""
    from holdfast._db.driver.connection import connect_sync, run_sync
    from holdfast._sql.queries import queries

    setup = ctx.ensure_object(Setup)

    def answer() -> T:
        with connect_sync(setup.database().url, "holdfast completion") as connection:
            return run_sync(connection, ask(queries(setup.schema)))

    return quickly(PATIENCE, answer, otherwise=None)
