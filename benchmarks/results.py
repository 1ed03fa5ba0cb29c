"""What was measured: medians with their ranges, and the targets they are held against."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from benchmarks.bench import Figure


@dataclass
class Result:
    """One figure of one system: a value per round, and what each was the median of: the turns of the round."""

    workload: str
    workload_title: str
    system: str
    figure: str
    title: str
    unit: str
    higher_is_better: bool
    values: list[float] = field(default_factory=list)
    turns: list[list[float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def shown(self) -> str:
        return number(self.median)

    @property
    def range(self) -> str:
        return f"{number(min(self.values))} to {number(max(self.values))}"


@dataclass
class Results:
    """All figures of a run. `absent`: systems that could not run at all; `failures`: by workload and system."""

    facts: dict[str, Any]
    figures: list[Result] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    failures: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(
        self, workload: str, workload_title: str, system: str, name: str, figure: Figure, turns: list[float]
    ) -> None:
        """What was found in the turns of one round."""
        found = self.find(workload, system, name)
        if found is None:
            about = figure.title, figure.unit, figure.higher_is_better
            found = Result(workload, workload_title, system, name, *about)
            self.figures.append(found)
        found.values.append(statistics.median(turns))
        found.turns.append(turns)

    def fail(self, workload: str, system: str, why: str) -> None:
        self.failures.setdefault(workload, {})[system] = why

    def failed(self, workload: str, system: str) -> str | None:
        return self.failures.get(workload, {}).get(system)

    def of(self, workload: str, figure: str | None = None) -> list[Result]:
        return [r for r in self.figures if r.workload == workload and figure in (None, r.figure)]

    def find(self, workload: str, system: str, figure: str = "rate") -> Result | None:
        return next((r for r in self.of(workload, figure) if r.system == system), None)

    def ratio(self, workload: str, ours: str, theirs: str, figure: str = "rate") -> float | None:
        """Ours against theirs, turn by turn, or round by round if one of them had fewer: the median of the ratios."""
        left, right = self.find(workload, ours, figure), self.find(workload, theirs, figure)
        if left is None or right is None:
            return None
        pairs = [(a, b) for a, b in _neighbours(left, right) if b]
        return statistics.median(a / b for a, b in pairs) if pairs else None

    def to_json(self) -> dict[str, Any]:
        return {
            "facts": self.facts,
            "figures": [
                {**vars(r), "median": r.median, "low": min(r.values), "high": max(r.values)} for r in self.figures
            ],
            "absent": self.absent,
            "failures": self.failures,
            "targets": [
                {"target": t.title, "wanted": t.wanted, "found": t.found(self), "met": t.met(self)} for t in TARGETS
            ],
        }

    def added_to(self, earlier: "Results") -> "Results":
        """Together with the workloads of an earlier run that were not measured this time."""
        anew = {figure.workload for figure in self.figures} | self.failures.keys()
        facts = {**self.facts, "took_seconds": self.facts["took_seconds"] + earlier.facts["took_seconds"]}
        # How busy the machine was before the first part: a later one may begin right after us.
        facts["machine"] = {**self.facts["machine"], "load_before": earlier.facts["machine"]["load_before"]}
        facts["began"] = earlier.facts.get("began", earlier.facts["when"])
        for about in ("settings", "keeps", "peers"):
            facts[about] = {**earlier.facts[about], **self.facts[about]}
        return Results(
            facts,
            [figure for figure in earlier.figures if figure.workload not in anew] + self.figures,
            self.absent,
            {name: failed for name, failed in earlier.failures.items() if name not in anew} | self.failures,
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Results":
        figures = [
            Result(**{k: v for k, v in figure.items() if k not in ("median", "low", "high")})
            for figure in data["figures"]
        ]
        return cls(data["facts"], figures, data["absent"], data["failures"])


def _neighbours(left: Result, right: Result) -> Iterable[tuple[float, float]]:
    """What was measured right after each other: a machine may be slower a minute later."""
    if left.turns and [*map(len, left.turns)] == [*map(len, right.turns)]:
        return zip(chain(*left.turns), chain(*right.turns), strict=True)
    return zip(left.values, right.values, strict=False)


@dataclass(frozen=True)
class Target:
    """What a figure has to reach: at least, or at most."""

    title: str
    wanted: float
    found: Callable[[Results], float | None]
    at_most: bool = False

    def met(self, results: Results) -> bool | None:
        found = self.found(results)
        if found is None:
            return None
        return found <= self.wanted if self.at_most else found >= self.wanted


def number(value: float) -> str:
    """Three digits that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


OURS, RAW = "holdfast", "raw SQL"


def _against(workload: str, other: str, figure: str = "rate") -> Callable[[Results], float | None]:
    return lambda results: results.ratio(workload, OURS, other, figure)


def _own(workload: str, figure: str) -> Callable[[Results], float | None]:
    def found(results: Results) -> float | None:
        result = results.find(workload, OURS, figure)
        return None if result is None else result.median

    return found


def _best_peer(workload: str) -> Callable[[Results], float | None]:
    """Against whichever peer is best."""

    def found(results: Results) -> float | None:
        peers = {r.system for r in results.of(workload, "rate")} - {OURS, RAW}
        ratios = [ratio for peer in peers if (ratio := results.ratio(workload, OURS, peer)) is not None]
        return min(ratios, default=None)

    return found


TARGETS = [
    Target("drain, one process, against graphile-worker", 1.25, _against("race", "graphile-worker")),
    Target("drain, one process, against PgQueuer", 3.0, _against("drain", "PgQueuer")),
    Target("drain, one process, against the raw batch limit", 0.70, _against("drain", RAW)),
    Target("drain, two processes against one", 1.1, _own("race", "over_one")),
    Target("drain, two processes, against graphile-worker", 1.1, _against("race", "graphile-worker", "two")),
    Target("three-step tasks a second", 5000, _own("steps", "rate")),
    Target("three-step task, against absurd", 25, _against("steps", "absurd")),
    Target("three-step task, against DBOS", 25, _against("steps", "DBOS")),
    Target("single enqueue, 1 caller, against pgbench", 0.75, _against("enqueue-1", RAW)),
    Target("single enqueue, 16 callers, against pgbench", 1.0, _against("enqueue-16", RAW)),
    Target("single enqueue, 16 callers, against the best peer", 4, _best_peer("enqueue-16")),
    Target("bulk enqueue, against COPY from Python", 0.80, _against("bulk", RAW)),
    Target("idle latency p50, against graphile-worker", 1.0, _against("latency-race", "graphile-worker", "p50"), True),
    Target("idle latency p99, against graphile-worker", 1.0, _against("latency-race", "graphile-worker", "p99"), True),
    Target("behind future tasks, % of the clean rate", 85, _own("future", "part")),
    Target("beside archived tasks, % of the clean rate", 95, _own("archived", "part")),
    Target("behind unroutable tasks, % of the clean rate", 50, _own("unroutable", "part")),
    Target("of ten priorities, % of the clean rate", 90, _own("priorities", "part")),
    Target("old snapshot, % of the clean rate", 80, _own("snapshot", "part")),
    Target("statements a second of an idle worker", 2, _own("idle", "statements"), True),
    Target("MB of an idle worker", 60, _own("idle", "memory"), True),
]
