"""One verb on all tasks that match a filter: shown first, asked about, done in batches, and told."""

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

import click

from holdfast.cli.filters import COUNTED, amount, tasks_of
from holdfast.cli.output import FAILED, Cell, coloured, line, note, print_json
from holdfast.cli.waiting import ProgressLine

if TYPE_CHECKING:
    from holdfast._model.filter import Filter
    from holdfast._sql.queries import Queries
    from holdfast.cli.options import Setup
    from holdfast.sync import SyncApp

Verb: TypeAlias = Literal["retry", "cancel", "discard"]

BATCH = 100
SAMPLE = 200
"""Tasks that are looked at to say what matches, where no statement groups them."""
INTERRUPTED = 130


@dataclass(frozen=True)
class Bulk:
    """What was asked for."""

    verb: Verb
    chosen: "Filter"
    options: bytes
    dry_run: bool = False
    yes: bool = False
    limit: int | None = None
    rate: float | None = None

    @property
    def states(self) -> tuple[str, ...]:
        """The states in which the verb is meant."""
        match self.verb:
            case "cancel":
                return ("ready", "running", "waiting", "parked")
            case "retry" if self.chosen.names("state"):
                return ("ready", "parked")
            case _:
                return ("parked",)

    @property
    def narrowed(self) -> "Filter":
        """The filter, for those states only."""
        for term in self.chosen.terms:
            if term.field == "state" and not term.negated and set(term.values) <= set(self.states):
                return self.chosen
        return self.chosen.with_term("state", *self.states)


@dataclass
class Tally:
    """What became of it."""

    done: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False

    def sentences(self) -> Iterator[str]:
        if self.done:
            yield (
                " and ".join(f"{tasks_of(n)} {'is' if n == 1 else 'are'} {state}" for state, n in self.done.items())
                + "."
            )
        if self.passed_over:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.passed_over.most_common())
            yield f"{self.passed_over.total():,} passed over: {reasons}."


def act_on_matching(setup: "Setup", bulk: Bulk) -> None:
    """Shows what matches, asks, does it, and tells what became of it."""
    from holdfast import insights

    if not (bulk.yes or bulk.dry_run) and (setup.json or not sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here: add --yes, or --dry-run to see what matches.")
    with setup.opened() as (app, queries):
        number = app.ask(insights.count(queries, bulk.narrowed, limit=COUNTED))
        if not setup.json:
            _show(app, queries, bulk, number)
        tally = Tally()
        does = number > 0 and not bulk.dry_run
        if does and not bulk.yes:
            _ask(bulk, number)
        try:
            if does:
                _act(app, queries, bulk, number, tally)
        finally:
            # Also if the database went away: what was done stays done.
            if setup.json:
                print_json(_as_json(bulk, number, tally))
            elif does:
                _tell(tally)
    if tally.interrupted:
        raise click.exceptions.Exit(INTERRUPTED)
    if tally.passed_over and not tally.done:
        raise click.exceptions.Exit(FAILED)


# --- before


def _show(app: "SyncApp", queries: "Queries", bulk: Bulk, number: int) -> None:
    """How many there are, and what they are."""
    from holdfast import insights
    from holdfast.cli.tasks import print_groups

    if not number:
        click.echo(f"no task matches {line(bulk.narrowed)}")
        return
    click.echo(f"{tasks_of(number)} match{'es' * (number == 1)} {line(bulk.narrowed)}")
    if bulk.states == ("parked",):
        print_groups(app.ask(insights.parked_groups(queries, bulk.narrowed)), "  ")
    else:
        _show_sample(app, queries, bulk, number)


def _show_sample(app: "SyncApp", queries: "Queries", bulk: Bulk, number: int) -> None:
    from holdfast import insights
    from holdfast.cli.fitting import fitted_table

    found = app.ask(insights.tasks(queries, bulk.narrowed, limit=SAMPLE))
    kinds = Counter((f"{task.kind}.{task.step}", task.phase, str((task.error or {}).get("type", ""))) for task in found)
    rows: list[list[Cell]] = [
        [f"{n:,}", line(step), coloured(phase), line(error)] for (step, phase, error), n in kinds.most_common(20)
    ]
    if number > len(found):
        click.echo(f"  the newest {len(found)} of them:")
    fitted_table(("COUNT", "TASK", "STATE", "ERROR"), rows, indent="  ")
    if len(kinds) > len(rows):
        click.echo("  …")


def _ask(bulk: Bulk, number: int) -> None:
    of = f"{bulk.limit:,} of " if bulk.limit is not None and bulk.limit < number else ""
    click.confirm(f"{bulk.verb} {of}{tasks_of(number)}?", abort=True, err=True)


# --- the work


def _act(app: "SyncApp", queries: "Queries", bulk: Bulk, number: int, tally: Tally) -> None:
    """Batch by batch, from the oldest to the one that was the newest at the beginning: each task once."""
    from holdfast import insights

    newest = next((task.id for task in app.ask(insights.tasks(queries, bulk.narrowed, limit=1))), None)
    pace = _Pace(bulk.rate)
    above: UUID | None = None
    with _told_of_interrupts() as is_interrupted, ProgressLine() as progress:
        while newest is not None and (size := _batch(bulk, tally)):
            matching = insights.matching(queries, bulk.narrowed, states=bulk.states, limit=size, above=above)
            ids = [id for id in app.ask(matching) if id <= newest]
            if not ids:
                return
            above = ids[-1]
            answers = app.ask(queries.act(bulk.verb, ids, bulk.options, states=bulk.states))
            tally.done.update(answers.values())
            tally.passed_over.update(_reason(app, queries, bulk, id) for id in ids if id not in answers)
            progress.show(_progress(number, tally))
            pace.keep(tally.done.total(), is_interrupted)
            if is_interrupted():
                tally.interrupted = True
                return


def _batch(bulk: Bulk, tally: Tally) -> int:
    left = BATCH if bulk.limit is None else min(BATCH, bulk.limit - tally.done.total())
    return left if bulk.rate is None else min(left, max(1, int(bulk.rate)))


def _reason(app: "SyncApp", queries: "Queries", bulk: Bulk, id: UUID) -> str:
    """Why a task was passed over, as it stands now."""
    from holdfast import insights

    task = app.ask(insights.task(queries, id))
    if task is None:
        return "not there any more"
    return "locked by somebody else" if task.state in bulk.states else f"{task.state} by now"


def _progress(number: int, tally: Tally) -> str:
    over = f", {tally.passed_over.total():,} passed over" if tally.passed_over else ""
    return f"{tally.done.total():,} of {amount(number)}{over} (Ctrl-C stops after this batch)"


class _Pace:
    """Waits as long as it takes to stay below a rate."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = time.monotonic()

    def keep(self, done: int, is_interrupted: Callable[[], bool]) -> None:
        if self._rate is None:
            return
        until = self._began + done / self._rate
        while (left := until - time.monotonic()) > 0 and not is_interrupted():
            time.sleep(min(left, 0.1))


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


def _tell(tally: Tally) -> None:
    if tally.interrupted:
        note("interrupted.")
    for sentence in list(tally.sentences()) or ["nothing was done."]:
        click.echo(sentence)


def _as_json(bulk: Bulk, number: int, tally: Tally) -> dict[str, Any]:
    return {
        "verb": bulk.verb,
        "filter": str(bulk.narrowed),
        "count": min(number, COUNTED),
        "count_is_exact": number <= COUNTED,
        "dry_run": bulk.dry_run,
        "done": dict(tally.done),
        "passed_over": dict(tally.passed_over),
        "interrupted": tally.interrupted,
    }
