"""How long after the commit of its enqueue a task begins, on an idle system and under half of the load it can take."""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.bench import Bench, Figure, Found, Workload, one_by_one, quantile, together
from benchmarks.systems import Crew, System, Trouble

FIGURES = {"p50": Figure("p50", "ms", False), "p99": Figure("p99", "ms", False)}
GAP = 0.02
"""Seconds between two tasks, more or less."""
BLOCKS = 10


def _waits(crew: Crew, commits: list[tuple[int, float]]) -> list[float]:
    """How many milliseconds after its commit each of these began, which are all that came since it was last asked."""
    crew.until(sum(crew.counts) + len(commits), patience=120)
    starts = dict(crew.starts)
    crew.starts.clear()
    missing = [n for n, _ in commits if n not in starts]
    if missing:
        raise Trouble(f"{crew.system.name} never began {len(missing):,} tasks")
    # Less than nothing: it began before its producer was told of the commit.
    return [(starts[n] - committed) * 1000 for n, committed in commits]


def _quantiles(waits: list[float]) -> Found:
    return {"p50": quantile(waits, 0.5), "p99": quantile(waits, 0.99)}


def measure_idle(bench: Bench, system: System) -> dict[str, float]:
    bench.fresh(system)
    with Crew.of(system, bench.place, starts=True) as crew:
        crew.go()
        time.sleep(bench.sizes.settle_seconds)  # until it has nothing to do any more
        commits = bench.ask(system, "send", samples=bench.sizes.samples, gap=GAP)["commits"]
        return _quantiles(_waits(crew, commits))


def race(bench: Bench, systems: Sequence[System]) -> list[Found]:
    """Idle workers of all systems at the same time; tasks are enqueued in blocks, for one system after the other."""
    with ExitStack() as stack:
        sides: list[tuple[Bench, Crew, list[float]]] = []
        for system in systems:
            apart = bench.apart(system, "race")
            apart.fresh(system)
            crew = stack.enter_context(Crew.of(system, apart.place, starts=True))
            crew.go()
            sides.append((apart, crew, []))
        time.sleep(bench.sizes.settle_seconds)
        samples = max(1, bench.sizes.samples // BLOCKS)
        for _ in range(BLOCKS):
            for apart, crew, waits in sides:
                waits += _waits(crew, apart.ask(crew.system, "send", samples=samples, gap=GAP)["commits"])
        return [_quantiles(waits) for _, _, waits in sides]


def measure_mixed(bench: Bench, system: System) -> dict[str, float]:
    """Half of what enqueue and drain would do one after the other: both share this machine."""
    bulk = bench.found.get(("bulk", system.name), {}).get("rate")
    drain = bench.found.get(("drain", system.name), {}).get("rate")
    if bulk is None or drain is None:
        tasks = bench.count(system)
        bench.fresh(system)
        bulk, drain = bench.rate(system, "bulk", tasks=tasks), bench.drain(system, tasks)
    rate = 0.5 / (1 / bulk + 1 / drain)
    bench.fresh(system)
    with Crew.of(system, bench.place, starts=True) as crew:
        crew.go()
        time.sleep(bench.sizes.settle_seconds)
        answer = bench.ask(system, "load", rate=rate, seconds=bench.sizes.mixed_seconds)
        waits = _waits(crew, answer["commits"])
        return {"rate": len(answer["commits"]) / answer["seconds"], **_quantiles(waits)}


IDLE = Workload(
    "latency",
    "From commit to start on an idle system",
    FIGURES,
    one_by_one(measure_idle),
    needs=["enqueue", "work"],
)
RACE = Workload(
    "latency-race",
    "From commit to start on an idle system, side by side",
    FIGURES,
    together(race),
    needs=["race"],
    quick=False,
)
MIXED = Workload(
    "mixed",
    "From commit to start at half of the capacity",
    {"rate": Figure("enqueued and drained", "tasks/s"), **FIGURES},
    one_by_one(measure_mixed),
    needs=["bulk", "work"],
    quick=False,
)
