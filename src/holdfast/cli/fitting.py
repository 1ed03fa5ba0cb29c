"""Tables that fit a terminal: what matters least is left out, and long texts are cut. Elsewhere everything is there."""

import shutil
import sys
from collections.abc import Sequence

from holdfast.cli.output import Cell, shortened, table

NARROWEST = 12
"""Characters that a cut column keeps."""


def fitted_table(
    headings: Sequence[str], rows: Sequence[Sequence[Cell]], *, spare: Sequence[str] = (), indent: str = ""
) -> None:
    """A table; on a terminal the `spare` columns go first, then texts are cut, then the last columns go.

    The first column is always there, and whole.
    """
    room = columns() - len(indent)
    kept = list(headings)
    for name in spare:
        if _needed(_widths(headings, rows, kept)) <= room:
            break
        kept.remove(name)
    widths = _cut(_widths(headings, rows, kept), room)
    while len(kept) > 1 and _total(widths) > room:
        kept.pop()
        widths = _cut(_widths(headings, rows, kept), room)
    chosen = [headings.index(name) for name in kept]
    cut = [[_shortened(row[i], width) for i, width in zip(chosen, widths, strict=True)] for row in rows]
    table([shortened(name, width) for name, width in zip(kept, widths, strict=True)], cut, indent)


def columns() -> int:
    """How many characters fit in a line; many, where nobody looks."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 100_000


def _widths(headings: Sequence[str], rows: Sequence[Sequence[Cell]], kept: Sequence[str]) -> list[int]:
    indexes = [headings.index(name) for name in kept]
    return [max([len(headings[i]), *(len(_text(row[i])) for row in rows)]) for i in indexes]


def _needed(widths: Sequence[int]) -> int:
    """What they need at least, with the last one cut."""
    return _total([*widths[:-1], min(widths[-1], NARROWEST)])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(widths: list[int], room: int) -> list[int]:
    """The widths at which all of it fits: the last column gives first, then the widest."""
    while (excess := _total(widths) - room) > 0:
        last = len(widths) - 1
        most = max(range(1, last + 1), key=lambda i: widths[i], default=0)
        giving = last if widths[last] > NARROWEST else most
        if widths[giving] <= NARROWEST:
            break
        widths[giving] = max(NARROWEST, widths[giving] - excess)
    return widths


def _text(cell: Cell) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


def _shortened(cell: Cell, width: int) -> Cell:
    return (shortened(cell[0], width), cell[1]) if isinstance(cell, tuple) else shortened(cell, width)
