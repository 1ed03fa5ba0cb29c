"""Tasks that a filter lets through: the same language as on the command line, kept in the address."""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import msgspec

from holdfast import insights
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.filter import Filter
from holdfast.web.context import Look
from holdfast.web.routes import page

PAGE = 50
TABS = {
    "All": (),
    "Due": ("due", "unserved", "unroutable", "paused"),
    "Running": ("running",),
    "Retrying": ("retrying",),
    "Scheduled": ("scheduled",),
    "Parked": ("parked",),
    "Done": ("done",),
    "Cancelled": ("cancelled", "expired", "discarded"),
}
"""What is most asked for: states, by a name for them."""


@dataclass(frozen=True)
class Tab:
    """The same filter for other states."""

    name: str
    filter: str
    is_chosen: bool


@dataclass(frozen=True)
class TaskList:
    """Tasks, the newest first. `next`: the next page is `below` this one. `count` is exact up to a bound.

    `is_cut`: very many tasks were looked at, and older ones that match may follow on the next page.
    """

    filter: str
    tasks: list[TaskInfo]
    next: UUID | None
    count: int
    count_is_exact: bool
    is_cut: bool
    tabs: list[Tab]


@page("/tasks", "Tasks", "tasks.html", menu=True)
async def tasks(
    look: Look,
    *,
    q: str = "",
    below: UUID | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = PAGE,
) -> TaskList:
    """Tasks that a filter lets through, the newest first, page by page."""
    chosen = look.hiding.filter(q)
    found = await look(insights.look(look.queries, chosen, limit=limit, below=below))
    if below is None and (found.next is None or found.is_cut):
        counted = insights.Counted(len(found.tasks), found.next is None)
    else:
        counted = await look(insights.look_count(look.queries, chosen))
    return TaskList(str(chosen), found.tasks, found.next, counted.number, counted.is_exact, found.is_cut, tabs(chosen))


def tabs(chosen: Filter) -> list[Tab]:
    """The filter without what it says about states, and each tab's states in place of that."""
    others = Filter(tuple(each for each in chosen.terms if each.field != "state"))
    said = [each for each in chosen.terms if each.field == "state"]
    is_plain = len(said) < 2 and not any(each.negated for each in said)
    now = said[0].values if said else ()
    return [
        Tab(name, str(others.with_term("state", *states) if states else others), is_plain and now == states)
        for name, states in TABS.items()
    ]
