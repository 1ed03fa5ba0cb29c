"""Telling `@app.on_failure` hooks about parked tasks: best effort, in the process that parked them."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

import msgspec

from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.threads import Threads, outcome_of
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.ref import Failure, TaskInfo
from holdfast._model.run.outcome import Failed
from holdfast._model.safe_log import Log
from holdfast._sql.rows import Reaped

log = Log("holdfast.worker")

Hook: TypeAlias = Callable[[Failure], Awaitable[None] | None]

HOOK_SECONDS = 30.0


class FailureHooks:
    """The failure hooks of one worker."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._calls: set[asyncio.Task[None]] = set()
        self._closing = False
        # Daemons: a hook that blocks must not keep the process from ending.
        self._threads = Threads()

    def parked(self, attempt: Attempt, outcome: Failed) -> None:
        """A task was parked because its attempt failed."""
        if self._tasks._failure_hooks:
            self._call(
                TaskInfo(
                    id=attempt.id,
                    queue=attempt.queue,
                    kind=attempt.kind,
                    step=attempt.step,
                    state="parked",
                    phase="parked",
                    args=_json(attempt.args),
                    priority=attempt.priority,
                    attempt=attempt.number,
                    moves=attempt.moves,
                    errors=attempt.errors + outcome.charged,
                    crashes=attempt.crashes,
                    claimed_at=datetime.fromtimestamp(attempt.claimed_at, UTC),
                    error=_json(outcome.error),
                    key=attempt.key,
                )
            )

    def reaped(self, queue: str, task: Reaped) -> None:
        """A task was parked because its worker was lost."""
        if self._tasks._failure_hooks and task.state == "parked":
            self._call(
                TaskInfo(
                    id=task.id,
                    queue=queue,
                    kind=task.kind,
                    step=task.step,
                    state="parked",
                    phase="parked",
                    args=_json(task.args),
                    priority=task.priority,
                    attempt=task.attempt,
                    moves=task.moves,
                    errors=task.errors,
                    crashes=task.crashes,
                    claimed_at=task.claimed_at,
                    error=_json(task.error or b"{}"),
                    key=task.key,
                )
            )

    @property
    def busy(self) -> bool:
        """Whether a hook that was called has not come to its end."""
        return bool(self._calls)

    async def until_done(self, limit: float, *, unless: asyncio.Event) -> None:
        """Lets hooks come to their end, for a limited time, or until the event."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self.busy and not unless.is_set():  # noqa: ASYNC110 - one of two things
                    await asyncio.sleep(0.01)

    async def close(self) -> None:
        """Gives up the hooks that have not come to their end; one in a thread goes on, unheard."""
        self._closing = True
        if self._calls:
            log.warning("%s hooks on failures did not end in time: they are given up", len(self._calls))
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self._threads.close()

    def _call(self, info: TaskInfo) -> None:
        call = asyncio.get_running_loop().create_task(self._tell(Failure(task=info)))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _tell(self, failure: Failure) -> None:
        for hook in self._tasks._failure_hooks:
            try:
                async with asyncio.timeout(HOOK_SECONDS):
                    await self._call_one(hook, failure)
            except BaseException as error:  # SystemExit too: no hook ends the worker
                if self._closing:
                    raise
                log.error("a hook on failures failed itself, for task %s", failure.task.id, exc_info=error)

    async def _call_one(self, hook: Hook, failure: Failure) -> None:
        if inspect.iscoroutinefunction(hook):
            await hook(failure)
            return
        answer = await outcome_of(self._threads.run(partial(hook, failure)))
        if inspect.isawaitable(answer):  # of a lambda, or of an object that is called
            await answer


def _json(text: bytes) -> Mapping[str, Any] | None:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
