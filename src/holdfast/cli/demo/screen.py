"""What the demo prints: colours, and rows that change, on a terminal; elsewhere plain text."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.status import Status
from rich.text import Text

_LEAST_COLUMNS, _LEAST_LINES = 72, 16
_DONE, _LOST = ("✓", "+", "green"), ("✗", "x", "red")
_MARKS = {None: ("●", ">", "cyan"), "retried": ("↻", "~", "yellow"), "advanced": _DONE, "done": _DONE}
"""The mark of an outcome, the same in ASCII, and its colour; an attempt without an outcome is running."""


class Screen(Console):
    """Where the story appears."""

    def __init__(self, *, quiet: bool = False) -> None:
        size = Console().size
        has_room = size.width >= _LEAST_COLUMNS and size.height >= _LEAST_LINES
        is_wanted = os.environ.get("TERM", "") not in ("", "dumb") and not os.environ.get("NO_COLOR")
        self.rewrites = sys.stdout.isatty() and has_room and is_wanted and not quiet
        width = None if self.rewrites else 10_000
        super().__init__(quiet=quiet, width=width, force_terminal=self.rewrites, force_interactive=self.rewrites)
        self._is_ascii = not (self.rewrites and self.encoding.startswith("utf"))

    def print(self, *objects: Any, **how: Any) -> None:
        """As any console prints; but if the terminal is gone, nobody reads the story any more, and it ends."""
        try:
            super().print(*objects, **how)
        except OSError:
            self.quiet = True
            raise KeyboardInterrupt from None

    def heading(self, title: str, why: str = "") -> None:
        """A title, and a line that says why."""
        self.print(Text(f"\n{title}", "bold"))
        if why:
            self.say(why)

    def say(self, text: str, style: str = "") -> None:
        """A sentence or two."""
        self.print(Padding.indent(Text(text, style), 3))

    def command(self, text: str) -> None:
        """What a person would type: not broken at the edge of the terminal, so that it can be copied."""
        self.print(Text(f"   {text}", "cyan"), soft_wrap=True)

    def row(self, *cells: str | tuple[str, str]) -> Text:
        """One line, which is cut at the edge of the terminal."""
        return Text.assemble("   ", *cells, no_wrap=True, overflow="crop" if self._is_ascii else "ellipsis")

    def marked(self, outcome: str | None, text: str = "{}") -> tuple[str, str]:
        """A text with the mark of an outcome, in its colour."""
        mark, in_ascii, style = _MARKS.get(outcome, _LOST)
        return text.format(in_ascii if self._is_ascii else mark), style

    @contextmanager
    def board(self, *, stays: bool = True) -> Iterator[Live]:
        """Rows that are drawn over and over again; the last ones stay. Elsewhere only those are printed."""
        with Live(console=self, auto_refresh=False, transient=not (stays and self.rewrites)) as live:
            yield live
        if stays and not self.rewrites:
            self.print(live.get_renderable())

    def waiting(self, text: str) -> Status:
        """On a terminal, a line for as long as something takes."""
        return self.status(text, spinner="line")
