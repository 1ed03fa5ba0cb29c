"""`holdfast schedules list`, `show` and `next`."""

from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import between, moment, relative
from holdfast.cli.commands.schedules import schedules
from holdfast.cli.commands.schedules.shared import a_time, advice, next_plan, one, told_of
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import Cell, coloured, error_line, facts, line, note, print_json, value
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast.schedules import OccurrenceInfo, ScheduleInfo

_CONDITIONS = {"active": "green", "paused": "yellow", "ended": "", "failing": "red", "orphaned": "yellow"}


@schedules.command("list")
@common_options
@pass_setup
def list_schedules(setup: Setup, /) -> None:
    """Show all schedules, in plain words, with their next and last plan times.

    \b
    Example:
      holdfast schedules
      holdfast schedules --json
    """
    found: list[ScheduleInfo] = []
    from holdfast import schedules as asked

    with setup.opened() as (app, queries):
        page = app.ask(asked.listed(queries))
        while page:
            found += page
            page = app.ask(asked.listed(queries, above=page[-1].name)) if len(page) >= 1000 else []
    if setup.json:
        print_json([told_of(each) for each in found])
    elif found:
        headings = ("SCHEDULE", "CONDITION", "WHEN", "NEXT", "LAST", "STEP", "SCOPES")
        fitted_table(headings, [_row(each) for each in found], spare=("SCOPES", "STEP", "LAST"))
        for each in found:
            if each.condition != "active" and (said := advice(each)):
                note(said)
    else:
        note("no schedules. Declare one with app.schedule(…), or make one: holdfast schedules set --help")


def _row(info: "ScheduleInfo") -> list[Cell]:
    return [
        line(info.name),
        (info.condition, _CONDITIONS.get(info.condition, "")),
        line(info.words, 80),
        relative(next_plan(info)),
        relative(info.last_at),
        line(info.definition.get("step", "")),
        f"{info.scopes:,}" if info.scopes else "",
    ]


@schedules.command()
@click.argument("name")
@click.option("--scope", help="Only the occurrences of this scope.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many occurrences."
)
@common_options
@pass_setup
def show(setup: Setup, /, name: str, scope: str | None, limit: int) -> None:
    """Show a schedule and what became of its last plan times.

    \b
    Example:
      holdfast schedules show nightly
      holdfast schedules show nightly --scope berlin -n 50
    """
    from holdfast import schedules as asked

    with setup.opened() as (app, queries):
        info = one(app, queries, name)
        seen = app.ask(asked.occurrences(queries, name, scope=scope, limit=limit))
    if setup.json:
        print_json({**told_of(info), "occurrences": seen})
        return
    click.echo(f"{line(info.name)}  {line(info.words)}")
    definition = info.definition
    facts(
        [
            ("condition", (info.condition, _CONDITIONS.get(info.condition, ""))),
            ("trouble", advice(info)),
            ("next", moment(next_plan(info))),
            ("last", moment(info.last_at)),
            ("step", line(definition.get("step", ""))),
            ("args", value(definition.get("args"))),
            ("options", value(definition["options"]) if definition.get("options") else ""),
            ("scopes", _scopes(info)),
            ("catch up", _catch_up(definition)),
            ("overlap", line(definition.get("overlap", ""))),
            ("start delay", _seconds(definition.get("start_delay"))),
            ("jitter", _seconds(definition.get("jitter"))),
            ("start", line(definition.get("start") or "")),
            ("end", line(definition.get("end") or "")),
            ("declared", _declared(info)),
        ]
    )
    if seen:
        click.echo()
        headings = ("PLAN TIME", "SCOPE", "STATE", "ATTEMPTS", "LATE", "TOOK", "TASK", "RESULT OR ERROR")
        fitted_table(
            headings, [_occurrence_row(each) for each in seen], spare=("ATTEMPTS", "SCOPE", "LATE"), indent="  "
        )


def _scopes(info: "ScheduleInfo") -> str:
    match info.definition.get("scopes"):
        case None:
            return ""
        case {"query": query}:
            return f"{info.scopes:,}, found by: {line(query)}"
        case {"function": function}:
            return f"{info.scopes:,}, found by {line(function)}"
        case given:
            return line(", ".join(map(str, given)), 200)


def _catch_up(definition: Mapping[str, Any]) -> str:
    rule = str(definition.get("catch_up", ""))
    if rule != "all":
        return rule
    limit, window = definition.get("catch_up_limit"), _seconds(definition.get("catch_up_window"))
    return f"all of the last {window}, at most {limit} at once"


def _seconds(length: Any) -> str:
    return f"{length:g} s" if isinstance(length, (int, float)) and length else ""


def _declared(info: "ScheduleInfo") -> str:
    if not info.in_code:
        return "at run time, by no code"
    return "in the code" + ("; a person has changed it since" if info.changed_by_hand else "")


def _occurrence_row(seen: "OccurrenceInfo") -> list[Cell]:
    end = error_line(seen.error)
    return [
        f"{seen.plan_time.astimezone():%Y-%m-%d %H:%M:%S}",
        line(seen.scope, 40),
        coloured(seen.state),
        "" if seen.attempts is None else str(seen.attempts),
        between(seen.due_at, seen.started_at),
        between(seen.started_at, seen.finished_at),
        str(seen.task_id or ""),
        line(seen.skipped or end or ("" if seen.result is None else value(seen.result)), 200),
    ]


@schedules.command("next")
@click.argument("name")
@click.option("-n", "--number", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@click.option("--after", metavar="TIME", help="Later than this time.  [default: now]")
@common_options
@pass_setup
def show_next(setup: Setup, /, name: str, number: int, after: str | None) -> None:
    """Show the next plan times, also across changes of the clocks.

    \b
    Example:
      holdfast schedules next nightly
      holdfast schedules next nightly -n 3 --after 2030-03-30
    """
    with setup.opened() as (app, queries):
        info = one(app, queries, name)
    zone = _zone_of(info)
    times = info.next(number, None if after is None else a_time(after, "--after"))
    if setup.json:
        print_json([{"plan_time": each, "local": each.astimezone(zone).isoformat()} for each in times])
        return
    click.echo(f"{line(info.name)}  {line(info.words)}")
    if info.condition == "paused":
        note(advice(info))
    before: Any = None
    for each in times:
        local = each.astimezone(zone)
        turned = before is not None and local.utcoffset() != before
        before = local.utcoffset()
        mark = click.style("  the clocks have been set", fg="yellow") if turned else ""
        click.echo(f"  {local:%a %Y-%m-%d %H:%M:%S %z}  {click.style(relative(each), dim=True)}{mark}")
    if not times:
        note("there are no more.")


def _zone_of(info: "ScheduleInfo") -> Any:
    from holdfast._model.time.recurrence import Cron, zone

    timing = info.parsed.timing
    return zone(timing.tz) if isinstance(timing, Cron) else UTC
