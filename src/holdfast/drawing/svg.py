"""Pictures of graphs: SVG that needs nothing from elsewhere and reads well on light and on dark ground.

A picture stands alone, with its own ground and style, or is part of a page, which then brings `STYLE` along once.
There are no ids in it, so that a page may hold several, and no script.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from holdfast._model.declare.graph import END
from holdfast._model.declare.step import MAIN
from holdfast.drawing.layers import Point
from holdfast.drawing.lines import Layout, Line, arrange
from holdfast.drawing.spread import Box
from holdfast.drawing.style import STYLE
from holdfast.drawing.subject import STATES, Counts, Drawing, Link, shown, told

Address: TypeAlias = Callable[[str, str], str | None]
"""Where a click on a step, given its kind and name, leads, if anywhere."""
At: TypeAlias = Callable[[Point], Point]
"""From along and across to x and y."""

WIDEST = 1200.0
"""A graph that would be wider from left to right is drawn from top to bottom."""

_LETTER, _LABEL_LETTER, _DIGIT, _TITLE_LETTER = 7.85, 6.2, 6.7, 9.1
"""The width of a letter of a name, a label, a count and a title."""
_NAME_LINE, _COUNTS_LINE, _MARK = 38.0, 18.0, 26.0
_PADDING, _MARGIN, _TITLE, _BETWEEN, _BESIDE = 15.0, 24.0, 32.0, 34.0, 14.0
_START = 22.0


@dataclass(frozen=True, slots=True)
class _Part:
    """Something drawn at its own origin, and how much room it takes."""

    body: str
    width: float
    height: float


def as_svg(
    drawings: Sequence[Drawing],
    *,
    alone: bool = True,
    titles: bool = True,
    downwards: bool | None = None,
    address: Address | None = None,
) -> str:
    """One picture of all of these, one below the other; the functions among them in rows at the end.

    `alone` gives it a ground, a style and a legend of its own. `downwards` None means: whatever fits better.
    """
    parts = [_graph(each, downwards, titles, address) for each in drawings if not each.is_function]
    functions = [each for each in drawings if each.is_function]
    if functions:
        room = max((part.width for part in parts), default=WIDEST * 2 / 3)
        parts.append(_functions(functions, max(room, 480.0), titles, address))
    if alone and any(told(counts) for each in drawings for counts in each.counts.values()):
        parts.append(_legend())
    width = 2 * _MARGIN + max((part.width for part in parts), default=0.0)
    y, placed = _MARGIN, ""
    for part in parts:
        placed += f'<g transform="translate({_n(_MARGIN)} {_n(y)})">{part.body}</g>\n'
        y += part.height + _BETWEEN
    height = y + _MARGIN - (_BETWEEN if parts else 0.0)
    ground = f'<style>{STYLE}</style>\n<rect class="paper" width="{_n(width)}" height="{_n(height)}" rx="10"/>\n'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="holdfast-graph" role="img" width="{_n(width)}" '
        f'height="{_n(height)}" viewBox="0 0 {_n(width)} {_n(height)}">\n'
        f"<title>{_text(', '.join(each.kind for each in drawings))}</title>\n"
        f"{ground if alone else ''}{placed}</svg>\n"
    )


# One graph ------------------------------------------------------------------------------------------


def _graph(drawing: Drawing, downwards: bool | None, titles: bool, address: Address | None) -> _Part:
    links = drawing.links
    layout, down = _arranged(drawing, links, downwards)
    start = _START if drawing.edges else 0.0  # before the first layer
    top = _TITLE if titles else 0.0

    def at(point: Point) -> Point:
        along, across = point[0] - layout.along[0] + start, point[1] - layout.across[0]
        return (across, along + top) if down else (along, across + top)

    body = _title(drawing.kind) if titles else ""
    for link, line in zip(links, layout.lines, strict=True):
        body += _link(link, line, at, on_way=bool(drawing.way))
    for step in drawing.beginnings:
        body += _beginning(layout.boxes[step], at)
    for name in drawing.nodes:
        box = layout.boxes[name]
        width, height = (box.breadth, box.length) if down else (box.length, box.breadth)
        body += _node(drawing, name, at((box.along, box.across)), (width, height), address)
    along, across = (high - low for low, high in (layout.along, layout.across))
    width, height = (across, along + start) if down else (along + start, across)
    return _Part(body, max(width, len(shown(drawing.kind)) * _TITLE_LETTER if titles else 0.0), height + top)


def _arranged(drawing: Drawing, links: Sequence[Link], downwards: bool | None) -> tuple[Layout, bool]:
    """Where everything goes, and whether it reads downwards."""
    sizes = {name: _size(drawing, name) for name in drawing.nodes}
    labels = {i: (len(link.label) * _LABEL_LETTER, 14.0) for i, link in enumerate(links) if link.label}
    ends = [(link.source, link.target) for link in links]
    if not downwards:
        layout = arrange(sizes, ends, labels, even=drawing.steps)
        if downwards is False or layout.along[1] - layout.along[0] <= WIDEST:
            return layout, False
    turned = {name: (height, width) for name, (width, height) in sizes.items()}
    return arrange(turned, ends, {i: (height, width) for i, (width, height) in labels.items()}, gap=46.0), True


def _size(drawing: Drawing, name: str) -> Point:
    if drawing.is_mark(name):
        return (54.0 if name == END else 40.0), _MARK
    width = max(76.0, len(shown(name)) * _LETTER, _counts_width(drawing.counts.get(name, {})))
    return width + 2 * _PADDING, _height(drawing)


def _height(drawing: Drawing) -> float:
    return _NAME_LINE + (_COUNTS_LINE if any(told(counts) for counts in drawing.counts.values()) else 0.0)


def _node(drawing: Drawing, name: str, middle: Point, size: Point, address: Address | None) -> str:
    (x, y), (width, height) = middle, size
    mark, counts = drawing.is_mark(name), drawing.counts.get(name, {})
    strange = name in drawing.strangers
    classes = ["step" if not mark else "end" if name == END else "unknown", *(["stranger"] if strange else [])]
    if drawing.way:
        classes.append("current" if name == drawing.way[-1] else "visited" if name in drawing.way else "dim")
    raised = _COUNTS_LINE / 2 if told(counts) else 0.0
    body = _tip(drawing, name, counts, strange) + (
        f'<rect class="box" x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" width="{_n(width)}" '
        f'height="{_n(height)}" rx="{_n(height / 2 if mark else 8)}"/>'
        f'<text class="name" x="{_n(x)}" y="{_n(y - raised)}">{_text(shown(name))}</text>'
    )
    body += _counts(counts, x, y + raised)
    to = None if address is None or mark else address(drawing.kind, name)
    linked = body if to is None else f'<a href="{_text(to)}">{body}</a>'
    return f'<g class="{" ".join(classes)}" data-step="{_text(name)}">{linked}</g>\n'


def _tip(drawing: Drawing, name: str, counts: Counts, strange: bool) -> str:
    """What is told when the pointer rests on a node."""
    said = [told(counts)]
    if strange:
        said.append("not in this code")
    elif not drawing.is_mark(name) and not drawing.edges[name]:
        said.append("only raises")
    return f"<title>{_text('; '.join(filter(None, [name, *said])))}</title>"


def _beginning(box: Box, at: At) -> str:
    """A dot before a step where tasks begin, with a short line to it."""
    edge = box.along - box.length / 2
    (x, y), (to_x, to_y) = at((edge - _START + 4, box.across)), at((edge, box.across))
    return (
        f'<path class="line" d="M{_n(x)} {_n(y)} L{_n(to_x)} {_n(to_y)}"/>'
        f'<circle class="start" cx="{_n(x)}" cy="{_n(y)}" r="4"/>\n'
    )


def _link(link: Link, line: Line, at: At, *, on_way: bool) -> str:
    classes = ["link"] if link.at_once else ["link", "later"]
    if on_way:
        classes.append("taken" if link.taken else "dim")
    curves = "".join(" C" + " ".join(_xy(at(point)) for point in curve) for curve in line.curves)
    body = f'<path class="line" d="M{_xy(at(line.begin))}{curves}"/>' + _head(line, at)
    if link.label:
        x, y = at(line.label)
        body += f'<text class="label" x="{_n(x)}" y="{_n(y)}">{_text(link.label)}</text>'
    return f'<g class="{" ".join(classes)}">{body}</g>\n'


def _head(line: Line, at: At) -> str:
    """The head of the arrow: drawn, because a marker would need an id."""
    first, second, end = line.curves[-1]
    (from_x, from_y), (x, y) = at(first if second == end else second), at(end)
    length = ((x - from_x) ** 2 + (y - from_y) ** 2) ** 0.5 or 1.0
    dx, dy = 8 * (x - from_x) / length, 8 * (y - from_y) / length
    back_x, back_y = x - dx, y - dy
    corners = [(x, y), (back_x - dy / 2, back_y + dx / 2), (back_x + dy / 2, back_y - dx / 2)]
    return f'<path class="head" d="M{" L".join(_xy(corner) for corner in corners)} Z"/>'


# Functions, counts, legend --------------------------------------------------------------------------


def _functions(drawings: Sequence[Drawing], room: float, titles: bool, address: Address | None) -> _Part:
    """A box for each, with its kind's name, in as many rows as it takes."""
    x, y, widest = 0.0, _TITLE if titles else 0.0, 0.0
    body = _title("functions") if titles else ""
    height = max(map(_height, drawings))
    for each in drawings:
        counts = each.counts.get(MAIN, {})
        width = max(len(shown(each.kind)) * _LETTER, _counts_width(counts)) + 2 * _PADDING
        if x and x + width > room:
            x, y = 0.0, y + height + _BESIDE
        named = Drawing(each.kind, {each.kind: each.edges[MAIN]}, {each.kind: counts})
        to = None if address is None else address(each.kind, MAIN)
        body += _node(named, each.kind, (x + width / 2, y + height / 2), (width, height), lambda *_, to=to: to)
        widest = max(widest, x + width)
        x += width + _BESIDE
    return _Part(body, widest, y + height)


