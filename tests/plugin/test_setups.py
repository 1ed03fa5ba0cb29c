"""The plugin in other people's test suites: every mode of asyncio, anyio, def tests, unittest, several processes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from holdfast import App, ConfigError, Tasks
from holdfast._db.driver.connection import with_database
from holdfast.testing import Harness, harness

APP = """
from dataclasses import dataclass
import pytest
from holdfast import App

app = App("postgresql://nobody@nowhere.invalid/shop"{options})

@app.task
async def add(a: int, b: int) -> int:
    return a + b

pools = []

@pytest.fixture
def holdfast_tasks():
    return app
"""
MODE = "asyncio_default_fixture_loop_scope = function\nasyncio_mode = "
ASYNC = """
{mark}
async def test_async(holdfast):
    ref = await add.enqueue(1, 2)
    await holdfast.drain()
    assert await ref.result() == 3
    pools.append(app._pool._pool)
"""
SYNC = """
def test_sync(holdfast):
    assert [pool.closed for pool in pools] == [True], "connections of the test before"
    ref = app.sync.enqueue(add.bind(1, 2))
    holdfast.drain_sync()
    assert ref.result() == 3
"""


def run(folder: Path, server: str, *command: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "HOLDFAST_TEST_URL": server, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_pytest(folder: Path, server: str, text: str, *arguments: str, ini: str = MODE + "strict") -> str:
    (folder / "test_it.py").write_text(text)
    (folder / "pytest.ini").write_text(f"[pytest]\nfilterwarnings = error\n{ini}\n")
    return run(folder, server, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


@pytest.mark.parametrize(
    ("mark", "ini"),
    [
        ("", MODE + "auto"),
        ("@pytest.mark.asyncio", MODE + "strict"),
        ("@pytest.mark.asyncio(loop_scope='module')", MODE + "strict"),
        ("@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])", MODE + "strict"),
        ("@pytest.mark.anyio\n@pytest.mark.parametrize('anyio_backend', ['asyncio'])", "addopts = -p no:asyncio"),
    ],
    ids=["auto", "strict", "a loop for the module", "anyio", "anyio alone"],
)
def test_every_way_to_run_async_tests(tmp_path: Path, holdfast_server: str, mark: str, ini: str) -> None:
    text = APP.format(options="") + ASYNC.format(mark=mark) + SYNC
    assert "2 passed" in run_pytest(tmp_path, holdfast_server, text, ini=ini)


def test_an_app_with_a_schema_of_its_own(tmp_path: Path, holdfast_server: str) -> None:
    text = APP.format(options=", schema='jobs'") + ASYNC.format(mark="@pytest.mark.asyncio") + SYNC
    assert "2 passed" in run_pytest(tmp_path, holdfast_server, text)


def test_many_processes_do_not_disturb_each_other(tmp_path: Path, holdfast_server: str) -> None:
    many = "@pytest.mark.asyncio\n@pytest.mark.parametrize('n', range(8))"
    text = APP.format(options="") + ASYNC.format(mark=many).replace("(holdfast)", "(holdfast, n)")
    assert "8 passed" in run_pytest(tmp_path, holdfast_server, text, "-n", "2")


def test_a_suite_that_does_not_use_it_does_not_load_it(tmp_path: Path, holdfast_server: str) -> None:
    text = """
import sys

def test_it():
    loaded = {name for name in sys.modules if name.startswith("holdfast")}
    assert loaded == {"holdfast", "holdfast.testing", "holdfast.testing.plugin"}, loaded
    assert "psycopg" not in sys.modules
"""
    assert "1 passed" in run_pytest(tmp_path, holdfast_server, text)


def databases(server: str) -> set[str]:
    with psycopg.connect(server) as connection:
        return {name for (name,) in connection.execute("SELECT datname FROM pg_database")}


def test_unittest_without_fixtures(tmp_path: Path, holdfast_server: str) -> None:
    before = databases(holdfast_server)
    (tmp_path / "test_it.py").write_text("""
import unittest
from holdfast import App
from holdfast.testing import harness

app = App("postgresql://nobody@nowhere.invalid/shop")

@app.task
def add(a: int, b: int) -> int:
    return a + b

