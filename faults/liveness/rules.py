"""What an outsider can ask of workers: each rule is a function over what was seen, and what it yields is wrong."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TypeAlias

from faults.checker import Violation
from faults.history import Attempt
from faults.liveness.setup import Setup
from faults.liveness.tasks import RETRY_SECONDS
from faults.oracle import Execution

MARGIN = 1.5
"""Seconds that a worker may take for what needs no waiting, beside what the machine itself was late."""
SHORT = 0.05
"""Seconds. Steps that take longer are never claimed ahead."""
GIVEN_BACK = 1.5
"""Seconds after which what was claimed ahead begins, or is given back."""
INTERRUPTED = 5.0
"""Seconds that steps have to end after the grace time."""

Spans: TypeAlias = list[tuple[float, float]]


@dataclass(frozen=True)
class Enqueued:
    """A task as its caller knows it. `due`: when it is due, by the machine's clock."""

    queue: str
    due: float
    suspect: bool = False


@dataclass(frozen=True)
class Life:
    """From when to when a worker was there to work."""

    begin: float
    end: float = inf
    killed: bool = False


@dataclass(frozen=True)
class Sample:
    """The leases at one moment: the worker's label, task and attempt. `at` is when the answer had come."""

    at: float
    leases: tuple[tuple[str, str, int], ...]


@dataclass
class Seen:
    """Everything that was seen of one set-up."""

    setup: Setup
    grace: float = 5.0
    late: float = 0.0
    """How late the machine itself was at worst: seconds by which a thread that only sleeps overslept."""
    tasks: Mapping[str, Enqueued] = field(default_factory=dict)
    executions: Sequence[Execution] = ()
    attempts: Sequence[Attempt] = ()
    crashes: Mapping[str, int] = field(default_factory=dict)
    """How many crashes each task was charged with."""
    unfinished: Mapping[str, str] = field(default_factory=dict)
    """The states of tasks that did not come to their end."""
    lives: Mapping[str, Life] = field(default_factory=dict)
    samples: Sequence[Sample] = ()
    paused: Mapping[str, Spans] = field(default_factory=dict)
    silences: Mapping[str, float] = field(default_factory=dict)
    """The longest silence of each worker's event loop."""
    stops: Mapping[str, tuple[float, int | None]] = field(default_factory=dict)
    """How long each worker took to end after SIGTERM, and its exit code; none if it did not end."""

    @property
    def margin(self) -> float:
        return MARGIN + 2 * self.late


def check(seen: Seen) -> list[Violation]:
    """Everything that is wrong with what was seen."""
    return [Violation(rule, text) for rule, find in RULES.items() for text in find(seen)]


def all_is_done(seen: Seen) -> Iterator[str]:
    """Every task comes to its end."""
    for task, state in seen.unfinished.items():
        yield f"task {task} is {state} at the end"


def free_slots_are_used(seen: Seen) -> Iterator[str]:
    """A task that is due starts, if a worker that serves its queue has a free slot for longer than it may take."""
    # One worker that is told of everything sleeps until the next task is due; of others' tasks it may have to hear.
    allowed = seen.margin + (seen.setup.poll if seen.setup.workers > 1 else 0.0)
    free = {(worker, queue): _free(seen, worker, queue) for worker in seen.lives for queue in seen.setup.queues}
    for execution, due in _dues(seen):
        queue = seen.tasks[execution.task].queue
        for worker in seen.lives:
            for begin, end in free[worker, queue]:
                idle = min(end, execution.begin) - max(begin, due)
                if idle > allowed:
                    which = f"attempt {execution.attempt} of task {execution.task} in queue {queue}"
                    free_for = f"{worker} had a free slot for {idle:.2f} s, allowed are {allowed:.2f} s"
                    yield f"{which} was due, and {free_for}: it began {execution.begin - due:.2f} s late"


def _dues(seen: Seen) -> Iterator[tuple[Execution, float]]:
    """Attempts of which it is known when they were due: the first one of each task, and retries of errors."""
    outcomes = {(a.task, a.attempt): a.outcome for a in seen.attempts}
    before: dict[str, Execution] = {}
    for execution in sorted(seen.executions, key=lambda each: each.begin):
        task, last = seen.tasks[execution.task], before.get(execution.task)
        before[execution.task] = execution
        earlier = [outcomes.get((execution.task, n)) for n in range(1, execution.attempt)]
        if task.suspect or any(outcome != "retried" for outcome in earlier):
            continue
        if last is None:
            yield execution, task.due
        elif last.end is not None:
            yield execution, last.end + RETRY_SECONDS


