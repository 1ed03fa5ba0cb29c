"""The faults by their names: each is a function that does its harm in a laboratory and gives its figures."""

import asyncio
import time
import traceback
from bisect import bisect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

from faults.checker import Violation, overlaps
from faults.history import History
from faults.lab import Lab
from faults.places import NotHere, Place

LONGEST = 300.0
"""Seconds that a fault may take beside its own: whatever hangs is found wrong, and the next one has its turn."""

Figures: TypeAlias = dict[str, str]
Harm: TypeAlias = Callable[[Lab], Awaitable[Figures]]
OwnPlace: TypeAlias = Callable[[], AbstractContextManager[Place]]


@dataclass(frozen=True)
class Fault:
    """What is done. `seconds`: how long it goes on in a full run; `short`: in the tests.

    `place`: the server it needs, if not the ordinary one; `alone`: it is run only if asked for by its name.
    """

    name: str
    title: str
    harm: Harm
    seconds: float
    short: float
    place: OwnPlace | None = None
    alone: bool = False


@dataclass
class Result:
    """How a fault went."""

    name: str
    title: str
    seed: int
    took: float
    figures: Figures
    violations: list[Violation] = field(default_factory=list)
    skipped: str = ""
    """Why this machine cannot do it."""

    @property
    def holds(self) -> bool:
        return not self.violations


FAULTS: dict[str, Fault] = {}


def fault(
    name: str,
    title: str,
    *,
    seconds: float = 40.0,
    short: float = 5.0,
    place: OwnPlace | None = None,
    alone: bool = False,
) -> Callable[[Harm], Harm]:
    """Declares a fault: the docstring says what must hold beyond I1 to I9."""

    def declare(harm: Harm) -> Harm:
        FAULTS[name] = Fault(name, title, harm, seconds, short, place, alone)
        return harm

    return declare


def run(fault: Fault, place: Place, seed: int, seconds: float, say: Callable[[str], None]) -> Result:
    """Runs one fault, in the given place if it needs no other; whatever it raises is a violation too."""
    result = Result(fault.name, fault.title, seed, 0, {})
    begun = time.monotonic()
    try:
        with fault.place() if fault.place else nullcontext(place) as chosen:
            lab = Lab(chosen, seed, seconds, say=say)
            result.violations = lab.violations
            result.figures = asyncio.run(_harmed(fault, lab))
    except NotHere as reason:
        result.skipped = str(reason)
    except Exception:
        result.violations.append(Violation(fault.name, traceback.format_exc()))
    result.took = time.monotonic() - begun
    return result


async def _harmed(fault: Fault, lab: Lab) -> Figures:
    async with lab.open(), asyncio.timeout(lab.seconds + LONGEST):
        figures = await fault.harm(lab)
        if not hasattr(lab, "history"):
            return figures
        if AGAIN not in figures and (after := next_begins(lab.history, lab.harmed)):
            figures = {**figures, AGAIN: spread(after)}
        return {**figures, **common(lab.history)}


# --- figures


def common(history: History) -> Figures:
    """What is told of every fault."""
    visits = {(e.task, e.moves) for e in history.executions}
    again = len(history.executions) - len(visits)
    lost = sum(a.outcome == "lost" for a in history.attempts)
    ids = {task.id for task in history.tasks}
    gone = sum(id not in ids for id in history.ledger.acknowledged.values())
    figures = {
        "tasks": str(len(history.tasks)),
        "lost": str(gone),
        "steps executed again": f"{100 * again / max(1, len(visits)):.1f} %",
        "attempts lost": str(lost),
    }
    if found := overlaps(history):
        figures["overlaps"] = str(len(found))
    return figures


def spread(values: Sequence[float], unit: str = "s") -> str:
    """The middle and the worst of some values."""
    return f"p50 {median(values):.1f} {unit}, max {max(values):.1f} {unit}" if values else "none"


AGAIN = "working again after"


def next_begins(history: History, moments: Sequence[float]) -> list[float]:
    """Seconds from each of some moments to the next beginning of any step."""
    begins = sorted(execution.begin for execution in history.executions)
    places = [(moment, bisect(begins, moment)) for moment in moments]
    return [begins[place] - moment for moment, place in places if place < len(begins)]


def recoveries(history: History) -> list[float]:
    """Seconds from the death of a worker to the next beginning of each task that it was executing."""
    found = []
    for execution in history.executions:
        died = history.deaths.get(execution.worker)
        if execution.end is None and died is not None:
            later = [e.begin for e in history.executions if e.task == execution.task and e.begin > died]
            if later:
                found.append(min(later) - died)
    return found
