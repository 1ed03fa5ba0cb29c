"""X1, X5: what a role lacks is said clearly, and the owner of the schema needs no more than that."""

import asyncio

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._db.migrate import latest, migrate, status
from holdfast.errors import DatabaseUnreachable, SchemaError

from .conftest import execute


def as_role(url: str, role: str) -> str:
    return make_conninfo("", **{**conninfo_to_dict(url), "user": role, "password": "secret"})


@pytest.fixture
def migrated(empty_url: str) -> str:
    asyncio.run(migrate(empty_url))
    return empty_url


async def test_X1_a_role_that_may_not_create_is_told(empty_url: str, role: str) -> None:
    with pytest.raises(SchemaError, match=r"may not migrate schema 'holdfast'.*permission denied.*Use the database"):
        await migrate(as_role(empty_url, role))
    assert (await status(empty_url)).version == 0


async def test_X1_a_role_that_may_not_look_is_told(migrated: str, role: str) -> None:
    with pytest.raises(SchemaError, match="permission denied for schema holdfast"):
        await status(as_role(migrated, role))
    with pytest.raises(SchemaError, match="permission denied"):
        await migrate(as_role(migrated, role))


async def test_X1_the_owner_of_the_schema_may_migrate_it(empty_url: str, role: str) -> None:
    """Where an administrator has made the schema, its owner needs no right to create schemas."""
    execute(empty_url, f"CREATE SCHEMA holdfast AUTHORIZATION {role}")
    assert len(await migrate(as_role(empty_url, role))) == latest()
    assert (await status(as_role(empty_url, role))).drift == ()
    assert await migrate(as_role(empty_url, role)) == []


async def test_X6_a_wrong_role_is_told_without_its_password(empty_url: str) -> None:
    with pytest.raises(DatabaseUnreachable) as caught:
        await migrate(as_role(empty_url, "nobody_at_all"))
    assert "nobody_at_all" in str(caught.value) and "secret" not in str(caught.value)
