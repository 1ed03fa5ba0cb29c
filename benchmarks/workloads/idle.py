"""What a worker costs that has nothing to do."""

import time

from benchmarks.bench import Bench, Figure, Workload, at_once
from benchmarks.place import await_quiet_statistics, usage
from benchmarks.systems import Crew, System


def measure(bench: Bench, system: System) -> dict[str, float]:
    place = bench.place
    bench.fresh(system)
    with place.counting_statements(), Crew.of(system, place) as crew:
        crew.go()
        time.sleep(bench.sizes.idle_after)  # until it has done what it does once, at its start
        await_quiet_statistics()
        before, commits, cpu = place.statements(), place.written()[1], usage(crew.children[0].pid).cpu
        began = time.monotonic()
        time.sleep(bench.sizes.idle_seconds)
        await_quiet_statistics()
        after, elapsed, used = place.statements(), time.monotonic() - began, usage(crew.children[0].pid)
        found = {
            "commits": (place.written()[1] - commits) / elapsed,
            "memory": used.memory,
            "cpu": (used.cpu - cpu) / elapsed * 100,
        }
        if before is not None and after is not None:
            found["statements"] = (after - before) / elapsed
        return found


WORKLOAD = Workload(
    "idle",
    "An idle worker",
    {
        "statements": Figure("statements", "per second", False),
        "commits": Figure("commits", "per second", False),
        "memory": Figure("memory", "MB", False),
        "cpu": Figure("CPU", "% of a core", False),
    },
    at_once(measure),
    needs=["work"],
    quick=False,
)
