"""X2: a migration only adds. Then workers of the version before go on with the new tables, and nobody waits for it."""

import re

import pytest

from holdfast._db import migrate as module
from holdfast._db.migrate import Migration, latest, migrate, migrations

from .conftest import execute

LARGE = {"archive", "attempt"}
"""Tables whose indexes take long to build; nobody could write to them meanwhile."""


async def broken_rules(url: str, version: int) -> list[str]:
    """What a migration does to the tables of the version before that it must not do."""
    await migrate(url, to=version - 1)
    # Rows, or nothing would have to be rewritten.
    execute(url, "INSERT INTO holdfast.task (id, kind, step) VALUES (gen_random_uuid(), 'greeter', 'main')")
    before, files = described(url, version - 1), tables(url)
    await migrate(url, to=version)
    after, files_after = described(url, version), tables(url)
    told = [f"a table is written anew: {name}" for name, file in files.items() if files_after.get(name, file) != file]
    told += [f"gone or changed: {line}" for line in sorted(before - after) if line.startswith(("column", "view"))]
    names = {without_body(line) for line in after}
    told += [
        f"gone: {without_body(line)}"
        for line in sorted(before - after)
        if line.startswith("function") and without_body(line) not in names
    ]
    for line in sorted(after - before):
        table = re.search(r"^index .* ON (?:ONLY )?\S*?(\w+) USING", line)
        if table and table[1] in LARGE and table[1] in files:
            told.append(f"an index that takes long to build: {line}")
    return told


def described(url: str, version: int) -> set[str]:
    """The objects of a version as the migration recorded them; views by their columns."""
    ((lines,),) = execute(url, "SELECT objects FROM holdfast.migration WHERE version = $1", version)
    assert isinstance(lines, list)
    columns = execute(
        url,
        "SELECT format('view %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod))"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " WHERE c.relnamespace = 'holdfast'::regnamespace AND c.relkind = 'v'",
    )
    return {line for line in lines if not line.startswith("view")} | {str(line) for (line,) in columns}


def without_body(line: str) -> str:
    return re.sub(r" [0-9a-f]{32}$", "", line)


def tables(url: str) -> dict[object, object]:
    """The tables and the files they are in: a new file means that all rows were copied, and everybody waited."""
    text = (
        "SELECT relname, relfilenode FROM pg_class"
        " WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'migration'"
    )
    return {row[0]: row[1] for row in execute(url, text)}


@pytest.mark.parametrize("version", range(2, latest() + 1))
async def test_X2_a_migration_only_adds(empty_url: str, version: int) -> None:
    assert await broken_rules(empty_url, version) == []


BAD = [
    ("ALTER TABLE holdfast.task ADD COLUMN n float DEFAULT random()", "a table is written anew: task"),
    ("ALTER TABLE holdfast.task DROP COLUMN headers CASCADE", "gone or changed: column task.headers"),
    ("ALTER TABLE holdfast.worker RENAME COLUMN host TO machine", "gone or changed: column worker.host"),
    ("ALTER TABLE holdfast.task ALTER COLUMN key SET NOT NULL", "gone or changed: column task.key"),
    ("DROP VIEW holdfast.parked", "gone or changed: view parked"),
    ("DROP FUNCTION holdfast.explain(uuid)", "gone: function explain"),
    ("CREATE INDEX slow ON holdfast.archive (kind)", "an index that takes long to build"),
]


@pytest.mark.parametrize(("up", "told"), BAD, ids=[told for _, told in BAD])
async def test_X2_a_migration_that_does_more_is_found(
    empty_url: str, monkeypatch: pytest.MonkeyPatch, up: str, told: str
) -> None:
    """A test of the test."""
    more = (*migrations(), Migration(latest() + 1, "bad", f"DELETE FROM holdfast.task; {up}", ""))
    monkeypatch.setattr(module, "migrations", lambda: more)
    found = await broken_rules(empty_url, len(more))
    assert any(line.startswith(told) for line in found), found
