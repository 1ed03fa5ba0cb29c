"""Many tasks from one process, by the system's way for many."""

from benchmarks.bench import Bench, Figure, Workload, one_by_one
from benchmarks.systems import System


def measure(bench: Bench, system: System) -> dict[str, float]:
    bench.fresh(system)
    return {"rate": bench.rate(system, "bulk", tasks=bench.count(system))}


WORKLOAD = Workload(
    "bulk", "Bulk enqueue", {"rate": Figure("enqueued", "tasks/s")}, one_by_one(measure), needs=["bulk"], turns=3
)
