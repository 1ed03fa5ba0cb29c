"""Database roles with a part each, and one without any."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._db.driver.connection import connect_sync
from holdfast._db.roles import Part, grant

PARTS: tuple[Part, ...] = ("producer", "worker", "viewer", "operator")


def execute(url: str, text: str, *values: object) -> list[tuple[object, ...]]:
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


def as_role(url: str, role: str) -> str:
    return make_conninfo("", **{**conninfo_to_dict(url), "user": role, "password": "secret"})


@pytest.fixture
def new_role(holdfast_server: str, holdfast_url: str) -> Iterator[Callable[..., str]]:
    """Makes roles that may log in and nothing else; they are dropped afterwards."""
    made: list[str] = []

    def new_role(name: str = "somebody", options: str = "LOGIN PASSWORD 'secret'") -> str:
        made.append(f"{name}_{uuid4().hex[:8]}")
        execute(holdfast_server, f'CREATE ROLE "{made[-1]}" {options}')
        return made[-1]

    yield new_role
    for name in made:
        with suppress(psycopg.errors.UndefinedObject):
            execute(holdfast_url, f'DROP OWNED BY "{name}" CASCADE')
            execute(holdfast_server, f'DROP ROLE "{name}"')


@pytest.fixture
def urls(holdfast_url: str, new_role: Callable[..., str]) -> dict[str, str]:
    """The database's URL for each part, for the owner, and for a role without a part."""
    found = {"owner": holdfast_url, "nobody": as_role(holdfast_url, new_role("nobody"))}
    for part in PARTS:
        role = new_role(f"the_{part}")
        grant(holdfast_url, "holdfast", part, [role])
        found[part] = as_role(holdfast_url, role)
    return found
