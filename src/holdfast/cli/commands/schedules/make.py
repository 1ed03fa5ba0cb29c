"""`holdfast schedules set`."""

from collections.abc import Mapping
from typing import Any

import click

from holdfast._model.read.formats import moment
from holdfast.cli.commands.schedules import schedules
from holdfast.cli.commands.schedules.shared import a_time, next_plan, one, told_of, why_option
from holdfast.cli.input.options import Setup, common_options, duration, json_object, pass_setup
from holdfast.cli.output.printing import line, print_json


@schedules.command("set")
@click.argument("name")
@click.option("--cron", metavar="LINE", help="When: a cron line, such as '0 3 * * *', or @daily.")
@click.option("--tz", metavar="ZONE", help="The time zone of the cron line, such as Europe/Berlin.  [default: UTC]")
@click.option("--gap", type=click.Choice(["after", "skip"]), help="Times that the clocks skip.  [default: after]")
@click.option("--fold", type=click.Choice(["first", "both"]), help="Times that they repeat.  [default: first]")
@click.option("--every", metavar="DURATION", help="When: an interval, such as 15m.")
@click.option("--time", "times", multiple=True, metavar="TIME", help="When: at this time; may be repeated.")
@click.option("--step", metavar="KIND[.STEP]", help="What to enqueue.")
@click.option("--args", metavar="JSON", help="Its args, a JSON object.")
@click.option("--queue", help="The queue of its tasks.")
@click.option("--priority", type=click.IntRange(0, 9), help="9 goes first.")
@click.option("--scope", "scopes", multiple=True, help="A scope; may be repeated.")
@click.option("--catch-up", type=click.Choice(["skip", "latest", "all"]), help="What becomes of missed plan times.")
@click.option("--overlap", type=click.Choice(["allow", "skip", "queue"]), help="While the one before is unfinished.")
@click.option("--start-delay", type=duration, help="How long after the plan time its task is due.")
@click.option("--jitter", type=duration, help="Over how long its tasks are spread.")
@why_option
@common_options
@pass_setup
def set_schedule(setup: Setup, /, name: str, why: str | None, **given: Any) -> None:
    """Make a schedule, or change what is given of it. It holds from now.

    A schedule that code declares can be changed too: what is changed here stays so, until it is set back.

    \b
    Example:
      holdfast schedules set nightly --cron "0 3 * * *" --tz Europe/Berlin --step report --args '{"days": 1}'
      holdfast schedules set nightly --cron "30 4 * * *"
      holdfast schedules set heartbeat --every 15m --step ping --overlap skip
    """
    from holdfast import schedules as asked
    from holdfast.cli.input.user import me

    definition = _definition(given)
    if not definition:
        raise click.UsageError("say what to set: --cron, --every or --time, --step, or another option.")
    with setup.opened() as (app, queries):
        before = app.ask(asked.listed(queries, only=name))
        _check(name, before[0].definition if before else {}, definition)
        if before and "options" in definition:  # those not given stay
            definition["options"] = {**before[0].definition.get("options", {}), **definition["options"]}
        state = app.ask(asked.set_to(queries, name, definition, by=me(), why=why))
        info = one(app, queries, name)
    if setup.json:
        print_json({**told_of(info), "state": state})
    else:
        click.echo(f"{line(name)} is {state}: {line(info.words)}; next {moment(next_plan(info)) or 'never'}")


def _definition(given: Mapping[str, Any]) -> dict[str, Any]:
    kept = {
        key: given[key] for key in ("step", "catch_up", "overlap", "start_delay", "jitter") if given[key] is not None
    }
    if given["args"] is not None:
        kept["args"] = json_object(given["args"], "--args")
    if given["scopes"]:
        kept["scopes"] = list(given["scopes"])
    if options := {key: given[key] for key in ("queue", "priority") if given[key] is not None}:
        kept["options"] = options
    if timing := _timing(given):
        kept["timing"] = timing
    return kept


def _timing(given: Mapping[str, Any]) -> dict[str, Any]:
    if sum(bool(given[key]) for key in ("cron", "every", "times")) > 1:
        raise click.UsageError("give one of --cron, --every and --time.")
    zoned = {key: given[key] for key in ("tz", "gap", "fold") if given[key]}
    if zoned and not given["cron"]:
        raise click.UsageError("--tz, --gap and --fold belong to --cron.")
    if given["cron"]:
        return {"cron": given["cron"], "tz": "UTC", "gap": "after", "fold": "first", **zoned}
    if given["every"]:
        return {"every": given["every"]}
    return {"times": [a_time(each, "--time").isoformat() for each in given["times"]]} if given["times"] else {}


def _check(name: str, before: Mapping[str, Any], definition: dict[str, Any]) -> None:
    """Refuses at once what the first worker could not follow."""
    from holdfast._model.time.schedule import Definition
    from holdfast.schedules import check_ahead

    missing = [what for what in ("timing", "step") if what not in {**before, **definition}]
    if missing:
        flags = {"timing": "--cron, --every or --time", "step": "--step"}
        raise click.UsageError(
            f"there is no schedule {name} yet: to make it, give {' and '.join(flags[m] for m in missing)}."
        )
    if "timing" in definition:
        made = Definition.from_json({"step": "x", **definition})
        check_ahead(name, made)
        definition["timing"] = made.timing.definition()
