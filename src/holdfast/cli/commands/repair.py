"""`holdfast retry`, `cancel`, `discard` and `again`: what people do to tasks, one by one or all that match a filter."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.input.bulk import act_on_matching
from holdfast.cli.input.filters import FilterCommand, filter_of
from holdfast.cli.input.options import Setup, common_options, json_object, pass_setup
from holdfast.cli.input.user import me
from holdfast.cli.output.printing import Failure, failure_of, print_json, report
from holdfast.errors import KeyTaken, TaskNotFound, WrongState

if TYPE_CHECKING:
    from uuid import UUID

    from holdfast._sql.queries import Queries
    from holdfast._sql.repair import Verb
    from holdfast.sync import SyncApp

_PER = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _rate(text: str) -> float:
    """The type of `--rate`: tasks per second; `100/m` is a hundred a minute."""
    number, slash, unit = text.partition("/")
    try:
        per_second = float(number) / (_PER[unit.strip()] if slash else 1.0)
    except (ValueError, KeyError):
        per_second = 0.0
    if not 0 < per_second < float("inf"):
        raise click.BadParameter(f"{text!r} is not a rate: write for example 50, 50/s or 100/m.")
    return per_second


def _tasks(command: Any) -> Any:
    """ID... or --where, and how to go about it."""
    for option in (
        click.option("--limit", type=click.IntRange(1), metavar="N", help="With --where: at most so many."),
        click.option("-y", "--yes", is_flag=True, help="With --where: do not ask."),
        click.option("--dry-run", is_flag=True, help="With --where: only show what matches."),
        click.option("--why", help="The reason; it is kept with the task."),
        click.option("--where", metavar="FILTER", help="All tasks that match, in place of ids."),
        click.argument("ids", nargs=-1, metavar="[ID]..."),
    ):
        command = option(command)
    return command


@click.command(cls=FilterCommand)
@_tasks
@click.option("--args", "args_text", metavar="JSON", help="Repaired args, in place of the old ones.")
@click.option("--step", help="Go on at another step of its kind.")
@click.option("--force", is_flag=True, help="With --step: also a step that nobody knows.")
@click.option("--rate", type=_rate, metavar="N", help="With --where: due one after another, N per second, or 100/m.")
@click.option("--expected-attempt", type=int, metavar="N", help="Refuse if it is at another attempt by now.")
@common_options
@pass_setup
def retry(
    setup: Setup,
    /,
    ids: Sequence[str],
    args_text: str | None,
    step: str | None,
    force: bool,
    expected_attempt: int | None,
    why: str | None,
    where: str | None,
    **way: Any,
) -> None:
    """Resume parked tasks where they stand, with a fresh budget.

    A task that is not parked but waits for its next attempt is due at once. An ID may be shortened to its first 8 or
    more characters. With --where, only parked tasks are meant unless the filter says a state. With --rate, all are
    retried now, and become due one after another, so that a service that has just come back is spared.

    \b
    Example:
      holdfast retry 01890a5d-ac96-774b-bcce-b302099a8057
      holdfast retry 01890a5d --args '{"filename": "other.txt"}' --why "wrong file"
      holdfast retry --where 'kind:greeter error:FileNotFound' --dry-run
      holdfast retry --where state:retrying --rate 50/s --yes
    """
    if force and step is None:
        raise click.UsageError("--force is for --step.")
    if where is not None and (args_text is not None or expected_attempt is not None):
        raise click.UsageError("--args and --expected-attempt are for one task: give its ID in place of --where.")
    if where is not None:
        _do_many(setup, "retry", ids, where, {"step": step, "force": force, "why": why}, way)
        return
    args = None if args_text is None else json_object(args_text, "--args")
    options = {"args": args, "step": step, "force": force, "why": why, "expected_attempt": expected_attempt}
    _do(setup, "retry", ids, options, way)


@click.command(cls=FilterCommand)
@_tasks
@common_options
@pass_setup
def cancel(setup: Setup, /, ids: Sequence[str], where: str | None, why: str | None, **way: Any) -> None:
    """Cancel tasks.

    One that is not running ends at once. A running one is told, and never retried. Exit code 1 if it had already
    ended. An ID may be shortened to its first 8 or more characters.

    \b
    Example:
      holdfast cancel 01890a5d-ac96-774b-bcce-b302099a8057 --why "ordered twice"
      holdfast cancel --where 'kind:newsletter state:scheduled' --why "wrong date"
    """
    if where is not None:
        _do_many(setup, "cancel", ids, where, {"why": why}, way)
    else:
        _do(setup, "cancel", ids, {"why": why}, way)


@click.command(cls=FilterCommand)
@_tasks
@common_options
@pass_setup
def discard(setup: Setup, /, ids: Sequence[str], where: str | None, why: str | None, **way: Any) -> None:
    """Give parked tasks up: they are archived as discarded.

    An ID may be shortened to its first 8 or more characters.

    \b
    Example:
      holdfast discard 01890a5d-ac96-774b-bcce-b302099a8057 --why "obsolete"
      holdfast discard --where 'kind:greeter before:30d' --dry-run
    """
    if where is not None:
        _do_many(setup, "discard", ids, where, {"why": why}, way)
    else:
        _do(setup, "discard", ids, {"why": why}, way)


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--why", help="The reason; it is kept with the old task.")
@common_options
@pass_setup
def again(setup: Setup, /, ids: Sequence[str], why: str | None) -> None:
    """Enqueue tasks that have ended anew, such as cancelled ones.

    The new one begins at the step where the old one ended, with its args, queue, priority, key and headers. Each tells
    of the other: `holdfast show ID`. An ID may be shortened to its first 8 or more characters.

    \b
    Example:
      holdfast again 01890a5d-ac96-774b-bcce-b302099a8057 --why "cancelled by mistake"
    """
    by = me()

    def enqueue(app: "SyncApp", queries: "Queries", id: "UUID") -> tuple[dict[str, Any], str]:
        new = app.again(id, by=by, why=why)
        return {"id": new, "again": id}, f"{new} is {id} again."

    _each(setup, ids, enqueue)


def _do(setup: Setup, verb: "Verb", ids: Sequence[str], options: dict[str, Any], way: dict[str, Any]) -> None:
    from holdfast import verbs

    if not ids:
        raise click.UsageError("give the ID of a task, or --where FILTER.")
    for option, given in way.items():
        if given and option != "yes":
            raise click.UsageError(f"--{option.replace('_', '-')} is for --where.")
    by = me()

    def act(app: "SyncApp", queries: "Queries", id: "UUID") -> tuple[dict[str, Any], str]:
        state = app.ask(verbs.ON_ONE[verb](queries, id, by=by, **options))
        return {"id": id, "state": state}, f"{id} is {state}."

    _each(setup, ids, act)


def _do_many(
    setup: Setup, verb: "Verb", ids: Sequence[str], where: str, options: dict[str, Any], way: dict[str, Any]
) -> None:
    from holdfast import verbs

    if ids:
        raise click.UsageError(
            f"give ids or --where, not both. A filter of several terms needs quotes: --where '{where} …'."
        )
    yes = way.pop("yes")
    act_on_matching(setup, verbs.many(verb, filter_of([where]), by=me(), **options, **way), yes=yes)


def _each(
    setup: Setup, ids: Sequence[str], act: "Callable[[SyncApp, Queries, UUID], tuple[dict[str, Any], str]]"
) -> None:
    """Does something to each task. What cannot be done is told, and the rest is done all the same."""
    from holdfast.cli.input.ids import find_id

    answers: list[dict[str, Any]] = []
    failed: Failure | None = None
    with setup.opened() as (app, queries):
        for text in ids:
            try:
                id = find_id(app, queries, text)
                answer, said = act(app, queries, id)
            except (TaskNotFound, WrongState, KeyTaken, Failure) as error:
                failure = error if isinstance(error, Failure) else failure_of(error)
                failed = failed or failure
                report(failure, as_json=setup.json)
            else:
                answers.append(answer)
                if not setup.json:
                    click.echo(said)
    if setup.json:
        print_json(answers)
    if failed is not None:
        raise click.exceptions.Exit(failed.code)
