"""Single enqueues: each caller waits for its answer, which comes after the commit, before it goes on."""

from functools import partial

from benchmarks.bench import Bench, Figure, Workload, one_by_one
from benchmarks.systems import System


def measure(callers: int, bench: Bench, system: System) -> dict[str, float]:
    bench.fresh(system)
    return {"rate": bench.rate(system, "single", callers=callers, seconds=bench.sizes.seconds)}


def workload(callers: int) -> Workload:
    who = "1 caller" if callers == 1 else f"{callers} callers of one app"
    return Workload(
        f"enqueue-{callers}",
        f"Single enqueue, {who}",
        {"rate": Figure("enqueued", "tasks/s")},
        one_by_one(partial(measure, callers)),
        needs=["enqueue"],
        turns=9 if callers == 1 else 3,
    )
