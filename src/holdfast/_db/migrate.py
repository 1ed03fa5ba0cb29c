"""Migrations: numbered SQL, up and down, each in one transaction under a lock.

A schema remembers what was applied in its table `migration`, with a description of every object as it was
right after; what differs later is drift: the schema was changed by hand.
"""

import asyncio
import random
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, LiteralString

import psycopg
from psycopg import AsyncConnection

from holdfast._db.config.resolve import check_schema
from holdfast._db.driver.connection import connect, run
from holdfast._db.errors import explaining, migrate_command
from holdfast._sql.queries import queries
from holdfast._sql.query import for_schema
from holdfast.errors import SchemaError

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.(up|down)\.sql")
MINIMUM_SERVER = 140000

# The catalog leaves out the names of schemas on the search path: without one, everybody reads the same.
NO_SEARCH_PATH = "SET LOCAL search_path = pg_catalog"


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered change of the schema."""

    version: int
    name: str
    up: str
    down: str


@dataclass(frozen=True, slots=True)
class Status:
    """Where a schema stands."""

    schema: str
    version: int
    latest: int
    drift: tuple[str, ...]

    @property
    def pending(self) -> int:
        return max(0, self.latest - self.version)


@cache
def migrations() -> tuple[Migration, ...]:
    """All migrations of this code, in order."""
    texts: dict[tuple[int, str], dict[str, str]] = {}
    for file in resources.files("holdfast._sql").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            texts.setdefault((int(match[1]), match[2]), {})[match[3]] = file.read_text("utf-8")
    found = [Migration(version, name, text["up"], text["down"]) for (version, name), text in sorted(texts.items())]
    if [m.version for m in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"migrations are not numbered from 1 without gaps: {[m.version for m in found]}")
    return tuple(found)


def latest() -> int:
    """The version this code expects."""
    return migrations()[-1].version


def check_version(at: int, schema: str) -> None:
    """Refuses a schema that this code cannot work with: more than one version older or newer, or empty."""
    if at > latest() + 1:
        _refuse_newer(schema, at)
    if at < max(1, latest() - 1):
        raise SchemaError(
            f"schema {schema!r} is at version {at} and this code needs {latest()}. Run: {migrate_command(schema)}"
        )


def check_encoding(encoding: str | bytes) -> None:
    """Refuses a database that cannot hold every text: names, args and errors are texts of any language."""
    if isinstance(encoding, bytes):  # as every text of a database in SQL_ASCII
        encoding = encoding.decode()
    if encoding != "UTF8":
        raise SchemaError(
            f"this database stores texts in {encoding}, and Holdfast needs UTF8. The encoding of a database cannot be "
            "changed. Make another one, move what you need with pg_dump, and use its URL: "
            "CREATE DATABASE … ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"
        )


def script(schema: str, *, above: int = 0, to: int | None = None) -> str:
    """The migrations above a version, up to another, as one SQL script, for people who apply it by other means."""
    to = latest() if to is None else to
    if not 0 <= above <= to <= latest():
        raise SchemaError(f"there is no way up from version {above} to {to}: this code knows 0 to {latest()}")
    parts = [queries(schema).migration_table]
    for migration in migrations():
        if above < migration.version <= to:
            parts.append(
                f"-- migration {migration.version}: {migration.name}\nBEGIN;\n{for_schema(migration.up, schema)}"
            )
            renewal, record = queries(schema).renew_grants, _record(schema, migration)
            parts.append(f"{NO_SEARCH_PATH};\n{renewal};\n{record}\nCOMMIT;\n")
    return "\n".join(parts)


def migration_lock(schema: str) -> tuple[LiteralString, list[str]]:
    """One at a time changes a schema and the rights on it, until the transaction ends."""
    return "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", [f"holdfast migrate {schema}"]


async def status(url: str, schema: str = "holdfast") -> Status:
    """The version of a schema, what this code expects, and what was changed by hand."""
    connection = await connect(url, "holdfast migrate")
    try:
        with explaining(schema):
            async with connection.transaction():
                await connection.execute(NO_SEARCH_PATH)
                return await _status(connection, check_schema(schema))
    finally:
        await connection.close()


async def migrate(url: str, schema: str = "holdfast", *, to: int | None = None, tries: int = 60) -> list[str]:
    """Brings a schema to a version (by default the latest) and lists what was applied. Idempotent."""
    check_schema(schema)
    target = latest() if to is None else to
    if not 0 <= target <= latest():
        raise SchemaError(f"there is no version {target}: this code knows 0 to {latest()}")
    connection = await connect(url, "holdfast migrate")
    try:
        if connection.info.server_version < MINIMUM_SERVER:
            raise SchemaError(
                f"PostgreSQL 14 or newer is needed; this server is {connection.info.server_version // 10000}"
            )
        if target > 0:
            check_encoding(await run(connection, queries(schema).encoding()))
        applied: list[str] = []
        while True:
            done = await _one_step(connection, schema, target, tries)
            if done is None:
                return applied
            applied.append(done)
    finally:
        await connection.close()


async def _one_step(connection: AsyncConnection[Any], schema: str, target: int, tries: int) -> str | None:
    """One migration up or down in its own transaction; waits for locks briefly, so that live workers go on."""
    asks = queries(schema)
    for attempt in range(tries):
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '1s'")
                await connection.execute(NO_SEARCH_PATH)
                await connection.execute(*migration_lock(schema))
                await _script(connection, asks.migration_table)
                at = await run(connection, asks.schema_version())
                _refuse_newer(schema, at)
                if at == target:
                    return None
                migration = migrations()[at if at < target else at - 1]
                if at < target:
                    await _script(connection, for_schema(migration.up, schema))
                    await _script(connection, asks.renew_grants)
                    seen = await run(connection, asks.objects())
                    await run(connection, asks.record_migration(migration.version, migration.name, seen))
                    return f"{migration.version} {migration.name}"
                await _script(connection, for_schema(migration.down, schema))
                await run(connection, asks.forget_migration(migration.version))
                return f"{migration.version} {migration.name} (taken back)"
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            if attempt + 1 == tries:
                raise SchemaError(
                    f"schema {schema!r} is busy: a lock was not free within {tries} tries. "
                    "Look for long transactions in pg_stat_activity, then run the migration again"
                ) from None
            await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"this role may not migrate schema {schema!r}: {error.diag.message_primary}. Use the database's owner"
            ) from None
    raise AssertionError("unreachable: the last try raises")


async def _status(connection: AsyncConnection[Any], schema: str) -> Status:
    asks = queries(schema)
    if not await run(connection, asks.has_migrations()):
        return Status(schema, 0, latest(), ())
    at = await run(connection, asks.schema_version())
    expected = await run(connection, asks.expected_objects()) or []
    found = await run(connection, asks.objects()) if expected else []
    drift = [f"missing: {line}" for line in sorted(set(expected) - set(found))]
    drift += [f"unexpected: {line}" for line in sorted(set(found) - set(expected))]
    return Status(schema, at, latest(), tuple(drift))


def _refuse_newer(schema: str, at: int) -> None:
    if at > latest():
        raise SchemaError(
            f"schema {schema!r} is at version {at}, newer than this code, which knows {latest()}. Upgrade holdfast here"
        )


def _record(schema: str, migration: Migration) -> str:
    """The record of a migration, as text for a script: without what the schema then looked like."""
    text = queries(schema).record_migration(migration.version, migration.name, []).statement.text
    values = (str(migration.version), f"'{migration.name}'", "'{}'")
    for number, value in enumerate(values, 1):
        text = text.replace(f"${number}", value)
    return text + ";"


async def _script(connection: AsyncConnection[Any], text: str) -> None:
    # Without parameters, a text may hold many statements.
    await connection.execute(text.encode())
