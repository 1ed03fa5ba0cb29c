"""X2: code and tables one version apart, and migrations under load."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from holdfast import App, DatabaseUnreachable, SchemaError
from holdfast._db.driver.session import Link
from holdfast._db.errors import is_passing
from holdfast._db.migrate import latest, migrate, status
from holdfast._db.pool import SIZE, Pool
from holdfast._db.sync_pool import SyncPool
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Statement
from holdfast.cli import main
from worker import crew as crew_module
from worker.crew import Leave
from worker.support import check_log, crew, running, sql, until

queries = Queries("holdfast")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The handlers' own log."""
    return tmp_path / "handlers.log"


@pytest_asyncio.fixture
async def app(holdfast_url: str) -> AsyncIterator[App]:
    """The crew's app, on this test's database."""
    made = crew_module.app
    made._url, made._database = holdfast_url, None
    yield made
    await made.close()
    made.sync.close()
    made._sync = None


def unfinished(url: str) -> int:
    return int(sql(url, "SELECT count(*) FROM holdfast.task")[0][0])


# --- (a) under load


async def test_X2_migrations_up_and_down_while_workers_and_producers_go_on(
    app: App, holdfast_url: str, log: Path
) -> None:
    headers = {"log": str(log)}
    enqueued = 0
    stop = asyncio.Event()

    async def produce() -> None:
        nonlocal enqueued
        while not stop.is_set():
            await app.enqueue(Leave(enqueued), headers=headers)
            enqueued += 1
            refs = await asyncio.to_thread(app.sync.enqueue_many, [Leave(n) for n in range(5)], headers=headers)
            enqueued += len(refs)

    with crew(holdfast_url, log, 2, poll=0.2) as members:
        for member in members:
            await member.started()
        producing = asyncio.create_task(produce())
        for _ in range(3):
            assert await migrate(holdfast_url, to=latest() - 1)
            enough = enqueued + 20
            await until(lambda: enqueued > enough or producing.done(), "for producers to go on")  # noqa: B023
            assert await migrate(holdfast_url)
        stop.set()
        await producing
        await until(lambda: unfinished(holdfast_url) == 0, "for all tasks")
        assert all(member.process.poll() is None for member in members), "no worker has ended"
    outcomes = check_log(holdfast_url, log)
    assert outcomes == {"advanced": 2 * enqueued, "done": enqueued}, "nothing was lost, and nothing ran twice"
    assert (await status(holdfast_url)).drift == ()


# --- (b) the code is one version ahead


async def test_X2_a_worker_works_with_tables_one_version_older(app: App, holdfast_url: str, log: Path) -> None:
    await migrate(holdfast_url, to=latest() - 1)
    headers = {"log": str(log)}
    await app.enqueue(Leave(1), headers=headers, key="one")
    await app.enqueue_many([Leave(n) for n in range(2, 5)], headers=headers)
    await asyncio.to_thread(app.sync.enqueue, Leave(5), headers=headers)
    await app.enqueue(crew_module.nap.bind(1.5), headers=headers)
    # A lost worker's: reaped after one lease length of contact.
    sql(
        holdfast_url,
        "INSERT INTO holdfast.task"
        " (id, kind, step, args, headers, state, worker_id, attempt, claimed_at, lease_expires_at)"
        " VALUES (gen_random_uuid(), 'nap', 'main', '{\"seconds\": 0}', jsonb_build_object('log', $1::text), 'running',"
        " gen_random_uuid(), 1, now() - interval '1 minute', now() - interval '30 seconds')",
        str(log),
    )
    async with running(app.make_worker(poll=0.1, lease=1, reap=0.2)):
        await until(lambda: unfinished(holdfast_url) == 0, "for all tasks")
    assert sql(holdfast_url, "SELECT state, count(*) FROM holdfast.archive GROUP BY 1") == [("done", 7)]
    outcomes = dict(sql(holdfast_url, "SELECT outcome, count(*) FROM holdfast.attempt GROUP BY 1"))
    assert outcomes == {"advanced": 10, "lost": 1}, "beats kept what was long, and the reaper took what was lost"


READING = [
    ("tasks",),
    ("parked",),
    ("queues",),
    ("kinds",),
    ("workers",),
    ("show", "01890a5d-ac96-774b-bcce-b302099a8057"),
    ("config",),
    ("migrate", "--check"),
]


@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
async def test_X2_commands_work_with_tables_one_version_older_or_say_what_to_do(
    holdfast_url: str, arguments: tuple[str, ...]
) -> None:
    await migrate(holdfast_url, to=latest() - 1)
    environment: dict[str, str | None] = {"HOLDFAST_URL": holdfast_url, "DATABASE_URL": None}
    done = await asyncio.to_thread(CliRunner().invoke, main, list(arguments), env=environment)
    assert done.exception is None or isinstance(done.exception, SystemExit), "a line, no traceback"
    assert done.exit_code == 0 or "holdfast migrate" in done.output or "there is no task" in done.output, done.output


