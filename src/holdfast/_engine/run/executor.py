"""Executing one attempt: decode, call the step's code where it belongs, and say what its end means.

The event loop runs `async def` steps, threads run `def` steps, child processes those with
`executor="process"`. Whatever a step does, an `Outcome` comes back, or None if there is nothing to record.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from inspect import CORO_CREATED, getcoroutinestate
from typing import Any, cast

import msgspec

from holdfast._engine.run.attempt import Attempt, Interruption
from holdfast._engine.run.own_move import Moves, raised_after_move, returned_after_move
from holdfast._engine.run.processes import Processes
from holdfast._engine.run.threads import Threads, outcome_of, take_note
from holdfast._engine.settle.ending import MaybeRecorded
from holdfast._model.declare.step import Step
from holdfast._model.declare.tasks import Middleware, Tasks
from holdfast._model.enqueue.overrides import own_step
from holdfast._model.enqueue.ref import Tracker
from holdfast._model.json.codec import encode_error, simple_error
from holdfast._model.run.context import Context, Offers, current_context
from holdfast._model.run.outcome import NO_RESULT, Advanced, Cancelled, Fail, Failed, Outcome, Released, Retried
from holdfast._model.run.outcome_of import outcome_of_error, outcome_of_return
from holdfast._model.safe_log import Log
from holdfast.errors import DecodeError

log = Log("holdfast.worker")

_OURS = (Interruption.STOP, Interruption.CONTACT)
"""Interruptions that are no fault of the step: what it makes of them is not charged."""


class Executor:
    """Executes attempts for one worker."""

    def __init__(
        self,
        tasks: Tasks,
        resources: Mapping[type, object],
        moves: Moves,
        tell: Callable[[Attempt], None],
    ) -> None:
        self._tasks = tasks
        # An App, whose enqueue is what makes it an owner: for the references that steps get.
        tracker = cast("Tracker | None", tasks._find_owner())
        self._offers = Offers(resources, tracker, moves, tell, tasks._tracing)
        self._middleware: Sequence[Middleware] = tasks._middleware
        self._threads = Threads()
        self._processes = Processes()

    async def execute(self, attempt: Attempt) -> Outcome | MaybeRecorded | None:
        """Runs an attempt to its end and gives what to record, or to find out; None if the lease is lost."""
        if attempt.headers is not None:
            attempt.definition = own_step(attempt.definition, attempt.strings())
        step = attempt.definition
        if attempt.interruption is not None:
            return self._ended_by(attempt, step, asyncio.CancelledError())
        try:
            value = step.decode(attempt.args)
        except BaseException as error:  # of the step's class, which may raise anything
            if isinstance(error, DecodeError):
                _say_how_to_repair(error, attempt)
            return Failed(encode_error(error), charged=False)
        try:
            context = Context(attempt, self._offers)
            current_context.set(context)
            if step.is_async and step.timeout is None and not self._middleware:
                returned = await step.call(value, context)  # the common case, without a detour
            else:
                returned = await self._call_around(attempt, step, value, context)
            if context._enqueued is not None:
                attempt.children = tuple(context._enqueued)
        except BaseException as error:
            outcome = self._ended_by(attempt, step, error)
            return outcome if attempt.moved is None or outcome is None else raised_after_move(attempt, outcome)
        if attempt.interruption is Interruption.LOST:
            return None
        if attempt.moved is not None:
            return returned_after_move(attempt, returned)
        if returned is None:
            return NO_RESULT  # as below, without a detour
        outcome = outcome_of_return(self._tasks, step, returned)
        return _moves_checked(attempt, outcome) if isinstance(outcome, Advanced) else outcome

    async def _call_around(self, attempt: Attempt, step: Step, value: Any, context: Context) -> Any:
        """Calls a step in a thread, in a process, within a limit of time, or with middleware around it."""
        if step.executor == "process":
            call: Callable[[], Awaitable[Any]] = partial(self._in_process, attempt, step, context)
        elif step.is_async:
            call = partial(_on_loop, step, value, context)
        else:
            call = partial(self._in_thread, attempt, step, value, context)
        for middleware in reversed(self._middleware):
            call = partial(middleware, context, call)
        return await call()

    async def _in_thread(self, attempt: Attempt, step: Step, value: Any, context: Context) -> Any:
        if attempt.interruption in _OURS:
            raise asyncio.CancelledError  # a middleware tries again what was broken off
        future = self._threads.run(partial(step.call, value, context))
        attempt.in_thread = True
        try:
            async with _limit(step):
                returned = await outcome_of(future)
            if attempt.interruption in _OURS and attempt.noticed:
                raise asyncio.CancelledError  # it may have returned because it was told to end: that is no result
            return returned
        except BaseException:
            if not future.done():
                # A thread cannot be stopped: it is told by ctx.cancelled, and keeps its slot until it ends.
                attempt.interruption = attempt.interruption or Interruption.CANCEL
                attempt.thread = future
                future.add_done_callback(take_note)
            raise
        finally:
            attempt.in_thread = False

    async def _in_process(self, attempt: Attempt, step: Step, context: Context) -> Any:
        returned, enqueued = await self._processes.run(step, attempt, _limit(step), context._tell)
        if enqueued:
            context._enqueued = [*(context._enqueued or ()), *enqueued]
        return returned

    def _ended_by(self, attempt: Attempt, step: Step, error: BaseException) -> Outcome | None:
        """What an exception means: an interruption by us, or the step's own doing."""
        attempt.raised = error
        if isinstance(error, asyncio.CancelledError):
            match attempt.interruption:
                case Interruption.LOST:
                    return None
                case Interruption.CANCEL:
                    return Cancelled(Interruption.CANCEL.value)
                case Interruption.STOP | Interruption.CONTACT:
                    return Released()
                case None:
                    pass
        elif attempt.interruption is Interruption.LOST:
            return None
        outcome = outcome_of_error(step, error, attempt.errors)
        if attempt.interruption in _OURS and isinstance(outcome, (Retried, Failed)) and not isinstance(error, Fail):
            return Released()  # an error of being interrupted
        return outcome

    def interrupt(self, attempt: Attempt, why: Interruption) -> None:
        """Tells a running attempt to end. A lost lease outweighs every other reason."""
        gives_up = why is Interruption.LOST or (why is Interruption.CANCEL and attempt.in_thread)
        if attempt.interruption is not None and not gives_up:
            return  # told already: its cleanup is not to be cancelled as well
        attempt.interruption = why
        if why in _OURS and attempt.in_thread:
            return  # a thread is told by ctx.cancelled. Given back before it ends, the step would run twice at once
        # Cancelled before its first line, a coroutine would end unseen: `execute` checks that when it begins.
        if attempt.handle is not None and getcoroutinestate(attempt.handle.get_coro()) != CORO_CREATED:
            attempt.handle.cancel()

    async def close(self) -> None:
        self._threads.close()
        await self._processes.close()


