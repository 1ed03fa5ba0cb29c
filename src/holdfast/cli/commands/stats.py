"""`holdfast stats`: what happened lately, how fast, and what waits."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read import formats
from holdfast._model.read.formats import amount, percent, rate, relative
from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import Cell, alarming, facts, line, note, print_json
from holdfast.cli.output.tables import fitted_table

if TYPE_CHECKING:
    from holdfast.insights import Figures, QueueInfo, Spread

_MOST = 30
"""Names that are shown; all of them are in the JSON."""


@click.command()
@click.option("--since", type=duration, default="1h", show_default=True, help="How far back: 15m, 24h, 7d.")
@click.option(
    "--by", type=click.Choice(["kind", "queue", "step"]), default="kind", show_default=True, help="Told apart."
)
@click.option("--queue", metavar="NAME", help="Only of this queue.")
@click.option("--kind", metavar="NAME", help="Only of this kind.")
@common_options
@pass_setup
def stats(setup: Setup, /, since: float, by: str, queue: str | None, kind: str | None) -> None:
    """Show what happened lately: how many attempts, how many errors, how long they waited and took.

    WAIT is from when a task was due until it was claimed, RUN from then until its end was recorded. They are
    percentiles: so many of a hundred took no longer. They come from figures that workers count every minute, so it is
    quick however long the history is, and reaches back further than that (30 days).

    \b
    Example:
      holdfast stats
      holdfast stats --since 24h --by step --kind greeter
      holdfast stats --since 15m --queue mail --json
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        asked = insights.figures(queries, since, queue=queue, kind=kind, by=by)  # type: ignore[arg-type]
        found = app.ask(asked)
        queues = [each for each in app.ask(insights.queues(queries)) if queue in (None, each.name)]
    # Nobody counts what waits by kind: it would mean to read all of it.
    waiting = queues if kind is None else []
    if setup.json:
        print_json(_as_json(found, by, waiting))
        return
    _show_total(found, waiting)
    if found.groups:
        click.echo()
        _show_groups(found, by)
    if found.missing_since is not None:
        note(
            f"\nnothing has been counted since {_clock(found.missing_since)}, but for the last hour: "
            "workers do this; is one running?"
        )


def _as_json(found: "Figures", by: str, queues: "Sequence[QueueInfo]") -> dict[str, Any]:
    return {
        "since": found.since,
        "until": found.until,
        "total": found.total.summary(found.seconds),
        "by": by,
        "groups": {name: total.summary(found.seconds) for name, total in found.totals.items()},
        "queues": queues,
        "missing_since": found.missing_since,
    }


def _show_total(found: "Figures", queues: "Sequence[QueueInfo]") -> None:
    total = found.total
    click.echo(f"{_clock(found.since)} to {_clock(found.until)}")
    failures = ", ".join(
        f"{each} {total.outcomes[each]:,}" for each in ("retried", "failed", "lost") if total.outcomes.get(each)
    )
    errors = f"{total.errors:,} ({percent(total.error_rate)})" + (f": {failures}" if failures else "")
    facts(
        [
            ("attempts", f"{total.attempts:,} ({rate(total.attempts, found.seconds)})"),
            ("done", f"{total.done:,} ({rate(total.done, found.seconds)})"),
            ("errors", alarming(total.errors, errors)),
            ("wait", _percentiles(total.wait)),
            ("run", _percentiles(total.run)),
            ("waiting", _backlog(queues)),
        ]
    )


def _percentiles(spread: "Spread") -> str:
    if not spread.count:
        return "-"
    named = {"p50": spread.p50, "p95": spread.p95, "p99": spread.p99, "mean": spread.mean}
    return ", ".join(f"{name} {formats.duration(each)}" for name, each in named.items())


def _backlog(queues: "Sequence[QueueInfo]") -> str:
    if not queues:
        return ""
    names = ("due", "scheduled", "running", "parked")
    told = ", ".join(f"{amount(sum(getattr(each, name) for each in queues))} {name}" for name in names)
    oldest = min((each for each in queues if each.oldest_due), key=_since, default=None)
    return told + (f"; the oldest due {relative(oldest.oldest_due)}, in {line(oldest.name)}" if oldest else "")


def _since(queue: "QueueInfo") -> datetime:
    assert queue.oldest_due is not None  # noqa: S101 - those without are left out
    return queue.oldest_due


def _show_groups(found: "Figures", by: str) -> None:
    totals = found.totals
    headings = (by.upper(), "ATTEMPTS", "RATE", "ERRORS", "WAIT P50", "P95", "P99", "RUN P50", "P95 ", "P99 ")
    rows: list[list[Cell]] = [
        [
            line(name, 60),
            f"{figure.attempts:,}",
            rate(figure.attempts, found.seconds),
            alarming(figure.errors, percent(figure.error_rate)),
            *(formats.duration(figure.wait.percentile(part)) or "-" for part in (0.5, 0.95, 0.99)),
            *(formats.duration(figure.run.percentile(part)) or "-" for part in (0.5, 0.95, 0.99)),
        ]
        for name, figure in list(totals.items())[:_MOST]
    ]
    fitted_table(headings, rows, spare=("P95", "P99 ", "P99", "RATE"))
    if len(totals) > _MOST:
        note(f"and {len(totals) - _MOST} more: --json has all of them.")


def _clock(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
