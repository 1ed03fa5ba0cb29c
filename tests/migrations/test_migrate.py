"""X1: migrate up and down, idempotent, under a lock, refusing what is newer, telling drift."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast._db.driver.connection import connect, connect_sync, run, run_sync
from holdfast._db.migrate import check_version, latest, migrate, migrations, script, status
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._sql.queries import Queries, queries
from holdfast.errors import ConfigError, SchemaError

from .conftest import execute

OBJECTS = "SELECT objects FROM {}.migration ORDER BY version DESC LIMIT 1"


@contextmanager
def holding(url: str, text: str) -> Iterator[psycopg.Connection[Any]]:
    """An open transaction that has done something."""
    with connect_sync(url) as connection:
        connection.execute(b"BEGIN")
        connection.execute(text.encode())
        yield connection


def objects(url: str, schema: str = "holdfast") -> list[str]:
    """The catalog's description of a schema, with the schema's name taken out."""

    async def ask() -> list[str]:
        connection = await connect(url)
        try:
            return await run(connection, queries(schema).objects())
        finally:
            await connection.close()

    # Function bodies and views are described by a hash of a text that names the schema.
    return sorted(re.sub(r" [0-9a-f]{32}$", "", re.sub(rf'"?{schema}"?\.', "S.", line)) for line in asyncio.run(ask()))


async def test_X1_up_down_and_up_again(empty_url: str) -> None:
    assert (await status(empty_url)).version == 0
    applied = [f"{m.version} {m.name}" for m in migrations()]
    assert await migrate(empty_url) == applied
    first = execute(empty_url, OBJECTS.format("holdfast"))
    at = await status(empty_url)
    assert (at.version, at.latest, at.pending, at.drift) == (latest(), latest(), 0, ())

    assert await migrate(empty_url, to=0) == [f"{line} (taken back)" for line in reversed(applied)]
    assert (await status(empty_url)).pending == latest()
    left = execute(empty_url, "SELECT relname FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace ORDER BY 1")
    assert left == [("migration",), ("migration_pkey",)], "nothing is left behind"
    assert execute(empty_url, "SELECT proname FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace") == []
    domains = "SELECT typname FROM pg_type WHERE typnamespace = 'holdfast'::regnamespace AND typtype = 'd'"
    assert execute(empty_url, domains) == []

    assert await migrate(empty_url) == applied
    assert execute(empty_url, OBJECTS.format("holdfast")) == first


async def test_X1_migrating_again_changes_nothing(holdfast_url: str) -> None:
    before = execute(holdfast_url, "SELECT * FROM holdfast.migration")
    assert await migrate(holdfast_url) == [] and await migrate(holdfast_url) == []
    assert execute(holdfast_url, "SELECT * FROM holdfast.migration") == before


async def test_X1_several_at_once_apply_each_migration_once(empty_url: str) -> None:
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(migrate(empty_url) for _ in range(4)))
    assert sorted(chain(*answers)) == [f"{m.version} {m.name}" for m in migrations()]
    assert (await status(empty_url)).drift == ()


async def test_X1_a_schema_newer_than_the_code_is_refused(holdfast_url: str) -> None:
    execute(holdfast_url, "INSERT INTO holdfast.migration (version, name, objects) VALUES (99, 'future', '{}')")
    with pytest.raises(SchemaError, match=rf"is at version 99, newer than this code, which knows {latest()}. Upgrade"):
        await migrate(holdfast_url)
    with pytest.raises(SchemaError, match="newer than this code"):
        await migrate(holdfast_url, to=0)
    with pytest.raises(SchemaError, match="newer than this code"):
        check_version(99, "holdfast")
    assert (await status(holdfast_url)).version == 99
    assert execute(holdfast_url, "SELECT to_regclass('holdfast.task') IS NOT NULL") == [(True,)]


def test_X1_an_empty_schema_is_refused_by_workers_and_one_ahead_is_not() -> None:
    with pytest.raises(SchemaError, match="Run: holdfast migrate"):
        check_version(0, "holdfast")
    check_version(latest(), "holdfast")
    check_version(latest() + 1, "holdfast")


@pytest.mark.parametrize("to", [-1, 99])
async def test_X1_versions_that_do_not_exist_are_refused(empty_url: str, to: int) -> None:
    with pytest.raises(SchemaError, match=f"there is no version {to}"):
        await migrate(empty_url, to=to)


@pytest.mark.parametrize("name", ["", "Holdfast", "a b", 'a"b', "x" * 49, "1a", "a;b", "holdfast\n"])
async def test_X1_names_that_cannot_be_a_schema_are_refused(empty_url: str, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        await migrate(empty_url, name)


def test_X1_the_script_makes_the_same_objects(empty_url: str, holdfast_url: str) -> None:
    text = script("holdfast")
    execute(empty_url, text)
    execute(empty_url, "SELECT holdfast.enqueue('greeter')")
    by_script = asyncio.run(status(empty_url))
    assert (by_script.version, by_script.pending, by_script.drift) == (latest(), 0, ())
    assert asyncio.run(migrate(empty_url)) == []
    assert objects(empty_url) == objects(holdfast_url)
    assert set(execute(empty_url, COMMENTS)) == set(execute(holdfast_url, COMMENTS))
    assert "CREATE TABLE" not in script("holdfast", above=latest()).split("objects    text[]")[1]


COMMENTS = """
    SELECT pg_describe_object(classoid, objoid, objsubid), description FROM pg_description
    WHERE pg_describe_object(classoid, objoid, objsubid) LIKE '%holdfast.%'
