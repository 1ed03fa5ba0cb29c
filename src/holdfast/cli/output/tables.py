"""Tables that fit a terminal: what matters least is left out, and long texts are cut. Elsewhere everything is there."""

import shutil
import sys
from collections.abc import Sequence

from holdfast.cli.output.printing import Cell, shortened, table

NARROWEST = 12
"""Characters that a cut column keeps."""


def fitted_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    spare: Sequence[str] = (),
    whole: Sequence[str] = (),
    indent: str = "",
) -> None:
    """A table; on a terminal the `spare` columns go first, then texts are cut, then the last columns go.

    The first column is always there, and whole; those named `whole` give only when no other can.
    """
    room = columns() - len(indent)
    kept = list(headings)
    for name in spare:
        if _needed(_widths(headings, rows, kept)) <= room:
            break
        kept.remove(name)
    widths = _cut(_widths(headings, rows, kept), room, [kept.index(name) for name in whole])
    while len(kept) > 1 and _total(widths) > room:
        kept.pop()
        widths = _cut(_widths(headings, rows, kept), room)
    chosen = [headings.index(name) for name in kept]
    cut = [[_shortened(row[i], width) for i, width in zip(chosen, widths, strict=True)] for row in rows]
    table([shortened(name, width) for name, width in zip(kept, widths, strict=True)], cut, indent)


def columns() -> int:
    """How many characters fit in a line; many, where nobody looks."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 100_000


def wrapped(text: str, indent: int = 0) -> str:
    """A long sentence in lines that fit; names, ids and commands of one word stay whole."""
    from textwrap import fill

    return fill(text, columns() - indent, break_long_words=False, break_on_hyphens=False)


def _widths(headings: Sequence[str], rows: Sequence[Sequence[Cell]], kept: Sequence[str]) -> list[int]:
    indexes = [headings.index(name) for name in kept]
    return [max([len(headings[i]), *(len(_text(row[i])) for row in rows)]) for i in indexes]


def _needed(widths: Sequence[int]) -> int:
    """What they need at least, with the last one cut."""
    return _total([*widths[:-1], min(widths[-1], NARROWEST)])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _cut(widths: list[int], room: int, whole: Sequence[int] = ()) -> list[int]:
    """The widths at which all of it fits: the last column gives first, then the widest; whole ones give in the end."""
    last = len(widths) - 1
    for giving in ([i for i in range(1, last + 1) if i not in whole], list(range(1, last + 1))):
        while (excess := _total(widths) - room) > 0 and (able := [i for i in giving if widths[i] > NARROWEST]):
            one = last if last in able else max(able, key=lambda i: widths[i])
            widths[one] = max(NARROWEST, widths[one] - excess)
    return widths


def _text(cell: Cell) -> str:
    return cell[0] if isinstance(cell, tuple) else cell


def _shortened(cell: Cell, width: int) -> Cell:
    return (shortened(cell[0], width), cell[1]) if isinstance(cell, tuple) else shortened(cell, width)
