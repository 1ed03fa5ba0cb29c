"""`holdfast enqueue`: a task by its name, for those who do not have the code."""

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import Setup, common_options, duration, json_object, json_value, pass_setup
from holdfast.cli.output import print_json, value
from holdfast.errors import NoResult, ResultTimeout

if TYPE_CHECKING:
    from holdfast._model.options import EnqueueOptions
    from holdfast._model.reference import TaskInfo
    from holdfast.sync import SyncApp, SyncRef


@click.command()
@click.argument("kind", metavar="KIND[.STEP]")
@click.argument("args", nargs=-1, metavar="[JSON | NAME=TEXT | NAME:=JSON]...")
@click.option("--queue", help="The queue.  [default: what its workers declared, else default]")
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.")
@click.option("--delay", type=duration, help="Not before this has passed.")
@click.option("--at", metavar="TIME", help="Not before this time: 2030-01-31T09:00+01:00; local time without a zone.")
@click.option("--key", help="At most one unfinished task of a queue has this key.")
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Carried along; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the result; exit code 1 if there is none.")
@click.option("--timeout", type=duration, default="60s", show_default=True, help="How long to wait.")
@common_options
@pass_setup
def enqueue(
    setup: Setup,
    /,
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
        _tell_unroutable(app.info(ref.id))
        if not wait:
            print_json({"id": ref.id, "created": ref.created}) if setup.json else click.echo(str(ref.id))
            return
        if not setup.json:
            click.echo(str(ref.id))
        _wait(setup, app, ref, timeout)


def _tell_unroutable(task: "TaskInfo") -> None:
    """A misspelt name, or no worker: better said at once than after a long wait."""
    if task.phase == "unroutable":
        click.echo(
            f"no live worker knows {task.kind}.{task.step} in queue {task.queue}: it waits until one does "
            "(holdfast worker APP)",
            err=True,
        )


def _wait(setup: Setup, app: "SyncApp", ref: "SyncRef[Any]", timeout: float) -> None:
    from holdfast import insights

    info, failure = _ended(app, ref, timeout)
    if setup.json:
        print_json(
            {"id": ref.id, "created": ref.created, "state": info.state, "result": info.result, "error": info.error}
        )
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
                click.echo(
                    f"\r\x1b[K{info.kind}.{info.step} {info.phase}, attempt {info.attempt}{errors}", nl=False, err=True
                )
            time.sleep(pause)
    finally:
        if shows:
            click.echo("\r\x1b[K", nl=False, err=True)
    raise AssertionError("patience has no end")


def _args(given: Sequence[str]) -> dict[str, Any]:
    if given and given[0].lstrip().startswith(("{", "[", '"')):
        if len(given) > 1:
            raise click.UsageError("give the args as one JSON object, or as NAME=TEXT and NAME:=JSON, not both.")
        return json_object(given[0], "the args")
    args: dict[str, Any] = {}
    for each in given:
        name, text = _pair(each)
        name, is_json = (name[:-1], True) if name.endswith(":") else (name, False)
        if name in args:
            raise click.UsageError(f"the argument {name!r} is there twice.")
        args[name] = json_value(text, f"{name}:=") if is_json else text
    return args


def _pair(text: str) -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.UsageError(f"{text!r} is not understood: write NAME=TEXT.")
    return name, content


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
