"""No-op tasks that wait already, drained by one or two worker processes; and what each of them costs."""

from collections.abc import Sequence
from functools import partial

from benchmarks.bench import Bench, Figure, Found, Workload, one_by_one, together
from benchmarks.place import Place, await_quiet_statistics, usage
from benchmarks.slices import drain_in_slices
from benchmarks.systems import Crew, System

FIGURES = {
    "rate": Figure("drained", "tasks/s"),
    "worker_cpu": Figure("CPU of the worker", "s per 10,000", False),
    "postgres_cpu": Figure("CPU of Postgres", "s per 10,000", False),
    "wal": Figure("WAL", "bytes per task", False),
    "commits": Figure("commits", "per task", False),
    "memory": Figure("memory of the busy worker", "MB", False),
}


def measure(processes: int, bench: Bench, system: System) -> dict[str, float]:
    tasks = bench.count(system)
    bench.fresh(system)
    if "drain" in system.does:
        return {"rate": bench.drain(system, tasks, processes)}
    bench.fill(system, tasks)
    if processes == 1:
        return _with_costs(bench, system, tasks)
    return {"rate": bench.drain(system, tasks, processes)}


def race(bench: Bench, systems: Sequence[System]) -> list[Found]:
    """One and two processes of each system, all of them in slices."""
    sides: list[tuple[System, Place, int]] = []
    for processes in (1, 2):
        for system in systems:
            beside = bench.beside(len(sides))
            beside.fresh(system)
            beside.fill(system, bench.sizes.tasks)
            sides.append((system, beside.place, processes))
    rates = drain_in_slices(sides, bench.sizes.tasks)
    pairs = zip(rates, rates[len(systems) :], strict=False)
    return [{"rate": one, "two": two, "over_one": two / one} for one, two in pairs]


def _with_costs(bench: Bench, system: System, tasks: int) -> dict[str, float]:
    place = bench.place
    await_quiet_statistics()
    with Crew.of(system, place) as crew:
        worker, server, (wal, commits) = usage(crew.children[0].pid), place.cpu(), place.written()
        began = crew.go()
        crew.until(tasks)
        worker_after, server_after, wal_after = usage(crew.children[0].pid), place.cpu(), place.written()[0]
    await_quiet_statistics()
    found = {
        "rate": tasks / (crew.ended - began),
        "worker_cpu": (worker_after.cpu - worker.cpu) / tasks * 10_000,
        "wal": (wal_after - wal) / tasks,
        "commits": (place.written()[1] - commits) / tasks,
        "memory": worker_after.most_memory,
    }
    if server is not None and server_after is not None:
        found["postgres_cpu"] = (server_after - server) / tasks * 10_000
    return found


def workload(processes: int) -> Workload:
    alone = processes == 1  # how two compare is a matter of the race
    return Workload(
        "drain" if alone else f"drain-{processes}",
        f"Drain of no-op tasks, {'one process' if alone else f'{processes} processes'}",
        FIGURES if alone else {"rate": FIGURES["rate"]},
        one_by_one(partial(measure, processes)),
        quick=alone,
        turns=3 if alone else 1,
    )


RACE = Workload(
    "race",
    "Drains side by side, in slices of time",
    {
        "rate": Figure("one process", "tasks/s"),
        "two": Figure("two processes", "tasks/s"),
        "over_one": Figure("two against one", "times"),
    },
    together(race),
    needs=["race"],
    turns=9,
)
