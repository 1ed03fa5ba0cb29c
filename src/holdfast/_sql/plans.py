"""Several queries that belong together, as generators: each yields a query and is sent its answer.

Whoever drives a plan decides how queries run: on a pool, on the caller's connection, awaiting or blocking.
So nothing here is written twice for sync and async.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from holdfast._model.request import Request
from holdfast._model.step import MAIN
from holdfast._sql.queries import Declared, NewTask, Queries
from holdfast._sql.query import Query
from holdfast._sql.rows import pieces
from holdfast.errors import EnqueueRefused, KeyTaken

T = TypeVar("T")
Plan: TypeAlias = Generator[Query[Any], Any, T]
OnConflict: TypeAlias = Literal["skip", "raise", "replace"]
Child: TypeAlias = tuple[NewTask, OnConflict]
"""A task that a step enqueued, and what becomes of it if its key is taken."""

KEY_TRIES = 20
MANY = 5000
"""How many tasks one statement enqueues."""
COPIED = 200
"""From how many on it is a COPY."""


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What came of an enqueue. `created` is False if an unfinished task holds the key: then `id` is that one's."""

    id: UUID
    kind: str
    created: bool


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


def new_tasks(queries: Queries, requests: Sequence[Request]) -> Plan[list[NewTask]]:
    """The rows to write; what the code does not say, the declared kind does."""
    made: list[NewTask] = []
    known: dict[str, Declared] = {}
    for request in requests:
        queue, priority, step = request.queue, request.priority, request.step
        if queue is None or priority is None:
            if request.kind not in known:
                known[request.kind] = (yield queries.declared(request.kind)) or Declared("default", 0, MAIN)
            declared = known[request.kind]
            if step == MAIN and declared.first is None:
                raise EnqueueRefused(f"{request.kind} has several steps: name the first, {request.kind}.Step")
            queue = declared.queue if queue is None else queue
            priority = declared.priority if priority is None else priority
            step = declared.first if step == MAIN and declared.first is not None else step
        made.append(
            NewTask(
                request.id,
                queue,
                request.kind,
                step,
                request.args,
                priority,
                request.delay,
                request.at,
                request.deadline,
                request.key,
                request.headers,
            )
        )
    return made


def enqueue(
    queries: Queries, task: NewTask, on_conflict: OnConflict = "skip", *, again: bool = False
) -> Plan[Enqueued]:
    """One task, once per key. Two statements in turns: one alone misses what commits while it waits.

    Sent `again` after a lost answer, a task with the same id is the one that was meant.
    """
    for _ in range(KEY_TRIES):
        if task.key is not None and on_conflict == "replace":
            replaced = yield queries.replace_task(task)
            if replaced is not None:
                return Enqueued(replaced, task.kind, replaced == task.id)
        if (yield queries.enqueue(task)):
            return Enqueued(task.id, task.kind, True)
        if task.key is None and again:
            return Enqueued(task.id, task.kind, True)
        if task.key is None:
            raise EnqueueRefused(f"there is already a task with the id {task.id}")
        holder = yield queries.key_holder(task.queue, task.key)
        if holder is None:
            if (yield queries.fences(task.queue, [task.id])):
                raise EnqueueRefused(f"there is already a task with the id {task.id}")
            continue  # it has just finished
        if holder.id == task.id:
            return Enqueued(task.id, task.kind, True)
        if on_conflict == "raise":
            raise KeyTaken(
                f"task {holder.id} ({holder.kind}, {holder.state}) already holds the key {task.key!r}"
                f' in queue {task.queue!r}. With on_conflict="skip" its reference is given instead, with "replace" '
                "it gets these args unless it has begun"
            )
        return Enqueued(holder.id, holder.kind, False)
    raise EnqueueRefused(f"the key {task.key!r} changed hands {KEY_TRIES} times in a row: try again")


def settle_with_children(
    queries: Queries, write: Query[dict[UUID, Any]], children: Sequence[Child]
) -> Plan[dict[UUID, Any]]:
    """Records how one attempt ended and enqueues what it asked for, if the write was accepted; for one transaction."""
    written: dict[UUID, Any] = yield write
    if written:
        yield from _enqueue_children(queries, children)
    return written


def _enqueue_children(queries: Queries, children: Sequence[Child]) -> Plan[None]:
    """A statement for many: an attempt may enqueue tens of thousands. Of those with one key, the first comes first."""
    by_queue: dict[str, list[Child]] = {}
    # In one order, so that two settlers with the same keys never wait for each other.
    for child in sorted(children, key=lambda child: (child[0].queue, child[0].key or "", child[0].id.int)):
        by_queue.setdefault(child[0].queue, []).append(child)
    for queue, group in by_queue.items():
        for start in range(0, len(group), MANY):
            part = group[start : start + MANY]
            created = yield queries.enqueue_many(queue, [task for task, _ in part])
            left = [child for child in part if child[0].id not in created]
            keys = [task.key for task, _ in left if task.key is not None]
            held = (yield queries.held_keys(queue, keys)) if keys else set()
            for task, on_conflict in left:
                if on_conflict != "skip" or task.key not in held:
                    yield from enqueue(queries, task, on_conflict)


def enqueue_many(
    queries: Queries, requests: Sequence[Request], *, copy: bool = False
) -> Plan[tuple[list[Enqueued], set[str]]]:
    """Many tasks; those whose key is taken are looked after one by one. `copy`: this connection can COPY.

    Answers with the queues as well: somebody must be told of each.
    """
    on_conflict = one_conflict_rule([r.on_conflict for r in requests if r.key is not None])
    tasks = yield from new_tasks(queries, requests)
    created = yield from _write(queries, tasks, copy=copy)
    answers: list[Enqueued] = []
    for task in tasks:
        if task.id in created:
            answers.append(Enqueued(task.id, task.kind, True))
        else:
            answers.append((yield from enqueue(queries, task, on_conflict)))
    return answers, {task.queue for task in tasks}


def _write(queries: Queries, tasks: Sequence[NewTask], *, copy: bool) -> Plan[set[UUID]]:
    """Writes those whose key is free, a statement per queue and part, or a COPY if there are many without a key."""
    created: set[UUID] = set()
    plain = [task for task in tasks if not task.keyed] if copy else []
    if len(plain) >= COPIED:
        now = yield queries.clock()
        yield queries.copy_tasks(pieces(plain, now))
        created = {task.id for task in plain}
        tasks = [task for task in tasks if task.keyed]
    by_queue: dict[str, list[NewTask]] = {}
    for task in tasks:
        by_queue.setdefault(task.queue, []).append(task)
    # In one order, so that two callers with the same keys never wait for each other.
    for queue, group in sorted(by_queue.items()):
        for start in range(0, len(group), MANY):
            created |= yield queries.enqueue_many(queue, group[start : start + MANY])
    return created


def one_conflict_rule(rules: Sequence[OnConflict]) -> OnConflict:
    """The rule of a bulk enqueue; its entries must agree on it."""
    if len(set(rules)) > 1:
        raise EnqueueRefused("the entries of one enqueue_many must have the same on_conflict=")
    return rules[0] if rules else "skip"
