"""`holdfast doctor`: is everything as it should be, and if not, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from holdfast.cli.input.filters import command_line
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import line, print_json
from holdfast.cli.output.tables import UNSEEN, columns

if TYPE_CHECKING:
    from holdfast.doctor import Diagnosis, Patient

EXIT_CODES = {"fine": 0, "warning": 1, "bad": 2}
_SIGNS = {"fine": ("✓", "green"), "warning": ("!", "yellow"), "bad": ("✗", "red")}
_WIDEST, _ELSEWHERE = 100, 80
"""Characters in a line: at most, and where there is no terminal."""


@click.command()
@click.argument("app", required=False)
@common_options
@pass_setup
def doctor(setup: Setup, /, app: str | None) -> None:
    """Check the schema, the database, the workers and what waits; say what is wrong, why it matters and what to do.

    Nothing is changed. Any role that may look at the tables can do this; what it may not see is said. With APP, a
    module or a file such as shop.app:app, its database is looked at, and what its code knows is taken into account.

    Exit codes: 0 all is fine, 1 there are warnings, 2 something is bad, 4 the database cannot be reached.

    \b
    Example:
      holdfast doctor
      holdfast doctor shop.app
      holdfast doctor --json
    """
    from holdfast.doctor import examine, worst

    with _patient(setup, app) as patient:
        if setup.json:
            found = list(examine(patient))
            level = worst(found)
            print_json({"level": level, "schema": patient.queries.schema, "checks": found})
        else:
            found = [_print(each) for each in examine(patient)]
            level = worst(found)
            click.echo("\n" + click.style(_summary(found), fg=_SIGNS[level][1]))
    click.get_current_context().exit(EXIT_CODES[level])


@contextmanager
def _patient(setup: Setup, app: str | None) -> "Iterator[Patient]":
    from holdfast.app import package_version
    from holdfast.doctor import Patient

    command = partial(command_line, setup)
    if app is None:
        with setup.opened() as (sync, queries):
            yield Patient(sync.ask, queries, setup.database(), version=package_version(), command=command)
        return
    from holdfast.cli.input.app import load_app

    loaded = load_app(app, url=setup.url, schema=setup.chosen_schema)
    steps = {f"{kind}.{step}" for kind, step in loaded._steps}
    try:
        yield Patient(
            loaded.sync.ask,
            loaded._queries,
            loaded.database,
            steps=steps,
            app=app,
            version=package_version(),
            command=command,
        )
    finally:
        loaded.sync.close()


def _print(found: "Diagnosis") -> "Diagnosis":
    from textwrap import wrap

    from holdfast.doctor import CHECKS

    sign, colour = _SIGNS[found.level]
    name = max(map(len, CHECKS))
    margin = " " * (name + 4)
    room = min(columns() if columns() < UNSEEN else _ELSEWHERE, _WIDEST) - len(margin)
    first, *others = wrap(line(found.found), room, break_long_words=False, break_on_hyphens=False) or [""]
    mark = None if found.level == "fine" else colour
    click.echo(f"{click.style(sign, fg=colour)} {found.check.ljust(name)}  {click.style(first, fg=mark)}")
    for each in others:
        click.echo(margin + click.style(each, fg=mark))
    for each in wrap(line(found.why), room, break_long_words=False, break_on_hyphens=False):
        click.echo(margin + each)
    for each in found.cure:
        # To be pasted: never broken into lines.
        click.echo(f"{margin}{click.style('→', dim=True)} {click.style(line(each), bold=True)}")
    return found


def _summary(found: "list[Diagnosis]") -> str:
    warnings = sum(1 for each in found if each.level == "warning")
    bad = sum(1 for each in found if each.level == "bad")
    if not warnings and not bad:
        return f"All {len(found)} checks are fine."
    told = [f"{bad} bad"] if bad else []
    told += [f"{warnings} warning{'' if warnings == 1 else 's'}"] if warnings else []
    return f"{' and '.join(told)} in {len(found)} check{'' if len(found) == 1 else 's'}."