"""


async def test_X4_schemas_live_side_by_side(holdfast_url: str) -> None:
    assert await migrate(holdfast_url, "other") == [f"{m.version} {m.name}" for m in migrations()]
    one, two = Queries("holdfast"), Queries("other")
    id = uuid7()
    with connect_sync(holdfast_url) as connection:
        assert run_sync(connection, two.enqueue(Request(id, "default", "greeter", "main", b"{}")))
        assert run_sync(connection, two.cancel_task(id, b"{}")) == "cancelled"
        assert run_sync(connection, two.archived([id])) and not run_sync(connection, one.archived([id]))
        assert connection.execute(b"SELECT holdfast.channel(), other.channel()").fetchall() == [("holdfast", "other")]
    assert await migrate(holdfast_url, "other", to=0)
    assert (await status(holdfast_url)).drift == () and (await status(holdfast_url)).version == latest()


def test_X4_every_schema_has_the_same_objects(holdfast_url: str) -> None:
    asyncio.run(migrate(holdfast_url, "select"))  # a word of SQL: it must be quoted everywhere
    assert objects(holdfast_url, "select") == objects(holdfast_url)


DRIFT = [
    ("DROP INDEX holdfast.task_parked", "missing: index CREATE INDEX task_parked"),
    ("ALTER TABLE holdfast.task ADD COLUMN color text", "unexpected: column task.color text"),
    ("ALTER TABLE holdfast.task ALTER priority SET DEFAULT 5", "unexpected: column task.priority smallint"),
    ("ALTER TABLE holdfast.task DROP CONSTRAINT task_lease", "missing: constraint task.task_lease"),
    ("CREATE INDEX extra ON holdfast.task (kind)", "unexpected: index CREATE INDEX extra"),
    ("CREATE TABLE holdfast.notes (id integer)", "unexpected: column notes.id integer"),
    ("CREATE FUNCTION holdfast.mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "unexpected: function mine()"),
    ("ALTER FUNCTION holdfast.now() VOLATILE", "unexpected: function now()"),
    ("DROP VIEW holdfast.parked; CREATE VIEW holdfast.parked AS SELECT 1 AS id", "unexpected: view parked"),
    ("ALTER DOMAIN holdfast.step_name DROP CONSTRAINT step_name_check", "missing: domain step_name"),
    (
        "CREATE FUNCTION holdfast.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER spy BEFORE INSERT ON holdfast.task FOR EACH ROW EXECUTE FUNCTION holdfast.f()",
        "unexpected: trigger task.spy",
    ),
]


@pytest.mark.parametrize(("change", "told"), DRIFT, ids=[told for _, told in DRIFT])
async def test_X1_drift_is_told(holdfast_url: str, change: str, told: str) -> None:
    execute(holdfast_url, change)
    drift = (await status(holdfast_url)).drift
    assert [line for line in drift if line.startswith(told)], drift


async def test_X1_partitions_are_no_drift(holdfast_url: str) -> None:
    execute(holdfast_url, "SELECT holdfast.ensure_partition('2044-01-01')")
    assert (await status(holdfast_url)).drift == ()


async def test_X1_drift_does_not_depend_on_who_looks(holdfast_url: str) -> None:
    """A role called holdfast has the schema on its search path, and the catalog then leaves the schema's name out."""
    looking = make_conninfo(holdfast_url, options="-c search_path=holdfast,public")
    assert (await status(looking)).drift == ()
    await migrate(looking, to=0)
    await migrate(looking)
    assert (await status(holdfast_url)).drift == ()


