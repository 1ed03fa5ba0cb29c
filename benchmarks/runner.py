"""The order of a run: each workload in rounds, and in each round all systems in turn, because machines are noisy."""

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from benchmarks.bench import Bench, Sizes, Workload
from benchmarks.place import Place
from benchmarks.results import Result, Results
from benchmarks.systems import System


def run(
    place: Place,
    workloads: Iterable[Workload],
    systems: list[System],
    sizes: Sizes,
    *,
    absent: dict[str, str],
    versions: dict[str, str],
    keep: Callable[[Results], None],
) -> Results:
    """Measures everything. A system that fails at a workload is left out of it, and the reason is kept.

    `keep` is given what was found so far after each workload: a run may be broken off.
    """
    began = time.monotonic()
    facts: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **place.facts(),
        "peers": versions,
        "sizes": asdict(sizes),
        "settings": {s.name: s.settings for s in systems},
        "keeps": {s.name: s.keeps for s in systems},
    }
    results = Results(facts, absent=dict(absent))
    bench = Bench(place, sizes)
    for workload in workloads:
        suited = [system for system in systems if workload.suits(system)]
        for round_ in range(sizes.rounds):
            _measure_all(bench, workload, round_, suited, results)
        facts["took_seconds"] = round(time.monotonic() - began)
        _tell(workload, suited, results)
        keep(results)
    return results


def _measure_all(bench: Bench, workload: Workload, round_: int, suited: list[System], results: Results) -> None:
    """One round: a turn of all systems, and more of the fast ones."""
    found: dict[str, list[dict[str, float]]] = {system.name: [] for system in suited}
    for turn in range(min(workload.turns, bench.sizes.most_turns)):
        systems = [s for s in suited if not results.failed(workload.name, s.name) and (s.few == 1 or turn == 0)]
        # Forth and back: who comes first is told apart from who is faster, and those that are compared stay
        # neighbours, for a machine may be slower a minute later.
        if (round_ + turn) % 2:
            systems.reverse()
        for system, each in zip(systems, workload.turn(bench, systems), strict=True):
            if isinstance(each, str):
                results.fail(workload.name, system.name, each)
            else:
                found[system.name].append(each)
    for system in suited:
        if not (turns := found[system.name]) or results.failed(workload.name, system.name):
            continue
        each = {name: statistics.median([turn[name] for turn in turns]) for name in turns[0]}
        bench.found[workload.name, system.name] = each
        for name, figure in workload.figures.items():
            if name in each:
                of_turns = [turn[name] for turn in turns]
                results.add(workload.name, workload.title, system.name, name, figure, of_turns)


def _tell(workload: Workload, systems: list[System], results: Results) -> None:
    """What was found so far goes to standard error: a run may take long."""
    print(f"after {results.facts['took_seconds'] / 60:.1f} minutes:", file=sys.stderr)
    for system in systems:
        found: list[Result] = [r for r in results.of(workload.name) if r.system == system.name]
        said = ", ".join(f"{r.title} {r.shown} {r.unit}" for r in found) or results.failed(workload.name, system.name)
        print(f"{workload.name:12} {system.name:16} {said}", file=sys.stderr, flush=True)
