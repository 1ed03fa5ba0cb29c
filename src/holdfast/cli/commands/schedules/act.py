"""`holdfast schedules fire`, `pause`, `resume`, `delete` and `backfill`."""

from typing import Any

import click

from holdfast.cli.commands.schedules import schedules
from holdfast.cli.commands.schedules.shared import a_time, one, why_option
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import line, note, print_json


@schedules.command()
@click.argument("name")
@click.option("--plan-time", metavar="TIME", help="The plan time it is told.  [default: now]")
@click.option("--scope", help="For this scope.  [default: for all]")
@why_option
@common_options
@pass_setup
def fire(setup: Setup, /, name: str, plan_time: str | None, scope: str | None, why: str | None) -> None:
    """Enqueue an occurrence now, whatever the timing says.

    The same plan time of the same scope never fires twice: then the task of the first time is named.

    \b
    Example:
      holdfast schedules fire nightly
      holdfast schedules fire nightly --plan-time 2030-01-31T03:00Z --scope berlin
    """
    from holdfast import schedules as asked
    from holdfast.cli.input.user import me

    planned = None if plan_time is None else a_time(plan_time, "--plan-time")
    with setup.opened() as (app, queries):
        one(app, queries, name)
        ids = app.ask(asked.fire(queries, name, plan_time=planned, scope=scope, by=me(), why=why))
    if setup.json:
        print_json({"name": name, "tasks": ids})
        return
    for each in ids:
        click.echo(str(each))
    if not ids:
        note(f"{line(name)} has no scopes at present: nothing was enqueued. Give one with --scope.")


@schedules.command()
@click.argument("name")
@why_option
@common_options
@pass_setup
def pause(setup: Setup, /, name: str, why: str | None) -> None:
    """Enqueue nothing of a schedule until it is resumed. What it has enqueued before goes on.

    \b
    Example:
      holdfast schedules pause nightly --why "the warehouse moves"
    """
    _act(
        setup,
        "pause",
        name,
        why,
        f"{line(name)} is paused: nothing of it is enqueued until: holdfast schedules resume {line(name)}",
    )


@schedules.command()
@click.argument("name")
@why_option
@common_options
@pass_setup
def resume(setup: Setup, /, name: str, why: str | None) -> None:
    """Let a paused schedule go on from now. What was planned meanwhile is not caught up: see `backfill`.

    \b
    Example:
      holdfast schedules resume nightly
    """
    _act(setup, "resume", name, why, f"{line(name)} goes on from now.")


@schedules.command()
@click.argument("name")
@why_option
@common_options
@pass_setup
def delete(setup: Setup, /, name: str, why: str | None) -> None:
    """Delete a schedule; its occurrences and tasks stay. One that live code declares can only be paused.

    \b
    Example:
      holdfast schedules delete customer-7
    """
    from holdfast import schedules as asked
    from holdfast.cli.input.user import me

    with setup.opened() as (app, queries):
        state = app.ask(asked.delete(queries, name, by=me(), why=why))
    if setup.json:
        print_json({"name": name, "state": state})
    elif state == "deleted":
        click.echo(f"{line(name)} is deleted.")
    else:
        note(f"there is no schedule {line(name)}: nothing was deleted. `holdfast schedules` lists them.")


def _act(setup: Setup, verb: str, name: str, why: str | None, said: str) -> None:
    from holdfast import schedules as asked
    from holdfast.cli.input.user import me

    with setup.opened() as (app, queries):
        one(app, queries, name)
        state = app.ask(getattr(asked, verb)(queries, name, by=me(), why=why))
    if setup.json:
        print_json({"name": name, "state": state})
    else:
        click.echo(f"{line(name)} was not paused." if state == "not paused" else said)


@schedules.command()
@click.argument("name")
@click.option("--from", "since", metavar="TIME", required=True, help="The first plan time.")
@click.option("--to", "until", metavar="TIME", required=True, help="The last plan time.")
@click.option("--dry-run", is_flag=True, help="Only say what would be enqueued.")
@why_option
@common_options
@pass_setup
def backfill(setup: Setup, /, name: str, since: str, until: str, dry_run: bool, why: str | None) -> None:
    """Enqueue the plan times of a range that have no occurrence yet. Done again, it does nothing.

    \b
    Example:
      holdfast schedules backfill nightly --from 2026-01-01 --to 2026-01-31 --dry-run
      holdfast schedules backfill nightly --from 2026-01-01 --to 2026-01-31
    """
    from holdfast import schedules as asked
    from holdfast.cli.input.user import me

    first, last = a_time(since, "--from"), a_time(until, "--to")
    if last < first:
        raise click.UsageError("--to lies before --from.")
    with setup.opened() as (app, queries):
        one(app, queries, name)
        making = asked.backfill(queries, name, first, last, dry_run=dry_run, by=me(), why=why)
        made = app._together(making, lambda made: made[1])[0]
    if setup.json:
        print_json({**_fields(made), "dry_run": dry_run})
        return
    if dry_run:
        for scope, plan in made.missing:
            click.echo(f"  {plan.astimezone():%Y-%m-%d %H:%M:%S %z}" + (f"  {line(scope)}" if scope else ""))
        click.echo(f"{len(made.missing):,} would be enqueued, {made.existing:,} are there already.")
    else:
        click.echo(f"{made.enqueued:,} enqueued, {made.existing:,} were there already.")


def _fields(made: Any) -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = msgspec.to_builtins(made)
    return {**told, "missing": [{"scope": scope, "plan_time": plan} for scope, plan in told["missing"]]}
