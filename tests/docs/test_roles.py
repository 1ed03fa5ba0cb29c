"""What the page about roles says: its statements and commands are run, on a server of the tests."""

import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast import App
from holdfast._db.migrate import migrate
from holdfast._db.roles import grantees
from holdfast.cli import main

from .pages import DOCS, blocks

PAGE = DOCS / "howto" / "roles.md"
ROLES = re.compile(r"\b(shop_(?:worker|web|owner)|ann)\b")


def as_role(url: str, role: str) -> str:
    return make_conninfo("", **{**conninfo_to_dict(url), "user": role, "password": "secret"})


def execute(url: str, text: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(text.encode())


@pytest.fixture
def names(holdfast_url: str, holdfast_server: str) -> Iterator[dict[str, str]]:
    """The roles of the page, under names of their own: roles belong to the whole server."""
    names = {role: f"{role}_{uuid4().hex[:8]}" for role in ("shop_worker", "shop_web", "shop_owner", "ann")}
    yield names
    for name in names.values():
        execute(holdfast_url, f"drop owned by {name} cascade")
        execute(holdfast_server, f"drop role {name}")


async def test_X5_the_page_about_roles_is_true(holdfast_url: str, names: dict[str, str]) -> None:
    """Its statements are run, then its commands. The schema it makes is the second one: the first is there."""
    texts = {"sql": list[str](), "console": list[str]()}
    for block in blocks(PAGE):
        texts.setdefault(block.language, []).append(ROLES.sub(lambda found: names[found[1]], block.text))
    for text in texts["sql"]:
        text = text.replace("create schema holdfast", "create schema billing")
        execute(holdfast_url, re.sub(r"(create role \w+ login)", r"\1 password 'secret'", text))
    await migrate(as_role(holdfast_url, names["shop_owner"]), "billing")
    lines = [line for text in texts["console"] for line in text.splitlines()]
    assert len(lines) == 5
    for line in lines:
        result = CliRunner().invoke(main, line.split()[1:], env={"HOLDFAST_URL": holdfast_url})
        assert result.exit_code == 0, result.output
    given = {(each.role, each.part) for each in grantees(holdfast_url, "holdfast")}
    assert given == {(names["shop_worker"], "worker"), (names["shop_web"], "producer"), (names["ann"], "operator")}

    works = App(as_role(holdfast_url, names["shop_owner"]), schema="billing")
    web = App(as_role(holdfast_url, names["shop_web"]), schema="billing")

    @works.task
    async def hello(name: str) -> str:
        return f"Hello, {name}"

    async with works, web, works.worker(poll="100ms"):
        made = await web.enqueue(hello.bind("Ada"))
        assert await works.ref(made.id, hello).result(timeout="60s") == "Hello, Ada"