async def test_X2_two_versions_older_is_refused(app: App, holdfast_url: str) -> None:
    await migrate(holdfast_url, to=latest() - 2)
    with pytest.raises(SchemaError, match=f"is at version {latest() - 2} and this code needs {latest()}. Run: "):
        await app.make_worker().run()


# --- (c) the code is one version behind

NEXT = """
ALTER TABLE holdfast.task ADD COLUMN color text;
ALTER TABLE holdfast.archive ADD COLUMN color text;
ALTER TABLE holdfast.attempt ADD COLUMN cost integer NOT NULL DEFAULT 1;
ALTER TABLE holdfast.worker ADD COLUMN mood text;
ALTER TABLE holdfast.kind ADD COLUMN mood text;
CREATE INDEX task_color ON holdfast.task (color);
CREATE TABLE holdfast.palette (color text PRIMARY KEY);
CREATE FUNCTION holdfast.paint(id uuid) RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$;
ALTER TABLE holdfast.task DROP CONSTRAINT task_state;
ALTER TABLE holdfast.task ADD CONSTRAINT task_state
    CHECK (state IN ('ready', 'running', 'waiting', 'parked', 'painted')) NOT VALID;
INSERT INTO holdfast.migration (version, name, objects) VALUES ({version}, 'colors', '{{}}');
"""
"""What a later version may do to the tables under running workers of this one."""


async def test_X2_a_worker_goes_on_with_tables_one_version_newer(app: App, holdfast_url: str, log: Path) -> None:
    headers = {"log": str(log)}
    enqueued = 0

    async def some() -> None:
        """Enough for every statement to be prepared on every connection."""
        nonlocal enqueued
        for _ in range(10):
            await app.enqueue_many([Leave(n) for n in range(5)], headers=headers)
            await app.enqueue(Leave(0), headers=headers)
            enqueued += 6
            await until(lambda: unfinished(holdfast_url) <= painted, "for tasks")

    painted = 0
    async with running(app.make_worker(poll=0.1)):
        await some()
        sql(holdfast_url, NEXT.format(version=latest() + 1))
        sql(
            holdfast_url,
            "INSERT INTO holdfast.task (id, kind, step, args, state, color)"
            " VALUES (gen_random_uuid(), 'trip', 'Leave', '{\"n\": 1}', 'painted', 'red')",
        )
        painted = 1
        await some()
        async with running(app.make_worker(poll=0.1)):
            await some()
    assert sql(holdfast_url, "SELECT state, color, attempt FROM holdfast.task") == [("painted", "red", 0)]
    sql(holdfast_url, "DELETE FROM holdfast.task")
    assert check_log(holdfast_url, log) == {"advanced": 2 * enqueued, "done": enqueued}


async def test_X2_two_versions_newer_is_refused(app: App, holdfast_url: str) -> None:
    sql(holdfast_url, f"INSERT INTO holdfast.migration VALUES ({latest() + 2}, 'later', now(), '{{}}')")
    with pytest.raises(SchemaError, match="newer than this code"):
        await app.make_worker().run()


# --- plans that were made before


def everything() -> Query[list[Any]]:
    return Query(Statement("everything", "", "SELECT * FROM changing", ()), (), list)


@pytest.mark.direct("nothing is prepared through a pooler")
async def test_X2_a_plan_older_than_its_table_is_a_passing_error(holdfast_url: str) -> None:
    """PostgreSQL refuses a prepared statement whose columns changed, each time: the connection must not stay."""
    sql(holdfast_url, "CREATE TABLE changing (n int)")
    link, pool, sync_pool = (
        Link(holdfast_url, queries, "test"),
        Pool(holdfast_url, queries),
        SyncPool(holdfast_url, queries),
    )
    for _ in range(30):
        await link.run(everything())
        await link.transact([everything()])
        await pool.run(everything())
        await asyncio.to_thread(sync_pool.run, everything())
    sql(holdfast_url, "ALTER TABLE changing ADD COLUMN m int")
    with pytest.raises(Exception, match="cached plan") as refused:
        await link.run(everything())
    assert is_passing(refused.value)
    sql(holdfast_url, "INSERT INTO changing VALUES (1, 2)")
    for ask in (pool.run, lambda query: asyncio.to_thread(sync_pool.run, query)):
        with pytest.raises(DatabaseUnreachable, match="changed just now"):
            for _ in range(SIZE):
                await ask(everything())
        for _ in range(SIZE):  # once for each connection at most
            with suppress(DatabaseUnreachable):
                await ask(everything())
    assert await link.run(everything()) == [(1, 2)]
    (answer,) = await link.transact([everything()])
    assert await answer.read() == [(1, 2)]
    assert await pool.run(everything()) == [(1, 2)]
    assert await asyncio.to_thread(sync_pool.run, everything()) == [(1, 2)]
    await link.close()
    await pool.close()
    sync_pool.close()
