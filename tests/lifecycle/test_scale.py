"""What pages and commands read does not grow with the number of tasks: bounded looks, and plans that enter indexes."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from benchmarks import plant
from holdfast import insights
from holdfast._model.read.filter import parse_filter
from holdfast._sql.query import Query
from holdfast.insights import bounded as looks
from holdfast.insights import database, totals

from .support import BOOM, Db
from .test_plans import needs_todays_planner

FEW, MANY = 5_000, 20_000
"""Archived and live tasks, before and after."""
BOUND = 40
"""Of what is looked at, in place of the real bounds: both tables are much larger."""
SLACK = 300
"""Rows more that do no harm: more tasks are running, and tasks are parked at more steps."""

FILTERS = [
    "",
    "state:due",
    "state:unroutable",
    "state:running",
    "state:parked",
    "state:done",
    "state:discarded",
    "queue:nowhere",
    "kind:rare",
    "key:nothing",
    "args.n:-1",
    "error:nothing",
    "worker:nobody",
    "before:100d",
    "state:parked kind:kind_1",
    "state:parked error:nothing",
    "state:parked,running error:nothing",
]


# --- plans


def asked(db: Db) -> Iterator[tuple[str, Query[Any]]]:
    """What pages and reading commands ask, with a bound that is far below the number of rows."""
    queries = db.queries
    [(live,)] = db.sql("SELECT id FROM holdfast.task ORDER BY id LIMIT 1")
    [(archived,)] = db.sql("SELECT id FROM holdfast.archive ORDER BY id LIMIT 1")
    workers = [row[0] for row in db.sql("SELECT id FROM holdfast.worker LIMIT 50")]
    yield "queues", insights.queues(queries)
    yield "kinds", insights.kinds(queries)
    yield "standing", insights.standing_now(queries)
    yield "standing of a kind", insights.standing_now(queries, "rare")
    yield "workers", insights.workers(queries)
    yield "running", insights.running(queries, limit=5)
    yield "in hand", insights.in_hand(queries, workers)
    yield "failures", insights.recent_failures(queries, limit=20)
    yield "gauges", insights.gauges(queries)
    yield "due steps", database.due_steps(queries, ["default", "mail"], limit=20)
    for id in (live, archived):
        yield "task", insights.task(queries, id)
        yield "attempts", insights.attempts(queries, id, limit=10)
    for filter in FILTERS:
        chosen = parse_filter(filter)
        yield f"tasks {filter}", insights.look(queries, chosen, limit=10)
        yield f"tasks {filter} below", insights.look(queries, chosen, limit=10, below=live)
        yield f"count {filter}", insights.look_count(queries, chosen, limit=BOUND)
        yield f"parked {filter}", insights.parked_groups(queries, chosen, limit=10)


def plans(db: Db) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, query in asked(db):
        text = f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query.statement.text}"
        [(plan,)] = db.connection.execute(text.encode(), query.parameters).fetchall()
        found[name] = json.loads(plan)[0]["Plan"]
    return found


def rows_read(plan: dict[str, Any]) -> float:
    """How many rows all scans of tables looked at, those included that they passed over."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    here = own * plan["Actual Loops"] if "Relation Name" in plan else 0
    return float(here + sum(rows_read(each) for each in plan.get("Plans", ())))


def scans(plan: dict[str, Any]) -> Iterator[str]:
    """The tables that are read as a whole, if they have rows."""
    if plan["Node Type"] == "Seq Scan" and plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) > 0:
        yield plan["Relation Name"]
    for each in plan.get("Plans", ()):
        yield from scans(each)


