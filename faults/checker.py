"""The invariants I1 to I9, each by a function over a history: what it yields is wrong."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from faults.history import FINAL, Attempt, History, Occurrence
from faults.oracle import Execution

MAX_CRASHES = 3
"""More workers than these may a task not lose at one visit: the default of steps."""


@dataclass(frozen=True)
class Violation:
    """What is wrong: the number of a rule, and the words for it."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: History) -> list[Violation]:
    """Everything that is wrong with a history."""
    return [Violation(rule, text) for rule, find in INVARIANTS.items() for text in find(history)]


def nothing_is_lost(history: History) -> Iterator[str]:
    """Every acknowledged enqueue, also of a step whose outcome counts, ends in a final state."""
    by_id = {task.id: task for task in history.tasks}
    by_tag = {task.tag: task for task in history.tasks if task.tag is not None}
    for tag, id in history.ledger.acknowledged.items():
        if id not in by_id:
            yield f"task {id} ({tag}) was acknowledged and is gone"
    for parent, children in history.ledger.children.items():
        if parent in by_tag and by_tag[parent].state == "done":
            for child in children:
                if child not in by_tag:
                    yield f"{child} was enqueued by {parent}, which is done, and is not there"
    losses = Counter((a.task, a.moves) for a in history.attempts if a.outcome == "lost")
    unlucky = {task for (task, _), times in losses.items() if history.by_chance and times > MAX_CRASHES}
    for task in history.tasks:
        allowed = task.state == "parked" and (task.kind in history.may_park or task.id in unlucky)
        if task.state not in FINAL and not allowed:
            yield f"task {task.id} ({task.kind}, {task.tag}) is {task.state} at the end"


def nothing_is_made_up(history: History) -> Iterator[str]:
    """No enqueue that was rolled back exists or ran; none made two tasks."""
    by_id = {task.id: task for task in history.tasks}
    for tag, count in Counter(task.tag for task in history.tasks if task.tag is not None).items():
        if tag in history.ledger.rolled_back:
            yield f"{tag} was rolled back and exists"
        if count > 1:
            yield f"{tag} was enqueued once and is there {count} times"
    tags = {task.tag for task in history.tasks}
    ended = {task.tag for task in history.tasks if task.state == "done"}
    for parent, children in history.ledger.children.items():
        for child in children:
            if child in tags and parent not in ended:
                yield f"{child} is there, but {parent}, which enqueues it, did not come to its end"
    for execution in history.executions:
        if execution.task not in by_id:
            yield f"{_said(execution)} ran, and there is no such task"


def nothing_runs_after_its_end(history: History) -> Iterator[str]:
    """A visit whose end was recorded never runs again, and its writes were committed with it, once."""
    ended = {(a.task, a.moves): a.attempt for a in history.attempts if a.is_accepted}
    for execution in history.executions:
        last = ended.get((execution.task, execution.moves))
        if last is not None and execution.attempt > last:
            yield f"{_said(execution)} ran after attempt {last} had ended this visit"
    effects = Counter(history.effects)
    wanted = {(a.task, a.moves) for a in history.attempts if a.is_accepted and a.step in history.transactional}
    for task, moves in wanted:
        if (count := effects[task, moves]) != 1:
            yield f"visit {moves} of task {task} is recorded, and its writes are there {count} times"
    for task, moves in set(effects) - wanted:
        yield f"visit {moves} of task {task} is not recorded, and its writes are there"


def ends_are_accepted_once(history: History) -> Iterator[str]:
    """At most one accepted end of each visit, and one entry for each attempt."""
    for (task, moves), count in Counter((a.task, a.moves) for a in history.attempts if a.is_accepted).items():
        if count > 1:
            yield f"visit {moves} of task {task} has {count} accepted ends"
    for (task, number), count in Counter((a.task, a.attempt) for a in history.attempts).items():
        if count > 1:
            yield f"attempt {number} of task {task} is logged {count} times"


def overlaps(history: History) -> list[tuple[Execution, Execution]]:
    """Executions of one task of which the second began before the first had ended."""
    of_task: dict[str, list[Execution]] = defaultdict(list)
    for execution in history.executions:
        of_task[execution.task].append(execution)
    found = []
    for several in of_task.values():
        for first, second in pairwise(sorted(several, key=lambda e: e.begin)):
            if second.begin < _end(history, first):
                found.append((first, second))
    return found


def only_lost_ones_overlap(history: History) -> Iterator[str]:
    """Executions of one task overlap only where the lease of the earlier attempt ran out.

    Its worker may have stood still between its claim and its first line: then it is the later one to begin.
    """
    logged = {(a.task, a.attempt): a.outcome for a in history.attempts}
    for pair in overlaps(history):
        earlier, later = sorted(pair, key=lambda e: e.attempt)
        outcome = logged.get((earlier.task, earlier.attempt))
        if outcome != "lost":
            yield f"{_said(earlier)} ({outcome}) ran beside {_said(later)}"


