"""`holdfast enqueue`: a task by its name, for those who do not have the code."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.commands.completion import complete_queue, complete_step
from holdfast.cli.input.options import Setup, common_options, duration, json_object, json_value, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Failure, line, note, print_json, print_result
from holdfast.errors import ConfigError, NotPermitted

if TYPE_CHECKING:
    from holdfast._model.declare.options import EnqueueOptions
    from holdfast._model.enqueue.ref import TaskInfo
    from holdfast._model.read.infos import KindInfo
    from holdfast._model.run.retry import Retry
    from holdfast._sql.queries import Queries
    from holdfast.sync import SyncApp, SyncRef

T = TypeVar("T")
MOST_NAMES = 20


def _refuse_args(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    # `holdfast retry` has this option, so people try it here.
    if value is not None:
        raise click.UsageError("the args of a new task are given without --args: holdfast enqueue KIND '{…}'.", ctx)


@click.command()
@click.argument("kind", metavar="KIND[.STEP]", shell_complete=complete_step)
@click.argument("args", nargs=-1, metavar="[JSON | NAME=TEXT | NAME:=JSON]...")
@click.option(
    "--queue", shell_complete=complete_queue, help="The queue.  [default: what its workers declared, else default]"
)
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.")
@click.option("--delay", type=duration, help="Not before this has passed.")
@click.option("--at", metavar="TIME", help="Not before this time: 2030-01-31T09:00+01:00; local time without a zone.")
@click.option(
    "--deadline",
    metavar="DURATION|TIME",
    help="Not started by then means never started: 30m, or a time as for --at.",
)
@click.option("--key", help="At most one unfinished task of a queue has this key.")
@click.option("--unique", is_flag=True, default=None, help="A key made from kind, step and args.")
@click.option(
    "--unique-for", type=duration, help="The key also holds for so long, even if its task ends before.  Needs a key."
)
@click.option(
    "--on-conflict",
    type=click.Choice(["skip", "raise", "replace"]),
    help="If the key is taken: leave it, fail, or give its task these args unless it has begun.  [default: skip]",
)
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Carried along; may be repeated.")
@click.option("--retry", metavar="N", help='How many retries its steps have: 5, or "5 delay=10s backoff=1".')
@click.option("--attempt-timeout", type=duration, help="How long an attempt of it may take.")
@click.option("--args", "args_by_option", hidden=True, expose_value=False, callback=_refuse_args)
@click.option("--force", is_flag=True, help="Also a kind or step that nobody knows yet.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it; exit code 1 if there is none.")
@click.option("--timeout", type=duration, default="60s", show_default=True, help="How long to wait.")
@common_options
@pass_setup
def enqueue(
    setup: Setup,
    /,
    kind: str,
    args: Sequence[str],
    at: str | None,
    deadline: str | None,
    headers: Sequence[str],
    force: bool,
    retry: str | None,
    attempt_timeout: float | None,
    wait: bool,
    timeout: float,
    **options: Any,
) -> None:
    """Enqueue a task by its name and print its id.

    A function is named by its kind, a step by KIND.STEP. Its args are one JSON object, or NAME=TEXT and NAME:=JSON.
    With --wait only the result goes to stdout; texts are printed as they are, anything else as JSON.

    A name that no worker has declared is refused, with exit code 3, unless you say --force: then the task waits for a
    worker that knows it. In a database where no worker has ever run, every name is accepted.

    \b
    Example:
      holdfast enqueue greeter.ReadName filename=name.txt
      greeting=$(holdfast enqueue hello name=Ada --wait)
      holdfast enqueue send_receipt order_id:=42 to=a@b.c --key receipt-42
      holdfast enqueue send_receipt '{"order_id": 42, "to": "a@b.c"}' --delay 5m --deadline 1h
      holdfast enqueue rebuild_index customer:=42 --unique --unique-for 10m
    """
    from holdfast import insights, named

    _check_name(kind)
    _check_key(options)
    given = _options(
        at=_time("--at", at),
        deadline=_deadline(deadline),
        headers=dict(_pair(each) for each in headers) or None,
        retry=_retry(retry),
        timeout=attempt_timeout,
        **options,
    )
    fields = _args(args)
    with setup.opened() as (app, queries):
        warnings = _Warnings(quiet=setup.json)
        known = _if_permitted(lambda: {each.name: each for each in app.ask(insights.kinds(queries))})
        if known and not force:
            _check_known(kind, known, lambda name: app.ask(insights.known_steps(queries, name)))
        ref = app.enqueue(named(kind, fields), **given)
        # One that has ended may be archived no more.
        task = _if_permitted(lambda: app.info(ref.id)) if ref.created else None
        warnings.add(_about_fields(kind, fields, known or {}))
        warnings.add(_about_conflict(ref, options))
        if task is not None:
            warnings.add(_about_workers(task, fresh=known == {}))
        answer = {"id": ref.id, "created": ref.created, "enqueued": ref.enqueued}
        answer |= {"warnings": warnings.told} if warnings.told else {}
        if not wait:
            print_json(answer) if setup.json else click.echo(str(ref.id))
            return
        if not setup.json:
            note(str(ref.id))
        # That nobody knows its step has been told just now.
        told = task if task is not None and task.phase in ("unserved", "unroutable") else None
        _wait(setup, app, queries, ref, timeout, answer, told)


def _retry(text: str | None) -> "Retry | None":
    from holdfast._model.enqueue.overrides import retry_of

    try:
        return None if text is None else retry_of(text)
    except ConfigError as error:
        raise click.UsageError(f"--retry {error}.") from None


def _wait(
    setup: Setup,
    app: "SyncApp",
    queries: "Queries",
    ref: "SyncRef[Any]",
    timeout: float,
    answer: dict[str, Any],
    told: "TaskInfo | None",
) -> None:
    from holdfast.cli.output.following import follow, why_no_result

    task = follow(app, queries, ref.id, timeout, quiet=setup.json, told=told)
    trouble = why_no_result(app, task, timeout)
    if setup.json:
        print_json({**answer, "state": task.state, "result": task.result, "error": task.error})
    if trouble is not None:
        raise trouble
    if not setup.json and task.result is not None:
        print_result(task.result)


# What is worth saying at once ------------------------------------------------------------------------


class _Warnings:
    """Told on stderr, or kept for the JSON."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.told: list[str] = []

    def add(self, text: str | None) -> None:
        if text:
            self.told.append(text)
            if not self._quiet:
                note(text)


