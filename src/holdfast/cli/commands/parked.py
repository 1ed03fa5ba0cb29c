"""`holdfast parked`: what waits for a person, by its error."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from holdfast._model.read.formats import relative
from holdfast.cli.input.filters import FilterCommand, command_line, filter_of, filter_words
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import (
    Cell,
    line,
    note,
    print_json,
)
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast._model.read.infos import ParkedGroup


@click.command(cls=FilterCommand)
@filter_words
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many groups.")
@common_options
@pass_setup
def parked(setup: Setup, /, words: Sequence[str], limit: int) -> None:
    """Show what waits for a person: parked tasks, grouped by kind, step, exception and place.

    PLACE is the line of your code that raised it.

    \b
    Example:
      holdfast parked
      holdfast parked kind:greeter since:1d
    """
    from holdfast import insights

    chosen = filter_of(words)
    with setup.opened() as (app, queries):
        groups = app.ask(insights.parked_groups(queries, chosen, limit=limit + 1))
    shown, more = groups[:limit], len(groups) > limit
    if setup.json:
        print_json({"groups": shown, "more": more})
        return
    if not shown:
        click.echo("nothing is parked." if not chosen else f"nothing that matches {line(chosen)} is parked.")
        return
    print_groups(shown)
    if more:
        note(f"(the {limit:,} largest groups; --limit shows more)")
    if not all(group.count_is_exact for group in shown):
        note("(+: the newest at this step; not all were looked at)")
    first = shown[0]
    click.echo(f"\nOne of them:  {command_line(setup, 'show', str(first.example))}")
    click.echo("When the cause is repaired, all of a group go on:")
    for group in shown[:3]:
        click.echo(f"  {command_line(setup, 'retry', '--where', str(insights.group_filter(chosen, group)))}")


def print_groups(groups: "Sequence[ParkedGroup]", indent: str = "") -> None:
    """A table of groups of parked tasks."""
    rows: list[list[Cell]] = [
        [
            f"{group.count:,}",
            line(f"{group.kind}.{group.step}"),
            (line(group.error_type or ""), "red"),
            line(group.place or ""),
            relative(group.newest),
            line(group.message or ""),
        ]
        for group in groups
    ]
    headings = ("COUNT", "TASK", "ERROR", "PLACE", "NEWEST", "MESSAGE")
    fitted_table(headings, rows, spare=("NEWEST", "PLACE"), indent=indent)
