"""How the story is told: boards that are rewritten in place and colours on a terminal, else plain lines one by one."""

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from holdfast.cli.output.printing import Cell, shortened, styled

INDENT = "   "
_LEAST_COLUMNS, _LEAST_LINES = 72, 16
_WIDEST_PROSE = 90


@dataclass(frozen=True, slots=True)
class Marks:
    """Symbols of a board."""

    done: str
    running: str
    waiting: str
    retried: str
    lost: str
    full: str
    empty: str

    def of(self, outcome: str | None) -> str:
        """The mark of an attempt's outcome; none yet: it is running."""
        known = {"advanced": self.done, "done": self.done, None: self.running, "retried": self.retried}
        return known.get(outcome, self.lost)


UNICODE = Marks("✓", "●", "○", "↻", "✗", "█", "░")
ASCII = Marks("+", ">", "o", "~", "x", "#", ".")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a board. Where lines cannot be rewritten, `told` is written instead: each of its texts once."""

    cells: Sequence[Cell]
    told: Sequence[str] = ()


class Screen:
    """Where the story appears."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._gone = False
        self.is_ending = False
        self.rewrites = not quiet and _can_rewrite()
        self.marks = UNICODE if _can_show(UNICODE) else ASCII
        if not self.rewrites and (context := click.get_current_context(silent=True)) is not None:
            context.color = False

    # --- lines

    def title(self, text: str, more: str) -> None:
        """What this is about."""
        self._write(click.style(text, bold=True) + "\n")
        self.say(more)

    def heading(self, text: str, why: str = "") -> None:
        """The title of a chapter, and one line that says why."""
        self._write("\n" + click.style(text, bold=True) + "\n")
        if why:
            self.say(why)

    def say(self, text: str, colour: str = "") -> None:
        """A sentence or two; on a terminal broken at its edge."""
        for each in self._broken(text):
            self._write(f"{INDENT}{styled((each, colour))}\n")

    def command(self, text: str) -> None:
        """What a person would type in a shell; on a terminal continued on a line of its own if it is long."""
        lines = self._broken(f"$ {text}", hang="    ", margin=len(" \\"))
        for each in lines[:-1]:
            self.code(f"{each} \\")
        self.code(lines[-1])

    def code(self, text: str) -> None:
        """What a person would type."""
        self._write(f"{INDENT}{click.style(text, fg='cyan')}\n")

    def row(self, cells: Sequence[Cell]) -> None:
        """One line of cells that stays."""
        self._write(self._painted(cells) + "\n")

    def interrupted(self) -> None:
        """Ctrl-C was heard, even if it takes a moment to obey."""
        self.is_ending = True
        self._write("\n")
        self.say("Ending: all that was started is stopped.")

    # --- boards

    @contextmanager
    def board(self, *, stays: bool = True) -> Iterator["Board"]:
        """Lines that are rewritten in place until the end of the `with`; then they stay, or go."""
        board = Board(self)
        if self.rewrites:
            self._write("\x1b[?25l")  # no cursor
        try:
            yield board
        finally:
            if self.rewrites:
                self._write(("" if stays else board.erasure) + "\x1b[?25h")

    @property
    def columns(self) -> int:
        return shutil.get_terminal_size().columns if self.rewrites else 10_000

    def _painted(self, cells: Sequence[Cell]) -> str:
        """Cells as text, cut where the line ends: a line that wraps would spoil the board."""
        room = self.columns - 1 - len(INDENT)
        painted = [INDENT]
        for cell in cells:
            text, colour = cell if isinstance(cell, tuple) else (cell, "")
            cut = shortened(text, room) if self.marks is UNICODE else text
            cut = cut[: max(0, room)]
            painted.append(styled((cut, colour)))
            room -= len(cut)
        return "".join(painted).rstrip()

    def _broken(self, text: str, *, hang: str = "", margin: int = 0) -> list[str]:
        room = min(self.columns, _WIDEST_PROSE) - len(INDENT)
        if not self.rewrites or len(text) <= room:
            return [text]
        room -= margin
        wrapped = textwrap.wrap(text, room, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
        return wrapped or [""]

    def _write(self, text: str) -> None:
        if self._quiet or self._gone:
            return
        try:
            click.echo(text, nl=False)
        except OSError:
            # The pipe or the terminal is closed: nobody listens any more.
            self._gone = True
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for the rest of the process
            if not self.is_ending:
                raise KeyboardInterrupt from None


class Board:
    """A few lines that change."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._lines = 0
        self._told: dict[int, int] = {}

    def show(self, rows: Sequence[Row]) -> None:
        """How it stands now."""
        if self._screen.rewrites:
            text = "".join(f"{self._screen._painted(row.cells)}\x1b[K\n" for row in rows)
            self._screen._write(f"{self._back}{text}\x1b[J")
            self._lines = len(rows)
            return
        for number, row in enumerate(rows):
            for each in row.told[self._told.get(number, 0) :]:
                self._screen._write(f"{INDENT}{each}\n")
            self._told[number] = max(self._told.get(number, 0), len(row.told))

    @property
    def erasure(self) -> str:
        return f"{self._back}\x1b[J"

    @property
    def _back(self) -> str:
        return f"\x1b[{self._lines}A\r" if self._lines else "\r"


@contextmanager
def progress(screen: Screen, text: str, *, told: bool = False) -> Iterator[Callable[[], None]]:
    """A line with the seconds so far, for something that may take a while; `told` also where lines stay."""
    began = time.monotonic()
    with screen.board(stays=False) as board:
        yield lambda: board.show([Row([f"{text}: {time.monotonic() - began:.1f} s"], [f"{text}."] if told else [])])


def _can_rewrite() -> bool:
    """A terminal that can move its cursor and has room; people who want no colours want no tricks either."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    size = shutil.get_terminal_size()
    return size.columns >= _LEAST_COLUMNS and size.lines >= _LEAST_LINES


def _can_show(marks: Marks) -> bool:
    try:
        "".join(getattr(marks, name) for name in marks.__slots__).encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True
