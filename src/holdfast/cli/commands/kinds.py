"""`holdfast kinds`: which kinds of task there are, and how many tasks stand at each step."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import amount
from holdfast.cli.commands.pause import paused
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Cell, Failure, advise, alarming, attention, line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast._model.read.infos import KindInfo, Standing


@click.command()
@click.argument("kind", required=False)
@common_options
@pass_setup
def kinds(setup: Setup, /, kind: str | None) -> None:
    """Show the kinds of task, their steps, and how many tasks stand at each.

    \b
    Example:
      holdfast kinds
      holdfast kinds greeter
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        declared = {each.name: each for each in app.ask(insights.kinds(queries)) if kind in (None, each.name)}
        counted, is_exact = app.ask(insights.standing_now(queries, kind))
    standing = _by_kind(counted)
    names = sorted(declared.keys() | standing.keys())
    if kind is not None and not names:
        raise Failure(f"there is no kind {line(kind)}: no worker has declared it", NOT_FOUND, "KindNotFound")
    if setup.json:
        print_json([_kind_json(name, declared.get(name), standing.get(name, {}), is_exact) for name in names])
    elif names:
        rows = [row for name in names for row in _kind_rows(name, declared.get(name), standing.get(name, {}))]
        headings = ("KIND", "STEP", "READY", "SCHEDULED", "RUNNING", "PARKED", "QUEUE", "WORKERS", "NOTE")
        fitted_table(headings, rows, spare=("WORKERS", "QUEUE", "SCHEDULED"))
        if not is_exact:
            note("(there are too many tasks to count them all here: those due first and those that come next are)")
        advise(
            [
                *(paused(setup, "kind", each) for each in declared.values() if each.paused_at),
                *differing(declared.values()),
            ]
        )
    else:
        note("no kinds: workers declare them when they start (holdfast worker APP).")


def differing(kinds: "Iterable[KindInfo]") -> list[str]:
    return [f"kind {line(each.name)}: {line(each.differs, 400)}" for each in kinds if each.differs]


def _by_kind(standing: "Sequence[Standing]") -> dict[str, dict[str, dict[str, int]]]:
    """How many tasks there are, by kind, step and state."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for each in standing:
        found.setdefault(each.kind, {}).setdefault(each.step, {})[each.state] = each.count
    return found


def _steps(declared: "KindInfo | None", standing: Mapping[str, Any]) -> list[str]:
    """The steps as declared, then those where tasks stand nevertheless."""
    known = _declared_steps(declared)
    return [*known, *sorted(standing.keys() - set(known))]


def _declared_steps(declared: "KindInfo | None") -> list[str]:
    # Written by workers of any version.
    return list(declared.graph) if declared is not None and isinstance(declared.graph, Mapping) else []


def _kind_rows(name: str, declared: "KindInfo | None", standing: Mapping[str, Mapping[str, int]]) -> "list[list[Cell]]":
    rows: list[list[Cell]] = []
    for step in _steps(declared, standing):
        at = standing.get(step, {})
        is_first = not rows
        rows.append(
            [
                line(name) if is_first else "",
                line(step),
                _number(at.get("ready", 0)),
                _number(at.get("scheduled", 0)),
                _number(at.get("running", 0)),
                alarming(at.get("parked", 0), _number(at.get("parked", 0))),
                line(declared.queue) if is_first and declared is not None else "",
                f"{declared.workers:,}" if is_first and declared is not None else "",
                attention(_kind_note(declared, step, is_first=is_first)),
            ]
        )
    return rows


def _kind_note(declared: "KindInfo | None", step: str, *, is_first: bool) -> str:
    if declared is None:
        return "not declared by any worker"
    notes = ["paused"] if declared.paused_at and is_first else []
    notes += ["declared differently"] if declared.differs and is_first else []
    notes += [] if step in _declared_steps(declared) else ["no such step declared"]
    return ", ".join(notes)


def _number(count: int) -> str:
    return amount(count) if count else "-"


def _kind_json(
    name: str, declared: "KindInfo | None", standing: Mapping[str, Mapping[str, int]], is_exact: bool
) -> dict[str, Any]:
    steps = {step: dict(standing.get(step, {})) for step in _steps(declared, standing)}
    return {"name": name, "declared": declared, "steps": steps, "count_is_exact": is_exact}
