"""What the ending of a step means: the whole state machine of a task, in two functions that never raise.

Returned = where the task goes; raised = why it does not.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from holdfast._model.declare.step import FunctionStep, Step
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.call import step_of_class
from holdfast._model.json.codec import encode_error, encode_result, simple_error
from holdfast._model.json.problems import problem_in
from holdfast._model.json.text import safe_text
from holdfast._model.run.outcome import (
    NO_RESULT,
    SHORTEST_SNOOZE,
    Advanced,
    Cancel,
    Cancelled,
    Done,
    Fail,
    Failed,
    Finished,
    Later,
    Outcome,
    Retried,
    Snooze,
    Snoozed,
)
from holdfast._model.run.retry import BrokenDelay, next_delay
from holdfast.errors import DecodeError, EncodeError


def outcome_of_return(tasks: Tasks, step: Step, returned: Any) -> Outcome:
    """What is recorded after `step` returned `returned`."""
    try:
        match returned:
            case None | Done(result=None):
                return NO_RESULT
            case Done(result=result):
                return _finished(step, result)
            case Later(step=next_step, delay=delay, at=at):
                return _move(tasks, step, next_step, delay, at)
            case Fail() | Snooze() | Cancel():
                return _refused(step, f"it returned {_word(returned)}: raise it instead")
            case _ if step_of_class(type(returned)) is not None:
                return _move(tasks, step, returned)
            case _ if isinstance(step, FunctionStep) and not inspect.isawaitable(returned):
                return _finished(step, returned)
            case _:
                return _refused(step, _why_no_ending(returned))
    except EncodeError as error:
        return Failed(simple_error("holdfast.errors.EncodeError", f"{step.kind}.{step.name}: {error}"))
    except BaseException as error:  # a returned value of a stranger's class may do anything
        return Failed(encode_error(error))


def outcome_of_error(step: Step, error: BaseException, errors: int) -> Outcome:
    """What is recorded after `step` raised `error`; `errors` is how many errors this visit had before."""
    try:
        match _said(error):
            case Fail():
                return Failed(encode_error(error))
            case Snooze(delay=delay, at=at):
                return Snoozed(max(delay, SHORTEST_SNOOZE), at)
            case Cancel(reason=reason):
                return Cancelled(safe_text(str(reason)))
            case TypeError() as mistake if str(mistake) == "exceptions must derive from BaseException":
                return _refused(step, "it raised what is no exception: return Done(...) or Later(...) instead")
            case said:
                return _retried(step, error, said, errors)
    except BaseException:  # the error itself is broken: say so, and let a person look
        return Failed(encode_error(error))


def _retried(step: Step, error: BaseException, said: BaseException, errors: int) -> Outcome:
    try:
        wait = next_delay(step.retry, said, errors)
    except BrokenDelay as broken:
        error.add_note(f"({broken}.)")
        return Failed(encode_error(error))
    return Failed(encode_error(error)) if wait is None else Retried(encode_error(error), wait)


def _finished(step: Step, result: Any) -> Outcome:
    try:
        encoded = encode_result(result)
    except EncodeError as error:
        why = f"{step.kind}.{step.name}: its result cannot be stored: {error}"
        return Failed(simple_error("holdfast.errors.EncodeError", why))
    try:
        step.check_result(encoded)
    except DecodeError as error:
        if problem_in(result) is None:  # else it was written out as text: work done is not thrown away
            return _refused(
                step,
                f"its result is not what app.kind({step.kind!r}, result=…) says: {error}. "
                "Return Done(…) with such a value, or correct result=",
            )
    return Finished(encoded)


def _move(tasks: Tasks, step: Step, value: Any, delay: float = 0.0, at: Any = None) -> Outcome:
    next_step = tasks._step_of(value)
    if isinstance(step, FunctionStep):
        return _refused(step, f"it returned {_word(value)}, but a function has no next step: use app.kind(...)")
    if next_step is None or next_step.kind != step.kind:
        return _refused(step, _why_no_step(step, value))
    return Advanced(next_step.name, next_step.encode(value), delay, at)


def _said(error: BaseException) -> BaseException:
    """What a step said from inside a TaskGroup: the one exception in the group, or a Fail among several."""
    while isinstance(error, BaseExceptionGroup):
        first, *others = error.exceptions
        if others:
            return next(_fails(error), error)
        error = first
    return error


def _fails(group: BaseExceptionGroup[BaseException]) -> Iterator[Fail]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _fails(each)
        elif isinstance(each, Fail):
            yield each


def _refused(step: Step, why: str) -> Failed:
    return Failed(simple_error("holdfast.errors.DeclarationError", f"{step.kind}.{step.name}: {why}"))


def _why_no_step(step: Step, value: Any) -> str:
    if isinstance(value, type):
        return f"it returned the class {value.__name__}: return a value of it, {value.__name__}(...)"
    owner = step_of_class(type(value))
    if owner is not None:
        return f"it returned {_word(value)}, a step of {owner.kind}: a task stays in its kind; enqueue that one"
    return f"it returned {_word(value)}, which is not a step of {step.kind}: declare it with @{step.kind}.step"


def _why_no_ending(value: Any) -> str:
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that it was never awaited
        return "it returned something to be awaited: write async def, and await it"
    if isinstance(value, type):
        return f"it returned the class {value.__name__}: return a value of it, {value.__name__}(...)"
    if isinstance(value, BaseException):
        return f"it returned the exception {_word(value)}: raise it instead"
    return f"it returned {_word(value)}, which is not a step: return a step, Later(step, ...), Done(result) or None"


def _word(value: object) -> str:
    return f"{type(value).__name__}(...)"
