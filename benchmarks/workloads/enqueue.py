"""Single enqueues: each caller waits for its answer, which comes after the commit, before it goes on.

How long a commit takes changes by the second on a disk that others use as well. So the callers of all systems are there
at the same time, each system with a database of its own, and go on in slices of time.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.bench import Bench, Figure, Found, Workload, or_why_not
from benchmarks.slices import Callers, enqueue_in_slices
from benchmarks.systems import System


def turn(callers: int, bench: Bench, systems: Sequence[System]) -> Iterable[Found | str]:
    with ExitStack() as stack:

        def begin(bench: Bench, system: System) -> Callers:
            bench.fresh(system)
            made = Callers(system, bench.place, callers)
            stack.callback(made.end)
            return made

        sides = [or_why_not(begin, bench.apart(system), system) for system in systems]
        enqueue_in_slices([side for side in sides if isinstance(side, Callers)], bench.sizes.seconds)
        return [side if isinstance(side, str) else {"rate": side.rate()} for side in sides]


def workload(callers: int) -> Workload:
    who = "1 caller" if callers == 1 else f"{callers} callers of one app"
    return Workload(
        f"enqueue-{callers}",
        f"Single enqueue, {who}",
        {"rate": Figure("enqueued", "tasks/s")},
        partial(turn, callers),
        needs=["enqueue"],
    )
