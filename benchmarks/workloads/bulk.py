"""Many tasks from one process, by the system's way for many."""

import statistics

from benchmarks.bench import Bench, Figure, Workload
from benchmarks.systems import System

TIMES = 3
"""How often in one turn: it takes little more than a second, in which a machine may be busy with something else."""


def measure(bench: Bench, system: System) -> dict[str, float]:
    rates = []
    for _ in range(TIMES if system.few == 1 else 1):
        bench.fresh(system)
        rates.append(bench.rate(system, "bulk", tasks=bench.count(system)))
    return {"rate": statistics.median(rates)}


WORKLOAD = Workload("bulk", "Bulk enqueue", {"rate": Figure("enqueued", "tasks/s")}, measure, needs=["bulk"])
