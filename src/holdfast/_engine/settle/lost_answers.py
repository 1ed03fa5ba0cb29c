"""Lost answers: a write gave no answer, or not for all of its endings. Their rows and the log say what is recorded."""

from dataclasses import dataclass
from enum import Enum, auto

from holdfast._db.driver.session import Link
from holdfast._engine.settle.ending import Ending, by_queue, intact, moved_on
from holdfast._model.run.outcome import Released
from holdfast._sql.queries import Queries


class Fate(Enum):
    """What the database says about the end of an attempt."""

    AWAITED = auto()
    CANCELLED = auto()
    RECORDED = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True)
class EndingFate:
    """An ending and its fate. AWAITED and CANCELLED: the row still waits for it. `claimed_at`: of a kept move."""

    ending: Ending
    fate: Fate
    claimed_at: float | None = None


async def read_fates(link: Link, queries: Queries, endings: list[Ending]) -> list[EndingFate]:
    """The fates of endings that may have been recorded: the log tells of those whose row has gone on."""
    found: list[EndingFate] = []
    for queue, group in by_queue(endings):
        ids = [ending.attempt.id for ending in group]
        fences = await link.run(queries.fences(queue, ids))
        logged = {(r.id, r.attempt): r.outcome for r in await link.run(queries.recorded(ids))}
        for ending in group:
            attempt, fence = ending.attempt, fences.get(ending.attempt.id)
            if fence is not None and intact(ending, fence):
                found.append(EndingFate(ending, Fate.CANCELLED if fence.cancelled else Fate.AWAITED))
            elif fence is not None and moved_on(ending, fence):
                found.append(EndingFate(ending, Fate.RECORDED, fence.claimed_at))
            elif isinstance(ending.outcome, Released) and ending.outcome.untouched:
                found.append(EndingFate(ending, Fate.RECORDED))  # the log has no row of it, and needs none
            elif logged.get((attempt.id, attempt.number), "lost") == "lost":
                found.append(EndingFate(ending, Fate.LOST))
            else:
                found.append(EndingFate(ending, Fate.RECORDED))
    return found
