"""The read API about the database: `holdfast.insights.database`."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast._sql.plans import drive_sync
from holdfast._sql.query import statements
from holdfast.insights import database as health

from .support import NOW, Db
from .test_plans import FILL, generic_plan


def test_tables_and_indexes_with_their_sizes(db: Db) -> None:
    db.enqueue()
    db.sql("ANALYZE holdfast.task")
    tables = {each.name: each for each in db.run(health.tables(db.queries))}
    assert {"task", "archive", "attempt", "worker", "schedule"} <= tables.keys()
    task = tables["task"]
    assert task.table_bytes > 0 and task.index_bytes > 0 and task.partitions == 0 and task.autovacuum
    assert task.vacuum_at == 1000, "as the table itself says, not as the server does"
    assert task.analyzed_at is not None and task.analyzed_at > datetime.now(UTC) - timedelta(minutes=5)
    assert tables["archive"].partitions >= 14, "the days of history are one table"
    assert not [name for name in tables if "_p2" in name]
    indexes = {each.name: each for each in db.run(health.indexes(db.queries))}
    assert (indexes["task_ready"].table, indexes["task_ready"].valid) == ("task", True)
    assert indexes["archive_id"].table == "archive" and indexes["archive_id"].bytes > 0


def test_history_is_ahead_without_a_gap(db: Db) -> None:
    def history() -> dict[str, health.History]:
        return {each.parent: each for each in db.run(health.history(db.queries))}

    db.sql("SELECT holdfast.ensure_partitions(3)")
    assert history()["archive"].days_ahead == history()["attempt"].days_ahead >= 4
    today = NOW.astimezone(UTC).date()
    db.sql(f"DROP TABLE holdfast.archive_p{today + timedelta(days=2):%Y%m%d}")
    found = history()["archive"]
    assert found.days_ahead == 2 and found.newest >= today + timedelta(days=3)
    before = history()["attempt"]
    db.sql("SELECT holdfast.ensure_partition($1::date)", today - timedelta(days=40))
    found = history()["attempt"]
    assert found.oldest <= today - timedelta(days=40) and found.overdue == before.overdue + 1
    assert found.overdue_since is not None and found.overdue_since < NOW - timedelta(days=30)
    listed = db.run(health.partitions(db.queries))
    assert [each.day for each in listed] == sorted((each.day for each in listed), reverse=True)
    assert len(db.run(health.partitions(db.queries, limit=2))) == 2
    for parent in ("archive", "attempt"):
        db.sql(f"DROP TABLE holdfast.{parent}_p{today - timedelta(days=40):%Y%m%d}")
    db.sql("SELECT holdfast.ensure_partitions(3)")


def test_the_server_and_its_clock(db: Db) -> None:
    found = db.run(health.server(db.queries))
    assert found.connections >= 1 and found.max_connections > found.reserved_connections
    assert 0 <= found.notifications < 1 and found.frozen_age > 0
    assert not found.is_standby and found.sees_all and found.schema_version > 0
    assert set(found.settings) >= {"fsync", "autovacuum", "statement_timeout"}
    skew = drive_sync(health.skew(db.queries), db.run)
    assert skew.uncertainty >= 0
    assert abs(skew.seconds - (NOW.timestamp() - datetime.now(UTC).timestamp())) < 60 + skew.uncertainty


def test_what_is_asked_of_many_tasks_enters_an_index(own_db: Db) -> None:
    own_db.sql(FILL, 20_000)
    own_db.sql("VACUUM ANALYZE holdfast.task")
    for name, index in (("expired_leases", "task_running"), ("due_steps", "task_ready"), ("parked_lately", "idx")):
        plan = generic_plan(own_db, statements("holdfast")[name])
        assert index in plan and "Seq Scan on task" not in plan and "Seq Scan on attempt" not in plan, plan


def test_due_steps_are_those_that_wait_for_longest(db: Db, worker: UUID) -> None:
    for n in range(3):
        db.enqueue(queue="mail", at=NOW - timedelta(hours=1 + n))
    db.enqueue(queue="mail", delay=timedelta(hours=1))
    db.enqueue(queue="other")
    found: list[Any] = db.run(health.due_steps(db.queries, ["mail"]))
    assert [(each.queue, each.tasks, each.seconds, each.known) for each in found] == [("mail", 3, 3 * 3600.0, False)]
    assert db.run(health.due_steps(db.queries, ["mail"], limit=2))[0].tasks == 2
