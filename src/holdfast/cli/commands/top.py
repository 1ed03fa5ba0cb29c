"""`holdfast top`: queues, what runs, workers, what is parked and what failed, live on a terminal."""

import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from holdfast._model.read import formats
from holdfast._model.read.figures import Figure
from holdfast._model.read.formats import amount, percent, rate, relative
from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import Cell, clean, line, print_json, shortened, styled

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

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
# One write for each frame, between marks that let a terminal show it at once; each line wipes what was behind it.
_FRAME, _LINE, _REST, _SHOWN = "\x1b[?2026h\x1b[H", "\x1b[K\n", "\x1b[K\x1b[J", "\x1b[?2026l"


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
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
            click.echo("\n".join(screen(look(app, queries), width, None)))
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
    """Shows one look after another until somebody has seen enough."""
    with _terminal() as (write, pressed):
        while True:
            size = shutil.get_terminal_size()
            lines = screen(look(), size.columns, size.lines)
            write(_FRAME + _LINE.join(lines) + _REST + _SHOWN)
            until = time.monotonic() + every
            while (left := until - time.monotonic()) > 0:
                key = pressed(min(left, 0.5))
                if key in ("q", "Q", "\x03"):
                    return
                if shutil.get_terminal_size() != size:
                    break  # it has another size now


@contextmanager
def _terminal() -> Iterator[tuple[Callable[[str], None], Callable[[float], str]]]:
    """A screen of its own, and single keys; whatever happens, the terminal is left as it was."""
    import termios
    import tty

    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def pressed(seconds: float) -> str:
        ready, _, _ = select.select([keys], [], [], seconds)
        return os.read(keys, 1).decode("ascii", "replace") if ready else ""

    try:
        tty.setcbreak(keys)
        write(_ENTER)
        yield write, pressed
    except KeyboardInterrupt:
        pass
    finally:
        write(_LEAVE)
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def screen(seen: Seen, width: int, height: int | None) -> list[str]:
    """The lines of one look, none wider than the screen, nor more than there are; without a height, all."""
    parts = [
        _part(
            "QUEUES",
            ("QUEUE", "DUE", "RUNNING", "PARKED", "OLDEST DUE", "RATE", "ERRORS", "RUN P95"),
            _queue_rows(seen),
            width,
        ),
        _part(
            "RUNNING, THE LONGEST FIRST", ("RUNNING", "STEP", "FOR", "WORKER", "PROGRESS"), _running_rows(seen), width
        ),
        _part("WORKERS", ("WORKER", "CONDITION", "SLOTS", "SEEN", "QUEUES"), _worker_rows(seen), width),
        _part("PARKED", ("PARKED", "STEP", "NEWEST", "ERROR"), _parked_rows(seen), width),
        _part("FAILED", ("FAILED", "TASK", "STEP", "ERROR"), _failure_rows(seen), width),
    ]
    head = _head(seen, width)
    if height is None:
        return [each for part in [[head], *parts] for each in part]
    return [head, *_shared(parts, height - 1)]


def _shared(parts: list[list[str]], room: int) -> list[str]:
    """As much of each part as fits: all are cut alike, from the longest on."""
    kept = [len(part) for part in parts]
    while sum(kept) > room and max(kept) > 2:
        kept[kept.index(max(kept))] -= 1
    lines = [each for part, count in zip(parts, kept, strict=True) for each in part[:count]]
    return lines[: max(0, room)]


def _head(seen: Seen, width: int) -> str:
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
    return shortened("  ".join(told), width)


def _part(title: str, headings: tuple[str, ...], rows: list[list[Cell]], width: int) -> list[str]:
    """A title, and a table whose last column gives way."""
    if not rows:
        return [click.style(shortened(f"{title}: none", width), dim=True)]
    texts = [[cell[0] if isinstance(cell, tuple) else cell for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    while len(widths) > 2 and sum(widths[:-1]) + 2 * (len(widths) - 1) + 8 > width:
        # Too narrow for all: the last but one goes.
        headings, rows = (*headings[:-2], headings[-1]), [[*row[:-2], row[-1]] for row in rows]
        widths = [*widths[:-2], widths[-1]]
    room = max(1, width - sum(widths[:-1]) - 2 * (len(widths) - 1))
    widths[-1] = min(widths[-1], room)
    heading = "  ".join(name.ljust(wide) for name, wide in zip(headings, widths, strict=True)).rstrip()
    lines = ["", click.style(shortened(heading, width), dim=True)]
    for row in rows:
        last = row[-1]
        cut: Cell = (shortened(last[0], room), last[1]) if isinstance(last, tuple) else shortened(last, room)
        lines.append("  ".join([*(styled(c, w) for c, w in zip(row[:-1], widths, strict=False)), styled(cut)]))
    return lines


def _queue_rows(seen: Seen) -> list[list[Cell]]:
    totals, seconds = seen.figures.totals, seen.figures.seconds
    rows: list[list[Cell]] = []
    for queue in sorted(seen.queues, key=lambda each: (-each.due, each.name)):
        figure = totals.get(queue.name, Figure())
        errors = percent(figure.error_rate)
        rows.append(
            [
                (f"{line(queue.name, 30)} (paused)", "yellow") if queue.paused_at else line(queue.name, 30),
                (amount(queue.due), "yellow") if queue.due and not queue.workers else amount(queue.due),
                amount(queue.running),
                (amount(queue.parked), "red") if queue.parked else amount(queue.parked),
                relative(queue.oldest_due) or "-",
                rate(figure.attempts, seconds),
                (errors, "red") if figure.errors else errors,
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
