"""`holdfast tasks`: which tasks there are."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import relative
from holdfast.cli.input.filters import FilterCommand, command_line, filter_of, filter_words
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import (
    Cell,
    coloured,
    error_line,
    line,
    note,
    print_json,
)
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._model.read.filter import Filter
    from holdfast.insights import Counted

PAGE = 20


@click.command("tasks", cls=FilterCommand)
@filter_words
@click.option("--where", default="", hidden=True, help="The filter, as the other commands take it.")
@click.option("--state", help="Short for state:…")
@click.option("--kind", help="Short for kind:…")
@click.option("--queue", help="Short for queue:…")
@click.option("--limit", type=click.IntRange(1, 10_000), default=PAGE, show_default=True, help="At most so many.")
@click.option("--below", metavar="ID", help="The next page: only tasks older than this one.")
@click.option("--count", "only_count", is_flag=True, help="Print only how many there are.")
@common_options
@pass_setup
def list_tasks(
    setup: Setup,
    /,
    words: Sequence[str],
    where: str,
    limit: int,
    below: str | None,
    only_count: bool,
    **short: str | None,
) -> None:
    """List tasks, the newest first.

    \b
    Example:
      holdfast tasks state:parked
      holdfast tasks kind:greeter args.filename:name.txt since:1d
      holdfast tasks 'state:done,cancelled -queue:mail' --limit 100 --json
      holdfast tasks state:due --count
    """
    from holdfast import insights
    from holdfast.cli.input.ids import find_id

    chosen = filter_of([*words, where])
    for field, given in short.items():
        chosen = chosen if given is None else chosen.with_term(field, *given.split(","))
    with setup.opened() as (app, queries):
        if only_count:
            _print_count(setup, app.ask(insights.look_count(queries, chosen)))
            return
        start = None if below is None else find_id(app, queries, below)
        found = app.ask(insights.look(queries, chosen, limit=limit, below=start))
        if start is None and (found.next is None or found.is_cut):
            counted = insights.Counted(len(found.tasks), found.next is None)
        else:
            counted = app.ask(insights.look_count(queries, chosen))
    if setup.json:
        print_json({"tasks": found.tasks, "next": found.next, **_counted(counted)})
        return
    if found.tasks:
        print_tasks(found.tasks)
    elif found.is_cut:
        note(f"no task matches {line(chosen)} among the newest.")
    else:
        note("no more tasks." if below else "no tasks." if not chosen else f"no task matches {line(chosen)}")
    if found.next is not None:
        then = _next_page(setup, chosen, found.next, limit)
        if found.is_cut:
            note(f"(not all tasks were looked at; older ones may match: {then})")
        else:
            note(f"({len(found.tasks):,} of {_told(counted)}; the next: {then})")


def _next_page(setup: Setup, chosen: "Filter", last: "UUID", limit: int) -> str:
    words = [str(term) for term in chosen.terms]
    return command_line(
        setup, "tasks", *words, *(["--limit", str(limit)] if limit != PAGE else []), "--below", str(last)
    )


def _print_count(setup: Setup, counted: "Counted") -> None:
    if setup.json:
        print_json(_counted(counted))
    else:
        click.echo(_told(counted))


def _told(counted: "Counted") -> str:
    return f"{counted.number:,}{'' if counted.is_exact else '+'}"


def _counted(counted: "Counted") -> dict[str, Any]:
    return {"count": counted.number, "count_is_exact": counted.is_exact}


def print_tasks(tasks: "Sequence[TaskInfo]", indent: str = "") -> None:
    """A table of tasks."""
    rows: list[list[Cell]] = [
        [
            str(task.id),
            line(f"{task.kind}.{task.step}"),
            coloured(task.phase),
            line(task.queue),
            str(task.attempt),
            str(task.errors),
            relative(_when(task)),
            error_line(task.error),
        ]
        for task in tasks
    ]
    headings = ("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "ERRORS", "WHEN", "ERROR")
    fitted_table(headings, rows, spare=("ATTEMPT", "ERRORS", "QUEUE", "WHEN"), indent=indent)


def _when(task: "TaskInfo") -> datetime | None:
    """What is most worth knowing: when it ended, when it began, or when it is due."""
    if task.finished_at is not None:
        return task.finished_at
    return task.claimed_at if task.state in ("running", "parked") else task.run_at
