"""Does this code fit the tasks that are there? What `holdfast check` finds, in the code and in stored tasks.

A *problem* is what would keep tasks from being executed. A *warning* is probably a mistake. *Information* is what a
person may want to know before a deployment.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, TypeAlias
from uuid import UUID

from holdfast._model.declare.graph import UNKNOWN, beginnings, declared, edges, endless
from holdfast._model.declare.kind import Kind
from holdfast._model.declare.step import MAIN, Step
from holdfast._model.declare.tasks import Tasks
from holdfast._model.read.infos import KindInfo, Unfinished

Level: TypeAlias = Literal["problem", "warning", "information"]

MOST_ERRORS = 20
"""Different messages that are told apart at one step; messages may hold values, and each be another."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something found: `about` is its sort, `subject` the kind, step or queue; `tasks` counts those concerned."""

    level: Level
    about: str
    subject: str
    message: str
    advice: str = ""
    tasks: int = 0
    examples: tuple[UUID, ...] = ()


# Code -----------------------------------------------------------------------------------------------


def in_code(tasks: Tasks) -> list[Finding]:
    """What can be said without a database."""
    return [*_unreadable(tasks), *(finding for kind in tasks._kinds for finding in _in_kind(tasks, kind))]


def _unreadable(tasks: Tasks) -> Iterator[Finding]:
    for step in dict.fromkeys(tasks._steps[each.kind, each.name] for each in tasks._steps.values()):
        try:
            step._decoder  # noqa: B018 - made at first use
        except Exception as error:
            yield Finding("problem", "annotations", _name(step), f"no task could be executed: {error}")
    for resource in tasks._resources:
        try:
            resource.provides  # noqa: B018 - found at first use
        except Exception as error:
            yield Finding("problem", "resource", resource.make.__qualname__, f"no worker could start: {error}")


def _in_kind(tasks: Tasks, kind: str) -> Iterator[Finding]:
    warnings: list[str] = []
    graph = edges(tasks, kind, warnings)
    if not graph:
        advice = f"Declare some with @{kind}.step, or name their modules: App(modules=[…])"
        yield Finding("warning", "no steps", kind, "it has no steps", advice)
        return
    for warning in warnings:
        subject, _, message = warning.partition(": ")
        yield Finding("warning", "graph", subject, message)
    if any(edge.step == UNKNOWN for followers in graph.values() for edge in followers):
        return  # these may lead anywhere
    first = beginnings(graph)
    if len(first) > 1:
        yield Finding("information", "beginnings", kind, f"no step leads to {', '.join(first)}: tasks begin there")
    if lost := endless(graph):
        message = f"no move leads from {', '.join(lost)} to the end"
        yield Finding("information", "endless", kind, message, "Tasks go round until one raises, or until max_moves")


def other_versions(tasks: Tasks, kinds: Sequence[KindInfo]) -> Iterator[Finding]:
    """Kinds that workers declared in another way than this code does, or than each other."""
    for info in kinds:
        if info.differs:
            yield Finding("information", "version", info.name, info.differs)
        graph = edges(tasks, info.name) if info.name in tasks._kinds else {}
        if not graph:
            continue
        here, there = ({step: {e.step for e in each[step]} for step in each} for each in (graph, declared(info.graph)))
        changed = [step for step in here if step in there and here[step] != there[step]]
        parts = {"new": here.keys() - there.keys(), "gone": there.keys() - here.keys(), "moves changed": changed}
        told = [f"{what}: {', '.join(sorted(steps))}" for what, steps in parts.items() if steps]
        queue = next(step.queue for step in tasks._steps.values() if step.kind == info.name)
        if queue != info.queue:
            told.append(f"queue {queue} instead of {info.queue}")
        if told:
            live = f" ({info.workers} live)" if info.workers else ""
            message = f"it differs from what workers{live} declared last: {'; '.join(told)}"
            yield Finding("information", "version", info.name, message)


def of_workers(tasks: Tasks, steps: Collection[str], queues: Collection[str]) -> Iterator[Finding]:
    """What live workers know and this code does not, and queues that none of them serves."""
    kinds = {kind for kind, _ in tasks._steps}
    known = {f"{kind}.{step}" for kind, step in tasks._steps}
    for name in sorted(steps):
        if name not in known and name.partition(".")[0] in kinds:
            message = "a live worker knows it and this code does not: until it stops, tasks may still come there"
            yield Finding("warning", "version", name, message, "Check again then")
    for queue in sorted({step.queue for step in tasks._steps.values()} - set(queues)):
        kinds_there = sorted({step.kind for step in tasks._steps.values() if step.queue == queue})
        message = f"no live worker serves it; here go tasks of {', '.join(kinds_there)}"
        yield Finding("information", "queue", queue, message, f"Serve it: holdfast worker APP -q {queue}")