def _if_permitted(look: Callable[[], T]) -> T | None:
    """What a look finds. A role that may only enqueue sees nothing, and needs no warnings to enqueue."""
    try:
        return look()
    except NotPermitted:
        return None


def _check_known(name: str, known: "Mapping[str, KindInfo]", steps_of: Callable[[str], list[str]]) -> None:
    """Refuses a name that no worker has declared: nothing would ever execute its task, and nobody would notice."""
    kind, _, step = name.partition(".")
    steps = _steps(known[kind]) if kind in known else []
    if not step and len(steps) > 1:
        listed = line(", ".join(steps))
        raise Failure(f"{kind} has the steps {listed}: name the one to begin with, such as {kind}.{line(steps[0])}")
    if step in steps or (not step and kind in known):
        return
    steps = steps_of(kind)  # old names, too
    if step in steps or (not step and steps):
        return
    if steps:
        what, meant = f"a step {step!r} of {kind}", _nearest(step, steps, f"{kind}.")
        there = f"Its steps are: {', '.join(map(line, steps))}"
    else:
        what, meant = f"the kind {kind!r}", _nearest(kind, known)
        there = f"The kinds are: {_listed(sorted(known))}"
    raise Failure(
        f"no worker has declared {what}{_did_you_mean(meant) or '.'} {there}. Nothing was enqueued. If a worker that "
        "knows it is still to come, add --force",
        NOT_FOUND,
        "NotKnown",
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(line, names[:MOST_NAMES])) + more


def _about_fields(name: str, args: Mapping[str, Any], known: "Mapping[str, KindInfo]") -> str | None:
    """Args that the step has no field for. They are ignored when it is executed, and newer code may have them."""
    kind, _, step = name.partition(".")
    if kind not in known:
        return None
    steps = _steps(known[kind])
    about = known[kind].about.get(step or (steps[0] if len(steps) == 1 else ""), {})
    unknown = [each for each in args if each not in about["fields"]] if "fields" in about else []
    if not unknown:
        return None
    listed = ", ".join(line(each) for each in about["fields"]) or "none"
    meant = _nearest(unknown[0], about["fields"]) if len(unknown) == 1 else None
    those = f"the argument {unknown[0]!r}" if len(unknown) == 1 else f"the arguments {', '.join(map(repr, unknown))}"
    return f"{line(name)} ignores {line(those)}{_did_you_mean(meant) or '.'} Its arguments are: {listed}"