async def test_X1_a_long_transaction_is_waited_for_with_retries(holdfast_url: str) -> None:
    with holding(holdfast_url, "SELECT count(*) FROM holdfast.task") as reader:
        with pytest.raises(SchemaError, match=r"schema 'holdfast' is busy.*within 2 tries.*pg_stat_activity"):
            await migrate(holdfast_url, to=0, tries=2)
        assert (await status(holdfast_url)).version == 1, "what would need its lock was not changed"
        async with asyncio.timeout(60):
            going = asyncio.create_task(migrate(holdfast_url, to=0))
            while not execute(
                holdfast_url,
                "SELECT FROM pg_stat_activity WHERE application_name = 'holdfast migrate' AND wait_event_type = 'Lock'"
                " AND datname = current_database()",
            ):
                await asyncio.sleep(0.01)
            reader.execute(b"COMMIT")
            assert len(await going) == 1


async def test_X1_another_migration_that_hangs_is_told(empty_url: str) -> None:
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('holdfast migrate holdfast', 1))"
    with holding(empty_url, lock), pytest.raises(SchemaError, match="is busy"):
        await migrate(empty_url, tries=1)
    with holding(empty_url, lock):
        assert await migrate(empty_url, "other", tries=1), "another schema is another lock"


async def test_X1_migrate_is_safe_with_live_workers(holdfast_url: str) -> None:
    """Workers claim and finish while another one migrates, again and again; nothing fails and nothing is lost."""
    queries, worker = Queries("holdfast"), uuid7()
    done: list[UUID] = []
    stop = asyncio.Event()

    def work(connection: psycopg.Connection[Any]) -> None:
        id = uuid7()
        run_sync(connection, queries.enqueue(Request(id, "default", "greeter", "main", b"{}")))
        marks = [datetime(1000, 1, 1, tzinfo=UTC)] * 10
        for task in run_sync(
            connection,
            queries.claim(
                "default",
                worker,
                limit=1,
                lease=timedelta(seconds=30),
                known=["greeter.main"],
                crash_limits="{}",
                marks=marks,
            ),
        ):
            text = json.dumps({str(task.id): {"attempt": task.attempt}}).encode()
            done.extend(run_sync(connection, queries.finish("default", worker, [task.id], text)))

    async def load() -> None:
        with connect_sync(holdfast_url) as connection:
            while not stop.is_set():
                await asyncio.to_thread(work, connection)

    async with asyncio.timeout(60):
        working = asyncio.create_task(load())
        for _ in range(5):
            assert await migrate(holdfast_url) == []
            assert await migrate(holdfast_url, "beside") != []
            assert await migrate(holdfast_url, "beside", to=0) != []
        stop.set()
        await working
    assert len(done) > 0
    assert execute(holdfast_url, "SELECT count(*) FROM holdfast.archive") == [(len(done),)]
