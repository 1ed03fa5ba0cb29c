"""T7: a connection that cannot be used is a clear error that names what to do, and nothing is written."""

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg_pool import ConnectionPool
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import async_sessionmaker

from holdfast import App, ConfigError, HoldfastError, Tasks, named
from holdfast.testing import Harness

from .support import Caller, async_engine, asyncpg, asyncpg_options, django_database, engine

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(value: int) -> int:
    return value


@pytest.fixture(autouse=True)
async def nothing_written(holdfast: Harness) -> AsyncIterator[None]:
    yield
    assert holdfast.sql("SELECT count(*) FROM holdfast.task") == [(0,)]


async def refused(holdfast: Harness, conn: Any, said: str) -> None:
    """Refused by all four methods."""
    for attempt in (
        lambda: holdfast.app.sync.enqueue(store.bind(1), conn=conn),
        lambda: holdfast.app.sync.enqueue_many([store.bind(1)], conn=conn),
    ):
        with pytest.raises(ConfigError, match=said):
            attempt()
    with pytest.raises(ConfigError, match=said):
        await holdfast.app.enqueue(store.bind(1), conn=conn)
    with pytest.raises(ConfigError, match=said):
        await holdfast.app.enqueue_many([store.bind(1)], conn=conn)


async def test_T7_the_other_kind_of_method_is_named(holdfast: Harness, any_caller: Caller) -> None:
    if any_caller.blocking:
        with pytest.raises(ConfigError, match=r"conn= is a blocking .*: use app\.sync\.enqueue\("):
            await holdfast.app.enqueue(store.bind(1), conn=any_caller.conn)
        with pytest.raises(ConfigError, match=r"use app\.sync\.enqueue\("):
            await holdfast.app.enqueue_many([store.bind(1)], conn=any_caller.conn)
    else:
        with pytest.raises(ConfigError, match=r"conn= is an asynchronous .*: use await app\.enqueue\("):
            holdfast.app.sync.enqueue(store.bind(1), conn=any_caller.conn)
        with pytest.raises(ConfigError, match=r"use await app\.enqueue\("):
            holdfast.app.sync.enqueue_many([store.bind(1)], conn=any_caller.conn)
    assert await any_caller.execute("SELECT 1") == [(1,)]
    await any_caller.commit()


async def test_T7_pools_and_engines_have_no_transaction(holdfast: Harness) -> None:
    said = "It has no transaction: give a connection or session that was taken from it"
    async with asyncpg.create_pool(min_size=1, max_size=1, **asyncpg_options(holdfast.url)) as pool:
        await refused(holdfast, pool, said)
    with ConnectionPool(holdfast.url, min_size=1, open=True) as blocking_pool:
        await refused(holdfast, blocking_pool, said)
    with engine(holdfast.url, "psycopg") as made:
        await refused(holdfast, made, said)
        await refused(holdfast, orm.sessionmaker(made), said)
    async with async_engine(holdfast.url, "asyncpg") as async_made:
        await refused(holdfast, async_made, said)
        await refused(holdfast, async_sessionmaker(async_made), said)


async def test_T7_cursors_urls_and_other_databases_are_refused(holdfast: Harness) -> None:
    with psycopg.connect(holdfast.url) as conn, conn.cursor() as cursor:
        await refused(holdfast, cursor, r"not psycopg\.Cursor\. A cursor belongs to a connection: give that one")
    await refused(holdfast, holdfast.url, r"a session or connection of SQLAlchemy.*not builtins\.str")
    with sqlite3.connect(":memory:") as other:
        await refused(holdfast, other, r"not sqlite3\.Connection")
    other.close()
    made = sqlalchemy.create_engine("sqlite+pysqlite://")
    with made.connect() as elsewhere, orm.Session(made) as session:
        for each in (elsewhere, session):
            with pytest.raises(ConfigError, match=r"by sqlite\+pysqlite: Holdfast can use postgresql\+psycopg, "):
                holdfast.app.sync.enqueue(store.bind(1), conn=each)
    made.dispose()


async def test_T7_django_in_asynchronous_code(holdfast: Harness) -> None:
    """Awaited it is refused with advice; called blocking, Django itself refuses."""
    connection = import_module("django.db").connection
    with django_database(holdfast.url) as connections:
        for conn in (connection, connections["default"]):
            with pytest.raises(ConfigError, match=r"transaction\.atomic\(\).*sync_to_async"):
                await holdfast.app.enqueue(store.bind(1), conn=conn)
        with pytest.raises(import_module("django.core.exceptions").SynchronousOnlyOperation):
            holdfast.app.sync.enqueue(store.bind(1), conn=connection)


def test_T7_django_on_another_database(holdfast: Harness) -> None:
    with django_database(holdfast.url) as connections:
        sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
        default = connections.settings["default"]
        connections.settings["lite"] = connections.configure_settings({"default": default, "lite": sqlite})["lite"]
        with pytest.raises(ConfigError, match="a Django connection to sqlite: tasks live in PostgreSQL"):
            holdfast.app.sync.enqueue(store.bind(1), conn=connections["lite"])
        connections["lite"].close()
        del connections["lite"], connections.settings["lite"]
        caches = import_module("django.core.cache").cache
        with pytest.raises(ConfigError, match="a Django connection to ConnectionProxy"):
            holdfast.app.sync.enqueue(store.bind(1), conn=caches)


def test_T7_none_of_the_libraries_is_imported_for_it(holdfast: Harness) -> None:
    code = (
        "import sys, holdfast\n"
        "from holdfast._db import callers\n"
        "print(sorted({'asyncpg', 'django', 'psycopg2', 'sqlalchemy', 'flask', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_X6_tables_that_are_missing_are_told_in_a_note(any_caller: Caller, holdfast: Harness) -> None:
    """The error is that of the caller's library; what to do stands under it."""
    elsewhere = replace(any_caller, app=App(holdfast.url, schema="nowhere"))
    with pytest.raises(Exception, match="nowhere") as caught:
        await elsewhere.enqueue(named("greeter.ReadName", {}), queue="default", priority=0)
    assert not isinstance(caught.value, HoldfastError)
    assert any("Make them there: holdfast migrate" in note for note in caught.value.__notes__)
    await any_caller.rollback()
