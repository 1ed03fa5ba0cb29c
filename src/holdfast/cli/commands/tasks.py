"""`holdfast tasks`, `parked` and `wait`: which tasks there are, and how they end."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import relative
from holdfast.cli.input.filters import FilterCommand, command_line, filter_of, filter_words
from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import (
    FAILED,
    Cell,
    coloured,
    error_line,
    failure_of,
    line,
    note,
    print_json,
    print_result,
    report,
    value,
)
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._model.read.filter import Filter
    from holdfast._model.read.infos import ParkedGroup
    from holdfast._sql.queries import Queries
    from holdfast.insights import Counted
    from holdfast.sync import SyncApp

PAGE = 20


# --- tasks


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


# --- parked


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


# --- wait


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--timeout", type=duration, help="Give up after this time.  [default: never]")
@common_options
@pass_setup
def wait(setup: Setup, /, ids: Sequence[str], timeout: float | None) -> None:
    """Wait until tasks have ended, and print their results.

    The result of one task is printed as it is if it is a text, else as JSON; those of several with their ids. Exit
    code 1 if one is parked, cancelled, expired or discarded, or if time is up; the others are waited for all the same.
    An ID may be shortened to its first 8 or more characters.

    \b
    Example:
      holdfast wait 01890a5d-ac96-774b-bcce-b302099a8057
      holdfast wait $(holdfast enqueue report) --timeout 10m
    """
    from holdfast.cli.input.ids import find_id

    with setup.opened() as (app, queries):
        found = list(dict.fromkeys(find_id(app, queries, id) for id in ids))
        for id in found:
            app.info(id)
        failed = _wait_for(setup, app, queries, found, timeout)
    if failed:
        raise click.exceptions.Exit(FAILED)


def _wait_for(setup: Setup, app: "SyncApp", queries: "Queries", ids: "Sequence[UUID]", timeout: float | None) -> bool:
    """Waits for all of them and tells each as soon as it has ended, in order. Whether one has no result to give."""
    import time

    from holdfast.cli.output.following import follow, why_no_result

    until = None if timeout is None else time.monotonic() + timeout
    answers: list[dict[str, Any]] = []
    failed = False
    for number, id in enumerate(ids, 1):
        left = None if until is None else max(0.0, until - time.monotonic())
        label = f"[{number} of {len(ids)}] " if len(ids) > 1 else ""
        task = follow(app, queries, id, left, quiet=setup.json, label=label)
        trouble = why_no_result(app, task, timeout)
        answers.append({"id": id, "state": task.state, "result": task.result, "error": task.error})
        if trouble is not None:
            failed = True
            report(failure_of(trouble), as_json=setup.json)
        elif not setup.json:
            _print_result(task, with_id=len(ids) > 1)
    if setup.json:
        print_json(answers)
    return failed


def _print_result(task: "TaskInfo", *, with_id: bool) -> None:
    """For `x=$(holdfast wait ID)`: the result alone. Of several tasks, a line each."""
    if with_id:
        click.echo(f"{task.id}  {value(task.result, limit=1_000_000)}")
    elif task.result is not None:
        print_result(task.result)
