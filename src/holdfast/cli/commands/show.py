"""`holdfast show`: one task with its way, its attempts, its error and what people did to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.enqueue.overrides import RETRY, TIMEOUT
from holdfast._model.json.text import told
from holdfast._model.read.formats import between, moment
from holdfast._model.read.visits import visits
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import Cell, clean, coloured, error_line, facts, line, print_json, value
from holdfast.cli.output.tables import fitted_table, wrapped
from holdfast.cli.output.visits import way

if TYPE_CHECKING:
    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast.insights import AttemptInfo, ChangeInfo

LAST = 20
"""Attempts that are shown unless all are asked for."""


@click.command()
@click.argument("id")
@click.option("--all", "everything", is_flag=True, help="Every attempt, with its args and its traceback.")
@common_options
@pass_setup
def show(setup: Setup, /, id: str, everything: bool) -> None:
    """Show a task: where it stands and why, its way, its attempts, its error, and who changed it.

    The ID may be shortened to its first 8 or more characters.

    \b
    Example:
      holdfast show 01890a5d-ac96-774b-bcce-b302099a8057
      holdfast show 01890a5d-ac --all
    """
    from holdfast import insights
    from holdfast.cli.input.ids import find_id

    with setup.opened() as (app, queries):
        task = app.info(find_id(app, queries, id))
        attempts = app.ask(insights.attempts(queries, task.id))
        changes = app.ask(insights.changes(queries, task.id))
        why = app.explain(task.id)
        workers = {each.id: each.name for each in app.ask(insights.workers(queries, limit=1000))}
    stays = visits(task, attempts)
    if setup.json:
        print_json({"task": task, "explain": why, "visits": stays, "attempts": attempts, "changes": changes})
        return
    _print_task(task, way(task, stays))
    click.echo()
    _print_block(wrapped(why, indent=2))
    print_error(task.error)
    forgotten = insights.forgotten(task, attempts)
    if attempts or forgotten:
        _heading("Attempts")
        if forgotten:
            whose = "the first attempt is" if forgotten == 1 else f"the first {forgotten:,} attempts are"
            click.echo(f"  ({whose} no longer in the log: history is not kept for ever)")
        shown = attempts if everything else attempts[-LAST:]
        if len(shown) < len(attempts):
            click.echo(f"  (the last {LAST} of {len(attempts):,}; --all shows all)")
        if shown:
            print_attempts(shown, workers)
    if changes:
        _heading("Changes")
        for change in changes:
            _print_change(change)
    if everything:
        for attempt in attempts:
            _print_attempt(attempt)


def _print_task(task: "TaskInfo", told_way: str) -> None:
    click.echo(f"{click.style('Task', bold=True)} {task.id}")
    headers = {name: each for name, each in task.headers.items() if name not in (RETRY, TIMEOUT)}
    facts(
        [
            ("step", line(f"{task.kind}.{task.step}")),
            ("state", coloured(task.phase)),
            ("way", told_way),
            ("queue", f"{line(task.queue)}, priority {task.priority}"),
            ("args", value(task.args)),
            ("result", value(task.result) if task.state == "done" else ""),
            ("progress", line(str(task.progress or ""))),
            ("report", value(dict(task.report)) if task.report else ""),
            ("attempt", f"{task.attempt:,} (at this step: errors {task.errors:,}, crashes {task.crashes})"),
            ("moves", f"{task.moves:,}"),
            ("key", line(task.key or "")),
            ("retry", line(task.headers.get(RETRY, ""))),
            ("timeout", line(task.headers.get(TIMEOUT, ""))),
            ("headers", value(headers) if headers else ""),
            ("worker", str(task.worker_id or "") if task.state == "running" else ""),
            ("enqueued", moment(task.created_at)),
            ("due", moment(task.run_at) if task.state == "ready" else ""),
            ("lease until", moment(task.lease_expires_at)),
            ("ended", moment(task.finished_at)),
            ("took", between(task.claimed_at, task.finished_at) if task.duration is not None else ""),
        ]
    )


def print_error(error: Any, title: str = "Error") -> None:
    """An error with its message, its causes and its traceback."""
    if not isinstance(error, dict):
        return
    _heading(title)
    _print_block(_said(error), fg="red")
    _print_attributes(error)
    causes = [each for each in error.get("causes") or () if isinstance(each, dict)] if _has_causes(error) else []
    for cause in causes:
        _print_block(f"caused by {_said(cause)}")
        _print_attributes(cause)
    for trace in (error, *causes):
        if trace.get("traceback"):
            click.echo()
            _print_block(str(trace["traceback"]).rstrip(), dim=True)


def _print_attributes(error: dict[str, Any]) -> None:
    """What the exception carried, such as a code."""
    if isinstance(carried := error.get("attributes"), dict):
        facts([(line(name, 40), value(each)) for name, each in carried.items()])


def _has_causes(error: dict[str, Any]) -> bool:
    return isinstance(error.get("causes"), list)


def _said(error: dict[str, Any]) -> str:
    return told(error) or value(error)


def print_attempts(attempts: "Sequence[AttemptInfo]", workers: dict[Any, str]) -> None:
    """A table of attempts."""
    rows: list[list[Cell]] = [
        [
            f"{each.attempt:,}",
            line(each.step),
            coloured(each.outcome or "running"),
            line(workers.get(each.worker_id, str(each.worker_id or "")), 40),
            f"{each.claimed_at.astimezone():%m-%d %H:%M:%S}" if each.claimed_at else "",
            between(each.claimed_at, each.finished_at),
            error_line(each.error),
        ]
        for each in attempts
    ]
    headings = ("NO", "STEP", "OUTCOME", "WORKER", "BEGAN", "TOOK", "ERROR")
    fitted_table(headings, rows, spare=("WORKER", "TOOK"), indent="  ")


def _print_attempt(attempt: "AttemptInfo") -> None:
    """An attempt in full."""
    outcome = attempt.outcome or "running"
    _heading(f"Attempt {attempt.attempt:,}: {line(attempt.step)}, {outcome}")
    facts(
        [
            ("args", value(attempt.args)),
            ("progress", line(str(attempt.progress or ""))),
            ("report", value(dict(attempt.report)) if attempt.report else ""),
            ("worker", str(attempt.worker_id or "")),
            ("began", moment(attempt.claimed_at)),
            ("ended", moment(attempt.finished_at)),
        ]
    )
    print_error(attempt.error, f"Error of attempt {attempt.attempt:,}")


def _print_change(change: "ChangeInfo") -> None:
    why = f": {line(change.why)}" if change.why else ""
    click.echo(f"  {moment(change.at)}  {line(change.action)} by {line(change.by)}{why}")
    old = change.old if isinstance(change.old, dict) else {}
    new = change.new if isinstance(change.new, dict) else {}
    for name in new:
        click.echo(f"    {line(name)}: {value(old.get(name))} → {value(new[name])}")
    before = {name: each for name, each in old.items() if name not in new and each is not None}
    if before:
        click.echo("    before: " + ", ".join(f"{line(name)} {_briefly(each)}" for name, each in before.items()))


def _briefly(content: Any) -> str:
    """A value of a change: an error in a line, a name as it is, all else as JSON."""
    return error_line(content) or (line(content) if isinstance(content, str) else value(content, 200))


def _print_block(text: str, **style: Any) -> None:
    for each in clean(text).splitlines():
        click.echo("  " + click.style(each, **style) if style else f"  {each}")


def _heading(text: str) -> None:
    click.echo(f"\n{click.style(text, bold=True)}")
