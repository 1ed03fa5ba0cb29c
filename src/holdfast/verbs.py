"""The verbs of operators: retry, cancel, discard, enqueue again, pause, resume, stop workers, set retention.

Each verb is a function that checks what it is given and returns the query that does it. `App`, `app.sync`, the command
line and the dashboard run these queries and add nothing to the rules.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict
from uuid import UUID

from holdfast._model.declare.names import check_queue, check_step
from holdfast._model.enqueue.ids import as_uuid
from holdfast._model.json.codec import MAX_BYTES, encode
from holdfast._model.read.filter import Filter, parse_filter
from holdfast._model.time.duration import Duration
from holdfast._sql import history
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.repair import Repair, Tally, Verb
from holdfast.errors import ConfigError, FilterError


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


def options_bag(**options: Any) -> bytes:
    """The options of an SQL verb: those that were given."""
    # The args in it have a limit of their own.
    return encode({name: value for name, value in options.items() if value is not None}, limit=2 * MAX_BYTES)


def _named_step(step: str | None, force: bool) -> dict[str, Any]:
    """The options that name a step. A step that no live worker has and no kind declares is refused, unless forced."""
    if step is None:
        return {}
    return {"step": check_step(step), "strict": None if force else True}


# --- one task


def retry(
    queries: Queries,
    id: UUID | str,
    *,
    args: dict[str, Any] | None = None,
    step: str | None = None,
    force: bool = False,
    expected_attempt: int | None = None,
    by: str | None = None,
    why: str | None = None,
) -> Query[str]:
    """Resumes a parked task with a fresh budget. Answers its new state."""
    named = _named_step(step, force)
    bag = options_bag(args=args, **named, by=by, why=why, expected_attempt=expected_attempt)
    return queries.retry(as_uuid(id), bag)


def cancel(queries: Queries, id: UUID | str, *, by: str | None = None, why: str | None = None) -> Query[str]:
    """Cancels a task. Answers its new state; WrongState if it has ended."""
    return queries.cancel_task(as_uuid(id), options_bag(by=by, why=why))


def discard(queries: Queries, id: UUID | str, *, by: str | None = None, why: str | None = None) -> Query[str]:
    """Gives a parked task up. Answers its new state."""
    return queries.discard(as_uuid(id), options_bag(by=by, why=why))


def again(queries: Queries, id: UUID | str, *, by: str | None = None, why: str | None = None) -> Query[UUID]:
    """Enqueues a task that has ended anew. Answers the id of the new one."""
    return queries.again(as_uuid(id), options_bag(by=by, why=why))


ON_ONE: Mapping[Verb, Callable[..., Query[str]]] = {"retry": retry, "cancel": cancel, "discard": discard}
"""The verbs that are done to one task or to all that match a filter."""


# --- many tasks

_NAME_A_STATE = {
    "retry": "Say state:parked if you mean all parked tasks.",
    "cancel": "Say state:ready if you mean all tasks that have not started, state:running for those that have.",
    "discard": "Say state:parked if you mean all parked tasks.",
}


def many(
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
) -> Repair:
    """A verb on all tasks that match a filter, checked. `_sql.repair.in_batches` is the plan that does it."""
    chosen = parse_filter(filter) if isinstance(filter, str) else filter
    if not chosen:
        raise FilterError(f"an empty filter means every task. {_NAME_A_STATE[verb]}")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit}: give a number above 0, or None for all")
    if rate is not None and not (rate > 0 and math.isfinite(rate)):
        raise ConfigError(f"rate={rate}: give a number of tasks per second above 0, or None for all at once")
    bag = options_bag(by=by, why=why, **_named_step(step, force))
    return Repair(verb, chosen, bag, limit, rate, dry_run, progress)


# --- queues, kinds and workers


def pause(
    queries: Queries, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None
) -> Query[str]:
    """Pauses a queue or a kind. Answers "paused"."""
    return queries.pause(name, options_bag(what=what, by=by, why=why))


def resume(
    queries: Queries, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None
) -> Query[str]:
    """Resumes a queue or a kind. Answers "resumed" or "not paused"."""
    return queries.resume(name, options_bag(what=what, by=by, why=why))


def stop_workers(
    queries: Queries, worker: UUID | str | None = None, *, by: str | None = None, why: str | None = None
) -> Query[int]:
    """Asks one worker, or all, to stop. Answers how many were asked."""
    return queries.stop_workers(None if worker is None else as_uuid(worker), options_bag(by=by, why=why))


def set_queue(
    queries: Queries,
    name: str,
    *,
    retention: Duration | None = None,
    by: str | None = None,
    why: str | None = None,
) -> Query[bytes]:
    """Changes settings of a queue."""
    bag = options_bag(retention=history.given(retention), by=by, why=why)
    return queries.set_queue(check_queue(name), bag)


def set_default(
    queries: Queries,
    *,
    retention: Duration | None = None,
    figures: Duration | None = None,
    by: str | None = None,
    why: str | None = None,
) -> Query[bytes]:
    """Changes settings that hold for all queues without one of their own."""
    kept = {"retention": history.given(retention), "figures": history.given(figures, "figures")}
    return queries.set_default(options_bag(**kept, by=by, why=why))
