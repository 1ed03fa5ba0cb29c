"""Which layer of a picture the boxes of a small graph stand in, and in which order.

The usual passes of a layered drawing. Links that close a loop are set aside, to be led around later. Every box gets
the layer of the longest way to it. Links over several layers run through a waypoint in each of them. The order within
a layer comes from a few barycentre sweeps. `spread` then finds the places, and `lines` draws the links.

*Along* is the direction in which the graph reads, *across* the other one: whoever draws it decides which is x.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import TypeAlias

LOOP = 24.0
"""The height of a link from a box to itself."""
_SWEEPS = 12

Point: TypeAlias = tuple[float, float]
"""Along and across."""
Link: TypeAlias = tuple[str, str]
Spot: TypeAlias = str | tuple[int, int]
"""A box by its name, or a waypoint by the number of its link and its layer."""


@dataclass(slots=True)
class Layers:
    """The boxes and waypoints in their layers."""

    sizes: Mapping[str, Point]
    links: Sequence[Link]
    labels: Mapping[int, Point]
    """The sizes of the labels of links, by the links' numbers."""
    around: set[int] = field(default_factory=set)
    """The numbers of the links that close a loop."""
    rank: dict[str, int] = field(default_factory=dict)
    """The layer of each box."""
    spots: list[list[Spot]] = field(default_factory=list)
    """Each layer in its order."""
    ways: dict[int, list[Spot]] = field(default_factory=dict)
    """The spots that each link runs through, its ends included, unless it closes a loop."""
    before: dict[Spot, list[Spot]] = field(default_factory=dict)
    after: dict[Spot, list[Spot]] = field(default_factory=dict)
    loops: dict[str, float] = field(default_factory=dict)
    """The boxes with a link to themselves, and the room it takes."""

    def extent(self, spot: Spot) -> Point:
        """How far a spot reaches to either side across; a loop to itself stands on the first."""
        if not isinstance(spot, str):
            return 0.0, 0.0
        half = self.sizes[spot][1] / 2
        return half + self.loops.get(spot, 0.0), half

    def is_outer(self, name: str, side: int) -> bool:
        """Whether no box of its layer stands beyond a box: on the far side across if `side` is 1, else on the near."""
        boxes = [spot for spot in self.spots[self.rank[name]] if isinstance(spot, str)]
        return boxes[-1 if side > 0 else 0] == name


def layered(sizes: Mapping[str, Point], links: Sequence[Link], labels: Mapping[int, Point]) -> Layers:
    """Puts boxes of these sizes, along and across, into layers. Loops are entered at the box that is named first."""
    layers = Layers(sizes, links, labels)
    layers.around = _closing_loops(list(sizes), links)
    layers.rank = _ranks(list(sizes), [link for number, link in enumerate(links) if number not in layers.around])
    for number, (source, target) in enumerate(links):
        if source == target:
            layers.loops[source] = LOOP + labels.get(number, (0.0, 0.0))[1]
    _fill(layers)
    _uncross(layers)
    return layers


def _closing_loops(names: Sequence[str], links: Sequence[Link]) -> set[int]:
    """The links that lead back to where a walk along the links came from, those of a box to itself among them."""
    leaving: dict[str, list[int]] = {name: [] for name in names}
    for number, (source, _) in enumerate(links):
        leaving[source].append(number)
    closing: set[int] = set()
    entered: set[str] = set()
    left: set[str] = set()
    for root in names:
        stack = [root] if root not in entered else []
        while stack:
            name = stack[-1]
            entered.add(name)
            if not leaving[name]:
                left.add(stack.pop())
                continue
            number = leaving[name].pop(0)
            target = links[number][1]
            if target not in entered:
                stack.append(target)
            elif target not in left:
                closing.add(number)
    return closing


def _ranks(names: Sequence[str], links: Sequence[Link]) -> dict[str, int]:
    """The layer of each box: the longest way to it; a box that nothing leads to stands just before what it leads to."""
    followers: dict[str, list[str]] = {name: [] for name in names}
    waiting = dict.fromkeys(names, 0)
    for source, target in links:
        followers[source].append(target)
        waiting[target] += 1
    first = [name for name in names if waiting[name] == 0]
    ranks = dict.fromkeys(names, 0)
    ready = list(first)
    for name in ready:  # grows while it is walked
        for target in followers[name]:
            ranks[target] = max(ranks[target], ranks[name] + 1)
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    for name in first:
        ranks[name] = min((ranks[target] - 1 for target in followers[name]), default=0)
    return ranks


def _fill(layers: Layers) -> None:
    rank = layers.rank
    layers.spots = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for name in layers.sizes:
        layers.spots[rank[name]].append(name)
    for number, (source, target) in enumerate(layers.links):
        if number in layers.around:
            continue
        between = range(rank[source] + 1, rank[target])
        way: list[Spot] = [source, *((number, each) for each in between), target]
        for each in between:
            layers.spots[each].append((number, each))
        for a, b in pairwise(way):
            layers.before.setdefault(b, []).append(a)
            layers.after.setdefault(a, []).append(b)
        layers.ways[number] = way


def _uncross(layers: Layers) -> None:
    """Sorts each layer by where its neighbours stand, forwards and backwards, and keeps the best that was seen."""
    spots = [list(layer) for layer in layers.spots]
    fewest = _crossings(spots, layers.after)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        forwards = sweep % 2 == 0
        towards = layers.before if forwards else layers.after
        index = {spot: i for layer in spots for i, spot in enumerate(layer)}
        for layer in spots if forwards else reversed(spots):
            layer.sort(key=lambda spot: fmean(index[each] for each in towards.get(spot, [spot])))
            index |= {spot: i for i, spot in enumerate(layer)}
        crossings = _crossings(spots, layers.after)
        if crossings < fewest:
            layers.spots, fewest = [list(layer) for layer in spots], crossings


def _crossings(spots: Sequence[Sequence[Spot]], after: Mapping[Spot, Sequence[Spot]]) -> int:
    total = 0
    for layer, following in pairwise(spots):
        index = {spot: i for i, spot in enumerate(following)}
        seen: list[int] = []
        for spot in layer:
            ends = [index[each] for each in after.get(spot, ())]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total