def both_logs_agree(history: History) -> Iterator[str]:
    """The log of attempts says what handlers say, but for attempts that ended before they began.

    Those were lost, released, or cancelled while they waited for a slot.

    A transactional step whose transaction broke is executed again in the same attempt.
    """
    logged: dict[tuple[str, int], Attempt] = {(a.task, a.attempt): a for a in history.attempts}
    begun: set[tuple[str, int]] = set()
    for execution in history.executions:
        key = (execution.task, execution.attempt)
        entry = logged.get(key)
        if entry is None:
            yield f"{_said(execution)} ran and is not in the log"
        elif (entry.step, entry.moves) != (execution.step, execution.moves):
            yield f"{_said(execution)} is logged as {entry.step} after {entry.moves} moves"
        if key in begun and execution.step not in history.transactional:
            yield f"{_said(execution)} ran twice under one number"
        begun.add(key)
    for key, entry in logged.items():
        if key not in begun and entry.outcome not in ("lost", "released", "cancelled"):
            what = f"attempt {entry.attempt} of task {entry.task} ({entry.step})"
            yield f"{what} is logged as {entry.outcome}, and nobody ran it"


def no_lease_is_forgotten(history: History) -> Iterator[str]:
    """No task stays running with a lease that ran out."""
    for task in history.tasks:
        if task.state == "running" and task.overdue > history.patience:
            yield f"the lease of task {task.id} ({task.kind}) ran out {task.overdue:.1f} s ago, and it is still running"


def limits_hold(history: History) -> Iterator[str]:
    """Tasks of one key do their work one after the other; a worker executes no more steps at once than it may."""
    for key, spans in work_by_key(history).items():
        for (_, end, first), (begin, _, second) in pairwise(sorted(spans)):
            if begin < end:
                yield f"key {key}: {second} began before {first} had ended"
    for key, count in Counter(t.key for t in history.tasks if t.key is not None and t.state not in FINAL).items():
        if count > 1:
            yield f"key {key} is held by {count} unfinished tasks"
    if history.concurrency is not None:
        for worker, most in busiest(history).items():
            if most > history.concurrency:
                yield f"worker {worker} executed {most} steps at once, {history.concurrency} are allowed"


def work_by_key(history: History) -> dict[str, list[tuple[float, float, str]]]:
    """For each key the tasks that had it: when their accepted work began, when it ended, and whose it was."""
    accepted = {(a.task, a.attempt) for a in history.attempts if a.is_accepted}
    keys = {task.id: task.key for task in history.tasks if task.key is not None}
    of_task: dict[str, list[Execution]] = defaultdict(list)
    for execution in history.executions:
        if execution.task in keys and (execution.task, execution.attempt) in accepted:
            of_task[execution.task].append(execution)
    found: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for task, several in of_task.items():
        begin, end = min(e.begin for e in several), max(_end(history, e) for e in several)
        found[keys[task]].append((begin, end, task))
    return found


def busiest(history: History) -> dict[str, int]:
    """The most steps that each worker executed at once."""
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for execution in history.executions:
        changes[execution.worker] += [(execution.begin, 1), (_end(history, execution), -1)]
    most: dict[str, int] = {}
    for worker, several in changes.items():
        busy = most[worker] = 0
        for _, change in sorted(several):
            busy += change
            most[worker] = max(most[worker], busy)
    return most


def each_instant_comes_once(history: History) -> Iterator[str]:
    """Each instant of a schedule makes one task, and none is missing between the first and the last."""
    by_id = {task.id for task in history.tasks}
    of_schedule: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    for each in history.occurrences:
        of_schedule[each.schedule, each.scope].append(each)
        if each.task is None or each.task not in by_id:
            yield f"{each.schedule} at {each.plan_time:%H:%M:%S} has no task"
    for task, count in Counter(each.task for each in history.occurrences if each.task is not None).items():
        if count > 1:
            yield f"task {task} belongs to {count} instants"
    for (schedule, _), several in of_schedule.items():
        for first, second in pairwise(sorted(several, key=lambda each: each.plan_time)):
            gap = (second.plan_time - first.plan_time).total_seconds()
            if gap != history.period:
                yield f"{schedule}: {second.plan_time:%H:%M:%S} comes {gap:g} s after the one before"


INVARIANTS: dict[str, Callable[[History], Iterator[str]]] = {
    "I1": nothing_is_lost,
    "I2": nothing_is_made_up,
    "I3": nothing_runs_after_its_end,
    "I4": ends_are_accepted_once,
    "I5": only_lost_ones_overlap,
    "I6": both_logs_agree,
    "I7": no_lease_is_forgotten,
    "I8": limits_hold,
    "I9": each_instant_comes_once,
}


def _end(history: History, execution: Execution) -> float:
    return execution.end if execution.end is not None else history.deaths.get(execution.worker, inf)


def _said(execution: Execution) -> str:
    return f"attempt {execution.attempt} of task {execution.task} ({execution.step}, worker {execution.worker})"
