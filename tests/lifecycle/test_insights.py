"""The read API: what `holdfast.insights` tells about queues, kinds, workers and groups of tasks."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import insights
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.read.filter import parse_filter
from holdfast._sql.query import Query
from holdfast.insights import KindInfo, ParkedGroup, QueueInfo, Standing, Unfinished, WorkerInfo

from .support import BOOM, NOW, Db
from .test_explain import register
from .test_pause import declare, pause
from .test_plans import generic_plan


def queues(db: Db) -> dict[str, QueueInfo]:
    found = db.run(insights.queues(db.queries))
    assert [each.name for each in found] == sorted(each.name for each in found)
    return {each.name: each for each in found}


def set_state(db: Db, id: UUID, state: str) -> None:
    db.sql("UPDATE holdfast.task SET state = $2, error = '{}' WHERE id = $1", id, state)


# --- queues


def test_queues_are_found_wherever_they_are_named(db: Db) -> None:
    assert queues(db) == {}
    declare(db, queue="of_kind")
    pause(db, "of_row", what="queue", by="ann")
    register(db, queues="of_worker default")
    db.run(db.queries.stopped(register(db, queues="of_the_stopped")))
    for name in ("a", "b", "b", "c"):
        db.enqueue(queue=f"ready_{name}")
    for name in ("a", "b"):
        db.claimed(uuid7(), queue=f"running_{name}")
        set_state(db, db.enqueue(queue=f"parked_{name}"), "parked")
    assert list(queues(db)) == [
        "default", "of_kind", "of_row", "of_worker", "parked_a", "parked_b", "ready_a", "ready_b", "ready_c",
        "running_a", "running_b",
    ]  # fmt: skip
    assert queues(db)["of_row"] == QueueInfo("of_row", NOW, "ann", 0, 0, 0, 0, None, 0)


def test_what_a_queue_holds(db: Db, worker: UUID) -> None:
    db.claimed(worker, queue="mail")
    db.enqueue(queue="mail", priority=9, at=NOW - timedelta(minutes=1))
    db.enqueue(queue="mail", at=NOW - timedelta(hours=2))
    db.enqueue(queue="mail", priority=3)
    for _ in range(4):
        db.enqueue(queue="mail", priority=2, delay=timedelta(minutes=1))
    for _ in range(2):
        set_state(db, db.enqueue(queue="mail"), "parked")
    db.enqueue(queue="other")
    register(db, queues="mail other")
    register(db, queues="mail")
    db.run(db.queries.stopped(register(db, queues="mail")))
    assert queues(db)["mail"] == QueueInfo(
        "mail", None, None, due=3, scheduled=4, running=1, parked=2, oldest_due=NOW - timedelta(hours=2), workers=2
    )
    assert queues(db)["other"] == QueueInfo("other", None, None, 1, 0, 0, 0, NOW, 1)


def test_nobody_counts_a_queue_further_than_ten_thousand(db: Db) -> None:
    for later in ("0 h", "1 h"):
        db.sql(
            "INSERT INTO holdfast.task (id, kind, step, priority, run_at) SELECT gen_random_uuid(), 'greeter',"
            f" 'ReadName', n % 2 * 9, holdfast.now() + interval '{later}' FROM generate_series(1, 10500) AS n"
        )
    [only] = queues(db).values()
    assert (only.due, only.scheduled) == (10_001, 10_001)
    for state, lease in (("parked", "NULL"), ("running", "holdfast.now()")):
        worker = "NULL" if state == "parked" else "gen_random_uuid()"
        db.sql(
            f"UPDATE holdfast.task SET state = '{state}', error = '{{}}', worker_id = {worker},"
            f" lease_expires_at = {lease}"
        )
        [only] = queues(db).values()
        assert (only.due, only.scheduled, getattr(only, state)) == (0, 0, 10_001)


@pytest.mark.direct("it prepares statements by hand")
def test_queues_enter_an_index_whatever_there_is(own_db: Db) -> None:
    own_db.sql(
        "INSERT INTO holdfast.task (id, kind, step, queue, priority) SELECT gen_random_uuid(), 'greeter', 'ReadName',"
        " 'q' || n % 3, n % 10 FROM generate_series(1, 50000) AS n"
    )
    for _ in range(2):
        query = insights.queues(own_db.queries)
        for plan in (own_db.explain(query), generic_plan(own_db, query.statement)):
            assert "Seq Scan on task" not in plan and "task_ready" in plan, plan
        done = own_db.explain(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF")
        # To find three names, the index is entered four times, and not walked.
        jump = next(line for line in done.splitlines() if "Index" in line and "task_ready on task t_" in line)
        assert "rows=1.00 loops=1" in jump or "rows=1 loops=1" in jump, done
        own_db.sql("VACUUM ANALYZE holdfast.task")


# --- kinds, workers, where tasks stand


def test_kinds_and_who_knows_them(db: Db) -> None:
    declare(db, "greeter", "mail", 3)
    db.run(db.queries.declare_kind("alone", "default", 0, "main", b'{"main": []}'))
    register(db, steps="greeter.ReadName greeter.SayHello")
    register(db, steps="greeter.SayHello greeter_two.main")
    db.run(db.queries.stopped(register(db)))
    pause(db, "greeter", by="ann")
    alone, greeter = db.run(insights.kinds(db.queries))
    assert greeter == KindInfo("greeter", "mail", 3, NOW, "ann", {"ReadName": ["SayHello"]}, 2, NOW, {})
    assert alone == KindInfo("alone", "default", 0, None, None, {"main": []}, 0, NOW, {}, first="main")


def test_workers_and_their_condition(db: Db) -> None:
    def only(id: UUID) -> WorkerInfo:
        [found] = [w for w in db.run(insights.workers(db.queries)) if w.id == id]
        return found

    worker, lost = register(db, queues="default mail"), register(db)
    db.claimed(worker)
    db.claimed(worker, queue="mail")
    db.claimed(uuid7())
    assert (only(worker).running, only(worker).live, only(worker).condition) == (2, True, "running")
    assert only(lost).running == 0
    db.run(db.queries.stopping(worker))
    assert (only(worker).live, only(worker).condition) == (True, "stopping")
    db.run(db.queries.stopped(worker))
    assert (only(worker).live, only(worker).condition) == (False, "stopped")
    db.clock.advance("61s")
    assert (only(lost).live, only(lost).condition) == (False, "lost")
    db.clock.advance("5m")
    db.run(db.queries.bury())
    assert only(lost).stopped_at is not None and only(lost).condition == "lost", "it never said that it stops"
    db.run(db.queries.seen(lost, 0))
    assert (only(lost).live, only(lost).condition) == (True, "running"), "it was alive after all"


def test_where_unfinished_tasks_stand(db: Db, worker: UUID) -> None:
    db.enqueue()
    db.enqueue(delay=timedelta(hours=1))
    db.claimed(worker, "greeter.SayHello")
    set_state(db, db.enqueue(), "parked")
    db.enqueue("other.main")
    db.cancel(db.enqueue())
    greeters = [
        Standing("greeter", "ReadName", "parked", 1),
        Standing("greeter", "ReadName", "ready", 1),
        Standing("greeter", "ReadName", "scheduled", 1),
        Standing("greeter", "SayHello", "running", 1),
    ]
    assert db.run(insights.standing_now(db.queries)) == ([*greeters, Standing("other", "main", "ready", 1)], True)
    assert db.run(insights.standing_now(db.queries, "greeter")) == (greeters, True)
    assert db.run(insights.standing_now(db.queries, "nobody")) == ([], True)


def test_T20_unfinished_tasks_page_by_page(db: Db, worker: UUID) -> None:
    made = [db.enqueue(args=f'{{"n": {n}}}') for n in range(4)]
    set_state(db, made[2], "parked")
    db.cancel(made[3])
    first = db.run(insights.unfinished(db.queries, above=None, limit=2))
    assert first == [
        Unfinished(made[0], "default", "greeter", "ReadName", b'{"n": 0}', "ready"),
        Unfinished(made[1], "default", "greeter", "ReadName", b'{"n": 1}', "ready"),
    ]
    [last] = db.run(insights.unfinished(db.queries, above=first[-1].id, limit=2))
    assert (last.id, last.state) == (made[2], "parked")
    assert db.run(insights.unfinished(db.queries, above=last.id, limit=2)) == []


# --- parked tasks


def park(db: Db, step: str = "greeter.ReadName", error: object = BOOM, **fields: Any) -> UUID:
    db.clock.advance(1)
    return db.parked(error, step=step, **fields)


def test_parked_tasks_by_where_and_how_they_stopped(db: Db) -> None:
    park(db)
    two = park(db, error={**BOOM, "message": "the newest"})
    three = park(db, "greeter.SayHello")
    four = park(db, error={"type": "OSError", "message": "disk"})
    five = park(db, "other.main", error={})
    db.enqueue()
    at = [NOW + timedelta(seconds=n) for n in range(6)]
    assert db.run(insights.parked_groups(db.queries)) == [
        ParkedGroup("greeter", "ReadName", "ValueError", "the newest", 2, at[2], at[1], two),
        ParkedGroup("other", "main", None, None, 1, at[5], at[5], five),
        ParkedGroup("greeter", "ReadName", "OSError", "disk", 1, at[4], at[4], four),
        ParkedGroup("greeter", "SayHello", "ValueError", "boom", 1, at[3], at[3], three),
    ]


def test_parked_groups_of_a_filter(db: Db) -> None:
    park(db)
    park(db, "other.main")
    park(db, "other.main", error={"type": "OSError", "message": "disk full"})

    def groups(filter: str, limit: int = 50) -> list[tuple[object, ...]]:
        found = db.run(insights.parked_groups(db.queries, parse_filter(filter), limit=limit))
        return [(g.kind, g.error_type, g.count) for g in found]

    assert groups("kind:greeter") == [("greeter", "ValueError", 1)]
    assert groups('error:"disk full" kind:other') == [("other", "OSError", 1)]
    assert groups("state:done") == [] and len(groups("", limit=2)) == 2


def test_a_group_is_found_by_its_filter_and_nothing_else(db: Db) -> None:
    here = {"type": "OSError", "message": "disk", "place": "shop.mail.send:42"}
    errors: list[object] = [
        *(here, {**here, "message": "other"}, {**here, "place": "shop.mail.send:421"}, {**here, "place": ""}),
        *({**here, "type": "MyOSError"}, {"type": "ValueError", "message": "an OSError"}, {}, "only a text"),
        {**here, "type": ""},
    ]
    for error in errors:
        park(db, error=error)
    park(db, "greeter.SayHello", error=here)
    park(db, "other.ReadName", error=here)
    groups = db.run(insights.parked_groups(db.queries))
    assert sum(group.count for group in groups) == 11
    assert {(g.error_type, g.place): g.count for g in groups if g.kind == "greeter" and g.step == "ReadName"} == {
        ("OSError", "shop.mail.send:42"): 2,
        ("OSError", "shop.mail.send:421"): 1,
        ("OSError", None): 1,
        ("MyOSError", "shop.mail.send:42"): 1,
        ("ValueError", None): 1,
        (None, None): 2,
        (None, "shop.mail.send:42"): 1,
    }
    for group in groups:
        text = str(insights.group_filter(parse_filter("since:1d"), group))
        found = db.run(insights.parked_groups(db.queries, parse_filter(text)))
        assert [(each.count, each.example) for each in found] == [(group.count, group.example)], text


def test_the_view_of_parked_tasks_says_since_when(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.clock.advance(90)
    db.run(db.stay(worker, [task], "failed", error=BOOM, errors=1))
    db.clock.advance("1h")
    assert db.one("SELECT parked_at FROM holdfast.parked") == NOW + timedelta(seconds=90)
    db.sql("DELETE FROM holdfast.attempt")
    assert db.one("SELECT parked_at FROM holdfast.parked") == NOW, "the log is kept for a while only"


# --- plans


@pytest.mark.direct("it prepares statements by hand")
def test_what_is_asked_often_enters_an_index(own_db: Db) -> None:
    own_db.sql(
        "INSERT INTO holdfast.task (id, kind, step, state, worker_id, lease_expires_at) SELECT gen_random_uuid(),"
        " 'greeter', 'ReadName', 'running', gen_random_uuid(), holdfast.now() FROM generate_series(1, 20000) AS n"
    )
    own_db.sql("VACUUM ANALYZE holdfast.task")
    declare(own_db)
    register(own_db)
    some = uuid7()
    asked: list[tuple[Query[Any], str]] = [
        (insights.task(own_db.queries, some), "task_pkey"),
        (insights.unfinished(own_db.queries, above=some, limit=100), "task_pkey"),
        (insights.workers(own_db.queries), "task_running"),
        (insights.in_hand(own_db.queries, [some]), "task_running"),
    ]
    for query, index in asked:
        for plan in (own_db.explain(query), generic_plan(own_db, query.statement)):
            lines = plan.splitlines()
            entered = next((n for n, line in enumerate(lines) if index in line), None)
            assert entered is not None and "Seq Scan on task" not in plan, plan
            assert "Index Cond: " in lines[entered + 1] and "id" in lines[entered + 1], plan


def test_Q7_pauses_and_workers_are_looked_up_once_for_all_tasks_of_a_list(db: Db) -> None:
    """Hashed subplans: the tables of queues, kinds and workers are read once, not once per task."""
    plan = "\n".join(row[0] for row in db.sql("EXPLAIN (VERBOSE, COSTS OFF) SELECT phase FROM holdfast.tasks"))
    assert set(re.findall(r"hashed SubPlan (\d+)", plan)) == {"1", "2", "3", "4", "5"}, plan
