"""Single enqueues: each caller waits for its answer, which comes after the commit, before it goes on.

How long a commit takes changes by the second on a disk that others use as well. So the callers of all systems are there
at the same time, each system with a database of its own, and go on in slices of time.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.bench import Bench, Figure, Found, Workload, or_why_not
from benchmarks.slices import CALLS_SLICE, Callers
from benchmarks.systems import System


def turn(callers: int, bench: Bench, systems: Sequence[System]) -> Iterable[Found | str]:
    found: dict[System, Any] = {system: bench.apart(system) for system in systems}
    with ExitStack() as stack:

        def each(do: Callable[[System, Any], Any], order: Sequence[System] = systems) -> None:
            """Whoever fails is left out from then on, and why is what was found."""
            for system in order:
                if not isinstance(found[system], str):
                    found[system] = or_why_not(do, system, found[system])

        def prepare(system: System, own: Bench) -> Bench:
            stack.callback(own.place.drop)
            own.fresh(system)
            return own

        def begin(system: System, own: Bench) -> Callers:
            made = Callers(system, own.place, callers)
            stack.callback(made.end)
            return made

        for do in (prepare, begin, _warm_up):
            each(do)
        order = list(systems)
        for _ in range(max(1, round(bench.sizes.seconds / CALLS_SLICE))):
            each(_go_on, order)
            order.reverse()  # nobody always comes after the same one
        each(_rate)
    return found.values()


def _warm_up(_: System, side: Callers) -> Callers:
    side.warm_up()
    return side


def _go_on(_: System, side: Callers) -> Callers:
    side.go_on()
    return side


def _rate(_: System, side: Callers) -> Found:
    return {"rate": side.rate()}


def workload(callers: int) -> Workload:
    who = "1 caller" if callers == 1 else f"{callers} callers of one app"
    return Workload(
        f"enqueue-{callers}",
        f"Single enqueue, {who}",
        {"rate": Figure("enqueued", "tasks/s")},
        partial(turn, callers),
        needs=["enqueue"],
    )
