"""One task: where it stands and why, the way it took, every attempt, and what people did to it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast import insights, verbs
from holdfast._model.declare.graph import END
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.visits import Visit, visits
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.insights import AttemptInfo, ChangeInfo, KindInfo
from holdfast.web.context import Act, Look
from holdfast.web.routes import action, page
from holdfast.web.view.problems import Problem
from holdfast.web.view.redaction import restored

SHOWN = 100
"""Attempts that are shown: the last ones."""


@dataclass(frozen=True)
class TaskPage:
    """Everything about a task. `attempts` are the last ones; `forgotten` and `earlier` ones are not among them."""

    task: TaskInfo
    explain: str
    visits: list[Visit]
    way: list[str]
    graph: Mapping[str, Any]
    first: str | None
    attempts: list[AttemptInfo]
    earlier: int
    forgotten: int
    changes: list[ChangeInfo]
    workers: dict[str, str]
    now: datetime


@page("/tasks/{id}", "Task", "task.html")
async def task(look: Look, *, id: UUID) -> TaskPage:
    """One task with its way, its attempts, its error, why it stands where it does, and its changes."""
    found = await look(insights.task(look.queries, id))
    if found is None:
        raise insights.not_found(id)
    attempts = await look(insights.attempts(look.queries, id, limit=SHOWN))
    kind = await look(_kind(look.queries, found.kind))
    known = {each.worker_id for each in attempts if each.worker_id is not None}
    stays = visits(found, attempts)
    earlier = max(0, attempts[0].attempt - 1) if len(attempts) == SHOWN else 0
    return TaskPage(
        task=found,
        explain=await look(insights.explain(look.queries, id)),
        visits=stays,
        way=[each.step for each in stays] + ([END] if found.state == "done" else []),
        graph=kind.graph if kind is not None else {},
        first=kind.first if kind is not None else None,
        attempts=attempts,
        earlier=earlier,
        forgotten=0 if earlier else insights.forgotten(found, attempts),
        changes=await look(insights.changes(look.queries, id)),
        workers={
            str(each.id): each.name
            for each in await look(insights.workers(look.queries, limit=1000))
            if each.id in known
        },
        now=await look(look.queries.clock()),
    )


def _kind(queries: Queries, name: str) -> Query[KindInfo | None]:
    query = insights.kinds(queries)
    return Query(
        query.statement,
        query.parameters,
        lambda rows: next((each for each in query.read(rows) if each.name == name), None),
    )


# --- what can be done to it


@dataclass(frozen=True)
class Acted:
    """What became of a task."""

    id: UUID
    state: str


def _to_the_task(acted: Acted) -> str:
    return f"/tasks/{acted.id}"


@action("/tasks/{id}/retry", _to_the_task)
async def retry(
    act: Act,
    *,
    id: UUID,
    args: dict[str, Any] | None = None,
    step: str | None = None,
    why: str | None = None,
    expected_attempt: int | None = None,
) -> Acted:
    """Resumes a parked task with a fresh budget, also with other args or at another step.

    Where args say `[hidden]`, what was hidden there stays. `expected_attempt` refuses if it is at another by now.
    """
    before = await act.app.info(id)
    changed = None if args is None else _changed(args, before.args)
    other = None if step == before.step else step
    query = verbs.retry(
        act.app._queries, id, args=changed, step=other, by=act.by, why=why, expected_attempt=expected_attempt
    )
    return Acted(id, await act.app._run(query))


@action("/tasks/{id}/cancel", _to_the_task)
async def cancel(act: Act, *, id: UUID, why: str | None = None) -> Acted:
    """Cancels a task: at once, or by telling its step if it is running."""
    return Acted(id, await act.app._run(verbs.cancel(act.app._queries, id, by=act.by, why=why)))


@action("/tasks/{id}/discard", _to_the_task)
async def discard(act: Act, *, id: UUID, why: str | None = None) -> Acted:
    """Gives a parked task up."""
    return Acted(id, await act.app._run(verbs.discard(act.app._queries, id, by=act.by, why=why)))


@action("/tasks/{id}/again", _to_the_task)
async def again(act: Act, *, id: UUID, why: str | None = None) -> Acted:
    """Enqueues a task that has ended anew, at the step where it ended, and shows the new one."""
    return Acted(await act.app.again(id, by=act.by, why=why), "ready")


def _changed(args: dict[str, Any], before: Any) -> dict[str, Any] | None:
    """The args to write, with what was hidden put back; None if they are as before."""
    try:
        found: dict[str, Any] = restored(args, before)
    except KeyError as error:
        raise Problem(
            400,
            "This cannot be stored",
            f"The args say {error.args[0]}, and it is not clear what was hidden there: write what is meant.",
        ) from None
    return None if json.dumps(found, sort_keys=True) == json.dumps(before, sort_keys=True) else found
