"""The watchdog: another thread reads which step blocks the event loop while it stands still."""

import asyncio
import sys
from dataclasses import dataclass
from types import FrameType

from holdfast._engine.observe.task_log import name
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.roster import Roster

_DEBUGGERS = {"bdb", "pdb", "pudb", "debugpy", "_pydevd_bundle"}
_LOOPS = {"asyncio", "selectors", "uvloop"}
_OURS = "holdfast "
"""How the names of the worker's own asyncio tasks begin."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """What the thread of a loop is doing: waiting for something to happen, being debugged, or being in the way.

    `attempts`: the steps that may be on its stack; none if something else stands in the way.
    """

    attempts: tuple[Attempt, ...]
    place: str
    is_idle: bool
    is_debugged: bool

    @property
    def who(self) -> str:
        """`hello (hello.py:12)`; several steps if it cannot be told which of them it is."""
        names = list(dict.fromkeys(map(name, self.attempts)))
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")
        return f"{shown} ({self.place})" if shown and self.place else shown or self.place or "unknown code"


def snapshot(loop: asyncio.AbstractEventLoop, thread: int, roster: Roster) -> Blocked:
    """What happens in the thread of a loop just now."""
    frames = _frames(sys._current_frames().get(thread))
    current = asyncio.current_task(loop)
    culprits = _culprits(current, frames, roster)
    return Blocked(
        tuple(culprits),
        _place(frames, {_package_of(each) for each in culprits}) or _place(frames, None),
        is_idle=current is None and bool(frames) and _package(frames[0]) in _LOOPS,
        is_debugged=any(_package(frame) in _DEBUGGERS for frame in frames),
    )


def _culprits(current: "asyncio.Task[object] | None", frames: list[FrameType], roster: Roster) -> list[Attempt]:
    """The step on the stack. What a step has begun, a task or a callback, is known by the package of its code."""
    running = [each for each in list(roster.held.values()) if each.handle is not None and each.definition.is_async]
    if at_it := [each for each in running if each.handle is current]:
        return at_it
    if current is not None and current.get_name().startswith(_OURS):
        return []
    packages = {_package(frame) for frame in frames}
    return [each for each in running if _package_of(each) in packages]


def _place(frames: list[FrameType], packages: set[str] | None) -> str:
    """The innermost line in these packages; for None, in any but the loop's own."""
    for frame in frames:
        if (_package(frame) not in _LOOPS) if packages is None else (_package(frame) in packages):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    return ""


def _package_of(attempt: Attempt) -> str:
    return attempt.definition.module.partition(".")[0]


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _frames(innermost: FrameType | None) -> list[FrameType]:
    frames: list[FrameType] = []
    while innermost is not None:
        frames.append(innermost)
        innermost = innermost.f_back
    return frames
