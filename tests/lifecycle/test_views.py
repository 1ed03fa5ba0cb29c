"""What people read: the views, the questions of the CLI, and the comments on everything (A1, T14)."""

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast import insights
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.read.filter import parse_filter

from .support import BOOM, NOW, Db

COMMENTED = """
    SELECT 'table or view ' || c.relname, obj_description(c.oid, 'pg_class')
    FROM pg_class c
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
    UNION ALL
    SELECT 'column ' || c.relname || '.' || a.attname, col_description(c.oid, a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    UNION ALL
    SELECT 'function ' || p.proname, obj_description(p.oid, 'pg_proc')
    FROM pg_proc p WHERE p.pronamespace = 'holdfast'::regnamespace
    UNION ALL
    SELECT 'domain ' || t.typname, obj_description(t.oid, 'pg_type')
    FROM pg_type t WHERE t.typnamespace = 'holdfast'::regnamespace AND t.typtype = 'd'
"""


def test_everything_in_the_schema_explains_itself(db: Db) -> None:
    rows = db.sql(COMMENTED)
    assert len(rows) > 100 and {"function enqueue", "column task.run_at", "table or view attempts"} < {
        r[0] for r in rows
    }
    assert [name for name, comment in rows if not comment] == []


def phase(db: Db, id: UUID) -> str:
    return str(db.one("SELECT phase FROM holdfast.tasks WHERE id = $1", id))


def test_the_phases_of_a_life(db: Db, worker: UUID) -> None:
    def register(steps: list[str], queues: list[str]) -> None:
        db.sql("DELETE FROM holdfast.worker")
        db.run(db.queries.register(worker, name="w", host="h", pid=1, version="0", queues=queues, steps=steps, slots=1))

    id = db.enqueue(delay=timedelta(minutes=1))
    assert phase(db, id) == "scheduled"
    db.clock.advance("1m")
    assert phase(db, id) == "unroutable", "there is no worker"
    register(["greeter.SayHello"], ["default"])
    assert phase(db, id) == "unroutable", "no worker knows the step"
    register(["greeter.ReadName"], ["other"])
    assert phase(db, id) == "unroutable", "no worker serves the queue"
    register(["greeter.ReadName"], ["other", "default"])
    assert phase(db, id) == "due"
    db.clock.advance("2m")
    assert phase(db, id) == "unroutable", "the worker was not seen for long"
    db.run(db.queries.seen(worker, 0))
    assert phase(db, id) == "due"
    db.run(db.queries.stopped(worker))
    assert phase(db, id) == "unroutable", "it has stopped"
    tasks = db.claim(worker)
    assert phase(db, id) == "running"
    db.run(db.stay(worker, tasks, "retried", error=BOOM, errors=1, delay=10))
    assert phase(db, id) == "retrying"
    db.clock.advance(10)
    db.run(db.stay(worker, db.claim(worker), "failed", error=BOOM, errors=1))
    assert phase(db, id) == "parked"
    db.discard(id)
    assert phase(db, id) == "discarded"


@pytest.mark.parametrize("state", ["done", "cancelled", "waiting"])
def test_the_other_phases(db: Db, worker: UUID, state: str) -> None:
    id = db.enqueue()
    if state == "waiting":
        db.sql("UPDATE holdfast.task SET state = 'waiting'")
    elif state == "done":
        db.run(db.finish(worker, db.claim(worker)))
    else:
        db.cancel(id)
    assert phase(db, id) == state