def _moves_checked(attempt: Attempt, outcome: Advanced) -> Outcome:
    limit = attempt.definition.max_moves
    if attempt.moves < limit:
        return outcome
    return Failed(
        simple_error(
            "TooManyMoves",
            f"the task has made {attempt.moves} moves and max_moves is {limit}: does it loop? "
            "Raise max_moves if that is meant, then retry it",
        )
    )


def _say_how_to_repair(error: DecodeError, attempt: Attempt) -> None:
    if error.__cause__ is None:
        error.__traceback__ = None  # only our own lines, which tell nothing
    try:
        given = ", ".join(list(msgspec.json.decode(attempt.args, type=dict[str, Any]))[:20]) or "none"
    except (msgspec.MsgspecError, RecursionError):
        given = "not an object"
    cure = f"Correct the code and retry it, or the args: holdfast retry {attempt.id} --args '{{…}}'"
    if "got `str`" in str(error):
        cure += ". On the command line, what is not a text is written name:=42"
    error.args = (f"{error} (the args are: {given}). {cure}",)


async def _on_loop(step: Step, value: Any, context: Context) -> Any:
    async with _limit(step):
        return await step.call(value, context)


class _limit(AbstractAsyncContextManager[None]):  # noqa: N801 - reads as a word where it is used
    """`asyncio.timeout` for a step, with a message that says which limit was passed."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._timeout = asyncio.timeout(step.timeout)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exception: Any) -> None:
        try:
            await self._timeout.__aexit__(*exception)
        except TimeoutError:
            if not self._timeout.expired():
                raise
            raise TimeoutError(
                f"{self._step.kind}.{self._step.name} did not end within its timeout of {self._step.timeout:g} s"
            ) from None
