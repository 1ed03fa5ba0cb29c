"""Plans: hot statements enter their index whatever the statistics say (M10, M2, T14), and every statement is valid."""

import re
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.query import Query, Statement, statements

from .support import BEGINNING, KNOWN, LEASE, Db, all_statements

ROWS = 200_000
NO_DATA = {"migration_table", "detach_partition", "finalize_partition", "drop_partition", "renew_grants"}
NO_DATA |= {"copy_tasks", "copy_bare_tasks"}
"""Scripts, statements that change tables, and a COPY."""

FILL = """
    INSERT INTO holdfast.task (id, kind, step, priority, run_at)
    SELECT gen_random_uuid(), 'greeter', 'ReadName', n % 10, holdfast.now() - n * interval '1 second'
    FROM generate_series(1, $1::integer) AS n
"""


def generic_plan(db: Db, statement: Statement) -> str:
    """The plan a prepared statement keeps once it no longer looks at its parameters."""
    connection = db.connect(options="-c plan_cache_mode=force_generic_plan")
    connection.execute(f"PREPARE tested AS {statement.text}".encode())
    values = ", ".join(["NULL"] * len(statement.parameters))
    rows = connection.execute(f"EXPLAIN EXECUTE tested{f'({values})' if values else ''}".encode()).fetchall()
    connection.close()
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("name", sorted(set(all_statements()) - NO_DATA))
def test_every_statement_can_be_planned(db: Db, name: str) -> None:
    statement = statements("holdfast")[name]
    assert statement.prose, f"{name} has no line of prose"
    assert generic_plan(db, statement)
    if "ids" in statement.slots:
        passing_over = db.queries.skip_locked(Query(statement, (), list)).statement
        assert "SKIP LOCKED" in passing_over.text and generic_plan(db, passing_over)


def claim(db: Db, limit: int = 500) -> Query[Any]:
    return db.queries.claim(
        "default", uuid7(), limit=limit, lease=LEASE, known=KNOWN, crash_limits="{}", marks=[BEGINNING] * 10
    )


def fill_fresh(db: Db) -> None:
    db.sql(FILL, ROWS)
    db.sql("VACUUM ANALYZE holdfast.task")


def fill_unseen(db: Db) -> None:
    """Never analysed at all."""
    db.sql(FILL, ROWS)


def fill_stale(db: Db) -> None:
    """Analysed when there were a few running rows and nothing was ready."""
    db.sql(FILL, 100)
    db.sql(
        "UPDATE holdfast.task SET state = 'running', worker_id = gen_random_uuid(), lease_expires_at = holdfast.now()"
    )
    db.sql("VACUUM ANALYZE holdfast.task")
    db.sql(FILL, ROWS)


def fill_stale_empty(db: Db) -> None:
    """Analysed when it was empty, as after a quiet night."""
    db.sql(FILL, 1000)
    db.sql("DELETE FROM holdfast.task")
    db.sql("VACUUM ANALYZE holdfast.task")
    db.sql(FILL, ROWS)


def check_claim_plan(plan: str) -> None:
    assert "task_ready" in plan and "Seq Scan on task" not in plan, plan
    assert "Sort" not in plan and "Bitmap" not in plan, plan


@pytest.mark.parametrize("fill", [fill_fresh, fill_unseen, fill_stale, fill_stale_empty])
def test_claim_walks_its_index_among_200000_ready_rows(own_db: Db, fill: Any) -> None:
    needs_todays_planner(own_db)
    own_db.sql("ALTER TABLE holdfast.task SET (autovacuum_enabled = off)")
    fill(own_db)
    query = claim(own_db)
    check_claim_plan(own_db.explain(query))
    check_claim_plan(generic_plan(own_db, query.statement))
    # What it really did: as many rows from the index as it claimed.
    with own_db.connection.transaction(force_rollback=True):
        done = own_db.explain(query, "ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF")
    scans = [line for line in done.splitlines() if "task_ready" in line]
    assert len(scans) == 1 and "rows=500" in scans[0], done
    settle_plans(own_db)
    look_plans(own_db)


def looks_up_ids(plan: str) -> bool:
    """Whether the ids are looked up in the primary key, and not filtered out of a scan of all of it."""
    conditions = [line for line in plan.splitlines() if "Index Cond" in line and "id = ANY" in line]
    return "task_pkey" in plan and bool(conditions)


def needs_todays_planner(db: Db) -> None:
    """Older planners choose bitmap scans here, and with statistics this wrong even scans of the table."""
    version = db.connection.info.server_version
    if version < 160000:
        pytest.skip(f"these plans are those of PostgreSQL 16 and newer; this server is {version // 10000}")


def settle_plans(db: Db) -> None:
    """M10: batches of ids are looked up by primary key."""
    some: list[UUID] = [row[0] for row in db.sql("SELECT id FROM holdfast.task LIMIT 300")]
    text = b"{" + b",".join(b'"%s": {"attempt": 1}' % str(id).encode() for id in some) + b"}"
    worker = uuid4()
    queries = db.queries
    for query in (
        queries.finish("default", worker, some, text),
        queries.advance("default", worker, some, text, keep=True, lease=LEASE),
        queries.stay("default", worker, some, text),
        queries.cancel("default", worker, some, text),
        queries.fences("default", some),
        queries.beat("default", worker, some, LEASE),
    ):
        forms = [query.statement]
        if "ids" in query.statement.slots:
            forms.append(queries.skip_locked(query).statement)
        for form in forms:
            for plan in (db.explain(Query(form, query.parameters, list)), generic_plan(db, form)):
                assert "Seq Scan on task" not in plan, f"{query.statement.name}\n{plan}"
                assert looks_up_ids(plan) or query.statement.name == "beat", f"{query.statement.name}\n{plan}"


def look_plans(db: Db) -> None:
    """The small questions of a worker, and the reaper, never read the whole table."""
    queries = db.queries
    for query in (
        queries.next_due(["default", "mail"]),
        queries.obstacles("default", 3, KNOWN),
        queries.unclaimable("default", KNOWN),
        queries.overdue(["default", "mail"]),
        queries.reap("default", 1000),
        queries.reap_cancelled("default", 1000),
        queries.strays("default", uuid4()),
        queries.expire("default", 1000),
    ):
        for plan in (db.explain(query), generic_plan(db, query.statement)):
            assert "Seq Scan on task" not in plan, f"{query.statement.name}\n{plan}"


def test_pages_of_tasks_walk_the_primary_key_whatever_the_page(own_db: Db) -> None:
    """The plan that a prepared statement keeps must not look at tasks of other pages."""
    needs_todays_planner(own_db)
    fill_fresh(own_db)
    for name in ("list_tasks", "matching"):
        plan = generic_plan(own_db, statements("holdfast")[name])
        entries = [each for each in re.findall(r"Index Cond: .*", plan) if "COALESCE" in each]
        assert entries and all("(id " in each for each in entries), plan
        assert "task_pkey" in plan and "Seq Scan on task" not in plan, plan


def test_M10_finish_of_a_thousand_among_50000_running_rows_with_stale_statistics(own_db: Db) -> None:
    needs_todays_planner(own_db)
    own_db.sql("ALTER TABLE holdfast.task SET (autovacuum_enabled = off)")
    own_db.sql("ANALYZE holdfast.task")
    own_db.sql(FILL, 50_000)
    worker = uuid7()
    tasks = own_db.claim(worker, 1000)
    query = own_db.finish(worker, tasks)
    for plan in (own_db.explain(query), generic_plan(own_db, query.statement)):
        assert looks_up_ids(plan) and "Seq Scan" not in plan, plan
    assert len(own_db.run(query)) == 1000