def test_A1_the_log_has_every_attempt_and_the_running_one(db: Db, worker: UUID, other_worker: UUID) -> None:
    [task] = [db.claimed(worker, args='{"n": 1}')]
    db.clock.advance(1)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    [task] = db.claim(worker)
    db.run(db.stay(worker, [task], "snoozed", delay=0))
    [task] = db.claim(worker)
    db.run(db.stay(worker, [task], "released"))
    db.claim(worker)
    db.clock.advance("1h")
    db.reap()
    [task] = db.claim(other_worker)
    db.run(db.advance(other_worker, [task], args={"greeting": "hi"}))
    [task] = db.claim(other_worker)
    db.run(db.stay(other_worker, [task], "failed", error=BOOM, errors=1))
    db.retry(task.id)
    [task] = db.claim(other_worker)
    running = db.run(db.queries.task_attempts(task.id))
    assert [(r[3], r[4], r[5], r[9]) for r in running] == [
        ("ReadName", 0, 1, "retried"), ("ReadName", 0, 2, "snoozed"), ("ReadName", 0, 3, "released"),
        ("ReadName", 0, 4, "lost"), ("ReadName", 0, 5, "advanced"), ("SayHello", 1, 6, "failed"),
        ("SayHello", 1, 7, None),
    ]  # fmt: skip
    assert [r[6] for r in running] == [worker] * 4 + [other_worker] * 3
    assert running[0][7:9] == (NOW, NOW + timedelta(seconds=1)) and running[-1][8] is None
    assert (running[0][11], running[-1][11]) == (b'{"n": 1}', b'{"greeting": "hi"}')
    assert [r[10] is not None for r in running] == [True, False, False, True, False, True, False]
    db.run(db.finish(other_worker, [task]))
    ended = db.run(db.queries.task_attempts(task.id))
    assert ended[:-1] == running[:-1] and ended[-1][9:11] == ("done", None)


def test_the_repairs_of_a_task_in_order(db: Db) -> None:
    id = db.parked()
    db.retry(id, by="ann", why="one")
    db.cancel(id, by="bob", why="two")
    rows = db.run(db.queries.task_changes(id))
    assert [row[:3] for row in rows] == [("retry", "ann", "one"), ("cancel", "bob", "two")]


def test_a_task_is_found_live_or_archived(db: Db, worker: UUID) -> None:
    def info(id: UUID) -> list[tuple[object, ...]]:
        return db.run(db.queries.task_info(id))

    id = db.enqueue()
    assert [(r[0], r[4]) for r in info(id)] == [(id, "ready")]
    db.run(db.finish(worker, db.claim(worker), result=[1]))
    [row] = info(id)
    assert (row[4], row[5], row[-6], row[-5]) == ("done", "done", NOW, b"[1]")
    assert info(uuid7()) == []


def test_tasks_are_listed_newest_first_in_pages_and_by_filter(db: Db, worker: UUID) -> None:
    ids = [db.enqueue(queue="a"), db.enqueue("other.main"), db.enqueue(delay=timedelta(hours=1)), db.enqueue()]
    db.run(db.finish(worker, db.claim(worker)))

    def listed(filter: str = "", limit: int = 10, below: UUID | None = None) -> list[UUID]:
        return [t.id for t in db.run(insights.tasks(db.queries, parse_filter(filter), limit=limit, below=below))]

    assert listed() == ids[::-1]
    assert listed(limit=2) == [ids[3], ids[2]] and listed(below=ids[2]) == [ids[1], ids[0]]
    assert listed("queue:a") == [ids[0]] and listed("kind:other") == [ids[1]]
    assert listed("state:scheduled") == [ids[2]] and listed("state:done") == [ids[3]]
    assert listed("state:ready") == [ids[2], ids[1], ids[0]] and listed("state:parked") == []


def test_T14_unroutable_tasks_are_listed(db: Db) -> None:
    id = db.enqueue("greeter.Gone")
    rows = db.run(insights.tasks(db.queries, parse_filter("state:unroutable"), limit=5))
    assert [row.id for row in rows] == [id]


def test_T11_parked_fits_on_a_screen(db: Db) -> None:
    """For psql: no args, no tracebacks, and of a long message its beginning."""
    id = db.parked(
        {"type": "ValueError", "message": "first\nsecond " + "x" * 500}, args='{"blob": "' + "x" * 500 + '"}'
    )
    row = db._row("SELECT * FROM holdfast.parked WHERE id = $1", id)
    assert row["error_type"] == "ValueError"
    assert row["error_message"].startswith("first second xxx")
    assert sum(len(str(value)) + 3 for value in row.values()) < 200
