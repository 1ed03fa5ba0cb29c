"""Kinds of task: all of them, and one with the graph of its steps and how many tasks stand at each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import insights
from holdfast._model.declare.graph import declared as edges_of
from holdfast._model.declare.graph import in_order
from holdfast._model.read.filter import EVERYTHING, Filter
from holdfast._model.read.formats import amount
from holdfast._model.read.infos import KindInfo, Standing
from holdfast.web.context import Act, Look
from holdfast.web.pages.parked import Group, grouped
from holdfast.web.pages.queues import Paused
from holdfast.web.routes import action, page
from holdfast.web.view.activity import Activity, Pace, Span, activity, last_hour
from holdfast.web.view.problems import Problem
from holdfast.web.view.questions import Question

GROUPS = 10
"""Groups of parked tasks that the page of a kind shows."""


@dataclass(frozen=True)
class Kind:
    """A kind, its unfinished tasks by state, and what happened in the last hour.

    `declared` is None if tasks have it, but no worker has declared it.
    """

    name: str
    declared: KindInfo | None
    steps: int
    tasks: dict[str, int]
    pace: Pace | None


@dataclass(frozen=True)
class KindList:
    """All kinds by name. `count_is_exact`: all tasks were counted, not only the first of each queue."""

    kinds: list[Kind]
    count_is_exact: bool


@dataclass(frozen=True)
class StepOfKind:
    """A step, the filter for its tasks, those by state, its fields, and with how many errors a task is parked there.

    `is_declared` is False for one that tasks stand at, but that no worker has declared.
    """

    name: str
    filter: str
    is_declared: bool
    tasks: dict[str, int]
    fields: list[str]
    errors: int | None


@dataclass(frozen=True)
class KindPage:
    """Everything about a kind: its graph, where its tasks stand, and where they park."""

    name: str
    declared: KindInfo | None
    differs: str | None
    graph: Mapping[str, Any]
    steps: list[StepOfKind]
    tasks: dict[str, int]
    count_is_exact: bool
    activity: Activity
    parked: list[Group]


@page("/kinds", "Kinds", "kinds.html", menu=True)
async def kinds(look: Look) -> KindList:
    """All kinds, who knows them, how many tasks of each there are, and how fast they are."""
    declared = {each.name: each for each in await look(insights.kinds(look.queries))}
    standing, is_exact = await look(insights.standing_now(look.queries))
    lately = await last_hour(look, "kind")
    names = sorted({*declared, *(each.kind for each in standing)})
    return KindList(
        [
            Kind(
                name,
                declared.get(name),
                len(_graph(declared.get(name))),
                tally([each for each in standing if each.kind == name]),
                lately.get(name),
            )
            for name in names
        ],
        is_exact,
    )


@page("/kinds/{name}", "Kind", "kind.html")
async def kind(look: Look, *, name: str, span: Span = "1h") -> KindPage:
    """One kind: the graph of its steps, with how many tasks stand at each, what happened lately, and what is parked."""
    declared, standing, is_exact = await _one(look, name)
    graph = _graph(declared)
    known = list(graph)
    strange = sorted({each.step for each in standing} - set(known))
    chosen = EVERYTHING.with_term("kind", name)
    parked = await look(insights.parked_groups(look.queries, chosen, limit=GROUPS))
    return KindPage(
        name,
        declared,
        declared.differs if declared is not None else None,
        graph,
        [_step(step, chosen, declared, standing, is_declared=step in graph) for step in [*known, *strange]],
        tally(standing),
        is_exact,
        await activity(look, span, kind=name),
        grouped(chosen, parked),
    )


async def _one(look: Look, name: str) -> tuple[KindInfo | None, list[Standing], bool]:
    declared = next((each for each in await look(insights.kinds(look.queries)) if each.name == name), None)
    standing, is_exact = await look(insights.standing_now(look.queries, name))
    if declared is None and not standing:
        raise Problem(404, "Not found", f"There is no kind {name}: no worker has declared it, and it has no tasks.")
    return declared, standing, is_exact


def tally(standing: Sequence[Standing]) -> dict[str, int]:
    """How many tasks there are in each state."""
    found: dict[str, int] = {}
    for each in standing:
        found[each.state] = found.get(each.state, 0) + each.count
    return found


def _graph(declared: KindInfo | None) -> dict[str, Any]:
    """The graph in the order in which tasks come to the steps: the database keeps none."""
    # Written by workers of any version.
    if declared is None or not isinstance(declared.graph, Mapping):
        return {}
    way = in_order(edges_of(declared.graph), declared.first)
    return {step: declared.graph[step] for step in dict.fromkeys((*way, *declared.graph))}


def _step(
    name: str, chosen: Filter, declared: KindInfo | None, standing: Sequence[Standing], *, is_declared: bool
) -> StepOfKind:
    about = declared.about.get(name) if declared is not None and isinstance(declared.about, Mapping) else None
    told = about if isinstance(about, Mapping) else {}
    fields, errors = told.get("fields"), told.get("errors")
    return StepOfKind(
        name,
        str(chosen.with_term("step", name)),
        is_declared,
        tally([each for each in standing if each.step == name]),
        [str(each) for each in fields] if isinstance(fields, list) else [],
        errors if isinstance(errors, int) else None,
    )


# --- pause and resume


@page("/kinds/{name}/pause", "Pause a kind", "question.html", live=False)
async def ask_to_pause_kind(look: Look, *, name: str) -> Question:
    """What it means to pause a kind."""
    _, standing, is_exact = await _one(look, name)
    due = tally(standing).get("ready", 0)
    return Question(
        f"Pause the kind {name}?",
        [
            "Running steps finish. Nothing new of it begins, in no queue, until somebody resumes it; tasks can be "
            "enqueued all the same, and wait.",
            f"Now {amount(due)}{'+' if not due and not is_exact else ''} of its tasks are due.",
        ],
        "Pause it",
        f"/kinds/{name}/pause",
        f"/kinds/{name}",
        is_danger=True,
    )


@page("/kinds/{name}/resume", "Resume a kind", "question.html", live=False)
async def ask_to_resume_kind(look: Look, *, name: str) -> Question:
    """What it means to resume a kind."""
    declared, standing, is_exact = await _one(look, name)
    due = tally(standing).get("ready", 0)
    by = f" It was paused by {declared.paused_by}." if declared is not None and declared.paused_by else ""
    return Question(
        f"Resume the kind {name}?",
        [f"Its tasks begin again: {amount(due)}{'+' if not due and not is_exact else ''} are due.{by}"],
        "Resume it",
        f"/kinds/{name}/resume",
        f"/kinds/{name}",
    )


def _to_the_kind(paused: Paused) -> str:
    return f"/kinds/{paused.name}"


@action("/kinds/{name}/pause", _to_the_kind)
async def pause_kind(act: Act, *, name: str, why: str | None = None) -> Paused:
    """Lets nothing more of a kind begin until it is resumed; running steps finish."""
    return Paused(name, await act.app.pause(name, what="kind", by=act.by, why=why))


@action("/kinds/{name}/resume", _to_the_kind)
async def resume_kind(act: Act, *, name: str, why: str | None = None) -> Paused:
    """Lets the tasks of a paused kind begin again."""
    return Paused(name, await act.app.resume(name, what="kind", by=act.by, why=why))
