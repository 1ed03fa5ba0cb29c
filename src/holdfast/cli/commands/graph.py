"""`holdfast graph`: which step can follow which, and how many tasks stand at each."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Failure, line, note, shortened

if TYPE_CHECKING:
    from holdfast._model.read.infos import Standing
    from holdfast.app import App
    from holdfast.drawing import Drawing

PATIENCE = 3.0
"""Seconds that a picture waits for counts nobody asked for."""

_ENDINGS = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid", ".json": "json"}
_STYLES: dict[str, dict[str, Any]] = {
    "kind": {"bold": True},
    "end": {"fg": "green"},
    "unknown": {"fg": "yellow"},
    "dim": {"dim": True},
    "running": {"fg": "cyan"},
    "waiting": {"fg": "magenta"},
    "parked": {"fg": "red"},
}


@click.command()
@click.argument("app", required=False)
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@click.option(
    "-f",
    "--format",
    "wanted",
    type=click.Choice(["text", "mermaid", "svg", "json"]),
    help="How to draw.  [default: what FILE ends in, else text]",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write to a file."
)
@click.option(
    "--live/--no-live", default=None, help="With how many tasks stand at each step.  [default: if a database answers]"
)
@click.option(
    "--direction",
    type=click.Choice(["right", "down"]),
    help="Which way mermaid and svg read.  [default: svg down if it is wide, else right]",
)
@common_options
@pass_setup
def graph(
    setup: Setup,
    /,
    app: str | None,
    kinds: Sequence[str],
    wanted: str | None,
    output: Path | None,
    live: bool | None,
    direction: str | None,
) -> None:
    """Draw which step can follow which: all of APP, or some KINDs of it.

    It is read from the return annotations of the steps. APP is a module or a file with an App in it, such as
    shop.app:app or hello.py; without one, it is the one that is configured. Exit code 3 if there is no such KIND.

    \b
    Example:
      holdfast graph greeter.py
      holdfast graph shop.app order -o order.svg
      holdfast graph shop.app -f mermaid --no-live
    """
    from holdfast._model.declare.graph import edges
    from holdfast.cli.input.app import load_app

    form = _form(setup, wanted, output)
    spec, names = _app_and_kinds(app, kinds)
    loaded = load_app(spec, url=setup.url, schema=setup.chosen_schema)
    chosen = _chosen(loaded, names)
    warnings: list[str] = []
    graphs = {name: edges(loaded, name, warnings) for name in chosen}
    standing, is_exact = _standing(loaded, live)
    drawings = _drawings(loaded, graphs, standing, tell_others=not names and form != "json")
    if form == "json":
        kinds_told = [_as_json(loaded, each) for each in drawings]
        told = {
            "live": standing is not None,
            "count_is_exact": is_exact,
            "kinds": kinds_told,
            "warnings": warnings,
        }
        _put(json.dumps(told, indent=2) + "\n", output)
        return
    for warning in warnings:
        note(f"{click.style('warning:', fg='yellow')} {line(warning)}")
    _write(drawings, form, output, direction)
    if not is_exact:
        note("(there are too many tasks to count them all here: those due first and those that come next are)")


# What is asked for ----------------------------------------------------------------------------------


def _form(setup: Setup, wanted: str | None, output: Path | None) -> str:
    if setup.json and wanted not in (None, "json"):
        raise click.UsageError(f"--json and --format {wanted} exclude each other.")
    by_name = None if output is None else _ENDINGS.get(output.suffix.lower())
    return "json" if setup.json else wanted or by_name or "text"


def _app_and_kinds(app: str | None, kinds: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """With an App configured, the first word may be a kind of it: it is, if it cannot be a module or a file."""
    from importlib.machinery import PathFinder

    from holdfast._db.config.resolve import setting

    if app is None or not app.replace("-", "_").isidentifier() or setting("app").value is None:
        return app, kinds
    # Built-in modules are found elsewhere, and none of them has an App.
    is_module = PathFinder.find_spec(app, [str(Path.cwd())]) or PathFinder.find_spec(app)
    return (app, kinds) if is_module else (None, (app, *kinds))


def _chosen(app: "App", names: Sequence[str]) -> list[str]:
    if not app._kinds:
        raise Failure("this App declares no tasks: did you name its modules, App(modules=[…])?", NOT_FOUND, "NoTasks")
    old = {kind: step.kind for (kind, _), step in app._steps.items()}
    chosen: dict[str, None] = {}
    for name in names or app._kinds:
        found = name if name in app._kinds else old.get(name)
        if found is None:
            close = get_close_matches(name, app._kinds, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            known = shortened(", ".join(app._kinds), 500)
            raise Failure(
                f"there is no kind {line(name)!r} in this App.{hint} It has: {known}", NOT_FOUND, "NoSuchKind"
            )
        chosen[found] = None
    return list(chosen)


# Counts ---------------------------------------------------------------------------------------------


def _standing(app: "App", live: bool | None) -> "tuple[list[Standing] | None, bool]":
    """Where tasks stand; None if nobody wants to know, or nobody answers and that does not matter. And if it is all."""
    from holdfast import insights
    from holdfast._db.driver.connection import connect_sync, run_sync
    from holdfast._db.errors import explaining
    from holdfast.cli.input.time_limit import quickly

    def ask() -> "tuple[list[Standing] | None, bool]":
        with explaining(app.schema), connect_sync(app.database.url) as connection:
            return run_sync(connection, insights.standing_now(app._queries))

    nothing: tuple[list[Standing] | None, bool] = (None, True)
    if live is None:
        return quickly(PATIENCE, ask, otherwise=nothing)
    return ask() if live else nothing


def _drawings(
    app: "App",
    graphs: "Mapping[str, dict[str, Any]]",
    standing: "Sequence[Standing] | None",
    *,
    tell_others: bool,
) -> "list[Drawing]":
    """What to draw. Tasks under old names are counted where this code executes them."""
    from holdfast.drawing import Drawing

    now_called = {kind: step.kind for (kind, _), step in app._steps.items()} | {name: name for name in app._kinds}
    counts: dict[str, dict[str, dict[str, int]]] = {}
    others: dict[str, int] = {}
    for each in standing or ():
        kind = now_called.get(each.kind)
        if kind is None:
            others[each.kind] = others.get(each.kind, 0) + each.count
            continue
        step = app._steps.get((each.kind, each.step))
        states = counts.setdefault(kind, {}).setdefault(each.step if step is None else step.name, {})
        states[each.state] = states.get(each.state, 0) + each.count
    if others and tell_others:
        listed = shortened(", ".join(f"{line(kind)} ({count:,})" for kind, count in others.items()), 300)
        note(f"unfinished tasks of kinds that this App does not declare: {listed}. See: holdfast check")
    return [Drawing(name, found, counts.get(name, {})) for name, found in graphs.items()]


# Writing --------------------------------------------------------------------------------------------


def _write(drawings: "Sequence[Drawing]", form: str, output: Path | None, direction: str | None) -> None:
    from holdfast.drawing import as_mermaid, as_svg, as_text

    downwards = None if direction is None else direction == "down"
    match form:
        case "svg":
            text = as_svg(drawings, downwards=downwards)
        case "mermaid":
            text = as_mermaid(drawings, downwards=bool(downwards))
        case _:
            text = as_text(drawings) if output else as_text(drawings, _painted)
    _put(text, output)


def _painted(text: str, role: str) -> str:
    return click.style(text, **_STYLES[role]) if role in _STYLES and text else text


def _as_json(app: "App", drawing: "Drawing") -> dict[str, Any]:
    steps = [
        {
            "name": name,
            "known": name in drawing.edges,
            "followers": [{"step": edge.step, "delayed": edge.delayed} for edge in drawing.edges.get(name, ())],
            "tasks": dict(drawing.counts.get(name, {})),
        }
        for name in drawing.steps
    ]
    return {"name": drawing.kind, "queue": _queue(app, drawing.kind), "steps": steps}


def _queue(app: "App", kind: str) -> str | None:
    return next((step.queue for step in app._steps.values() if step.kind == kind), None)


def _put(text: str, output: Path | None) -> None:
    if output is None or str(output) == "-":
        click.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")
