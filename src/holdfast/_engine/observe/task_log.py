"""What the log says about the end of attempts, under the logger `holdfast.task`.

Errors are told by every worker, in one line. The other ends are told at level DEBUG, once they are recorded: a
worker asks once whether a handler takes that level, so they cost nothing where none does. `holdfast dev` listens.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast._engine.run.attempt import Attempt, fields
from holdfast._engine.settle.ending import Ending
from holdfast._model.declare.step import MAIN
from holdfast._model.read.formats import duration
from holdfast._model.run.outcome import Advanced, Cancelled, Failed, Finished, Outcome, Released, Retried, Snoozed
from holdfast._model.safe_log import Log

log = Log("holdfast.task")

LONGEST_ERROR = 300
LONGEST_RESULT = 100


def tell_error(attempt: Attempt, outcome: Outcome) -> None:
    """Logs an error of a step: people wait for these, in the log before anywhere else. Other ends are passed over."""
    if not isinstance(outcome, (Retried, Failed)):
        return
    level = logging.WARNING if isinstance(outcome, Failed) else logging.INFO
    if not log.isEnabledFor(level):
        return
    try:
        error = msgspec.json.decode(outcome.error, type=dict[str, Any])
    except msgspec.MsgspecError:
        error = {}
    said = _shortened(" ".join(f"{error.get('type')}: {error.get('message')}".split()), LONGEST_ERROR)
    extra = {**fields(attempt), "error": said, "traceback": error.get("traceback") or ""}
    if isinstance(outcome, Failed):
        extra["outcome"] = "failed"
        log.warning("%s is parked after attempt %s: %s", name(attempt), attempt.number, said, extra=extra)
    else:
        extra["outcome"] = "retried"
        again = f"again {_when(outcome.delay)}"
        log.info("%s failed in attempt %s, %s: %s", name(attempt), attempt.number, again, said, extra=extra)


def tell_raised_after_move(attempt: Attempt) -> None:
    """Logs what a step raised although its own move was committed: the move counts, and nothing else reports it."""
    text = "%s raised after its ctx.move was committed, in attempt %s: the task has moved. %r"
    log.warning(text, name(attempt), attempt.number, attempt.raised, extra=fields(attempt))


def is_heard() -> bool:
    """Whether a handler takes more than errors."""
    return log.isEnabledFor(logging.DEBUG)


def tell_recorded(ending: Ending) -> None:
    """Logs the recorded end of an attempt that is not an error."""
    attempt, outcome = ending.attempt, ending.outcome
    seconds = max(0.0, ending.sent - attempt.held_since)
    told = _told(name(attempt), outcome, duration(seconds))
    if told is not None:
        word, text = told
        log.debug("%s", text, extra={**fields(attempt), "outcome": word, "seconds": round(seconds, 6)})


def _told(name: str, outcome: Outcome, took: str) -> tuple[str, str] | None:
    match outcome:
        case Finished(result=None | b"null"):
            return "done", f"{name} done in {took}"
        case Finished(result=bytes() as result):
            # Cut before it is decoded: it may be large.
            shown = _shortened(result[: 4 * LONGEST_RESULT].decode("utf-8", "ignore"), LONGEST_RESULT)
            return "done", f"{name} done in {took} → {shown}"
        case Advanced(step=step, delay=delay, at=at):
            later = f", {_when(delay, at)}" if delay or at else ""
            return "advanced", f"{name} → {step} ({took}){later}"
        case Snoozed(delay=delay, at=at):
            return "snoozed", f"{name} snoozed after {took}, again {_when(delay, at)}"
        case Cancelled(reason=reason):
            return "cancelled", f"{name} cancelled after {took}" + (f": {reason}" if reason else "")
        case Released(untouched=True):
            return "released", f"{name} given back before it began"
        case Released():
            return "released", f"{name} given back after {took}, uncharged"
        case _:
            return None  # told by `tell_error`


def name(attempt: Attempt) -> str:
    """What people call the step: a function has only one, whose name says nothing."""
    return attempt.kind if attempt.step == MAIN else f"{attempt.kind}.{attempt.step}"


def _when(delay: float, at: datetime | None = None) -> str:
    """By this machine's clock, for people: nothing is decided by it."""
    if at is not None:
        return f"at {at.astimezone():%Y-%m-%d %H:%M:%S}"
    soon = f"in {duration(delay)}"
    if delay < 60:
        return soon
    try:
        moment = datetime.now().astimezone() + timedelta(seconds=delay)
    except OverflowError:
        return soon
    return f"{soon} ({moment:%H:%M:%S})" if delay < 86_400 else f"{soon} ({moment:%Y-%m-%d %H:%M})"


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
