"""`holdfast show`: one task with its attempts, its error and what people did to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import Setup, common_options, pass_setup
from holdfast.cli.output import (
    clean,
    coloured,
    error_line,
    facts,
    lasted,
    line,
    moment,
    print_json,
    table,
    value,
)

if TYPE_CHECKING:
    from holdfast._model.reference import TaskInfo
    from holdfast.insights import AttemptInfo, ChangeInfo


@click.command()
@click.argument("id")
@common_options
@pass_setup
def show(setup: Setup, /, id: str) -> None:
    """Show a task: where it stands, its attempts, its error, and who changed it.

    \b
    Example:
      holdfast show 01890a5d-ac96-774b-bcce-b302099a8057
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        task = app.info(id)
        attempts = app.ask(insights.attempts(queries, task.id))
        changes = app.ask(insights.changes(queries, task.id))
        workers = {each.id: each.name for each in app.ask(insights.workers(queries, limit=10_000))}
    if setup.json:
        print_json({"task": task, "attempts": attempts, "changes": changes})
        return
    _print_task(task)
    print_error(task.error)
    if attempts:
        _heading("Attempts")
        print_attempts(attempts, workers)
    if changes:
        _heading("Changes")
        for change in changes:
            _print_change(change)
    if task.phase == "unroutable":
        click.echo(f"\nNo live worker knows {line(task.kind)}.{line(task.step)} in queue {line(task.queue)}.")
        click.echo("It waits until one does: holdfast worker APP")
    if task.state == "parked":
        click.echo(f"\nIt waits for a person. Repair the cause, then: holdfast retry {task.id}")


def _print_task(task: "TaskInfo") -> None:
    click.echo(f"{click.style('Task', bold=True)} {task.id}")
    facts(
        [
            ("step", f"{task.kind}.{task.step}"),
            ("phase", coloured(task.phase)),
            ("queue", f"{task.queue}, priority {task.priority}"),
            ("args", value(task.args)),
            ("result", value(task.result) if task.state == "done" else ""),
            ("attempt", f"{task.attempt} (at this step: errors {task.errors}, crashes {task.crashes})"),
            ("moves", str(task.moves)),
            ("key", line(task.key or "")),
            ("headers", value(dict(task.headers)) if task.headers else ""),
            ("worker", str(task.worker_id or "") if task.state == "running" else ""),
            ("enqueued", moment(task.created_at)),
            ("due", moment(task.run_at) if task.finished_at is None and task.state == "ready" else ""),
            ("lease until", moment(task.lease_expires_at)),
            ("ended", moment(task.finished_at)),
        ]
    )


def print_error(error: Any) -> None:
    """An error with its message, its causes and its traceback."""
    if not isinstance(error, dict):
        return
    _heading("Error")
    _print_block(f"{error.get('type')}: {error.get('message')}", fg="red")
    causes = error.get("causes")
    for cause in causes if isinstance(causes, list) else []:
        if isinstance(cause, dict):
            _print_block(f"caused by {cause.get('type')}: {cause.get('message')}")
    traces = [error, *causes] if isinstance(causes, list) else [error]
    for trace in traces:
        if isinstance(trace, dict) and trace.get("traceback"):
            click.echo()
            _print_block(str(trace["traceback"]).rstrip(), dim=True)


def print_attempts(attempts: "Sequence[AttemptInfo]", workers: dict[Any, str]) -> None:
    """A table of attempts."""
    rows = [
        (
            str(each.attempt),
            each.step,
            coloured(each.outcome or "running"),
            line(workers.get(each.worker_id, str(each.worker_id or "")), 40),
            f"{each.claimed_at.astimezone():%m-%d %H:%M:%S}" if each.claimed_at else "",
            lasted(each.claimed_at, each.finished_at),
            error_line(each.error),
        )
        for each in attempts
    ]
    table(("NO", "STEP", "OUTCOME", "WORKER", "BEGAN", "TOOK", "ERROR"), rows, "  ")


def _print_change(change: "ChangeInfo") -> None:
    why = f": {line(change.why)}" if change.why else ""
    click.echo(f"  {moment(change.at)}  {line(change.action)} by {line(change.by)}{why}")
    old = change.old if isinstance(change.old, dict) else {}
    new = change.new if isinstance(change.new, dict) else {}
    for name in new:
        click.echo(f"    {line(name)}: {value(old.get(name))} → {value(new[name])}")


def _print_block(text: str, **style: Any) -> None:
    for each in clean(text).splitlines():
        click.echo("  " + click.style(each, **style) if style else f"  {each}")


def _heading(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")
