"""What is drawn: the graph of a kind, how many tasks stand at each step, and the way that one task took."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

from holdfast._model.declare.graph import END, UNKNOWN, Edge, Graph, beginnings
from holdfast._model.declare.step import MAIN

Counts: TypeAlias = Mapping[str, int]
"""How many tasks are in each state."""

STATES = ("ready", "scheduled", "running", "waiting", "parked")
LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class Link:
    """All that leads from one step to another: at once, later, or both; and how often a task went there.

    Neither at once nor later means: the graph does not have it, but a task took it.
    """

    source: str
    target: str
    at_once: bool = False
    later: bool = False
    taken: int = 0

    @property
    def label(self) -> str:
        words = ("or later" if self.at_once else "later") if self.later else ""
        times = f"\N{MULTIPLICATION SIGN}{self.taken:,}" if self.taken > 1 else ""
        return " ".join(filter(None, (words, times)))


@dataclass(frozen=True)
class Drawing:
    """What is to be drawn of a kind.

    `counts` has the tasks at each step by state; `way` the steps that one task went through, in order, with `end`
    as the last if it is done. Both may name steps that the graph does not have: they are drawn as strangers. `first`
    is the step that tasks begin with; without it the graph is looked at, and in a loop the order of its steps decides.
    """

    kind: str
    edges: Graph
    counts: Mapping[str, Counts] = field(default_factory=dict)
    way: Sequence[str] = ()
    first: str | None = None

    @cached_property
    def beginnings(self) -> list[str]:
        """Where tasks seem to begin."""
        return beginnings(self.edges, self.first)

    @property
    def is_function(self) -> bool:
        """Whether there is nothing to draw but the one step of a function."""
        return self.edges == {MAIN: [Edge(END)]} and not self.way and not self.strangers

    @cached_property
    def strangers(self) -> list[str]:
        """Steps that are led to, or that tasks stand at or went through, but that the graph does not have."""
        known = {*self.edges, END, UNKNOWN}
        followers = [edge.step for step in self.edges for edge in self.edges[step]]
        counted = [step for step, counts in self.counts.items() if told(counts)]
        return [step for step in dict.fromkeys((*followers, *counted, *self.way)) if step not in known]

    @cached_property
    def steps(self) -> list[str]:
        """All steps: first those where tasks begin, last the strangers."""
        first = self.beginnings
        return [*first, *(step for step in self.edges if step not in first), *self.strangers]

    @cached_property
    def links(self) -> list[Link]:
        """What leads where: one link between any two steps, also if the graph does not know it and the way does."""
        taken = Counter(pairwise(self.way))
        found: dict[tuple[str, str], Link] = {}
        for step in self.steps:
            for edge in self.edges.get(step, ()):
                ends = (step, edge.step)
                known = found.get(ends, Link(*ends))
                found[ends] = Link(*ends, known.at_once or not edge.delayed, known.later or edge.delayed, taken[ends])
        for ends, times in taken.items():
            found.setdefault(ends, Link(*ends, taken=times))
        return list(found.values())

    @cached_property
    def nodes(self) -> list[str]:
        """The steps, and `?` and `end` if something leads there."""
        reached = {link.target for link in self.links}.union(self.way)
        return [*self.steps, *(each for each in (UNKNOWN, END) if each in reached and each not in self.edges)]

    def is_mark(self, name: str) -> bool:
        """Whether a node is no step but `end` or `?`. A step may be called end; then the graph means that."""
        return name in (END, UNKNOWN) and name not in self.edges


def shown(name: str) -> str:
    """A name with nothing invisible in it, and not longer than a line can bear."""
    visible = "".join(each if each == " " or unicodedata.category(each)[0] not in "CZ" else "\ufffd" for each in name)
    return visible if len(visible) <= LONGEST_NAME else visible[: LONGEST_NAME - 1] + "…"


def told(counts: Counts) -> str:
    """`3 ready, 1 parked`."""
    return ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts.get(state))
