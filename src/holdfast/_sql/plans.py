"""Several queries that belong together, as generators: each yields a query and is sent its answer.

Whoever drives a plan decides how queries run: on a pool, on the caller's connection, awaiting or blocking.
So nothing here is written twice for sync and async.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from holdfast._model.declare.step import MAIN
from holdfast._model.enqueue.ref import HowEnqueued
from holdfast._model.enqueue.request import AS_DECLARED, PRIORITY_AS_DECLARED, Request, in_order_of_claims
from holdfast._sql.copy_format import bare_pieces, pieces
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.rows import Declared, Placed
from holdfast.errors import EnqueueRefused, KeyTaken

T = TypeVar("T")
Plan: TypeAlias = Generator[Query[Any], Any, T]

MANY = 5000
"""How many tasks one statement enqueues."""
COPIED = 200
"""From how many on it is a COPY."""
FREE = 50
"""From how many tasks with keys on it is worth a try to write them all at once."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What came of an enqueue. If another task holds the key, `id` is that one's, and `how` says why."""

    id: UUID
    kind: str
    how: HowEnqueued = "created"


async def drive(plan: Plan[T], run: Callable[[Query[Any]], Awaitable[Any]]) -> T:
    """Follows a plan with awaited queries."""
    try:
        query = next(plan)
        while True:
            query = plan.send(await run(query))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def drive_sync(plan: Plan[T], run: Callable[[Query[Any]], Any]) -> T:
    """Follows a plan with blocking queries."""
    try:
        query = next(plan)
        while True:
            query = plan.send(run(query))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def new_tasks(queries: Queries, requests: Sequence[Request]) -> Plan[list[Request]]:
    """The requests, complete: queue, priority and step that one does not say are those of its declared kind."""
    made: list[Request] = []
    known: dict[str, Declared] = {}
    for request in requests:
        if not request.complete:
            if request.kind not in known:
                known[request.kind] = (yield queries.declared(request.kind)) or Declared("default", 0, MAIN)
            declared = known[request.kind]
            step = request.step
            if step == MAIN and declared.first is None:
                raise EnqueueRefused(f"{request.kind} has several steps: name the first, {request.kind}.Step")
            request = msgspec.structs.replace(
                request,
                queue=declared.queue if request.queue == AS_DECLARED else request.queue,
                priority=declared.priority if request.priority == PRIORITY_AS_DECLARED else request.priority,
                step=declared.first if step == MAIN and declared.first is not None else step,
            )
        made.append(request)
    return made


def enqueue(queries: Queries, task: Request, *, again: bool = False) -> Plan[Enqueued]:
    """One task, once per key. Sent `again` after a lost answer, a task with the same id is the one that was meant."""
    if task.keyed:
        (placed,) = yield queries.enqueue_keyed([task])
        return _enqueued(task, placed)
    if not (yield queries.enqueue(task)) and not again:
        raise _id_taken(task)
    return Enqueued(task.id, task.kind)


def settle_with_children(
    queries: Queries, write: Query[dict[UUID, Any]], children: Sequence[Request]
) -> Plan[dict[UUID, Any]]:
    """Records how one attempt ended and enqueues what it asked for, if the write was accepted; for one transaction."""
    written: dict[UUID, Any] = yield write
    if written:
        yield from _enqueue_all(queries, children)
    return written


def enqueue_many(
    queries: Queries, requests: Sequence[Request], *, copy: bool = False, again: bool = False
) -> Plan[tuple[list[Enqueued], set[str]]]:
    """Many tasks. `copy`: this connection can COPY. Answers with the queues as well: somebody must be told of each.

    Sent `again` after a lost answer, without a COPY: a task with the same id is the one that was meant.
    """
    if copy and len(requests) >= COPIED and (queues := _queues_of_plain(requests)) is not None:
        yield from _copy(queries, requests)
        return [Enqueued(request.id, request.kind) for request in requests], queues
    tasks = yield from new_tasks(queries, requests)
    answers = yield from _enqueue_all(queries, tasks, copy=copy, again=again)
    return answers, {task.queue for task in tasks}


