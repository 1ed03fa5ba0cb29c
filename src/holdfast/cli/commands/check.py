"""`holdfast check`: a gate for deployments. Can this code execute every unfinished task?"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.following import ProgressLine
from holdfast.cli.output.printing import FAILED, USAGE, Failure, line, note, print_json
from holdfast.errors import NoDatabase, SchemaError

if TYPE_CHECKING:
    from holdfast._model.declare.compatibility import Finding, Inspection
    from holdfast.app import App

PAGE = 1000
"""Tasks that are read at once."""
NOW_AND_THEN = 100_000
"""Tasks after which progress is told where nobody watches."""

_COLOURS = {"problem": "red", "warning": "yellow", "information": "blue"}
_SIGNS = {"problem": "✗", "warning": "!", "information": "·"}


@click.command()
@click.argument("app", required=False)
@click.option("-q", "--queues", multiple=True, metavar="NAMES", help="Only tasks in these queues: mail,default.")
@click.option("--no-database", is_flag=True, help="Check the code alone.")
@click.option("--strict", is_flag=True, help="Fail for warnings as well, and for tasks that are parked already.")
@click.option(
    "--limit-examples", type=click.IntRange(0, 1000), default=3, show_default=True, help="Ids to show for each finding."
)
@common_options
@pass_setup
def check(
    setup: Setup, /, app: str | None, queues: Sequence[str], no_database: bool, strict: bool, limit_examples: int
) -> None:
    """Check that this code can execute every unfinished task: before you deploy it.

    Each task is decoded with the code of APP; nothing is executed or changed. Exit code 1 if one would be parked, or if
    no step is there for it. Tasks that are parked already are told, but do not count. The code itself is checked as
    well.

    APP is a module or a file with an App in it, such as shop.app:app or hello.py; without one, it is the one that is
    configured.

    \b
    Example:
      holdfast check shop.app
      holdfast check shop.app -q mail,default --strict
      holdfast check shop.app --no-database
    """
    from holdfast._model.declare.compatibility import in_code
    from holdfast.cli.input.app import load_app

    wanted = _names(queues)
    loaded = load_app(app, url=setup.url, schema=setup.chosen_schema)
    if not loaded._kinds:
        raise Failure("this App declares no tasks: did you name its modules, App(modules=[…])?", FAILED, "NoTasks")
    code, stored, seen = in_code(loaded), [], 0
    if not no_database:
        around, inspection = _inspected(setup, loaded, wanted, examples=limit_examples, strict=strict)
        code += around
        stored, seen = inspection.findings(), inspection.seen
    fails = ("problem", "warning") if strict else ("problem",)
    ok = not any(each.level in fails for each in code + stored)
    if setup.json:
        _print_json(loaded, code + stored, ok=ok, seen=None if no_database else seen)
    else:
        _print(loaded, code, stored, None if no_database else seen)
    if not ok:
        raise Failure(_why(code + stored), FAILED, "CheckFailed")
    if not setup.json:
        fine = "No problem in this code" if no_database else "This code can execute every unfinished task"
        warnings = sum(1 for each in code + stored if each.level == "warning")
        but = f", but there {'is' if warnings == 1 else 'are'} {_amount(warnings, 'warning')}" if warnings else ""
        click.echo(click.style(f"{fine}{but}.", fg="yellow" if warnings else "green"))


def _names(given: Sequence[str]) -> frozenset[str]:
    from holdfast._model.declare.names import check_queue

    return frozenset(check_queue(name.strip()) for each in given for name in each.split(",") if name.strip())


def _why(findings: "Sequence[Finding]") -> str:
    problems = [each for each in findings if each.level == "problem"]
    tasks = sum(each.tasks for each in problems)
    if tasks:
        return f"{_amount(tasks, 'unfinished task')} would not be executed by this code"
    if problems:
        return f"the code has {_amount(len(problems), 'problem')}"
    return "there are warnings, and this check is strict"


# The database ---------------------------------------------------------------------------------------


def _inspected(
    setup: Setup, app: "App", queues: Collection[str], *, examples: int, strict: bool
) -> "tuple[list[Finding], Inspection]":
    """What is to be said about workers and versions, and the inspection of all unfinished tasks."""
    from holdfast import insights
    from holdfast._model.declare.compatibility import Inspection, of_workers, other_versions

    try:
        app.database  # noqa: B018 - says now if there is none
    except NoDatabase as error:
        raise Failure(f"{error}\n  - or none: --no-database checks the code alone", USAGE, "NoDatabase") from None
    ask, queries = app.sync.ask, app._queries
    try:
        around = list(other_versions(app, ask(insights.kinds(queries))))
        workers = [each for each in ask(insights.workers(queries, limit=10_000)) if each.live]
        steps = {step for each in workers for step in each.steps}
        if workers:
            around += of_workers(app, steps, {queue for each in workers for queue in each.queues})
        inspection = Inspection(app, examples=examples, strict=strict, live=steps)
        with _progress(shown=not setup.json) as tell:
            read, above = 0, None
            while page := ask(insights.unfinished(queries, above=above, limit=PAGE)):
                for task in page:
                    if not queues or task.queue in queues:
                        inspection.see(task)
                read, above = read + len(page), page[-1].id
                tell(read)
    except SchemaError as error:
        raise Failure(f"{error}. Or check the code alone: --no-database", FAILED, "SchemaError") from None
    finally:
        app.sync.close()
    return around, inspection


@contextmanager
def _progress(*, shown: bool) -> Iterator[Callable[[int], None]]:
    """Tells how many tasks were read: in one line on a terminal, elsewhere now and then."""
    with ProgressLine(quiet=not shown) as progress:

        def tell(read: int) -> None:
            text = f"{read:,} tasks were read …"
            if sys.stderr.isatty():
                if read >= PAGE:
                    progress.show(text)
            elif shown and read % NOW_AND_THEN == 0:
                note(text)

        yield tell


# Telling --------------------------------------------------------------------------------------------


def _print(app: "App", code: "Sequence[Finding]", stored: "Sequence[Finding]", seen: int | None) -> None:
    steps, queues = _declared(app)
    functions = sum(1 for each in app._kinds.values() if not hasattr(each, "steps"))
    kinds = _amount(len(app._kinds) - functions, "kind") + " and " + _amount(functions, "function")
    _heading("Code", f"{kinds}, {_amount(len(steps), 'step')}; queues: {', '.join(queues)}")
    for each in code:
        _print_finding(each)
    if seen is not None:
        _heading("Tasks", f"{_amount(seen, 'unfinished task')} decoded" if seen else "no unfinished tasks")
        for each in stored:
            _print_finding(each)


def _heading(title: str, text: str) -> None:
    click.echo(f"{click.style(title, bold=True)}  {text}")


def _print_finding(finding: "Finding") -> None:
    sign = click.style(_SIGNS[finding.level], fg=_COLOURS[finding.level], bold=True)
    tasks = f" ({_amount(finding.tasks, 'task')})" if finding.tasks else ""
    click.echo(f"  {sign} {click.style(line(finding.subject), bold=True)}: {line(finding.message)}{tasks}")
    if finding.advice:
        click.echo(f"    {line(finding.advice)}.")
    if finding.examples:
        shown = ", ".join(map(str, finding.examples))
        click.echo(click.style(f"    such as {shown}", dim=True))


def _print_json(app: "App", findings: "Sequence[Finding]", *, ok: bool, seen: int | None) -> None:
    steps, queues = _declared(app)
    print_json(
        {
            "ok": ok,
            "kinds": list(app._kinds),
            "steps": steps,
            "queues": queues,
            "tasks": seen,
            "findings": findings,
        }
    )


def _declared(app: "App") -> tuple[list[str], list[str]]:
    """The steps and queues of an App, without old names."""
    steps = dict.fromkeys(f"{step.kind}.{step.name}" for step in app._steps.values())
    return list(steps), sorted({step.queue for step in app._steps.values()})


def _amount(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
