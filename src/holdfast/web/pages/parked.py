"""What waits for a person: parked tasks, grouped by where and how they stopped."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast import insights
from holdfast._model.read.filter import Filter
from holdfast._model.read.infos import AtLeast, ParkedGroup
from holdfast.web.context import Look
from holdfast.web.routes import page

MOST = 100
"""Groups that are shown."""


@dataclass(frozen=True)
class Group:
    """Tasks that stopped alike, and the filter that they are found by."""

    parked: ParkedGroup
    filter: str


@dataclass(frozen=True)
class ParkedList:
    """The groups, the largest first, and how many tasks there are in all. `more`: there are other groups."""

    filter: str
    groups: list[Group]
    count: int
    count_is_exact: bool
    more: bool


def grouped(chosen: Filter, found: Sequence[ParkedGroup]) -> list[Group]:
    """Each with its filter, which keeps what was chosen."""
    return [Group(each, str(insights.group_filter(chosen, each))) for each in found]


@page("/parked", "Parked", "parked.html", menu=True)
async def parked(look: Look, *, q: str = "") -> ParkedList:
    """Parked tasks, grouped by kind, step, exception and place; the largest group first."""
    chosen = look.hiding.filter(q)
    found = await look(insights.parked_groups(look.queries, chosen, limit=MOST + 1))
    seen, more = sum(each.count for each in found), len(found) > MOST
    counted = insights.Counted(seen, True)
    if more or isinstance(seen, AtLeast):
        # As the list of the same tasks counts them.
        everywhere = chosen if chosen.names("state") else chosen.with_term("state", "parked")
        counted = await look(insights.look_count(look.queries, everywhere))
    count = max(int(seen), counted.number)
    return ParkedList(str(chosen), grouped(chosen, found[:MOST]), count, counted.is_exact, more)
