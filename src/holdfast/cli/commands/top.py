"""`holdfast top`: queues, what runs, workers, what is parked and what failed, live on a terminal."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from holdfast._model.read import formats
from holdfast._model.read.figures import Figure
from holdfast._model.read.formats import amount, percent, rate, relative
from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import Cell, alarming, clean, line, print_json
from holdfast.cli.output.tables import columns, cut, table

if TYPE_CHECKING:
    from holdfast._sql.queries import Queries
    from holdfast.insights import FailureInfo, Figures, ParkedGroup, QueueInfo, RunningInfo, WorkerInfo
    from holdfast.sync import SyncApp

ROWS = 8
"""Rows of each table at most; queues and workers may take what the others leave."""
RECENT = 300.0
"""Seconds over which rates are told."""
QUICKEST = 0.2
"""Seconds between two looks, at least."""

Part: TypeAlias = tuple[str, tuple[str, ...], list[list[Cell]]]
"""A title, headings and rows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found."""

    queues: "list[QueueInfo]"
    figures: "Figures"
    running: "list[RunningInfo]"
    workers: "list[WorkerInfo]"
    parked: "list[ParkedGroup]"
    failures: "list[FailureInfo]"


@click.command()
@click.option("--every", type=duration, default="2s", show_default=True, help="Look again after so long.")
@click.option("--once", is_flag=True, help="Look once, print it, and end.")
@common_options
@pass_setup
def top(setup: Setup, /, every: float, once: bool) -> None:
    """Watch the queues, what runs, the workers, what is parked and what failed lately.

    q or Ctrl-C ends it. Rates and errors are those of the last five minutes. Off a terminal say --once; --json looks
    once, too, for scripts.

    \b
    Example:
      holdfast top
      holdfast top --every 5s
      holdfast top --once
      holdfast top --json
    """
    if every < QUICKEST:
        raise click.UsageError(f"--every {every:g} is too often: {QUICKEST:g} seconds are the least.")
    with setup.opened() as (app, queries):
        if setup.json:
            print_json(_as_json(look(app, queries)))
        elif once:
            click.echo("\n".join(screen(look(app, queries), columns(), None)))
        elif not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise click.UsageError("this is not a terminal: say --once, or --json.")
        elif sys.platform == "win32":
            raise click.UsageError("on Windows say --once, or --json.")
        else:
            watch(lambda: look(app, queries), every)


def look(app: "SyncApp", queries: "Queries") -> Seen:
    from holdfast import insights

    return Seen(
        app.ask(insights.queues(queries)),
        app.ask(insights.figures(queries, RECENT, "1m", by="queue")),
        app.ask(insights.running(queries, limit=50)),
        [each for each in app.ask(insights.workers(queries, limit=1000)) if each.stopped_at is None],
        app.ask(insights.parked_groups(queries, limit=20)),
        app.ask(insights.recent_failures(queries, limit=20)),
    )


def _as_json(seen: Seen) -> dict[str, Any]:
    figures = seen.figures
    return {
        "queues": seen.queues,
        "recent": {name: total.summary(figures.seconds) for name, total in figures.totals.items()},
        "running": seen.running,
        "workers": seen.workers,
        "parked": seen.parked,
        "failures": seen.failures,
    }


# --- the screen


def watch(look: Callable[[], Seen], every: float) -> None:
    """Shows one look after another until a person has seen enough."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with (
        suppress(KeyboardInterrupt),
        _keys() as pressed,
        Live(console=console, screen=True, auto_refresh=False) as board,
    ):
        while True:
            size = console.size
            lines = screen(look(), size.width, size.height)
            board.update(Text.from_ansi("\n".join(lines[: size.height]), no_wrap=True), refresh=True)
            until = time.monotonic() + every
            # A terminal of another size is drawn anew at once.
            while (left := until - time.monotonic()) > 0 and console.size == size:
                if pressed(min(left, 0.5)) in ("q", "Q", "\x03"):
                    return


