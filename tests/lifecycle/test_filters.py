"""The filter language on real rows: what it lets through, how pages and counts are bounded."""

from datetime import timedelta
from uuid import UUID

import pytest

from holdfast import insights
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.read.filter import parse_filter

from .support import BOOM, NOW, Db


def found(db: Db, text: str, **options: object) -> set[UUID]:
    return {each.id for each in db.run(insights.tasks(db.queries, parse_filter(text), **options))}  # type: ignore[arg-type]


@pytest.fixture
def rows(db: Db) -> dict[str, UUID]:
    worker = uuid7()
    db.sql(
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots) "
        "VALUES ($1, 'shed:1', 'shed', 1, '0', '{default}', '{greeter.ReadName}', 1)",
        worker,
    )
    made = {
        "parked": db.parked({"type": "FileNotFoundError", "message": "No such file: 100%_a"}, args='{"order_id": 42}')
    }
    made["running"] = db.claimed(worker, key="mail:1", args='{"order_id": "42", "customer": {"name": "Ada"}}').id
    made["later"] = db.enqueue(delay=timedelta(hours=1), priority=7, key="mail:2", args='{"order_id": null}')
    made["due"] = db.enqueue("greeter.SayHello", queue="mail_room")
    task = db.claimed(worker)
    db.run(db.finish(worker, [task], result=1))
    made["done"] = task.id
    return made


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "parked running later due done"),
        ("state:parked", "parked"),
        ("state:parked,done", "parked done"),
        ("-state:done,parked", "running later due"),
        ("state:scheduled", "later"),
        ("state:unroutable", "due"),
        ("state:ready", "later due"),
        ("kind:greeter step:SayHello", "due"),
        ("step:Say*", "due"),
        ("kind:gree", ""),
        ("queue:mail_room", "due"),
        ("queue:mailxroom,mail-room", ""),
        ("queue:m*_r*", "due"),
        ("key:mail:*", "running later"),
        ("-key:mail:*", "parked due done"),
        ("key:mail:1", "running"),
        ("priority:7,8", "later"),
        ("worker:shed:1", "running done"),
        ("args.order_id:42", "parked running"),
        ("args.customer.name:A*", "running"),
        ("args.order_id:null state:ready", "later due"),
        ("error:filenotfound", "parked"),
        ('error:"no such file"', "parked"),
        ("error:100%_a", "parked"),
        ("error:1%a", ""),
        ("since:1h", "parked running later due done"),
        ("before:1h", ""),
        ("since:2031-05-21", ""),
        ("before:2031-05-21 -state:done", "parked running later due"),
    ],
)
def test_a_filter_lets_through_what_it_says(db: Db, rows: dict[str, UUID], text: str, names: str) -> None:
    assert found(db, text) == {rows[name] for name in names.split()}
    assert db.run(insights.count(db.queries, parse_filter(text))) == len(names.split())


def test_ids_and_workers_by_id(db: Db, rows: dict[str, UUID]) -> None:
    id = rows["parked"]
    assert found(db, f"id:{id}") == {id}
    assert id in found(db, f"id:{str(id)[:8]}")
    assert found(db, f"id:{str(id)[:23]}") == {id}
    worker = db.task(rows["running"])["worker_id"]
    assert found(db, f"worker:{worker}") == {rows["running"], rows["done"]}


def test_since_goes_by_the_databases_clock(db: Db) -> None:
    old = db.enqueue()
    db.clock.set(NOW + timedelta(hours=2))
    new = db.enqueue()
    assert found(db, "since:1h") == {new} and found(db, "before:1h") == {old}
    assert found(db, "since:2031-05-20T13:00+00:00") == {new}


def test_since_means_what_happened_last(db: Db, worker: UUID) -> None:
    id = db.enqueue()
    db.clock.set(NOW + timedelta(hours=2))
    assert found(db, "since:1h") == set()
    (task,) = db.claim(worker)
    db.run(db.stay(worker, [task], "failed", error=BOOM, errors=1))
    assert found(db, "state:parked since:1h") == {id}
    db.clock.set(NOW + timedelta(hours=4))
    db.discard(id)
    assert found(db, "since:1h") == {id} and found(db, "before:1h") == set()


def test_pages_follow_each_other_and_counts_are_bounded(db: Db) -> None:
    ids = [db.enqueue() for _ in range(7)]
    seen: list[UUID] = []
    while page := db.run(insights.tasks(db.queries, limit=3, below=seen[-1] if seen else None)):
        seen += [each.id for each in page]
    assert seen == ids[::-1]
    assert db.run(insights.count(db.queries, limit=5)) == 6


def test_values_never_become_sql(db: Db) -> None:
    db.enqueue()
    for text in ("kind:';DROP", 'key:"x\' OR true --"', "args.a'b:1", "error:%", "error:\\", "key:*'*"):
        assert found(db, text) == set()


def test_the_archive_is_not_read_for_unfinished_tasks(db: Db) -> None:
    plan = db.explain(insights.tasks(db.queries, parse_filter("state:parked")))
    assert "task_parked" in plan or "using task_pkey" in plan or "Seq Scan on task" in plan  # forth or backward
    assert "archive" not in plan
