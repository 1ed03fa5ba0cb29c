"""One verb on all tasks that a filter lets through: in batches, each task once, whoever else is at work (T12)."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias, TypedDict
from uuid import UUID

import msgspec

from holdfast._model.declare.names import check_step
from holdfast._model.read.filter import Filter, parse_filter
from holdfast._sql.filter_sql import filtered
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast.errors import ConfigError, FilterError

Verb: TypeAlias = Literal["retry", "cancel", "discard"]

BATCH = 100
"""Tasks that are locked and changed by one statement."""
_MOST = 2**31 - 1
_SAY_STATE = {
    "retry": "Say state:parked if you mean all parked tasks.",
    "cancel": "Say state:ready if you mean all tasks that have not started, state:running for those that have.",
    "discard": "Say state:parked if you mean all parked tasks.",
}


@dataclass
class Tally:
    """What became of the tasks that a filter let through.

    `matched`: how many there were. `done`: how many are in which state now. `passed_over`: how many were left as they
    are, and why: somebody else had locked or changed them meanwhile.
    """

    matched: int = 0
    done: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)


class ManyOptions(TypedDict, total=False):
    """Options of `cancel_many` and `discard_many`."""

    by: str | None
    why: str | None
    limit: int | None
    dry_run: bool
    progress: Callable[[Tally], object] | None


class RetryManyOptions(ManyOptions, total=False):
    """Options of `retry_many`."""

    step: str | None
    rate: float | None
    force: bool


@dataclass(frozen=True)
class Repair:
    """What was asked for."""

    verb: Verb
    chosen: Filter
    options: bytes
    limit: int | None = None
    rate: float | None = None
    dry_run: bool = False
    progress: Callable[[Tally], object] | None = None

    @classmethod
    def of(
        cls,
        verb: Verb,
        filter: str | Filter,
        *,
        by: str | None = None,
        why: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[Tally], object] | None = None,
        step: str | None = None,
        rate: float | None = None,
        force: bool = False,
    ) -> "Repair":
        """What was asked for, if it can be meant."""
        chosen = parse_filter(filter) if isinstance(filter, str) else filter
        if not chosen:
            raise FilterError(f"an empty filter means every task. {_SAY_STATE[verb]}")
        if limit is not None and limit < 1:
            raise ConfigError(f"limit={limit}: give a number above 0, or None for all")
        if rate is not None and not (rate > 0 and math.isfinite(rate)):
            raise ConfigError(f"rate={rate}: give a number of tasks per second above 0, or None for all at once")
        given = {"by": by, "why": why, "step": None if step is None else check_step(step)}
        bag = {name: value for name, value in given.items() if value is not None}
        strict = {"strict": True} if step is not None and not force else {}
        return cls(verb, chosen, msgspec.json.encode(bag | strict), limit, rate, dry_run, progress)

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


def many(queries: Queries, repair: Repair) -> Plan[Tally]:
    """Batch by batch, from the oldest task to the one that was the newest at the beginning.

    What is retried at a rate is all written now, and due one after another: whoever asked may go away.
    """
    tally = Tally()
    within = repair.narrowed
    if repair.dry_run:
        counted = repair.limit or _MOST
        tally.matched = yield filtered(queries, "count_tasks", within, lambda rows: int(rows[0][0]), limit=counted)
        return tally
    newest = yield filtered(
        queries, "list_tasks", within, lambda rows: rows[0][0] if rows else None, limit=1, below=None
    )
    above: UUID | None = None
    due: datetime | None = None
    while newest is not None and (size := _size(repair, tally)):
        found = yield filtered(
            queries, "matching", within, lambda rows: list(map(tuple, rows)), limit=size, above=above
        )
        seen = {id: how for id, how in found if id <= newest}
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
        now = {row[0]: row for row in (yield queries.read("how_they_stand", ids=left))}
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