class Blocking(unittest.TestCase):
    def setUp(self) -> None:
        self.holdfast = self.enterContext(harness(app))

    def test_one(self) -> None:
        ref = app.sync.enqueue(add.bind(1, 2))
        self.holdfast.drain_sync()
        self.assertEqual(ref.result(), 3)

    def test_another(self) -> None:
        self.holdfast.assert_not_enqueued(add)

class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.holdfast = await self.enterAsyncContext(harness(app))

    async def test_one(self) -> None:
        ref = await add.enqueue(1, 2)
        await self.holdfast.drain()
        self.assertEqual(await ref.result(), 3)
""")
    assert "Ran 3 tests" in run(tmp_path, holdfast_server, "-W", "error", "-m", "unittest", "-v", "test_it")
    assert databases(holdfast_server) == before


def test_the_embedded_server_of_a_process_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text(
        "from holdfast.testing import harness\nwith harness() as holdfast:\n    print(holdfast.sql('SELECT 42'))\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "HOLDFAST_TEST_URL"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "it.py"],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "[(42,)]\n"), done.stderr
    assert list(tmp_path.glob("holdfast-test-*")) == []


# --- a database that is given


@pytest.fixture
def own_database(holdfast_server: str) -> Iterator[Any]:
    """Makes databases by name, and drops them."""
    made: list[str] = []

    def make(prefix: str) -> str:
        name = f"{prefix}_{uuid4().hex[:8]}"
        with psycopg.connect(holdfast_server, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
        made.append(name)
        return with_database(holdfast_server, name)

    yield make
    with psycopg.connect(holdfast_server, autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_a_given_database_is_migrated_emptied_and_given_back(own_database: Any) -> None:
    url = own_database("test_shop")
    tasks = Tasks()

    @tasks.task
    async def add(a: int, b: int) -> int:
        return a + b

    app = App(url="postgresql://elsewhere/shop", include=[tasks])
    for _ in range(2):
        async with harness(app, url=url) as holdfast:
            holdfast.assert_not_enqueued(add)
            done = await add.enqueue(1, 2)
            await holdfast.drain()
            assert await done.result() == 3
            await add.enqueue(1, 2)
            holdfast.clock.advance("100d")
    assert app._url == "postgresql://elsewhere/shop"
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT holdfast.now() < now() + interval '1 day'").fetchone()
    assert row == (True,)  # the clock goes on


def test_a_database_that_is_none_for_tests_is_refused(own_database: Any) -> None:
    url = own_database("shop")
    with pytest.raises(ConfigError, match='has no "test" in its name'), harness(url=url):
        raise AssertionError("must not begin")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regnamespace('holdfast')").fetchone() == (None,)


async def test_connections_from_before_are_not_used_in_the_test_nor_lost(
    holdfast: Harness, holdfast_server: str, holdfast_template: str
) -> None:
    """An app that was in use already: nothing of a test may go to the other database."""
    app = holdfast.app

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    await asyncio.to_thread(app.sync.enqueue, add.bind(1, 1))
    await add.enqueue(2, 2)
    with harness(app) as other:
        assert other.url != holdfast.url
        assert other.enqueued(add) == 0
        ref = await asyncio.to_thread(app.sync.enqueue, add.bind(1, 2))
        assert other.enqueued(add) == 1
        other.drain_sync()
        assert (await asyncio.to_thread(ref.info)).state == "done"
    assert holdfast.enqueued(add) == 2
    await asyncio.to_thread(app.sync.enqueue, add.bind(1, 1))
    await add.enqueue(2, 2)
    assert holdfast.enqueued(add) == 4


@pytest.mark.direct("it ends a connection by its process")
def test_a_connection_that_was_ended_is_opened_again(holdfast: Harness) -> None:
    [(pid,)] = holdfast.sql("SELECT pg_backend_pid()")
    with psycopg.connect(holdfast.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    assert holdfast.sql("SELECT pg_backend_pid()") != [(pid,)]
    with pytest.raises(psycopg.Error):
        holdfast.sql("SELECT nonsense")
    assert holdfast.sql("SELECT 1") == [(1,)]
