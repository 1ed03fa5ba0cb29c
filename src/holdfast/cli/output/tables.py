"""Tables: on a terminal they fit, elsewhere everything is there.

rich says how wide characters are. Its own tables take milliseconds for a row: too long for `tasks --limit 10000`.
"""

import shutil
import sys
from collections.abc import Collection, Sequence

import click
from rich.cells import cell_len, set_cell_size

from holdfast.cli.output.printing import Cell, styled

NARROWEST = 12
"""Characters that a cut column keeps."""
UNSEEN = 100_000
"""Characters in a line where no terminal shows it."""


def fitted_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    spare: Sequence[str] = (),
    whole: Collection[str] = (),
    indent: str = "",
) -> None:
    """Prints a table; see `table`."""
    for each in table(headings, rows, columns() - len(indent), spare=spare, whole=whole):
        click.echo(indent + each)


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    room: int,
    *,
    spare: Sequence[str] = (),
    whole: Collection[str] = (),
) -> list[str]:
    """The lines of a table that fits: `spare` columns go first, then texts are cut, then the last columns go.

    The first column is always there, and whole. The last one is cut first, then the widest, then those named `whole`.
    """
    texts = {name: [name, *(_text(row[at]) for row in rows)] for at, name in enumerate(headings)}
    widths = {name: max(map(cell_len, column)) for name, column in texts.items()}
    kept = list(headings)

    def needed(giving: Sequence[str]) -> int:
        least = {name: min(widths[name], NARROWEST) for name in giving}
        return sum(least.get(name, widths[name]) for name in kept) + 2 * (len(kept) - 1)

    for name in spare:
        if needed(kept[-1:]) > room:
            kept.remove(name)
    while len(kept) > 1 and needed(kept[1:]) > room:
        kept.pop()
    excess = needed([]) - room
    for name in sorted(kept[1:], key=lambda each: (each in whole, each != kept[-1], -widths[each])):
        given = max(0, min(excess, widths[name] - NARROWEST))
        widths[name] -= given
        excess -= given
    chosen = [(headings.index(name), widths[name]) for name in kept]
    lines = ["  ".join(_padded(row[at], width) for at, width in chosen).rstrip() for row in (headings, *rows)]
    return [click.style(lines[0], dim=True), *lines[1:]]


def cut(text: str, width: int) -> str:
    """A text that is no wider than that on a terminal."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…"


def columns() -> int:
    """How many characters fit in a line; many, where nobody looks."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else UNSEEN


def wrapped(text: str, indent: int = 0) -> str:
    """A long sentence in lines that fit; names, ids and commands of one word stay whole."""
    from textwrap import fill

    return fill(text, columns() - indent, break_long_words=False, break_on_hyphens=False)


def _text(cell: Cell) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


def _padded(cell: Cell, width: int) -> str:
    text = cut(_text(cell), width)
    # Padding outside of the colour can be cut off at the end of a line.
    return styled((text, cell[1]) if isinstance(cell, tuple) else text) + " " * (width - cell_len(text))
