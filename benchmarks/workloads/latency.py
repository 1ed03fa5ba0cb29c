"""How long after the commit of its enqueue a task begins, on an idle system and under half of the load it can take."""

import time

from benchmarks.bench import Bench, Figure, Workload, one_by_one, quantile
from benchmarks.systems import Crew, System, Trouble

FIGURES = {"p50": Figure("p50", "ms", False), "p99": Figure("p99", "ms", False)}


def _latencies(crew: Crew, commits: list[tuple[int, float]]) -> dict[str, float]:
    crew.until(len(commits), patience=120)
    starts = dict(crew.starts)
    missing = [n for n, _ in commits if n not in starts]
    if missing:
        raise Trouble(f"{crew.system.name} never began {len(missing):,} tasks")
    # Less than nothing: it began before its producer was told of the commit.
    waits = [(starts[n] - committed) * 1000 for n, committed in commits]
    return {"p50": quantile(waits, 0.5), "p99": quantile(waits, 0.99)}


def measure_idle(bench: Bench, system: System) -> dict[str, float]:
    bench.fresh(system)
    with Crew.of(system, bench.place, starts=True) as crew:
        crew.go()
        time.sleep(bench.sizes.settle_seconds)  # until it has nothing to do any more
        commits = bench.ask(system, "send", samples=bench.sizes.samples, gap=0.02)["commits"]
        return _latencies(crew, commits)


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
        return {"rate": len(answer["commits"]) / answer["seconds"], **_latencies(crew, answer["commits"])}


IDLE = Workload(
    "latency",
    "From commit to start on an idle system",
    FIGURES,
    one_by_one(measure_idle),
    needs=["enqueue", "work"],
)
MIXED = Workload(
    "mixed",
    "From commit to start at half of the capacity",
    {"rate": Figure("enqueued and drained", "tasks/s"), **FIGURES},
    one_by_one(measure_mixed),
    needs=["bulk", "work"],
    quick=False,
)