@contextmanager
def _keys() -> Iterator[Callable[[float], str]]:
    """Single keys, as they are pressed; whatever happens, the terminal is left as it was."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([keys], [], [], seconds)
        return os.read(keys, 1).decode("ascii", "replace") if ready else ""

    try:
        tty.setcbreak(keys)
        yield pressed
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def screen(seen: Seen, width: int, height: int | None) -> list[str]:
    """The lines of one look, none wider than the screen, nor more than there are; without a height, all."""
    parts: list[Part] = [
        (
            "QUEUES",
            ("QUEUE", "DUE", "RUNNING", "PARKED", "OLDEST DUE", "RATE", "ERRORS", "RUN P95"),
            _queue_rows(seen),
        ),
        ("RUNNING, THE LONGEST FIRST", ("RUNNING", "STEP", "FOR", "WORKER", "PROGRESS"), _running_rows(seen)),
        ("WORKERS", ("WORKER", "CONDITION", "SLOTS", "SEEN", "QUEUES"), _worker_rows(seen)),
        ("PARKED", ("PARKED", "STEP", "NEWEST", "ERROR"), _parked_rows(seen)),
        ("FAILED", ("FAILED", "TASK", "STEP", "ERROR"), _failure_rows(seen)),
    ]
    lines = [2 + len(rows) if rows else 1 for _, _, rows in parts]
    # All are cut alike, from the longest on.
    while height is not None and sum(lines) >= height and max(lines) > 2:
        lines[lines.index(max(lines))] -= 1
    shown = [cut(_head(seen), width)]
    for (title, headings, rows), count in zip(parts, lines, strict=True):
        if rows:
            # On a narrow screen the last column stays, and those before it go.
            shown += ["", *table(headings, rows[: count - 2], width, spare=headings[-2:0:-1])]
        else:
            shown.append(click.style(cut(f"{title}: none", width), dim=True))
    return shown


def _head(seen: Seen) -> str:
    total = seen.figures.total
    live = sum(each.live for each in seen.workers)
    told = [
        f"holdfast top  {time.strftime('%H:%M:%S')}",
        f"{live} worker" + ("" if live == 1 else "s"),
        f"{rate(total.attempts, seen.figures.seconds)} attempts",
        f"{percent(total.error_rate)} errors",
        f"wait p95 {formats.duration(total.wait.p95) or '-'}",
        f"run p95 {formats.duration(total.run.p95) or '-'}",
    ]
    return "  ".join(told)


def _queue_rows(seen: Seen) -> list[list[Cell]]:
    totals, seconds = seen.figures.totals, seen.figures.seconds
    rows: list[list[Cell]] = []
    for queue in sorted(seen.queues, key=lambda each: (-each.due, each.name)):
        figure = totals.get(queue.name, Figure())
        rows.append(
            [
                (f"{line(queue.name, 30)} (paused)", "yellow") if queue.paused_at else line(queue.name, 30),
                (amount(queue.due), "yellow") if queue.due and not queue.workers else amount(queue.due),
                amount(queue.running),
                alarming(queue.parked, amount(queue.parked)),
                relative(queue.oldest_due) or "-",
                rate(figure.attempts, seconds),
                alarming(figure.errors, percent(figure.error_rate)),
                formats.duration(figure.run.p95) or "-",
            ]
        )
    return rows


def _running_rows(seen: Seen) -> list[list[Cell]]:
    names = {each.id: each.name for each in seen.workers}
    return [
        [
            str(each.id),
            line(f"{each.kind}.{each.step}", 40),
            formats.duration(each.seconds),
            line(names.get(each.worker_id, str(each.worker_id)[:8]), 30),
            line("" if each.fraction is None else f"{each.fraction:.0%} {each.note}"),
        ]
        for each in seen.running[:ROWS]
    ]


def _worker_rows(seen: Seen) -> list[list[Cell]]:
    colours = {"running": "green", "lost": "red"}
    return [
        [
            line(each.name, 30),
            (each.condition, colours.get(each.condition, "yellow")),
            f"{each.running:,}/{each.slots:,}" + (f" ({each.stuck} stuck)" if each.stuck else ""),
            relative(each.seen_at),
            line(", ".join(each.queues)),
        ]
        for each in sorted(seen.workers, key=lambda each: (each.live, each.name))
    ]


def _parked_rows(seen: Seen) -> list[list[Cell]]:
    return [
        [
            f"{each.count:,}",
            line(f"{each.kind}.{each.step}", 40),
            relative(each.newest),
            (_error(each.error_type, each.message), "red"),
        ]
        for each in seen.parked[:ROWS]
    ]


def _failure_rows(seen: Seen) -> list[list[Cell]]:
    return [
        [
            relative(each.at),
            str(each.task_id),
            line(f"{each.kind}.{each.step}", 40),
            (_error(each.error_type, each.message), "red"),
        ]
        for each in seen.failures[:ROWS]
    ]


def _error(kind: str | None, message: str | None) -> str:
    return line(": ".join(clean(part) for part in (kind, message) if part), 200)
