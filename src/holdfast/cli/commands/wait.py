"""`holdfast wait`: how tasks end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import (
    FAILED,
    failure_of,
    print_json,
    print_result,
    report,
    value,
)

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp


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