def _free(seen: Seen, worker: str, queue: str) -> Spans:
    """When a worker was there and had a slot for a queue that was not paused."""
    life, limit = seen.lives[worker], seen.setup.queues[queue]
    changes: list[tuple[float, int, int]] = [(life.begin, 0, 0)]
    for execution in seen.executions:
        if execution.worker == worker:
            own = int(seen.tasks[execution.task].queue == queue)
            end = life.end if execution.end is None else execution.end
            changes += [(execution.begin, 1, own), (end, -1, -own)]
    for begin, end in seen.paused.get(queue, []):
        changes += [(begin, seen.setup.concurrency, 0), (end, -seen.setup.concurrency, 0)]
    changes.sort()
    spans: Spans = []
    busy = own_busy = 0
    for (at, change, own_change), (until, *_) in pairwise([*changes, (life.end, 0, 0)]):
        busy, own_busy = busy + change, own_busy + own_change
        has_slot = busy < seen.setup.concurrency and (limit is None or own_busy < limit)
        begin, end = max(at, life.begin), min(until, life.end)
        if has_slot and end > begin:
            if spans and spans[-1][1] == begin:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((begin, end))
    return spans


def limits_hold(seen: Seen) -> Iterator[str]:
    """A worker never executes more than its slots allow."""
    for worker in seen.lives:
        for queue, limit in [*seen.setup.queues.items(), (None, seen.setup.concurrency)]:
            busy = most = 0
            own = [e for e in seen.executions if e.worker == worker and e.end is not None]
            own = [e for e in own if queue is None or seen.tasks[e.task].queue == queue]
            for _, change in sorted([*((e.begin, 1) for e in own), *((e.end or inf, -1) for e in own)]):
                busy += change
                most = max(most, busy)
            if limit is not None and most > limit:
                yield f"{worker} executed {most} steps of {queue or 'all queues'} at once, allowed are {limit}"


def nothing_is_hoarded(seen: Seen) -> Iterator[str]:
    """Long steps are not claimed ahead, and what was claimed ahead begins soon or is given back."""
    by_attempt = {(e.task, e.attempt): e for e in seen.executions}
    all_are_long = all(burst.seconds > SHORT for burst in seen.setup.bursts)
    since: dict[tuple[str, str, int], float] = {}
    for sample in seen.samples:
        held: dict[str, int] = defaultdict(int)
        waiting: set[tuple[str, str, int]] = set()
        for worker, task, attempt in sample.leases:
            execution = by_attempt.get((task, attempt))
            # Whose handler has ended is only waiting to be recorded.
            held[worker] += execution is None or (execution.end or inf) > sample.at
            if (execution is None or execution.begin > sample.at) and sample.at < seen.lives[worker].end:
                waiting.add((worker, task, attempt))
        since = {each: since.get(each, sample.at) for each in waiting}
        for each, begin in since.items():
            if sample.at - begin > GIVEN_BACK + seen.margin:
                yield f"{each[0]} kept task {each[1]} waiting for a slot for {sample.at - begin:.1f} s"
                return
        for worker, count in held.items():
            if all_are_long and count > seen.setup.concurrency:
                yield f"{worker} held {count} leases of long steps with {seen.setup.concurrency} slots"
                return


def only_what_began_is_charged(seen: Seen) -> Iterator[str]:
    """A task is charged with a crash only for an attempt that its handler saw begin, or was about to in a free slot."""
    began = {(e.task, e.attempt) for e in seen.executions}
    lost: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in seen.attempts:
        if attempt.outcome == "lost":
            lost[attempt.task].append(attempt)
    charged = [
        task
        for task, crashes in seen.crashes.items()
        if crashes > int(seen.tasks[task].suspect) + sum((a.task, a.attempt) in began for a in lost.get(task, []))
    ]
    killed = sum(life.killed for life in seen.lives.values())
    if len(charged) > killed * seen.setup.concurrency:
        yield f"{len(charged)} tasks, such as {charged[0]}, were charged for attempts that had not begun"
    if not killed:
        for attempts in lost.values():
            yield f"{attempts[0]} was lost, and no worker was"


def loops_turn(seen: Seen) -> Iterator[str]:
    """No event loop is silent for a second."""
    for worker, longest in seen.silences.items():
        if longest > 1 + 2 * seen.late:
            yield f"the event loop of {worker} was silent for {longest:.2f} s"


def stops_are_obeyed(seen: Seen) -> Iterator[str]:
    """SIGTERM ends a worker within its grace time, with 0."""
    most = seen.grace + INTERRUPTED + seen.margin
    for worker, (seconds, code) in seen.stops.items():
        if code != 0 or seconds > most:
            ended = "did not end" if code is None else f"ended with {code}"
            yield f"{worker} {ended} {seconds:.1f} s after SIGTERM"


RULES = {
    "done": all_is_done,
    "W2": free_slots_are_used,
    "W1 slots": limits_hold,
    "W1 leases": nothing_is_hoarded,
    "L9": only_what_began_is_charged,
    "loop": loops_turn,
    "W4": stops_are_obeyed,
}
