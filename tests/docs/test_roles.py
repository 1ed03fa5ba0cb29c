"""What the page about PostgreSQL says about roles: each has the rights it needs, and not more."""

import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import App, named
from holdfast.testing import Harness

from .pages import DOCS, blocks

ROLES = ("shop_worker", "shop_web", "shop_viewer")


def as_role(url: str, role: str) -> str:
    return make_conninfo("", **{**conninfo_to_dict(url), "user": role, "password": "secret"})


def execute(url: str, text: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def roles(holdfast: Harness) -> Iterator[dict[str, str]]:
    """The roles of the page, under names of their own: roles belong to the whole server."""
    names = {role: f"{role}_{uuid4().hex[:8]}" for role in ROLES}
    for block in blocks(DOCS / "howto" / "postgresql.md"):
        if block.language == "sql" and "create role" in block.text:
            text = re.sub(r"\bshop_\w+", lambda found: names[found[0]], block.text)
            text = text.replace("create schema holdfast", "create schema another")
            execute(holdfast.url, re.sub(r"(create role \w+ login)", r"\1 password 'secret'", text))
    yield {role: as_role(holdfast.url, name) for role, name in names.items()}
    for name in names.values():
        execute(holdfast.url, f"drop owned by {name}; drop role {name}")


async def test_X5_a_web_role_may_enqueue_and_nothing_else(holdfast: Harness, roles: dict[str, str]) -> None:
    url = roles["shop_web"]
    app = App(url)
    for _ in range(2):  # the second time, its key is taken
        app.sync.enqueue(named("greeter.ReadName", {"filename": "x"}), key="once")
    app.sync.enqueue(named("greeter.ReadName", {"filename": "x"}), key="old", deadline="1s")
    holdfast.clock.advance("1m")
    app.sync.enqueue(named("greeter.ReadName", {"filename": "x"}), key="old", unique_for="1h")  # it has expired
    app.sync.enqueue_many([named("greeter.ReadName", {"filename": "x"})])
    app.sync.close()
    execute(url, "select holdfast.enqueue('greeter.ReadName')")
    assert holdfast.enqueued("greeter") == 4
    for forbidden in ("delete from holdfast.task", "update holdfast.task set priority = 9", "table holdfast.archive"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(url, forbidden)


async def test_X5_a_viewer_may_look_and_nothing_else(holdfast: Harness, roles: dict[str, str]) -> None:
    url = roles["shop_viewer"]
    for view in ("tasks", "attempts", "parked", "worker"):
        assert execute(url, f"select count(*) from holdfast.{view}") == [(0,)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(url, "select holdfast.enqueue('greeter.ReadName')")


async def test_X5_the_owner_of_a_schema_may_migrate_it_and_work(holdfast: Harness, roles: dict[str, str]) -> None:
    from holdfast._db.migrate import migrate

    url = roles["shop_worker"]
    await migrate(url, "another")
    app = App(url, schema="another")

    @app.task
    async def hello(name: str) -> str:
        return f"Hello, {name}"

    async with app, app.worker(poll="100ms"):
        assert await (await hello.enqueue("Ada")).result(timeout="60s") == "Hello, Ada"
