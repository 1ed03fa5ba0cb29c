"""`holdfast enqueue`, `tasks`, `show`, `retry`, `cancel` and `discard`."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import DURATION, Setup, common_options, pass_setup
from holdfast.cli.output import Failure, coloured, error_line, failure_of, print_json, relative, report, table, value
from holdfast.errors import ConfigError, NoResult, ResultTimeout, TaskNotFound, WrongState

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._model.options import EnqueueOptions
    from holdfast._model.reference import TaskInfo
    from holdfast._sql.queries import Queries
    from holdfast._sql.query import Query
    from holdfast.sync import SyncApp, SyncRef

STATES = ("ready", "running", "waiting", "parked", "done", "cancelled", "expired", "discarded")
PHASES = ("scheduled", "retrying", "due", "unroutable")
"""What a ready task may be seen as."""


# --- enqueue


@click.command()
@click.argument("kind", metavar="KIND[.STEP]")
@click.argument("args", nargs=-1, metavar="[JSON | NAME=TEXT | NAME:=JSON]...")
@click.option("--queue", help="The queue.  [default: what its workers declared, else default]")
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.")
@click.option("--delay", type=DURATION, help="Not before this has passed.")
@click.option("--at", metavar="TIME", help="Not before this time: 2030-01-31T09:00+01:00; local time without a zone.")
@click.option("--key", help="At most one unfinished task of a queue has this key.")
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Carried along; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the result; exit code 1 if there is none.")
@click.option("--timeout", type=DURATION, default="60s", show_default=True, help="How long to wait.")
@common_options
@pass_setup
def enqueue(
    setup: Setup,
    kind: str,
    args: Sequence[str],
    at: str | None,
    headers: Sequence[str],
    wait: bool,
    timeout: float,
    **options: Any,
) -> None:
    """Enqueue a task by its name and print its id.

    A function is named by its kind, a step by KIND.STEP. Its args are one JSON object, or NAME=TEXT and NAME:=JSON.

    \b
    Example:
      holdfast enqueue greeter.ReadName filename=name.txt
      holdfast enqueue send_receipt order_id:=42 to=a@b.c --wait
      holdfast enqueue send_receipt '{"order_id": 42, "to": "a@b.c"}' --delay 5m
    """
    from holdfast import named

    _check_name(kind)
    given = _options(at=_time(at), headers=dict(_pair(each) for each in headers) or None, **options)
    call = named(kind, _args(args))
    with setup.opened() as (app, _):
        ref = app.enqueue(call, **given)
        if not ref.created:
            click.echo(f"not enqueued: this unfinished task holds the key {options['key']!r}", err=True)
        if not wait:
            print_json({"id": ref.id, "created": ref.created}) if setup.json else click.echo(str(ref.id))
            return
        if not setup.json:
            click.echo(str(ref.id))
        _wait(setup, app, ref, timeout)


def _wait(setup: Setup, app: "SyncApp", ref: "SyncRef[Any]", timeout: float) -> None:
    from holdfast import insights

    info, failure = _ended(app, ref, timeout)
    if setup.json:
        print_json({"id": ref.id, "created": ref.created, "state": info.state, "result": info.result, "error": info.error})
    if failure is None:
        try:
            insights.outcome_of(info, ref._ref)
        except NoResult as error:
            failure = error
    if failure is not None:
        raise failure
    if not setup.json:
        click.echo(value(info.result, limit=1_000_000))


def _ended(app: "SyncApp", ref: "SyncRef[Any]", timeout: float) -> "tuple[TaskInfo, NoResult | None]":
    """The task once it has ended or time is up; on a terminal with a line that says how it stands."""
    from holdfast import insights

    until = time.monotonic() + timeout
    shows = sys.stderr.isatty()
    try:
        for pause in insights.patiently():
            info = app.info(ref.id)
            if info.finished_at is not None or info.state == "parked":
                return info, None
            if time.monotonic() + pause > until:
                return info, ResultTimeout(
                    f"task {ref.id} was not finished within {timeout:g} s: it is {info.phase}"
                    + (": no live worker knows this step" if info.phase == "unroutable" else "")
                )
            if shows:
                errors = f", {info.errors} errors" if info.errors else ""
                click.echo(f"\r\x1b[K{info.kind}.{info.step} {info.phase}, attempt {info.attempt}{errors}", nl=False, err=True)
            time.sleep(pause)
    finally:
        if shows:
            click.echo("\r\x1b[K", nl=False, err=True)
    raise AssertionError("patience has no end")


def _args(given: Sequence[str]) -> dict[str, Any]:
    if given and given[0].lstrip().startswith(("{", "[", '"')):
        if len(given) > 1:
            raise click.UsageError("give the args as one JSON object, or as NAME=TEXT and NAME:=JSON, not both.")
        return _object(given[0], "the args")
    args: dict[str, Any] = {}
    for each in given:
        name, text = _pair(each)
        name, is_json = (name[:-1], True) if name.endswith(":") else (name, False)
        if name in args:
            raise click.UsageError(f"the argument {name!r} is there twice.")
        args[name] = _json(text, f"{name}:=") if is_json else text
    return args


def _pair(text: str) -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.UsageError(f"{text!r} is not understood: write NAME=TEXT.")
    return name, content


def _object(text: str, what: str) -> dict[str, Any]:
    found = _json(text, what)
    if not isinstance(found, dict):
        raise click.UsageError(f'{what} must be a JSON object such as {{"filename": "name.txt"}}.')
    return found


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{what} is not JSON: {error}") from None


def _time(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--at {text!r} is not a time: write for example 2030-01-31T09:00+01:00.") from None


def _check_name(name: str) -> None:
    from holdfast._model.names import check_kind, check_step

    kind, dot, step = name.partition(".")
    check_kind(kind)
    if dot:
        check_step(step)


def _options(**given: Any) -> "EnqueueOptions":
    chosen: Any = {name: each for name, each in given.items() if each is not None}
    options: EnqueueOptions = chosen
    return options


# --- tasks


@click.command("tasks")
@click.option("--state", type=click.Choice([*STATES, *PHASES]), metavar="STATE", help=f"{', '.join(STATES + PHASES)}.")
@click.option("--kind", help="Only this kind.")
@click.option("--queue", help="Only this queue.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@common_options
@pass_setup
def list_tasks(setup: Setup, state: str | None, kind: str | None, queue: str | None, limit: int) -> None:
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
        "args": None if args_text is None else _object(args_text, "--args"),
        "step": None if step is None else check_step(step),
        "why": why,
        "expected_attempt": expected_attempt,
    }
    _each(setup, ids, lambda queries, id, options: queries.retry(id, options), bag)


@click.command()
@_ids
@_why
@common_options
@pass_setup
def cancel(setup: Setup, ids: Sequence[str], why: str | None) -> None:
    """Cancel tasks.

    One that is not running ends at once. A running one is told, and never retried. Exit code 1 if it had already ended.

    \b
    Example:
      holdfast cancel 01890a5d-ac96-774b-bcce-b302099a8057 --why "ordered twice"
    """
    _each(setup, ids, lambda queries, id, options: queries.cancel_task(id, options), {"why": why})


@click.command()
@_ids
@_why
@common_options
@pass_setup
def discard(setup: Setup, ids: Sequence[str], why: str | None) -> None:
    """Give parked tasks up: they are archived as discarded.

    \b
    Example:
      holdfast discard 01890a5d-ac96-774b-bcce-b302099a8057 --why "obsolete"
    """
    _each(setup, ids, lambda queries, id, options: queries.discard(id, options), {"why": why})


def _each(
    setup: Setup, ids: Sequence[str], verb: "Callable[[Queries, UUID, bytes], Query[str]]", bag: dict[str, Any]
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
        raise click.exceptions.Exit(failed.exit_code)


def _me() -> str:
    """Who sits at this terminal: an embedded server knows everybody as the same user."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        raise ConfigError("this process has no user name: set the environment variable USER") from None
