"""Tasks of three durable steps, each recorded before the next begins."""

from benchmarks.bench import Bench, Figure, Workload, one_by_one
from benchmarks.systems import System


def measure(bench: Bench, system: System) -> dict[str, float]:
    tasks = bench.count(system, bench.sizes.tasks // 2)
    bench.fresh(system)
    bench.fill(system, tasks, steps=3)
    return {"rate": bench.drain(system, tasks, steps=3)}


WORKLOAD = Workload(
    "steps",
    "Three-step task, one process",
    {"rate": Figure("finished", "tasks/s")},
    one_by_one(measure),
    needs=["steps"],
)