@pytest.mark.direct("it reads plans")
def test_what_is_read_does_not_grow_with_the_number_of_tasks(own_db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_todays_planner(own_db)
    monkeypatch.setattr(plant, "SCHEDULES", 5)
    for module, name, bound in (
        (looks, "LOOKED", BOUND),
        (looks, "_EXAMINED", BOUND),
        (looks, "_SPREAD", 10 * BOUND),
        (looks, "_GROUPED", BOUND),
        (totals, "COUNTED", BOUND),
        (totals, "_STANDING", BOUND),
        (totals, "_KNOWN", 10),
    ):
        monkeypatch.setattr(module, name, bound)
    plant.plant(own_db.url, archived=FEW, live=FEW, days=2, with_figures=False)
    before = plans(own_db)
    own_db.sql("TRUNCATE holdfast.task, holdfast.archive, holdfast.attempt")
    plant.plant(own_db.url, archived=MANY, live=MANY, days=2, with_figures=False)
    after = plans(own_db)
    for name, plan in after.items():
        whole = [table for table in scans(plan) if table.startswith(("task", "archive", "attempt"))]
        assert not whole, f"{name} reads all of {whole}\n{json.dumps(plan, indent=1)}"
        grown = f"{name}: {rows_read(before[name]):.0f} rows before, {rows_read(plan):.0f} after"
        assert rows_read(plan) <= 1.5 * rows_read(before[name]) + SLACK, f"{grown}\n{json.dumps(plan, indent=1)}"


# --- bounded looks


def walk(db: Db, text: str, limit: int = 3) -> tuple[list[UUID], int]:
    """All that looks one after the other find, and how many of them were cut."""
    seen: list[UUID] = []
    cut, below = 0, None
    for _ in range(1000):
        found = db.run(insights.look(db.queries, parse_filter(text), limit=limit, below=below))
        seen += [each.id for each in found.tasks]
        cut += found.is_cut
        if found.next is None:
            return seen, cut
        assert below is None or found.next < below, "it goes on"
        below = found.next
    raise AssertionError("it never ends")


def some_tasks(db: Db) -> None:
    """Parked at some steps, with errors of two sorts; running, due and ended."""
    worker = db.one("SELECT gen_random_uuid()")
    for _ in range(3):
        db.claimed(worker, "greeter.ReadName")
    for n in range(30):
        db.clock.advance(1)
        step = ("greeter.ReadName", "greeter.SayHello", "other.main")[n % 3]
        if n % 5 < 3:
            db.parked({**BOOM, "type": "OSError"} if n % 4 else BOOM, step=step)
        elif n % 5 == 3:
            db.cancel(db.enqueue(step))
        else:
            db.enqueue(step, delay=timedelta(hours=1))


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("", False),
        ("state:ready", True),
        ("state:cancelled", False),
        ("state:parked", False),
        ("state:running", False),
        ("state:running,parked", False),
        ("error:OSError", True),
        ("state:parked error:ValueError", True),
        ("state:parked kind:other error:ValueError", True),
        ("state:parked step:S* -error:OSError", True),
        ("kind:other", True),
        ("state:parked state:done", False),
        ("-state:parked", True),
        ("key:nothing", True),
    ],
)
def test_bounded_looks_find_everything_once_and_in_order(
    db: Db, monkeypatch: pytest.MonkeyPatch, text: str, is_cut: bool
) -> None:
    some_tasks(db)
    wanted = [each.id for each in db.run(insights.tasks(db.queries, parse_filter(text), limit=1000))]
    assert walk(db, text) == (wanted, 0), "nothing is cut where there are few"
    monkeypatch.setattr(looks, "LOOKED", 4)
    monkeypatch.setattr(looks, "_EXAMINED", 4)
    found, cut = walk(db, text)
    assert found == wanted
    assert (cut > 0) == is_cut, "whether the bound was met before enough was found"


def test_few_old_parked_tasks_wait_for_their_turn_behind_many_new_ones(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    old = [db.parked(BOOM, step="other.main") for _ in range(2)]
    wanted = db.parked(BOOM, step="greeter.ReadName")
    for _ in range(9):
        db.parked({"type": "OSError"}, step="greeter.ReadName")
    monkeypatch.setattr(looks, "_EXAMINED", 12)
    monkeypatch.setattr(looks, "_SPREAD", 0)
    first = db.run(insights.look(db.queries, parse_filter("state:parked error:ValueError"), limit=3))
    assert (first.tasks, first.is_cut) == ([], True), "those of the other step are known, but others come before them"
    assert walk(db, "state:parked error:ValueError")[0] == [wanted, *old[::-1]]


def test_a_count_says_whether_it_is_exact(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    some_tasks(db)

    def counted(text: str, limit: int = 100) -> tuple[int, bool]:
        found = db.run(insights.look_count(db.queries, parse_filter(text), limit=limit))
        return found.number, found.is_exact

    assert counted("") == (33, True) and counted("", 33) == (33, True) and counted("", 32) == (32, False)
    assert counted("state:parked") == (18, True) and counted("state:parked", 17) == (17, False)
    assert counted("state:running") == (3, True) and counted("state:running", 2) == (2, False)
    assert counted("state:running kind:other") == (0, True) and counted("state:running step:Read*") == (3, True)
    assert counted("state:running,parked -state:parked") == (3, True) and counted("state:parked kind:other") == (
        6,
        True,
    )
    assert counted("state:parked error:ValueError") == (4, True)
    assert counted("key:nothing") == (0, True) and counted("key:nothing", 5) == (0, False), "six were looked at"
    monkeypatch.setattr(looks, "_EXAMINED", 6)
    number, is_exact = counted("state:parked error:ValueError")
    assert number < 4 and not is_exact


def test_groups_of_very_many_parked_tasks_are_of_the_newest(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        db.parked(BOOM, step="greeter.ReadName")
    newest = db.parked({"type": "OSError"}, step="greeter.ReadName")
    db.parked(BOOM, step="other.main")
    monkeypatch.setattr(looks, "_GROUPED", 20)

    def groups(text: str = "") -> list[tuple[object, ...]]:
        found = db.run(insights.parked_groups(db.queries, parse_filter(text)))
        return sorted((g.kind, g.error_type, g.count, g.count_is_exact) for g in found)

    many = [("greeter", "OSError", 1, False), ("greeter", "ValueError", 9, False), ("other", "ValueError", 1, True)]
    assert groups() == many
    assert groups("error:OSError") == [("greeter", "OSError", 1, False)]
    assert groups("kind:other") == [("other", "ValueError", 1, True)]
    [group] = db.run(insights.parked_groups(db.queries, parse_filter("error:OSError")))
    assert group.example == newest