def _steps(kind: "KindInfo") -> list[str]:
    return list(kind.graph) if isinstance(kind.graph, Mapping) else []


def _nearest(name: str, known: Any, before: str = "") -> str | None:
    from difflib import get_close_matches

    lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), lower, 1)
    return before + line(lower[found[0]]) if found else None


def _did_you_mean(name: str | None) -> str:
    return f": did you mean {name}?" if name else ""


_NOT_REPLACED = {
    "running": "it is running",
    "started": "it has begun already",
    "parked": "it is parked",
    "existing": "somebody is just changing it",
}


def _about_conflict(ref: "SyncRef[Any]", options: Mapping[str, Any]) -> str | None:
    """What became of an enqueue whose key was held."""
    holder = "the same unique task" if options["key"] is None else f"the task that holds the key {options['key']!r}"
    match ref.enqueued:
        case "created":
            return None
        case "replaced":
            return f"replaced: {holder} has these args now"
        case "ended":
            return f"not enqueued: this is {holder}; it has ended, but its key is still held (unique for a while)"
        case how if options["on_conflict"] == "replace":
            return f"not replaced: this is {holder}, and {_NOT_REPLACED[how]}"
        case _:
            return f"not enqueued: this is {holder}, which is unfinished"


def _about_workers(task: "TaskInfo", *, fresh: bool) -> str | None:
    """No worker: better said at once than after a long wait."""
    if task.phase == "unserved":
        return f"no live worker serves the queue {task.queue}: the task waits for one (holdfast worker APP)"
    if task.phase != "unroutable":
        return None
    name = f"{task.kind}.{task.step}"
    if fresh:
        return (
            f"no worker has run on this database yet, so the name {name} could not be checked. The task waits in queue "
            f"{task.queue} for a worker that knows it (holdfast worker APP)"
        )
    return f"no live worker knows {name} in queue {task.queue}: the task waits until one does (holdfast worker APP)"


# What was given ---------------------------------------------------------------------------------------


def _args(given: Sequence[str]) -> dict[str, Any]:
    if given and given[0].lstrip().startswith(("{", "[", '"')):
        if len(given) > 1:
            raise click.UsageError("give the args as one JSON object, or as NAME=TEXT and NAME:=JSON, not both.")
        return json_object(given[0], repr(line(given[0], 80)))
    args: dict[str, Any] = {}
    for each in given:
        name, text = _pair(each, "NAME=TEXT, NAME:=JSON, or all args as one JSON object")
        name, is_json = (name[:-1], True) if name.endswith(":") else (name, False)
        if name in args:
            raise click.UsageError(f"the argument {name!r} is there twice.")
        args[name] = _json(name, text) if is_json else text
    return args


def _json(name: str, text: str) -> Any:
    try:
        return json_value(text, f"{name}:=")
    except click.UsageError as error:
        raise click.UsageError(f"{error.message}. Write {name}={text} for text.") from None


def _pair(text: str, how: str = "NAME=TEXT") -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not equals or not name.rstrip(":"):
        raise click.UsageError(f"{text!r} is not understood: write {how}.")
    return name, content


def _time(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"{name} {text!r} is not a time: write for example 2030-01-31T09:00+01:00.") from None


def _deadline(text: str | None) -> datetime | str | None:
    return _time("--deadline", text) if text is not None and text[4:5] == "-" else text


def _check_key(options: Mapping[str, Any]) -> None:
    if options["key"] is not None and options["unique"]:
        raise click.UsageError("give --key or --unique, not both: --unique makes a key from kind, step and args.")
    for name in ("on_conflict", "unique_for"):
        if options[name] is not None and options["key"] is None and not options["unique"]:
            raise click.UsageError(
                f"--{name.replace('_', '-')} needs a --key or --unique: nothing else can be in conflict."
            )


def _check_name(name: str) -> None:
    from holdfast._model.declare.names import check_kind, check_step

    kind, dot, step = name.partition(".")
    if not dot and kind[:1].isupper() and kind.isidentifier():
        raise click.UsageError(f"{kind!r} cannot be the name of a kind; a step is named with its kind: KIND.{kind}")
    check_kind(kind)
    if dot:
        check_step(step)


def _options(**given: Any) -> "EnqueueOptions":
    chosen: Any = {name: each for name, each in given.items() if each is not None}
    options: EnqueueOptions = chosen
    return options