def _counts_width(counts: Counts) -> float:
    return sum(26 + _DIGIT * len(f"{counts[state]:,}") for state in STATES if counts.get(state)) - 13


def _counts(counts: Counts, x: float, y: float) -> str:
    """A sign and a number for each state, in a row with its middle at a place."""
    here = x - _counts_width(counts) / 2
    body = ""
    for state in STATES:
        if counts.get(state):
            body += _count(state, f"{counts[state]:,}", here, y)
            here += 26 + _DIGIT * len(f"{counts[state]:,}")
    return body


def _count(state: str, text: str, x: float, y: float) -> str:
    signs = {
        "ready": f'<circle class="sign" cx="{_n(x + 4)}" cy="{_n(y)}" r="3.4"/>',
        "scheduled": f'<path class="sign" d="M{_xy((x, y - 4))} h8 l-4 4 l4 4 h-8 l4 -4 z"/>',
        "running": f'<path class="sign" d="M{_xy((x, y - 4.5))} l8.5 4.5 l-8.5 4.5 z"/>',
        "waiting": f'<path class="sign" d="M{_xy((x, y - 4))} h3v8h-3z m5 0h3v8h-3z"/>',
        "parked": f'<rect class="sign" x="{_n(x)}" y="{_n(y - 4)}" width="8" height="8" rx="1"/>',
    }
    return f'<g class="count {state}">{signs[state]}<text x="{_n(x + 13)}" y="{_n(y)}">{_text(text)}</text></g>'


def _legend() -> _Part:
    body, x = "", 0.0
    for state in STATES:
        body += _count(state, state, x, 6)
        x += 32 + _DIGIT * len(state)
    return _Part(body, x, 12)


# Writing --------------------------------------------------------------------------------------------


def _title(text: str) -> str:
    return f'<text class="kind" x="0" y="9">{_text(shown(text))}</text>'


def _text(text: str) -> str:
    """Text for XML: what cannot be printed is replaced, the rest escaped for elements and attributes alike."""
    return escape("".join(each if each.isprintable() else "\ufffd" for each in text))


def _xy(point: Point) -> str:
    return f"{_n(point[0])} {_n(point[1])}"


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
