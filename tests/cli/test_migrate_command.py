"""`holdfast migrate` (X1)."""

import json

import pytest

from holdfast._db.driver.connection import connect_sync
from holdfast._db.migrate import latest, migrations

from .conftest import Cli


def execute(cli: Cli, text: str) -> None:
    with connect_sync(cli.url) as connection:
        connection.execute(text.encode())


def test_up_again_and_check(cli: Cli) -> None:
    assert "Run: holdfast migrate" in cli("migrate", "--check", "--schema", "shop", code=1).stderr
    first = cli("migrate", "--schema", "shop").stdout
    for migration in migrations():
        assert f"applied {migration.version} {migration.name}" in first
    assert "nothing to do" in cli("migrate", "--schema", "shop").stdout
    assert "as it should be" in cli("migrate", "--check", "--schema", "shop").stdout
    checked = cli.json("migrate", "--check", "--schema", "shop")
    assert checked == {"schema": "shop", "version": latest(), "latest": latest(), "pending": 0, "drift": []}
    assert cli.json("migrate") == {"schema": "holdfast", "version": latest(), "applied": []}


def test_check_lists_drift(cli: Cli) -> None:
    execute(cli, "alter table holdfast.task add column extra text; drop index holdfast.task_parked")
    checked = cli("migrate", "--check", code=1)
    assert "unexpected: column task.extra text" in checked.stdout
    assert "missing: index CREATE INDEX task_parked" in checked.stdout
    assert "changed by hand: 2 differences" in checked.stderr
    assert json.loads(cli("migrate", "--check", "--json", code=1).stderr)["error"] == "Drift"


def test_down_asks_first(cli: Cli) -> None:
    id = cli.enqueue("send")
    assert "deletes ALL tasks" in cli("migrate", "--to", "0", answer="n\n", code=1).stdout
    assert "--yes" in cli("migrate", "--to", "0", "--json", code=2).stderr
    assert cli.show(id)["task"]["state"] == "ready"
    assert "took back 1 kernel" in cli("migrate", "--to", "0", answer="y\n").stdout
    cli("migrate")
    assert cli.json("tasks")["tasks"] == []
    assert cli.json("migrate", "--to", "0", "--yes")["version"] == 0


def test_sql_needs_no_database_and_does_the_same(cli: Cli) -> None:
    url, cli.environment["HOLDFAST_URL"] = cli.url, None
    text = cli("migrate", "--sql", "--schema", "by_hand").stdout
    cli.environment["HOLDFAST_URL"] = url
    execute(cli, text)
    cli("migrate", "--check", "--schema", "by_hand")
    cli("enqueue", "send", "--schema", "by_hand")


@pytest.mark.parametrize("arguments", [["--sql", "--check"], ["--check", "--to", "1"], ["--from", "1"], ["--to", "-1"]])
def test_what_does_not_go_together(cli: Cli, arguments: list[str]) -> None:
    cli("migrate", *arguments, code=2)


def test_X1_sql_of_some_versions_only(cli: Cli) -> None:
    first = cli("migrate", "--sql", "--to", "1", "--schema", "by_hand").stdout
    assert "-- migration 1:" in first and "-- migration 2:" not in first
    rest = cli("migrate", "--sql", "--from", "1", "--schema", "by_hand").stdout
    assert "-- migration 1:" not in rest and f"-- migration {latest()}:" in rest
    execute(cli, first)
    assert "is at version 1" in cli("migrate", "--check", "--schema", "by_hand", code=1).stderr
    execute(cli, rest)
    cli("migrate", "--check", "--schema", "by_hand")
    for wrong in (["--to", "999"], ["--from", "3", "--to", "2"]):
        assert "there is no way up" in cli("migrate", "--sql", *wrong, code=1).stderr


def test_a_version_nobody_knows(cli: Cli) -> None:
    assert "there is no version 999" in cli("migrate", "--to", "999", code=1).stderr
    execute(cli, "insert into holdfast.migration (version, name, objects) values (999, 'later', '{}')")
    assert "newer than this code" in cli("migrate", "--check", code=1).stderr
    assert "newer than this code" in cli("migrate", code=1).stderr
