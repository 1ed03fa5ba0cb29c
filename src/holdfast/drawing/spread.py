"""Where in its layer each box of a picture stands: near its neighbours, and in line with what it mainly leads to."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from holdfast.drawing.layers import Layers, Point, Spot

_ROOM, _WAYPOINT_ROOM = 22.0, 18.0
_BESIDE_LABEL = 44.0
_SWEEPS = 16
_FIRM = 1e9
"""A weight against which no other counts, and a place beyond all others."""


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its middle, and how long it is each way."""

    along: float
    across: float
    length: float
    breadth: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where the boxes and waypoints are; `spans` says where each layer begins and ends."""

    boxes: dict[str, Box]
    across: dict[Spot, float]
    spans: list[Point]


def spread(layers: Layers, gap: float, even: Collection[str] = ()) -> Places:
    """Finds the places, with a gap between layers. Boxes in `even` are made as long as the longest in their layer."""
    across: dict[Spot, float] = {}
    for layer in layers.spots:
        _settle(layers, layer, across, dict.fromkeys(layer, (0.0, 1.0)))
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        for layer in layers.spots if forwards else reversed(layers.spots):
            _settle(layers, layer, across, {spot: _pulled(layers, across, spot, forwards) for spot in layer})
    _straighten(layers, across)
    return _measured(layers, across, gap, even)


def _pulled(layers: Layers, across: Mapping[Spot, float], spot: Spot, forwards: bool) -> tuple[float, float]:
    """Where the neighbours in the layer just placed pull a spot, and how strongly."""
    near = (layers.before if forwards else layers.after).get(spot) or [spot]
    return fmean(across[each] for each in near), float(len(near))


def _settle(
    layers: Layers, layer: Sequence[Spot], across: dict[Spot, float], wanted: Mapping[Spot, tuple[float, float]]
) -> None:
    """The places nearest to those wanted (place and weight) that keep the order and the room between neighbours."""
    offsets = [0.0]
    for a, b in pairwise(layer):
        offsets.append(offsets[-1] + _distance(layers, a, b))
    blocks: list[tuple[float, float, int]] = []  # place less offset, weight, how many spots share them
    for spot, offset in zip(layer, offsets, strict=False):
        (place, weight), count = wanted[spot], 1
        place -= offset
        while blocks and blocks[-1][0] > place:  # in each other's way: they meet at their weighted mean
            other, more, several = blocks.pop()
            place = (other * more + place * weight) / (more + weight)
            weight, count = weight + more, count + several
        blocks.append((place, weight, count))
    found = [place for place, _, count in blocks for _ in range(count)]
    across.update((spot, place + offset) for spot, place, offset in zip(layer, found, offsets, strict=False))


def _distance(layers: Layers, a: Spot, b: Spot) -> float:
    room = _ROOM if isinstance(a, str) and isinstance(b, str) else _WAYPOINT_ROOM
    return layers.extent(a)[1] + layers.extent(b)[0] + room


# Straight lines -------------------------------------------------------------------------------------


def _straighten(layers: Layers, across: dict[Spot, float]) -> None:
    """Brings each run of spots into one line, and lets all others find their places beside it."""
    runs = sorted(_runs(layers), key=len, reverse=True)
    run_of = {spot: run for run in runs for spot in run}
    for sweep in range(_SWEEPS):
        middle = {id(run): fmean(across[spot] for spot in run) for run in runs}
        for layer in layers.spots if sweep % 2 == 0 else reversed(layers.spots):
            wanted = {}
            for spot in layer:
                run = run_of.get(spot)
                near = [*layers.before.get(spot, ()), *layers.after.get(spot, ())] or [spot]
                beside = fmean(across[each] for each in near), float(len(near))
                wanted[spot] = beside if run is None else (middle[id(run)], 20.0 * len(run))
            _settle(layers, layer, across, wanted)
    fixed: dict[Spot, float] = {}
    for run in runs:
        _fix(layers, across, fixed, run)
    for layer in layers.spots:
        _settle(layers, layer, across, {s: (fixed[s], _FIRM) if s in fixed else (across[s], 1.0) for s in layer})


def _fix(layers: Layers, across: Mapping[Spot, float], fixed: dict[Spot, float], run: Sequence[Spot]) -> None:
    """Gives a run its line, between those that have theirs; without its last spots if there is no room for all."""
    bounds = [_bounds(layers, fixed, spot) for spot in run]
    for end in range(len(run), 1, -1):
        low, high = max(low for low, _ in bounds[:end]), min(high for _, high in bounds[:end])
        if low <= high:
            line = min(max(fmean(across[spot] for spot in run[:end]), low), high)
            fixed.update(dict.fromkeys(run[:end], line))
            return


def _bounds(layers: Layers, fixed: Mapping[Spot, float], spot: Spot) -> Point:
    """Between which places a spot can stand, with room for all that is between it and those that are fixed."""
    layer = _layer_of(layers, spot)
    low, high, distance = -_FIRM, _FIRM, 0.0
    place = layer.index(spot)
    for a, b in pairwise(reversed(layer[: place + 1])):
        distance += _distance(layers, b, a)
        low = max(low, fixed.get(b, -_FIRM) + distance)
    distance = 0.0
    for a, b in pairwise(layer[place:]):
        distance += _distance(layers, a, b)
        high = min(high, fixed.get(b, _FIRM) - distance)
    return low, high


def _runs(layers: Layers) -> list[list[Spot]]:
    """Spots that belong in one line: of a long link, of steps that only lead to each other, of first links."""
    index = {spot: i for layer in layers.spots for i, spot in enumerate(layer)}
    pairs = [pair for _, way in sorted(layers.ways.items()) for pair in pairwise(way)]
    following: dict[Spot, Spot] = {}
    preceding: dict[Spot, Spot] = {}
    for a, b in sorted(pairs, key=lambda pair: _importance(layers, *pair)):
        if a in following or b in preceding:
            continue
        siblings = [s for s in _layer_of(layers, a) if s in following]
        if all((index[s] < index[a]) == (index[following[s]] < index[b]) for s in siblings):  # it crosses none
            following[a], preceding[b] = b, a
    runs = []
    for first in following:
        if first in preceding:
            continue
        run = [first]
        while run[-1] in following:
            run.append(following[run[-1]])
        runs.append(run)
    return runs


def _importance(layers: Layers, a: Spot, b: Spot) -> int:
    if not isinstance(a, str) and not isinstance(b, str):
        return 0
    if len(layers.after[a]) == len(layers.before[b]) == 1:
        return 1
    # Where all ends is below a box that leads there directly, rather than below the longest way.
    return 3 if not isinstance(a, str) and b not in layers.after else 2


def _layer_of(layers: Layers, spot: Spot) -> list[Spot]:
    return layers.spots[layers.rank[spot] if isinstance(spot, str) else spot[1]]


# Along ----------------------------------------------------------------------------------------------


def _measured(layers: Layers, across: dict[Spot, float], gap: float, even: Collection[str]) -> Places:
    places = Places({}, across, [])
    begin = 0.0
    for rank, layer in enumerate(layers.spots):
        names = [spot for spot in layer if isinstance(spot, str)]
        longest = max((layers.sizes[name][0] for name in names), default=0.0)
        for name in names:
            length, breadth = layers.sizes[name]
            stretched = longest if name in even else length
            places.boxes[name] = Box(begin + longest / 2, across[name], stretched, breadth)
        places.spans.append((begin, begin + longest))
        begin += longest + max(gap, _room_for_labels(layers, rank))
    return places


def _room_for_labels(layers: Layers, rank: int) -> float:
    """What the labels of links that leave a layer take, and a bit of line on both sides."""
    labelled = [number for number in layers.labels if number in layers.ways]
    labels = [layers.labels[number][0] for number in labelled if layers.rank[layers.links[number][0]] == rank]
    return max(labels) + _BESIDE_LABEL if labels else 0.0
