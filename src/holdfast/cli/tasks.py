"""`holdfast tasks`, `retry`, `cancel` and `discard`."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._sql.queries import Queries
from holdfast.cli.options import Setup, common_options, json_object, pass_setup
from holdfast.cli.output import Failure, coloured, error_line, failure_of, print_json, relative, report, table
from holdfast.errors import ConfigError, TaskNotFound, WrongState

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.reference import TaskInfo
    from holdfast._sql.query import Query

STATES = ("ready", "running", "waiting", "parked", "done", "cancelled", "expired", "discarded")
PHASES = ("scheduled", "retrying", "due", "unroutable")
"""What a ready task may be seen as."""


# --- tasks


@click.command("tasks")
@click.option("--state", type=click.Choice([*STATES, *PHASES]), metavar="STATE", help=f"{', '.join(STATES + PHASES)}.")
@click.option("--kind", help="Only this kind.")
@click.option("--queue", help="Only this queue.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@common_options
@pass_setup
def list_tasks(setup: Setup, /, state: str | None, kind: str | None, queue: str | None, limit: int) -> None:
    """List tasks, the newest first.

    \b
    Example:
      holdfast tasks --state parked
      holdfast tasks --kind greeter --limit 100 --json
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        found = app.ask(insights.tasks(queries, state=state, kind=kind, queue=queue, limit=limit))
    if setup.json:
        print_json(found)
    elif found:
        print_tasks(found)
        if len(found) == limit:
            click.echo(f"(the newest {limit}; --limit shows more)", err=True)
    else:
        click.echo("no tasks.", err=True)


def print_tasks(tasks: "Sequence[TaskInfo]", indent: str = "") -> None:
    """A table of tasks."""
    rows = [
        (
            str(task.id),
            f"{task.kind}.{task.step}",
            coloured(task.phase),
            task.queue,
            str(task.attempt),
            str(task.errors),
            relative(_when(task)),
            error_line(task.error),
        )
        for task in tasks
    ]
    table(("ID", "TASK", "PHASE", "QUEUE", "ATTEMPT", "ERRORS", "WHEN", "ERROR"), rows, indent)


def _when(task: "TaskInfo") -> datetime | None:
    """What is most worth knowing: when it ended, when it began, or when it is due."""
    if task.finished_at is not None:
        return task.finished_at
    return task.claimed_at if task.state in ("running", "parked") else task.run_at


# --- verbs


def _ids(command: Any) -> Any:
    return click.argument("ids", nargs=-1, required=True, metavar="ID...")(command)


def _why(command: Any) -> Any:
    return click.option("--why", help="The reason; it is kept with the task.")(command)


@click.command()
@_ids
@click.option("--args", "args_text", metavar="JSON", help="Repaired args, in place of the old ones.")
@click.option("--step", help="Go on at another step of its kind.")
@_why
@click.option("--expected-attempt", type=int, metavar="N", help="Refuse if it is at another attempt by now.")
@common_options
@pass_setup
def retry(
    setup: Setup,
    /,
    ids: Sequence[str],
    args_text: str | None,
    step: str | None,
    why: str | None,
    expected_attempt: int | None,
) -> None:
    """Resume parked tasks where they stand, with a fresh budget.

    A task that is not parked but waits for its next attempt is due at once.

    \b
    Example:
      holdfast retry 01890a5d-ac96-774b-bcce-b302099a8057
      holdfast retry 01890a5d-ac96-774b-bcce-b302099a8057 --args '{"filename": "other.txt"}' --why "wrong file"
    """
    from holdfast._model.names import check_step

    bag = {
        "args": None if args_text is None else json_object(args_text, "--args"),
        "step": None if step is None else check_step(step),
        "why": why,
        "expected_attempt": expected_attempt,
    }
    _each(setup, ids, Queries.retry, bag)


@click.command()
@_ids
@_why
@common_options
@pass_setup
def cancel(setup: Setup, /, ids: Sequence[str], why: str | None) -> None:
    """Cancel tasks.

    One that is not running ends at once. A running one is told, and never retried. Exit code 1 if it had already ended.

    \b
    Example:
      holdfast cancel 01890a5d-ac96-774b-bcce-b302099a8057 --why "ordered twice"
    """
    _each(setup, ids, Queries.cancel_task, {"why": why})


@click.command()
@_ids
@_why
@common_options
@pass_setup
def discard(setup: Setup, /, ids: Sequence[str], why: str | None) -> None:
    """Give parked tasks up: they are archived as discarded.

    \b
    Example:
      holdfast discard 01890a5d-ac96-774b-bcce-b302099a8057 --why "obsolete"
    """
    _each(setup, ids, Queries.discard, {"why": why})


def _each(
    setup: Setup, ids: Sequence[str], verb: Callable[[Queries, "UUID", bytes], "Query[str]"], bag: dict[str, Any]
) -> None:
    """Does something to each task. What cannot be done is told, and the rest is done all the same."""
    from holdfast import insights
    from holdfast._db.connection import as_uuid

    options = insights.options_bag(by=_me(), **bag)
    answers: list[dict[str, Any]] = []
    failed: Failure | None = None
    with setup.opened() as (app, queries):
        for id in ids:
            try:
                state = app.ask(verb(queries, as_uuid(id), options))
            except (TaskNotFound, WrongState) as error:
                failure = failure_of(error)
                failed = failed or failure
                report(failure, as_json=setup.json)
            else:
                answers.append({"id": id, "state": state})
                if not setup.json:
                    click.echo(f"{id} is {state}.")
    if setup.json:
        print_json(answers)
    if failed is not None:
        raise click.exceptions.Exit(failed.code)


def _me() -> str:
    """Who sits at this terminal: an embedded server knows everybody as the same user."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise ConfigError("this process has no user name: set the environment variable USER") from None
