"""One verb on all tasks that match a filter: shown first, asked about, done in batches, and told."""

import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read.formats import amount, duration, things
from holdfast._model.read.infos import COUNTED
from holdfast.cli.output.following import ProgressLine
from holdfast.cli.output.printing import FAILED, INTERRUPTED, Cell, coloured, line, note, print_json

if TYPE_CHECKING:
    from holdfast._sql.queries import Queries
    from holdfast._sql.repair import Repair, Tally
    from holdfast.cli.input.options import Setup
    from holdfast.sync import SyncApp

SAMPLE = 200
"""Tasks that are looked at to say what matches, where no statement groups them."""


class _Interrupted(Exception):
    """Ctrl-C was pressed, and the batch has ended."""


def act_on_matching(setup: "Setup", repair: "Repair", *, yes: bool) -> None:
    """Shows the database and what matches there, asks, does it, and tells what became of it."""
    from holdfast import insights
    from holdfast._sql.repair import Tally
    from holdfast.cli.output.introduction import database_in_short

    if not (yes or repair.dry_run) and (setup.json or not sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: add --yes, or --dry-run to see what matches.")
    with setup.opened() as (app, queries):
        number = app.ask(insights.count(queries, repair.narrowed, limit=COUNTED))
        database = database_in_short(setup.database(), setup.schema)
        if not setup.json:
            click.echo(f"database: {database}")
            _show(app, queries, repair, number)
        tally, interrupted = Tally(), False
        does = number > 0 and not repair.dry_run
        if does and not yes:
            _ask(repair, number)
        try:
            if does:
                interrupted = _act(app, queries, repair, number, tally)
        finally:
            # Also if the database went away: what was done stays done.
            if setup.json:
                print_json({"database": database, **_as_json(repair, number, tally, interrupted)})
            elif does:
                _tell(repair, tally, interrupted)
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if tally.passed_over and not tally.done:
        raise click.exceptions.Exit(FAILED)


# --- before


def _show(app: "SyncApp", queries: "Queries", repair: "Repair", number: int) -> None:
    """How many there are, and what they are."""
    from holdfast import insights
    from holdfast.cli.commands.parked import print_groups

    if not number:
        click.echo(f"no task matches {line(repair.narrowed)}")
        return
    click.echo(f"{things(number, 'task', COUNTED)} match{'es' * (number == 1)} {line(repair.narrowed)}")
    if repair.states == ("parked",):
        print_groups(app.ask(insights.parked_groups(queries, repair.narrowed)), "  ")
    else:
        _show_sample(app, queries, repair, number)


def _show_sample(app: "SyncApp", queries: "Queries", repair: "Repair", number: int) -> None:
    from holdfast import insights
    from holdfast.cli.output.tables import fitted_table

    found = app.ask(insights.tasks(queries, repair.narrowed, limit=SAMPLE))
    kinds = Counter((f"{task.kind}.{task.step}", task.phase, str((task.error or {}).get("type", ""))) for task in found)
    rows: list[list[Cell]] = [
        [f"{n:,}", line(step), coloured(phase), line(error)] for (step, phase, error), n in kinds.most_common(20)
    ]
    if number > len(found):
        click.echo(f"  the newest {len(found)} of them:")
    fitted_table(("COUNT", "TASK", "STATE", "ERROR"), rows, indent="  ")
    if len(kinds) > len(rows):
        click.echo("  …")


def _ask(repair: "Repair", number: int) -> None:
    of = f"{repair.limit:,} of " if repair.limit is not None and repair.limit < number else ""
    click.confirm(f"{repair.verb} {of}{things(number, 'task', COUNTED)}?", abort=True, err=True)


# --- the work


def _act(app: "SyncApp", queries: "Queries", repair: "Repair", number: int, tally: "Tally") -> bool:
    """Does it, and keeps the tally; whether Ctrl-C ended it."""
    from holdfast._sql.plans import drive_sync
    from holdfast._sql.repair import in_batches

    with _told_of_interrupts() as is_interrupted, ProgressLine() as progress:

        def after_each_batch(so_far: "Tally") -> None:
            tally.done, tally.passed_over = so_far.done, so_far.passed_over
            progress.show(_progress(number, tally))
            if is_interrupted():
                raise _Interrupted

        try:
            drive_sync(in_batches(queries, replace(repair, progress=after_each_batch)), app.ask)
        except _Interrupted:
            return True
    return False


def _progress(number: int, tally: "Tally") -> str:
    over = f", {tally.passed_over.total():,} passed over" if tally.passed_over else ""
    return f"{tally.done.total():,} of {amount(number)}{over} (Ctrl-C stops after this batch)"


@contextmanager
def _told_of_interrupts() -> Iterator[Callable[[], bool]]:
    """Ctrl-C lets the batch end, so that what was done can be told; a second one ends everything."""
    seen: list[int] = []

    def remember(number: int, frame: Any) -> None:
        seen.append(number)
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield lambda: bool(seen)
    finally:
        signal.signal(signal.SIGINT, before)


# --- after


def _tell(repair: "Repair", tally: "Tally", interrupted: bool) -> None:
    if interrupted:
        note("interrupted.")
    for sentence in list(_sentences(repair, tally)) or ["nothing was done."]:
        click.echo(sentence)


def _sentences(repair: "Repair", tally: "Tally") -> Iterator[str]:
    if tally.done:
        states = (f"{things(n, 'task')} {'is' if n == 1 else 'are'} {state}" for state, n in tally.done.items())
        yield f"{' and '.join(states)}{_spread(repair, tally.done.total())}."
    if tally.passed_over:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in tally.passed_over.most_common())
        yield f"{tally.passed_over.total():,} passed over: {reasons}."


def _spread(repair: "Repair", number: int) -> str:
    if repair.rate is None or number < 2:
        return ""
    return f", due one after another within {duration((number - 1) / repair.rate)}"


def _as_json(repair: "Repair", number: int, tally: "Tally", interrupted: bool) -> dict[str, Any]:
    return {
        "verb": repair.verb,
        "filter": str(repair.narrowed),
        "count": min(number, COUNTED),
        "count_is_exact": number <= COUNTED,
        "dry_run": repair.dry_run,
        "done": dict(tally.done),
        "passed_over": dict(tally.passed_over),
        "interrupted": interrupted,
    }
