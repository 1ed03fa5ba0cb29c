"""The lines between the boxes of a picture: curves from layer to layer, and loops led around the outside."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from holdfast.drawing.layers import LOOP, Layers, Link, Point, layered
from holdfast.drawing.spread import Box, Places, spread

_LANE = 20.0
"""Between lines that are led around."""
_CORNER = 10.0
_PORT = 16.0
_BESIDE = 14.0
_NO_LABEL = (0.0, 0.0)

Curve: TypeAlias = tuple[Point, Point, Point]
"""Two control points, and the end."""


@dataclass(frozen=True, slots=True)
class Line:
    """How a link is drawn, and where a label for it has its middle."""

    begin: Point
    curves: list[Curve]
    label: Point


@dataclass(frozen=True, slots=True)
class Layout:
    """Boxes by name, a line for each link, and how far all of it reaches, along and across: from and to."""

    boxes: dict[str, Box]
    lines: list[Line]
    along: Point
    across: Point


def arrange(
    sizes: Mapping[str, Point],
    links: Sequence[Link],
    labels: Mapping[int, Point] | None = None,
    *,
    gap: float = 64.0,
    even: Collection[str] = (),
) -> Layout:
    """Places boxes of these sizes, and draws the links between them with room for labels (by the link's number).

    All sizes are along and across; `gap` is between layers. Boxes in `even` are made as long as the longest in theirs.
    """
    layers = layered(sizes, links, labels or {})
    places = spread(layers, gap, even)
    lines = {number: _forwards(layers, places, number) for number in layers.ways}
    lines |= _to_themselves(layers, places)
    lines |= _around(layers, places)
    drawn = [lines[number] for number in range(len(links))]
    reach: list[tuple[Point, Point]] = []  # middles and halves of all that takes room
    for name, box in places.boxes.items():
        reach.append(((box.along, box.across), (box.length / 2, box.breadth / 2)))
        reach.append(((box.along, box.across - layers.extent(name)[0]), (0.0, 0.0)))
    for number, line in enumerate(drawn):
        length, breadth = layers.labels.get(number, _NO_LABEL)
        reach.append((line.label, (length / 2, breadth / 2)))
        reach += [(point, (0.0, 0.0)) for point in (line.begin, *(curve[-1] for curve in line.curves))]
    return Layout(places.boxes, drawn, _range(reach, 0), _range(reach, 1))


def _range(reach: Sequence[tuple[Point, Point]], axis: int) -> Point:
    low = min((middle[axis] - half[axis] for middle, half in reach), default=0.0)
    return low, max((middle[axis] + half[axis] for middle, half in reach), default=0.0)


def _forwards(layers: Layers, places: Places, number: int) -> Line:
    """From layer to layer; straight through a layer at its waypoint."""
    source, target = layers.links[number]
    box, follower = places.boxes[source], places.boxes[target]
    first, last = layers.rank[source], layers.rank[target]
    stations = [(box.along + box.length / 2, box.across), (places.spans[first][1], box.across)]
    for rank in range(first + 1, last):
        stations += [(along, places.across[number, rank]) for along in places.spans[rank]]
    stations += [(places.spans[last][0], follower.across), (follower.along - follower.length / 2, follower.across)]
    curves = [_bend(a, b) for a, b in pairwise(stations) if a != b]
    (x, y), (to_x, to_y) = stations[1:3]
    return Line(stations[0], curves, ((x + to_x) / 2, (y + to_y) / 2))


def _bend(a: Point, b: Point) -> Curve:
    middle = (a[0] + b[0]) / 2
    return (middle, a[1]), (middle, b[1]), b


def _to_themselves(layers: Layers, places: Places) -> dict[int, Line]:
    """A drop that stands on the box, near its end, with the label on top."""
    lines = {}
    for number, (source, target) in enumerate(layers.links):
        if source != target:
            continue
        box = places.boxes[source]
        edge, right = box.across - box.breadth / 2, box.along + box.length / 2 - min(14.0, box.length / 4)
        left = right - min(22.0, box.length / 2)
        high = edge - LOOP * 4 / 3  # a curve comes three quarters of the way to its control points
        drop = (left - 8, high), (right + 8, high), (right, edge)
        label = layers.labels.get(number, _NO_LABEL)[1]
        lines[number] = Line((left, edge), [drop], ((left + right) / 2, edge - LOOP - label / 2))
    return lines


# Around ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Detour:
    """A link that closes a loop. `side` is 1 if it goes around on the far side across, else -1."""

    number: int
    source: str
    target: str
    side: int
    lane: float = 0.0
    reach: float = 0.0
    leaves: float = 0.0
    arrives: float = 0.0


def _around(layers: Layers, places: Places) -> dict[int, Line]:
    detours = []
    for number in sorted(layers.around):
        source, target = layers.links[number]
        if source != target:
            near, far = (layers.is_outer(source, s) and layers.is_outer(target, s) for s in (-1, 1))
            detours.append(_Detour(number, source, target, -1 if near and not far else 1))
    # The shorter a detour, the nearer it keeps.
    detours.sort(key=lambda each: (layers.rank[each.source] - layers.rank[each.target], each.number))
    _choose_lanes(layers, places, detours)
    _choose_ports(layers, places, detours)
    return {each.number: _detour(layers, places, each) for each in detours}


def _choose_lanes(layers: Layers, places: Places, detours: Sequence[_Detour]) -> None:
    """Outside of everything between the two ends, and of the shorter detours there."""
    for i, each in enumerate(detours):
        low, high = layers.rank[each.target], layers.rank[each.source]
        reach = [
            each.side * places.across[spot] + layers.extent(spot)[each.side > 0]
            for layer in layers.spots[low : high + 1]
            for spot in layer
        ]
        for other in detours[:i]:
            if other.side == each.side and layers.rank[other.target] <= high and layers.rank[other.source] >= low:
                reach.append(other.reach)
        label = layers.labels.get(each.number, _NO_LABEL)[1] / 2
        each.lane = each.side * (max(reach) + max(_LANE, label + 6))
        each.reach = each.side * each.lane + label


def _choose_ports(layers: Layers, places: Places, detours: Sequence[_Detour]) -> None:
    """Where on a box, or beside it, detours leave and arrive, so that those of one box do not cross."""
    for name, box in places.boxes.items():
        for side in (1, -1):
            mine = [each for each in detours if each.side == side and name in (each.source, each.target)]
            leaving = sorted((e for e in mine if e.source == name), key=lambda e: e.reach)
            arriving = sorted((e for e in mine if e.target == name), key=lambda e: -e.reach)
            if layers.is_outer(name, side):
                step = min(_PORT, box.length / (len(mine) + 1))
                first = box.along - step * (len(mine) - 1) / 2
                for i, each in enumerate(leaving):
                    each.leaves = first + step * i
                for i, each in enumerate(arriving, len(leaving)):
                    each.arrives = first + step * i
                continue
            begin, end = places.spans[layers.rank[name]]
            step = min(6.0, _BESIDE / (len(mine) or 1))
            for i, each in enumerate(leaving):
                each.leaves = end + _BESIDE + step * i
            for i, each in enumerate(reversed(arriving)):
                each.arrives = begin - _BESIDE - step * i


def _detour(layers: Layers, places: Places, each: _Detour) -> Line:
    source, target = places.boxes[each.source], places.boxes[each.target]
    corners: list[Point] = []
    if layers.is_outer(each.source, each.side):
        corners.append((each.leaves, source.across + each.side * source.breadth / 2))
    else:
        level = source.across + each.side * source.breadth / 4
        corners += [(source.along + source.length / 2, level), (each.leaves, level)]
    corners += [(each.leaves, each.lane), (each.arrives, each.lane)]
    if layers.is_outer(each.target, each.side):
        corners.append((each.arrives, target.across + each.side * target.breadth / 2))
    else:
        level = target.across + each.side * target.breadth / 4
        corners += [(each.arrives, level), (target.along - target.length / 2, level)]
    return Line(corners[0], _rounded(corners), ((each.leaves + each.arrives) / 2, each.lane))


def _rounded(corners: Sequence[Point]) -> list[Curve]:
    """Straight lines from corner to corner, with the corners rounded off."""
    curves: list[Curve] = []
    here = corners[0]
    for corner, following in pairwise(corners[1:]):
        near = _towards(corner, here, min(_CORNER, _distance(corner, here) / 2))
        far = _towards(corner, following, min(_CORNER, _distance(corner, following) / 2))
        curves += [(here, near, near), (corner, corner, far)]
        here = far
    return [*curves, (here, corners[-1], corners[-1])]


def _distance(a: Point, b: Point) -> float:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])  # corners are right angles


def _towards(a: Point, b: Point, by: float) -> Point:
    whole = _distance(a, b) or 1.0
    return a[0] + (b[0] - a[0]) * by / whole, a[1] + (b[1] - a[1]) * by / whole
