"""The database: not named, not there, not letting us in, not prepared."""

import socket
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from .conftest import FAILED, UNREACHABLE, USAGE, Project

ENQUEUE = """
import asyncio
from hello import hello
asyncio.run(hello.enqueue("Ada"))
"""

ENQUEUE_BLOCKING = """
from hello import app, hello
app.sync.enqueue(hello.bind("Ada"))
"""

IN_A_WORKER = """
import asyncio
from hello import app

async def main():
    async with app.worker():
        pass

asyncio.run(main())
"""

SCRIPTS = [ENQUEUE, ENQUEUE_BLOCKING, IN_A_WORKER]
COMMANDS = [["enqueue", "hello", "name=Ada"], ["tasks"], ["migrate"]]
WHERE_FROM = "`holdfast config` shows the URL and where it comes from."


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens: refused
        yield taken.getsockname()[1]


def as_user(url: str | None, **changes: str) -> str:
    return make_conninfo("", **{**conninfo_to_dict(url or ""), **changes})


def test_01_no_database_was_named(nowhere: Project) -> None:
    ways = [
        "no database was named",
        "--url",
        "HOLDFAST_URL",
        "[tool.holdfast]",
        "holdfast dev APP",
        "holdfast pg start",
    ]
    for command in COMMANDS:
        nowhere.cli(*command).once(*ways, f"none is running for {nowhere.folder / '.holdfast'}", code=USAGE)
    nowhere.worker().once(*ways, code=USAGE)
    for script in SCRIPTS:
        said = nowhere.python(script).telling("NoDatabase: ", *ways)
        assert said.code == 1


def test_02_the_server_is_down(nowhere: Project, closed_port: int) -> None:
    nowhere.url = f"postgresql://ada:secret@127.0.0.1:{closed_port}/shop"
    advice = ["Connection refused", "Is the server running, and does the URL name the right host and port?", WHERE_FROM]
    for command in COMMANDS:
        said = nowhere.cli(*command).once("cannot connect to PostgreSQL", str(closed_port), *advice, code=UNREACHABLE)
        assert "secret" not in said.err
        assert "connection failed: connection" not in said.err
    for script in (ENQUEUE, ENQUEUE_BLOCKING):
        nowhere.python(script).telling("DatabaseUnreachable: cannot connect", *advice)


def test_03_wrong_password(nowhere: Project, strict_server: str) -> None:
    nowhere.url = as_user(strict_server, user="ada", password="wrong")
    advice = 'password authentication failed for user "ada" Check the user and the password in the URL'
    nowhere.cli("tasks").once(advice, WHERE_FROM, code=UNREACHABLE)
    # A worker does not wait for a server that will never let it in.
    nowhere.worker().once(advice, code=UNREACHABLE)
    nowhere.python(ENQUEUE).telling("DatabaseUnreachable: ", advice)
    nowhere.url = as_user(strict_server, user="ada")
    nowhere.cli("tasks").once("no password supplied Give it in the URL", "PGPASSWORD", code=UNREACHABLE)


def test_03_a_user_that_does_not_exist(nowhere: Project, strict_server: str) -> None:
    nowhere.url = as_user(strict_server, user="eve")
    nowhere.cli("tasks").once(
        'role "eve" does not exist Create it (createuser)', "the user in the URL", code=UNREACHABLE
    )


def test_04_wrong_host(nowhere: Project) -> None:
    nowhere.url = "postgresql://ada@no-such-host.invalid/shop"
    advice = "failed to resolve host 'no-such-host.invalid'", "Check the name of the host in the URL."
    nowhere.cli("tasks").once(*advice, code=UNREACHABLE)
    nowhere.python(ENQUEUE_BLOCKING).telling(*advice)


def test_04_what_is_no_url_at_all(nowhere: Project) -> None:
    for url in ("localhost", "mysql://localhost/shop"):
        said = nowhere.cli("tasks", "--url", url)
        said.once("this is not a PostgreSQL URL", "Write for example postgresql://user@host", code=USAGE)


def test_05_the_database_does_not_exist(nowhere: Project, holdfast_server: str) -> None:
    nowhere.url = as_user(holdfast_server, dbname="shoop")
    advice = 'database "shoop" does not exist', "Create it (createdb), or correct the name of the database in the URL."
    nowhere.cli("tasks").once(*advice, code=UNREACHABLE)
    nowhere.worker().once(*advice, code=UNREACHABLE)
    nowhere.python(IN_A_WORKER).telling(*advice)


def test_06_migrate_was_forgotten(bare: Project) -> None:
    advice = "schema 'holdfast' is missing in this database", "Run: holdfast migrate"
    for command in (["enqueue", "hello", "name=Ada"], ["tasks"], ["parked"]):
        bare.cli(*command).once(*advice, code=FAILED)
    bare.worker().once(*advice, code=FAILED)
    for script in SCRIPTS:
        # Also without `async with app`: a pool that nobody closed must not keep the script from its end.
        said = bare.python(script).telling("SchemaError: ", *advice)
        assert said.code == 1
    assert bare.cli("migrate").code == 0
    assert bare.cli("enqueue", "hello", "name=Ada").code == 0


def test_06_the_command_names_the_schema(bare: Project) -> None:
    bare.cli("tasks", "--schema", "shop").once(
        "schema 'shop' is missing", "holdfast migrate --schema shop", code=FAILED
    )
    said = bare.cli("migrate", "--check", "--schema", "shop")
    said.once("no tables in schema 'shop' yet. Run: holdfast migrate --schema shop", code=FAILED)


def test_07_an_older_schema(project: Project) -> None:
    project.sql("DELETE FROM holdfast.migration")
    advice = "schema 'holdfast' is at version 0 and this code needs", "Run: holdfast migrate"
    project.worker().once(*advice, code=FAILED)
    project.python(IN_A_WORKER).telling("SchemaError: ", *advice)


def test_07_a_newer_schema(project: Project) -> None:
    project.sql("INSERT INTO holdfast.migration (version, name, objects) SELECT 900, 'later', '{}'")
    advice = "schema 'holdfast' is at version 900, newer than this code", "Upgrade holdfast here"
    project.worker().once(*advice, code=FAILED)
    for command in (["migrate"], ["migrate", "--check"]):
        project.cli(*command).once(*advice, code=FAILED)


def test_08_a_role_without_grants(project: Project, role: str) -> None:
    project.url, owner = as_user(project.url, user=role, password="right"), project.url
    advice = (
        "this database role may not do that: permission denied for schema holdfast",
        "holdfast roles grant producer|worker|viewer|operator ROLE",
    )
    for command in (["enqueue", "hello", "name=Ada"], ["tasks"], ["migrate", "--check"]):
        project.cli(*command).once(*advice, code=FAILED)
    project.worker().once(*advice, code=FAILED)
    project.python(ENQUEUE).telling("NotPermitted: ", *advice)
    project.cli("migrate").once("may not migrate", "permission denied", "Use the database's owner", code=FAILED)
    project.url = owner