class Many(msgspec.Struct, frozen=True):
    """An `enqueue_many` in a transaction of our own, and how it is done again if its answer was lost."""

    queries: Queries
    requests: Sequence[Request]

    def plan(self) -> Plan[tuple[list[Enqueued], set[str]]]:
        return enqueue_many(self.queries, self.requests, copy=True)

    def wake(self, made: tuple[list[Enqueued], set[str]]) -> list[Query[None]]:
        return [self.queries.notify_if_idle(queue) for queue in made[1]]

    def again(self) -> Plan[tuple[list[Enqueued], set[str]]]:
        return enqueue_many(self.queries, self.requests, again=True)

    def ended(self) -> Query[bool]:
        return self.queries.archived([request.id for request in self.requests])

    def wake_all(self) -> list[Query[None]]:
        return [self.queries.notify_if_idle(queue) for queue in {each.queue for each in self.requests} if queue]

    @property
    def keyed(self) -> bool:
        return any(request.keyed for request in self.requests)

    def as_asked(self) -> list[Enqueued]:
        return [Enqueued(request.id, request.kind) for request in self.requests]


def _queues_of_plain(requests: Sequence[Request]) -> set[str] | None:
    """The queues of requests that say all and have no keys; None if others are among them."""
    queues: set[str] = set()
    for request in requests:
        if request.keyed or not request.complete:
            return None
        queues.add(request.queue)
    return queues


def _enqueue_all(
    queries: Queries, tasks: Sequence[Request], *, copy: bool = False, again: bool = False
) -> Plan[list[Enqueued]]:
    keyed = [task for task in tasks if task.keyed]
    plain = [task for task in tasks if not task.keyed] if keyed else tasks
    created = yield from _write(queries, plain, copy=copy)
    if created is None and not keyed:
        return [Enqueued(task.id, task.kind) for task in tasks]
    placed = iter((yield from _place(queries, keyed)))
    answers: list[Enqueued] = []
    for task in tasks:
        if task.keyed:
            answers.append(_enqueued(task, next(placed)))
        elif created is None or task.id in created or again:
            answers.append(Enqueued(task.id, task.kind))
        else:
            raise _id_taken(task)
    return answers


def _place(queries: Queries, tasks: Sequence[Request]) -> Plan[list[Placed]]:
    """Writes tasks with keys: many at once if nobody is in the way, else in a statement that takes key after key."""
    if len(tasks) >= FREE and not any(task.unique_for for task in tasks) and (yield queries.enqueue_free(tasks)):
        return [Placed(task.id, task.kind, "created", None) for task in tasks]
    placed: list[Placed] = (yield queries.enqueue_keyed(tasks)) if tasks else []
    return placed


def _write(queries: Queries, tasks: Sequence[Request], *, copy: bool) -> Plan[set[UUID] | None]:
    """Writes tasks without keys, a statement per queue and part, or a COPY if there are many. Which of them were new;
    None if all were: a COPY fails otherwise."""
    if copy and len(tasks) >= COPIED:
        yield from _copy(queries, tasks)
        return None
    by_queue: dict[str, list[Request]] = {}
    for task in tasks:
        by_queue.setdefault(task.queue, []).append(task)
    created: set[UUID] = set()
    for queue, group in sorted(by_queue.items()):
        for start in range(0, len(group), MANY):
            created |= yield queries.enqueue_many(queue, group[start : start + MANY])
    return created


def _copy(queries: Queries, tasks: Sequence[Request]) -> Plan[None]:
    tasks = in_order_of_claims(tasks)
    if all(task.bare for task in tasks):
        yield queries.copy_bare_tasks(bare_pieces(tasks))
    else:
        now = yield queries.clock()
        yield queries.copy_tasks(pieces(tasks, now))


def _enqueued(task: Request, placed: Placed) -> Enqueued:
    key = "this unique task" if task.key is None else f"the key {task.key!r}"
    match placed.enqueued:
        case "id taken":
            raise _id_taken(task)
        case "contended":
            raise EnqueueRefused(f"{key} changed hands too often: try again")
        case "created" | "replaced":
            pass
        case "ended" if task.on_conflict == "raise":
            raise KeyTaken(
                f"task {placed.id} ({placed.kind}) has ended, and unique_for= still holds {key} in queue "
                f"{task.queue!r}. "
                'With on_conflict="skip" its reference is given instead'
            )
        case _ if task.on_conflict == "raise":
            raise KeyTaken(
                f"task {placed.id} ({placed.kind}, {placed.state}) already holds {key} in queue {task.queue!r}. "
                'With on_conflict="skip" its reference is given instead, with "replace" it gets these args unless it '
                "has begun"
            )
    return Enqueued(placed.id, placed.kind, placed.enqueued)


def _id_taken(task: Request) -> EnqueueRefused:
    return EnqueueRefused(f"there is already a task with the id {task.id}")
