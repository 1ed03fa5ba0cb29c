"""Drains with something in the way: future, archived or unroutable tasks, priorities, an old snapshot."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial

import psycopg

from benchmarks.bench import Bench, Figure, Workload, one_by_one
from benchmarks.slices import drain_in_slices
from benchmarks.systems import System

FIGURES = {"rate": Figure("drained", "tasks/s"), "part": Figure("of the clean rate", "%")}

ARCHIVED = """
INSERT INTO holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                              worker_id, claimed_at, outcome, created_at)
SELECT holdfast.new_id(), 'default', 'noop', 'main', '{"n": 1}', 'done', 0, now(), 0, 1, 0, 0,
       gen_random_uuid(), now(), 'done', now()
FROM generate_series(1, %s)
"""
UNROUTABLE = """
INSERT INTO holdfast.task (id, kind, step) SELECT holdfast.new_id(), 'unknown', 'main' FROM generate_series(1, %s)
"""


def _plant(bench: Bench, system: System, what: str) -> None:
    match what:
        case "future":
            bench.ask(system, "bulk", tasks=bench.sizes.behind, delay=86400)
        case "archived":
            _insert(bench, ARCHIVED, bench.sizes.behind)
        case "unroutable":
            _insert(bench, UNROUTABLE, bench.sizes.unroutable)


def _insert(bench: Bench, statement: str, count: int) -> None:
    with psycopg.connect(bench.place.work) as connection:
        connection.execute(statement.encode(), [count])


def _old_snapshot(url: str) -> AbstractContextManager[object]:
    connection = psycopg.connect(url)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    # Without an id of its own, which all databases of a server would have to mind: elsewhere the clean drain is in one.
    connection.execute("SELECT 1 FROM pg_class LIMIT 1")
    return connection


def measure(what: str, bench: Bench, system: System) -> dict[str, float]:
    """Side by side with a clean drain of as many tasks."""
    tasks = bench.count(system, bench.sizes.snapshot if what == "snapshot" else None)
    hindered, clean = bench.beside(0), bench.beside(1)
    planted = what if what in ("future", "archived", "unroutable") else ""
    hindered.fresh(system, planted, partial(_plant, hindered, system, planted))
    hindered.fill(system, tasks, priorities=10 if what == "priorities" else 1)
    clean.fresh(system)
    clean.fill(system, tasks)
    with _old_snapshot(hindered.place.work) if what == "snapshot" else nullcontext():
        rate, clean_rate = drain_in_slices([(system, each.place, 1) for each in (hindered, clean)], tasks)
    return {"rate": rate, "part": 100 * rate / clean_rate}


def workload(what: str, title: str, needs: str) -> Workload:
    return Workload(
        what,
        f"Drain {title}",
        FIGURES,
        one_by_one(partial(measure, what)),
        needs=["work", needs],
        quick=False,
        turns=3 if what in ("archived", "priorities") else 1,  # the two whose part is near to all of it
    )


WORKLOADS = [
    workload("future", "behind 1,000,000 future tasks", "future"),
    workload("archived", "beside 1,000,000 archived tasks", "obstacles"),
    workload("unroutable", "behind 100,000 unroutable tasks", "obstacles"),
    workload("priorities", "of ten priorities", "obstacles"),
    workload("snapshot", "with an old snapshot held open", "future"),
]
