"""Bounded looks at tasks by any filter: as fast with millions of tasks as with some; they say what was left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.filter import EVERYTHING, Filter
from holdfast._model.read.infos import COUNTED, LOOKED, AtLeast, ParkedGroup
from holdfast._sql.filter_sql import states_of
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row
from holdfast.insights.rows import task_in

_FEW = {"running", "parked"}
"""States whose tasks are found wherever they are, by an index of their own."""
_GROUPED = 2_000
"""Parked tasks that are looked at to group them: their errors are long, and each has to be unpacked."""
_EXAMINED = 2_000
"""Running or parked tasks that are examined by one look."""
_SPREAD = 20_000
"""Parked tasks of all steps together among which the newest of those are found."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a look found, the newest first.

    `next`: there may be more below this id. `is_cut`: the look ended because it had examined so many tasks, not because
    it had found so many.
    """

    tasks: list[TaskInfo]
    next: UUID | None
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Counted:
    """How many tasks a look found; if that is not exact, there may be more."""

    number: int
    is_exact: bool


def look(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50, below: UUID | None = None) -> Query[Found]:
    """Tasks that a filter lets through, the newest first; the next page begins `below` what is `next` there."""

    def read(rows: Sequence[Row]) -> Found:
        tasks = [task_in(row[:-1]) for row in rows if row[0] is not None]
        if len(tasks) > limit:
            return Found(tasks[:limit], tasks[limit - 1].id, False)
        until = next((row[-1] for row in rows if row[-1] is not None), None)
        return Found(tasks, until, until is not None)

    states = states_of(filter)
    if states <= _FEW:
        is_plain = _is_plain(filter)
        most = max(limit + 1, _EXAMINED)
        spread = 0 if is_plain else _SPREAD
        few = queries.look_at_few(filter, limit=limit + 1, below=below, most=most, spread=spread, states=sorted(states))
        return few.into(read)
    return queries.look(filter, limit=limit + 1, below=below, most=LOOKED).into(read)


def look_count(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = COUNTED) -> Query[Counted]:
    """How many tasks a filter lets through: no more than `limit` are counted, and of all others the newest examined."""

    def read(rows: Sequence[Row]) -> Counted:
        [(number, is_cut)] = rows
        return Counted(min(number, limit), number <= limit and not is_cut)

    states = states_of(filter)
    if states <= _FEW:
        # Where nothing has to be examined, it does not matter at which steps the first ones are.
        is_plain = _is_plain(filter)
        most, least = (limit + 1, limit + 1) if is_plain else (_EXAMINED, 1)
        return queries.count_few(filter, most=most, least=least, states=sorted(states), is_plain=is_plain).into(read)
    return queries.look_count(filter, most=limit + 1, limit=limit + 1).into(read)


def parked_groups(queries: Queries, filter: Filter = EVERYTHING, *, limit: int = 50) -> Query[list[ParkedGroup]]:
    """The parked tasks that a filter lets through, grouped by kind, step, type and place of the error.

    Large groups first. Of a step with very many, the newest are looked at: some thousands of all steps together.
    """

    def read(rows: Sequence[Row]) -> list[ParkedGroup]:
        groups = [ParkedGroup(*row) for row in rows]
        return [each if each.count_is_exact else replace(each, count=AtLeast(each.count)) for each in groups]

    return queries.parked_groups(filter, limit=limit, most=_GROUPED).into(read)


def group_filter(chosen: Filter, group: ParkedGroup) -> Filter:
    """The filter that lets through this group of parked tasks, and no other."""
    made = chosen if chosen.names("state") else chosen.with_term("state", "parked")
    made = made.with_term("kind", group.kind).with_term("step", group.step)
    return made.with_term("error_type", group.error_type or "null").with_term("place", group.place or "null")


def _is_plain(filter: Filter) -> bool:
    """Whether it says nothing but what is known of running and parked tasks without looking at them."""
    return all(
        term.field in ("queue", "kind", "step") or (term.field == "state" and not term.negated) for term in filter.terms
    )
