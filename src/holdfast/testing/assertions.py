"""What a test expects to be enqueued, and what to tell when something else is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast._model.declare.function import Function
from holdfast._model.declare.kind import Kind
from holdfast._model.declare.step import MAIN
from holdfast._model.enqueue.call import Call, step_of_class
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.json.codec import encode
from holdfast._model.json.text import told
from holdfast._model.time.duration import Duration, seconds

SHOWN = 20
LONGEST = 200
EXACTLY, ABOUT = timedelta(milliseconds=100), timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class What:
    """What a test names: a kind, perhaps one step of it, perhaps its exact args."""

    kind: str
    step: str | None = None
    args: dict[str, Any] | None = None

    @classmethod
    def of(cls, what: object, *, taker: str) -> "What":
        """A function, a kind, a step class, a step value, a `bind()` call or a name, as people give it."""
        if isinstance(what, (Function, Kind)):
            return cls(what.name)
        if isinstance(what, Call):
            return cls(what.kind, what.step, msgspec.json.decode(what.args))
        if isinstance(what, str):
            kind, _, step = what.partition(".")
            return cls(kind, step or None)
        found = step_of_class(what if isinstance(what, type) else type(what))
        if found is None:
            raise TypeError(
                f"{taker}() takes a function, a function.bind(…), a kind, a step class, a step value or a name "
                f'such as "kind.Step", not {what!r}'
            )
        args = None if isinstance(what, type) else msgspec.json.decode(found.encode(what))
        return cls(found.kind, found.name, args)

    def is_at(self, kind: str, step: str) -> bool:
        return kind == self.kind and self.step in (None, step)

    def __str__(self) -> str:
        name = self.kind if self.step in (None, MAIN) else f"{self.kind}.{self.step}"
        return name if self.args is None else f"{name} {_shown(self.args)}"


@dataclass(frozen=True, slots=True)
class Expected:
    """A task as a test expects it."""

    what: What
    queue: str | None = None
    key: str | None = None
    priority: int | None = None
    args: Mapping[str, Any] | None = None
    delay: Duration | None = None
    at: datetime | None = None
    within: Duration | None = None

    def differences(self, task: TaskInfo, now: datetime) -> list[str]:
        """Why a task of this kind and step is not the one; nothing if it is."""
        found = []
        if self.what.args is not None:
            found += _differences(self.what.args, task.args, exactly=True)
        if self.args is not None:
            found += _differences(msgspec.json.decode(encode(dict(self.args))), task.args, exactly=False)
        for name in ("queue", "key", "priority"):
            wanted, there = getattr(self, name), getattr(task, name)
            if wanted is not None and wanted != there:
                found.append(f"its {name} is {there!r}, not {wanted!r}")
        return [*found, *self._difference_in_time(task, now)]

    def _difference_in_time(self, task: TaskInfo, now: datetime) -> list[str]:
        # As it was enqueued, a task's delay is known exactly, however long ago that was.
        untouched = task.moves == 0 and task.attempt == 0 and task.created_at is not None
        start = task.created_at if untouched and task.created_at is not None else now
        tolerance = EXACTLY if untouched or self.at is not None else ABOUT
        if self.within is not None:
            tolerance = timedelta(seconds=seconds(self.within, "within"))
        if self.delay is not None:
            wanted = start + timedelta(seconds=seconds(self.delay, "delay"))
        elif self.at is not None:
            wanted = self.at if self.at.tzinfo else self.at.astimezone()
        else:
            return []
        if task.run_at is not None and abs(task.run_at - wanted) <= tolerance:
            return []
        return [f"it is due {_when(task, now)}, not {_span(wanted - now)}"]

    def __str__(self) -> str:
        names = ("queue", "key", "priority", "args", "delay", "at")
        options = {name: getattr(self, name) for name in names}
        told = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
        return f"{self.what}, {told}" if told else str(self.what)


def listing(tasks: list[TaskInfo], expected: Expected, now: datetime) -> str:
    """Tasks as a developer wants to see them, those of the same step with what is different."""
    # The likeliest first.
    nearest = sorted(tasks, key=lambda task: (not expected.what.is_at(task.kind, task.step), task.kind, task.id))
    lines = [f"  {line(task, now)}{_hint(task, expected, now)}" for task in nearest[:SHOWN]]
    more = [f"  … and {len(tasks) - SHOWN} more"] if len(tasks) > SHOWN else []
    return "\n".join([*lines, *more])


def line(task: TaskInfo, now: datetime) -> str:
    """One task in one line: kind and step, args, queue, state and time."""
    name = task.kind if task.step == MAIN else f"{task.kind}.{task.step}"
    parts = [f"queue {task.queue}", task.state]
    if task.state == "ready":
        parts.append(f"due {_when(task, now)}")
    if task.key is not None:
        parts.append(f"key {task.key!r}")
    if task.priority:
        parts.append(f"priority {task.priority}")
    if task.error:
        parts.append(_cut(told(task.error)))
    return f"{name} {_shown(task.args)}: {', '.join(parts)}"


def _hint(task: TaskInfo, expected: Expected, now: datetime) -> str:
    if not expected.what.is_at(task.kind, task.step):
        return ""
    return "".join(f"\n      {each}" for each in expected.differences(task, now))


def _differences(wanted: Mapping[str, Any], there: Any, *, exactly: bool) -> list[str]:
    if not isinstance(there, dict):
        return [f"its args are {there!r}"]
    found = [
        f"its {name} is {there[name]!r}, not {value!r}" if name in there else f"it has no {name}, not {value!r}"
        for name, value in wanted.items()
        if name not in there or there[name] != value
    ]
    extra = [f"it also has {name}={there[name]!r}" for name in there if name not in wanted] if exactly else []
    return [*found, *extra]


def _shown(args: Any) -> str:
    return _cut(msgspec.json.encode(args).decode())


def _when(task: TaskInfo, now: datetime) -> str:
    return "now" if task.run_at is None or task.run_at <= now else _span(task.run_at - now)


def _span(length: timedelta) -> str:
    whole = timedelta(seconds=round(length.total_seconds(), 1))
    return f"in {whole}" if whole >= timedelta() else f"{-whole} ago"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
