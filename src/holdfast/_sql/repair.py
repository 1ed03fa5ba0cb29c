"""One verb on all tasks that a filter lets through: in batches, each task once, whoever else is at work (T12)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias
from uuid import UUID

from holdfast._model.read.filter import Filter
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries

Verb: TypeAlias = Literal["retry", "cancel", "discard"]

BATCH = 100
"""Tasks that are locked and changed by one statement."""
_MOST = 2**31 - 1


@dataclass
class Tally:
    """What became of the tasks that a filter let through.

    `matched`: how many there were. `done`: how many are in which state now. `passed_over`: how many were left as they
    are, and why: somebody else had locked or changed them meanwhile.
    """

    matched: int = 0
    done: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Repair:
    """A verb on all tasks that match a filter. `verbs.many` makes and checks it.

    `options` are those of the SQL verb.
    """

    verb: Verb
    chosen: Filter
    options: bytes
    limit: int | None = None
    rate: float | None = None
    dry_run: bool = False
    progress: Callable[[Tally], object] | None = None

    @property
    def states(self) -> tuple[str, ...]:
        """The states in which the verb is meant."""
        match self.verb:
            case "cancel":
                return ("ready", "running", "waiting", "parked")
            case "retry" if self.chosen.names("state"):
                return ("ready", "parked")
            case _:
                return ("parked",)

    @property
    def narrowed(self) -> Filter:
        """The filter, for those states only."""
        for term in self.chosen.terms:
            if term.field == "state" and not term.negated and set(term.values) <= set(self.states):
                return self.chosen
        return self.chosen.with_term("state", *self.states)


def in_batches(queries: Queries, repair: Repair) -> Plan[Tally]:
    """Batch by batch, from the oldest task to the one that was the newest at the beginning.

    What is retried at a rate is all written now, and due one after another: whoever asked may go away.
    """
    tally = Tally()
    within = repair.narrowed
    if repair.dry_run:
        counted = repair.limit or _MOST
        tally.matched = yield queries.count_tasks(within, limit=counted)
        return tally
    newest: UUID | None = yield queries.list_tasks(within, limit=1).into(lambda rows: rows[0][0] if rows else None)
    above: UUID | None = None
    due: datetime | None = None
    while newest is not None and (size := _size(repair, tally)):
        found: dict[UUID, str] = yield queries.matching(within, limit=size, above=above)
        seen = {id: how for id, how in found.items() if id <= newest}
        if not seen:
            break
        above = max(seen)
        due = yield from _act(queries, repair, seen, due, tally)
        if repair.progress is not None:
            repair.progress(tally)
    return tally


def _size(repair: Repair, tally: Tally) -> int:
    return BATCH if repair.limit is None else min(BATCH, repair.limit - tally.done.total())


def _act(
    queries: Queries, repair: Repair, seen: dict[UUID, str], due: datetime | None, tally: Tally
) -> Plan[datetime | None]:
    """Does it to some tasks; answers when the next may be due."""
    ids = sorted(seen)
    done: dict[UUID, Any]
    match repair.verb:
        case "retry":
            spacing = None if repair.rate is None else timedelta(seconds=1 / repair.rate)
            hows = [seen[id] for id in ids]
            answers = yield queries.retry_many(ids, hows, repair.options, first=due, spacing=spacing)
            done = {id: state for id, (state, _) in answers.items()}
            if spacing is not None and answers:
                due = max(at for _, at in answers.values()) + spacing
        case "cancel":
            done = yield queries.cancel_many(ids, repair.options)
        case "discard":
            done = yield queries.discard_many(ids, repair.options)
    tally.matched += len(ids)
    tally.done.update(done.values())
    left = [id for id in ids if id not in done]
    if left:
        now = {row[0]: row for row in (yield queries.how_they_stand(left))}
        tally.passed_over.update(_reason(repair, seen[id], now.get(id)) for id in left)
    return due


def _reason(repair: Repair, seen: str, now: Any) -> str:
    """Why a task was passed over, as it stands now."""
    if now is None:
        return "not there any more"
    _, state, how, is_cancelled = now
    if is_cancelled:
        return "already being cancelled"
    if state != seen.split()[0]:
        return f"{state} by now"
    return "locked by somebody else" if how == seen or repair.verb != "retry" else "changed by somebody else"
