"""Empty databases and schemas to migrate."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast._db.driver.connection import connect_sync, with_database


def execute(url: str, text: str, *values: object) -> list[tuple[object, ...]]:
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
def empty_url(holdfast_server: str) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    name = f"holdfast_empty_{uuid4().hex[:12]}"
    execute(holdfast_server, f"CREATE DATABASE {name} TEMPLATE template0")
    yield with_database(holdfast_server, name)
    execute(holdfast_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(holdfast_server: str, empty_url: str) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"holdfast_role_{uuid4().hex[:12]}"
    execute(holdfast_server, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    execute(empty_url, f"DROP OWNED BY {name} CASCADE")
    execute(holdfast_server, f"DROP ROLE {name}")
