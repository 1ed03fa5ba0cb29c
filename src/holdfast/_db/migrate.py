"""Migrations: numbered SQL, up and down, each in one transaction under a lock.

A schema remembers what was applied in its table `migration`, with a description of every object as it was
right after; what differs later is drift: somebody changed the schema by hand.
"""

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import psycopg
from psycopg import AsyncConnection

from holdfast._db.config import check_schema
from holdfast._db.connection import connect
from holdfast._sql.query import for_schema, quote
from holdfast.errors import SchemaError

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.(up|down)\.sql")
MINIMUM_SERVER = 140000

_MIGRATION_TABLE = """
CREATE SCHEMA IF NOT EXISTS holdfast.;
CREATE TABLE IF NOT EXISTS holdfast.migration (
    version    integer PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    objects    text[] NOT NULL
);
COMMENT ON TABLE holdfast.migration IS 'Which migrations were applied, in order.';
COMMENT ON COLUMN holdfast.migration.version IS 'Its number.';
COMMENT ON COLUMN holdfast.migration.name IS 'Its name.';
COMMENT ON COLUMN holdfast.migration.applied_at IS 'When it was applied.';
COMMENT ON COLUMN holdfast.migration.objects IS 'Every object of the schema as it was right after: what differs later is drift.';
"""

# A line per column, constraint, index, function and view. Partitions come and go and are left out.
_OBJECTS = """
SELECT line FROM (
    SELECT format('column %s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
                  coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')) AS line
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = $1::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    UNION ALL
    SELECT format('constraint %s.%s %s', c.relname, k.conname, pg_get_constraintdef(k.oid))
    FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
    WHERE c.relnamespace = $1::regnamespace AND NOT c.relispartition AND k.contype IN ('c', 'p', 'u', 'f', 'x')
    UNION ALL
    SELECT 'index ' || pg_get_indexdef(i.indexrelid)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
    WHERE c.relnamespace = $1::regnamespace AND NOT c.relispartition
    UNION ALL
    SELECT format('function %s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid), md5(p.prosrc))
    FROM pg_catalog.pg_proc p WHERE p.pronamespace = $1::regnamespace
    UNION ALL
    SELECT format('view %s %s', c.relname, md5(pg_get_viewdef(c.oid)))
    FROM pg_catalog.pg_class c WHERE c.relnamespace = $1::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT format('domain %s %s', t.typname, pg_get_constraintdef(k.oid))
    FROM pg_catalog.pg_type t JOIN pg_catalog.pg_constraint k ON k.contypid = t.oid
    WHERE t.typnamespace = $1::regnamespace
) AS lines ORDER BY line
"""


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
        raise SchemaError(f"schema {schema!r} is at version {at} and this code needs {latest()}. Run: holdfast migrate")


def script(schema: str, *, above: int = 0) -> str:
    """The migrations above a version as one SQL script, for people who apply it by other means."""
    parts = [_prologue(schema)]
    for migration in migrations():
        if migration.version > above:
            parts.append(
                f"-- migration {migration.version}: {migration.name}\nBEGIN;\n{for_schema(migration.up, schema)}"
            )
            parts.append(f"{_record(schema, migration)}\nCOMMIT;\n")
    return "\n".join(parts)


async def status(url: str, schema: str = "holdfast") -> Status:
    """The version of a schema, what this code expects, and what was changed by hand."""
    connection = await connect(url, "holdfast migrate")
    try:
        return await _status(connection, check_schema(schema))
    finally:
        await connection.close()


async def migrate(url: str, schema: str = "holdfast", *, to: int | None = None, tries: int = 60) -> list[str]:
    """Brings a schema to a version (by default the latest) and tells what was applied. Idempotent."""
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
    for attempt in range(tries):
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL lock_timeout = '1s'")
                await connection.execute(
                    "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", [f"holdfast migrate {schema}"]
                )
                await _script(connection, _prologue(schema))
                at = await _version(connection, schema)
                _refuse_newer(schema, at)
                if at == target:
                    return None
                migration = migrations()[at if at < target else at - 1]
                if at < target:
                    await _script(connection, for_schema(migration.up, schema))
                    await _script(connection, _record(schema, migration))
                    await connection.execute(
                        f"UPDATE {quote(schema)}.migration SET objects = $1 WHERE version = $2",
                        [await _objects(connection, schema), migration.version],
                    )
                    return f"{migration.version} {migration.name}"
                await _script(connection, for_schema(migration.down, schema))
                await connection.execute(
                    f"DELETE FROM {quote(schema)}.migration WHERE version = $1",  # noqa: S608 - quoted above
                    [migration.version],
                )
                return f"{migration.version} {migration.name} (taken back)"
        except psycopg.errors.LockNotAvailable:
            if attempt + 1 == tries:
                raise SchemaError(
                    f"schema {schema!r} is busy: a lock was not free within {tries} tries. "
                    "Look for long transactions in pg_stat_activity, then run the migration again"
                ) from None
            await asyncio.sleep(random.uniform(0.2, 1.0))  # noqa: S311
        except psycopg.errors.InsufficientPrivilege as error:
            raise SchemaError(
                f"this role may not migrate schema {schema!r}: {error.diag.message_primary}. Use the owner of the database"
            ) from None
    raise AssertionError("unreachable: the last try raises")


async def _status(connection: AsyncConnection[Any], schema: str) -> Status:
    if not await _one(connection, "SELECT to_regclass($1) IS NOT NULL", f"{quote(schema)}.migration"):
        return Status(schema, 0, latest(), ())
    at = await _version(connection, schema)
    expected: Sequence[str] = (
        await _one(
            connection,
            f"SELECT objects FROM {quote(schema)}.migration ORDER BY version DESC LIMIT 1",  # noqa: S608
        )
        or []
    )
    found = await _objects(connection, schema) if expected else []
    drift = [f"missing: {line}" for line in sorted(set(expected) - set(found))]
    drift += [f"unexpected: {line}" for line in sorted(set(found) - set(expected))]
    return Status(schema, at, latest(), tuple(drift))


def _refuse_newer(schema: str, at: int) -> None:
    if at > latest():
        raise SchemaError(
            f"schema {schema!r} is at version {at}, newer than this code, which knows {latest()}. Upgrade holdfast"
        )


def _prologue(schema: str) -> str:
    return for_schema(_MIGRATION_TABLE, schema).replace(f"{quote(schema)}.;", f"{quote(schema)};")


def _record(schema: str, migration: Migration) -> str:
    return (
        f"INSERT INTO {quote(schema)}.migration (version, name, objects) "  # noqa: S608 - quoted, and our own names
        f"VALUES ({migration.version}, '{migration.name}', '{{}}');"
    )


async def _script(connection: AsyncConnection[Any], text: str) -> None:
    # Without parameters, a text may hold many statements.
    await connection.execute(text.encode())


async def _version(connection: AsyncConnection[Any], schema: str) -> int:
    return int(await _one(connection, f"SELECT coalesce(max(version), 0) FROM {quote(schema)}.migration"))  # noqa: S608


async def _objects(connection: AsyncConnection[Any], schema: str) -> list[str]:
    cursor = await connection.execute(_OBJECTS, [quote(schema)])
    return [row[0] for row in await cursor.fetchall()]


async def _one(connection: AsyncConnection[Any], text: str, *parameters: object) -> Any:
    cursor = await connection.execute(text.encode(), parameters or None)
    row = await cursor.fetchone()
    return row[0] if row else None
