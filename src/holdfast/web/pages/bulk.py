"""One verb on many tasks: what it would change, then its progress."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import msgspec

from holdfast import insights, verbs
from holdfast._model.read.filter import EVERYTHING
from holdfast._model.read.infos import COUNTED
from holdfast._sql.repair import Verb
from holdfast.web.bulk_runs import MOST, RunInfo
from holdfast.web.context import Act, Look
from holdfast.web.routes import action, page

SAMPLE = 200
"""Tasks that are looked at to say what matches."""

Ids = Annotated[list[UUID], msgspec.Meta(max_length=500)]


@dataclass(frozen=True)
class Alike:
    """Some of the tasks that match."""

    kind: str
    step: str
    phase: str
    error_type: str
    count: int


@dataclass(frozen=True)
class Preview:
    """What a verb would change: how many, and what the newest of them are. At most `most` are changed by one action."""

    verb: Verb
    filter: str
    count: int
    count_is_exact: bool
    most: int
    looked_at: int
    alike: list[Alike]


@dataclass(frozen=True)
class RunList:
    """What was done here of late, the newest first."""

    runs: list[RunInfo]


@page("/bulk", "Bulk actions", "runs.html")
async def runs(look: Look) -> RunList:
    """Actions on many tasks that go on in this process, or went on of late."""
    return RunList(look.runs.all())


@page("/bulk/new", "Bulk action", "preview.html", live=False)
async def preview(look: Look, *, verb: Verb, q: str = "", id: Ids | None = None) -> Preview:
    """What a verb would change, of the tasks that a filter lets through, or of these ids."""
    chosen = look.hiding.filter(q) if not id else EVERYTHING.with_term("id", *map(str, id))
    repair = verbs.many(verb, chosen)
    counted = await look(insights.look_count(look.queries, repair.narrowed))
    found = (await look(insights.look(look.queries, repair.narrowed, limit=SAMPLE))).tasks
    alike = Counter((each.kind, each.step, each.phase, _type(each.error)) for each in found)
    return Preview(
        verb,
        str(chosen),
        counted.number,
        counted.is_exact,
        MOST,
        len(found),
        [Alike(*each, count) for each, count in alike.most_common(20)],
    )


def _type(error: Any) -> str:
    # Written by SQL, it may be anything.
    return str(error.get("type", "")) if isinstance(error, dict) else ""


@action("/bulk", lambda run: f"/bulk/{run.id}")
async def begin(act: Act, *, verb: Verb, q: str, why: str | None = None) -> RunInfo:
    """Begins to retry, cancel or discard everything that a filter lets through, in the background."""
    repair = verbs.many(verb, act.hiding.filter(q))
    counted = await act.app._run(insights.look_count(act.app._queries, repair.narrowed))
    expected = counted.number if counted.is_exact else COUNTED + 1
    return act.runs.begin(act.app, verb, repair.chosen, by=act.by, why=why, expected=expected)


@page("/bulk/{run}", "Bulk action", "run.html")
async def run(look: Look, *, run: str) -> RunInfo:
    """How far an action on many tasks has come."""
    return look.runs.info(run)


@action("/bulk/{run}/stop", lambda run: f"/bulk/{run.id}")
async def stop(act: Act, *, run: str) -> RunInfo:
    """Stops an action on many tasks after its batch. What was done stays done."""
    return act.runs.stop(run)
