"""The result of a task, or why there is none."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast._model.enqueue.ref import Ref, TaskInfo
from holdfast._model.json.text import told
from holdfast.errors import (
    DecodeError,
    NoResult,
    ResultTimeout,
    TaskCancelled,
    TaskDiscarded,
    TaskExpired,
    TaskNotFound,
    TaskParked,
)

_LOOK_AGAIN = (0.02, 0.05, 0.1, 0.2, 0.5)
_ENDS: dict[str, type[NoResult]] = {
    "parked": TaskParked,
    "cancelled": TaskCancelled,
    "expired": TaskExpired,
    "discarded": TaskDiscarded,
}


def outcome_of(info: TaskInfo, ref: Ref[Any]) -> tuple[Any] | None:
    """The result of a task that has ended, in a tuple; None if it goes on; raises if it has none to give."""
    if info.state == "done":
        return (_decoded(info, ref),)
    if info.phase == "expired" and info.state != "expired":
        raise TaskExpired(
            f"task {info.id} ({info.kind}.{info.step}) is expired: it was not started before its "
            f"deadline, {info.deadline}"
        )
    if info.state in _ENDS:
        said = told(info.error or {})
        how = said if said.startswith(info.state) else ": ".join(filter(None, (info.state, said)))
        advised = f"holdfast retry {info.id}" in said
        advice = f". Repair the cause, then: holdfast retry {info.id}" if info.state == "parked" and not advised else ""
        raise _ENDS[info.state](f"task {info.id} ({info.kind}.{info.step}) is {how}{advice}")
    return None


def _decoded(info: TaskInfo, ref: Ref[Any]) -> Any:
    if ref._decode_result is None or info.result is None:
        return info.result
    try:
        return ref._decode_result(msgspec.json.encode(info.result))
    except DecodeError as error:
        raise DecodeError(
            f"task {info.id} ({info.kind}) is done, but its result is not of the type declared for it: {error}. "
            "As it is stored it is in info().result"
        ) from None


def result_of(info: TaskInfo, ref: Ref[Any]) -> Any:
    """The result of a task that has ended; raises if it has none to give."""
    ended = outcome_of(info, ref)
    return ended[0] if ended is not None else None


def result_or_too_late(ref: Ref[Any], limit: float | None, last: Sequence[TaskInfo | None]) -> Any:
    """What a last look found when the time was up: the result after all, or why there is none."""
    for found in last:
        if found is not None and (ended := outcome_of(found, ref)) is not None:
            return ended[0]
    raise too_late(ref.id, limit, last)


def not_found(id: object) -> TaskNotFound:
    """Nobody knows this task, live or archived."""
    return TaskNotFound(f"there is no task {id} in this database. Is it the right database, and the right schema?")


def too_late(id: UUID, limit: float | None, looks: Sequence[TaskInfo | None]) -> ResultTimeout:
    """Why a result was waited for in vain: how the task stood at the last look."""
    within = "" if limit is None else f" within {limit:g} s"
    if not looks:
        return ResultTimeout(f"task {id} was not finished{within}: there was no time to ask for it")
    found = looks[-1]
    if found is None:
        return ResultTimeout(
            f"task {id} was not finished{within}: there is no such task so far. "
            "If it was enqueued in a transaction, is that committed?"
        )
    known = f"{found.kind}.{found.step} is {found.phase}"
    if found.phase == "unroutable":
        known += f", no live worker knows this step and serves the queue {found.queue}"
    elif found.phase == "unserved":
        known += f", no live worker serves the queue {found.queue}"
    return ResultTimeout(f"task {id} was not finished{within}: {known}. More is told by: holdfast show {id}")


def patiently() -> Iterator[float]:
    yield from _LOOK_AGAIN
    while True:
        yield _LOOK_AGAIN[-1]