# Tasks ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    message: str
    advice: str
    tasks: int = 0
    examples: list[UUID] = field(default_factory=list)


class Inspection:
    """Looks at unfinished tasks, one by one, and remembers which of them this code could not execute.

    A parked task that could not be executed stays where it is: that is information, unless it is a strict inspection.
    """

    def __init__(self, tasks: Tasks, *, examples: int = 3, strict: bool = False, live: Collection[str] = ()) -> None:
        self._tasks = tasks
        self._examples = examples
        self._strict = strict
        self._live = live
        self._groups: dict[tuple[str, str, bool], dict[str, _Group]] = {}
        self._old: dict[tuple[str, str], int] = {}
        self.seen = 0

    def see(self, task: Unfinished) -> None:
        """Takes in one task."""
        self.seen += 1
        step = self._tasks._steps.get((task.kind, task.step))
        if step is None:
            message, advice = _why_unroutable(self._tasks, task, self._live)
            self._add("unroutable", task, message, advice)
            return
        if (step.kind, step.name) != (task.kind, task.step):
            self._old[task.kind, task.step] = self._old.get((task.kind, task.step), 0) + 1
        try:
            step.decode(task.args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of the step's class, which may raise anything
            self._add("park", task, str(error) or type(error).__name__, "")

    def findings(self) -> list[Finding]:
        """What was found: problems first, then by kind and step."""
        found = [
            Finding(
                "information" if parked and not self._strict else "problem",
                about,
                subject,
                _told(about, group.message, parked=parked),
                group.advice,
                group.tasks,
                tuple(group.examples),
            )
            for (about, subject, parked), groups in self._groups.items()
            for group in groups.values()
        ]
        found.sort(key=lambda each: (each.level != "problem", each.subject, -each.tasks, each.message))
        return found + list(_old_names(self._tasks, self._old))

    def _add(self, about: str, task: Unfinished, message: str, advice: str) -> None:
        groups = self._groups.setdefault((about, f"{task.kind}.{task.step}", task.state == "parked"), {})
        if message not in groups and len(groups) >= MOST_ERRORS:
            message = "other errors"
        group = groups.setdefault(message, _Group(message, advice))
        group.tasks += 1
        if len(group.examples) < self._examples:
            group.examples.append(task.id)


def _told(about: str, message: str, *, parked: bool) -> str:
    if about == "unroutable":
        return f"no worker with this code would execute it: {message}"
    return f"would park again: {message}" if parked else f"would park: {message}"


def _why_unroutable(tasks: Tasks, task: Unfinished, live: Collection[str]) -> tuple[str, str]:
    """What this code lacks for a task, and what may be done about it."""
    kind, old = task.kind, [task.step]
    now = next((step.kind for (name, _), step in tasks._steps.items() if name == kind), None)
    if now is None:
        close = get_close_matches(kind, tasks._kinds, n=1)
        advice = f"Did you mean {close[0]}? " if close else ""
        advice += f"If it was renamed, write was=[{kind!r}] where it is declared now"
        if f"{kind}.{task.step}" in live:
            advice += ". A live worker knows it: if it is another App's, check only the queues of this one, with -q"
        return f"there is no kind {kind}", advice
    if not isinstance(tasks._kinds[now], Kind):
        return f"{now} is a function now", "Keep its steps until their tasks have ended"
    close = get_close_matches(task.step, [step.name for step in tasks._steps.values() if step.kind == now], n=1)
    hint, name = (f"Did you mean {close[0]}? ", f"name={close[0]!r}, ") if close else ("", "")
    return f"{now} has no step {task.step}", f"{hint}If it was renamed: @{now}.step({name}was={old!r})"


def _old_names(tasks: Tasks, seen: Mapping[tuple[str, str], int]) -> Iterator[Finding]:
    """Which names in `was=` are still needed."""
    needed: dict[tuple[str, str], int] = {}  # what was renamed, and its old name
    for (kind, name), step in tasks._steps.items():
        count = seen.get((kind, name), 0)
        if kind != step.kind:
            needed[step.kind, kind] = needed.get((step.kind, kind), 0) + count
        if name != step.name:
            needed[_name(step), name] = needed.get((_name(step), name), 0) + count
    for (subject, old), count in needed.items():
        message = f"was={old!r} is still needed" if count else f"was={old!r} is not needed by any unfinished task"
        yield Finding("information", "old name", subject, message, "", count)


def _name(step: Step) -> str:
    return step.kind if step.name == MAIN else f"{step.kind}.{step.name}"
