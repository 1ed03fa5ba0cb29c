"""`holdfast doctor`: the schema, the database and the way to it. Every sick state is a real one."""

import os
import shutil
import struct
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast._db.driver.connection import connect_sync
from holdfast._db.roles import grant
from holdfast.doctor import Limits
from pgbouncer import MISSING, PROGRAM, pgbouncer

from .conftest import Cli, eventually
from .diagnosed import diagnosed
from .planted import plant, rows

AT_ONCE = Limits(transaction=timedelta(0), transaction_bad=timedelta(hours=1))
"""Nobody wants to wait for five minutes."""


@contextmanager
def session(url: str, *statements: str) -> Iterator[psycopg.Connection[Any]]:
    """A session of somebody's, in a transaction."""
    with closing(connect_sync(url, "an analyst")) as connection:
        for text in ("BEGIN ISOLATION LEVEL REPEATABLE READ", *statements):
            connection.execute(text.encode())
        yield connection


@pytest.fixture
def role(cli: Cli, holdfast_server: str) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"somebody_{uuid4().hex[:8]}"
    rows(cli, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    rows(cli, f"DROP OWNED BY {name} CASCADE")
    with connect_sync(holdfast_server) as connection:
        connection.execute(f"DROP ROLE {name}".encode())


def as_role(cli: Cli, role: str) -> Cli:
    return Cli(make_conninfo("", **{**conninfo_to_dict(cli.url), "user": role, "password": "secret"}))


# --- schema


def test_X1_a_changed_function_is_drift_and_bad(cli: Cli) -> None:
    assert diagnosed(cli, "schema").level == "fine"
    rows(cli, "CREATE INDEX of_a_dba ON holdfast.task (created_at)")
    more = diagnosed(cli, "schema")
    assert (more.level, more.cure) == ("warning", ("holdfast migrate --check",)) and "of_a_dba" in more.found
    rows(cli, "DROP INDEX holdfast.of_a_dba")
    function = (
        "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz"
        " LANGUAGE sql STABLE PARALLEL SAFE AS $$SELECT {}$$"
    )
    rows(cli, function.format("pg_catalog.now()"))
    found = diagnosed(cli, "schema")
    assert found.level == "bad" and "function now()" in found.found
    rows(cli, function.format("pg_catalog.statement_timestamp()"))
    assert diagnosed(cli, "schema").level == "fine"


def test_an_old_a_newer_and_a_missing_schema(cli: Cli) -> None:
    newer = "INSERT INTO holdfast.migration SELECT max(version) + 1, $1, now(), '{}' FROM holdfast.migration"
    for name, level in (("next", "warning"), ("later", "bad")):
        rows(cli, newer, name)
        assert diagnosed(cli, "schema").level == level
    rows(cli, "DELETE FROM holdfast.migration WHERE name IN ('next', 'later')")
    rows(cli, "DELETE FROM holdfast.migration WHERE version = (SELECT max(version) FROM holdfast.migration)")
    old = diagnosed(cli, "schema")
    assert (old.level, old.cure) == ("warning", ("holdfast migrate",))
    rows(cli, "DROP SCHEMA holdfast CASCADE")
    shown = cli("doctor", code=2).stdout
    assert "there are no tables" in shown and "1 bad in 1 check." in shown


def test_X5_a_role_that_lacks_rights(cli: Cli, role: str) -> None:
    assert "only the owner" in diagnosed(cli, "roles").found
    for part in ("producer", "worker", "viewer", "operator"):
        grant(cli.url, "holdfast", part, [role])
    assert diagnosed(cli, "roles").level == "fine"
    rows(cli, f"REVOKE EXECUTE ON FUNCTION holdfast.retry(uuid, jsonb) FROM {role}")
    found = diagnosed(cli, "roles")
    assert found.level == "bad" and "holdfast.retry" in found.found
    assert found.cure == (f"holdfast roles grant operator {role}",)
    cli(*found.cure[0].split()[1:])
    assert diagnosed(cli, "roles").level == "fine"
    rows(cli, f"REVOKE INSERT ON holdfast.task FROM {role}")
    assert "holdfast.task" in diagnosed(cli, "roles").found
    rows(cli, f"ALTER ROLE {role} RENAME TO {role}_new")
    try:
        assert (diagnosed(cli, "roles").level, role in diagnosed(cli, "roles").found) == ("warning", True)
    finally:
        rows(cli, f"ALTER ROLE {role}_new RENAME TO {role}")


def test_A4_partitions_ahead_and_behind(cli: Cli) -> None:
    assert diagnosed(cli, "partitions").level == diagnosed(cli, "retention").level == "fine"
    rows(cli, "SELECT holdfast.ensure_partition(current_date - 30)")
    late = diagnosed(cli, "retention")
    assert late.level == "warning" and late.found.startswith("2 partitions")
    cli(*late.cure[0].split()[1:])
    assert diagnosed(cli, "retention").level == "fine"
    drop = """DO $$ BEGIN EXECUTE format('DROP TABLE holdfast.archive_p%s',
        to_char(now() AT TIME ZONE 'UTC' + '{} days'::interval, 'YYYYMMDD')); END $$"""
    rows(cli, drop.format(2))
    few = diagnosed(cli, "partitions")
    assert few.level == "warning" and "2 days" in few.found
    rows(cli, drop.format(0))
    assert diagnosed(cli, "partitions").level == "bad"


# --- server


@pytest.mark.direct("sessions of a pooler keep the settings they began with")
def test_settings_that_lose_data_or_refuse_to_write(cli: Cli, holdfast_server: str) -> None:
    database = conninfo_to_dict(cli.url)["dbname"]
    found = diagnosed(cli, "settings")
    durable = rows(cli, "SHOW fsync") == [("on",)]
    assert found.level == ("fine" if durable else "bad") and (durable or "fsync" in found.found)
    rows(cli, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        assert (diagnosed(cli, "server").level, "read-only" in diagnosed(cli, "server").found) == ("bad", True)
    finally:
        with connect_sync(holdfast_server) as connection:
            connection.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only".encode())
    assert diagnosed(cli, "server").level == "fine"


def test_connections_nearly_used_up(cli: Cli) -> None:
    assert diagnosed(cli, "connections").level == "fine"
    few = Limits(connections=0.0, connections_bad=2.0)
    assert diagnosed(cli, "connections", limits=few).level == "warning"
    assert diagnosed(cli, "connections", limits=Limits(connections=0.0, connections_bad=0.0)).level == "bad"


@pytest.mark.direct("a session's own notifications and transactions are looked at")
def test_a_queue_of_notifications_that_fills_up(cli: Cli) -> None:
    assert diagnosed(cli, "notifications").level == "fine"
    with closing(connect_sync(cli.url)) as listener:
        listener.execute(b"LISTEN held")
        listener.execute(b"BEGIN")
        listener.execute(b"SELECT 1")
        rows(cli, "SELECT count(pg_notify('held', repeat('x', 7000) || n)) FROM generate_series(1, 1000) AS n")
        found = diagnosed(cli, "notifications", limits=Limits(notifications=0.0001))
        assert found.level == "warning" and "% full" in found.found
        assert (
            diagnosed(cli, "notifications", limits=Limits(notifications=0.0001, notifications_bad=0.0002)).level
            == "bad"
        )


def test_the_age_of_the_oldest_row(cli: Cli) -> None:
    assert diagnosed(cli, "wraparound").level == "fine"
    assert diagnosed(cli, "wraparound", limits=Limits(frozen=0.0)).level == "warning"
    assert diagnosed(cli, "wraparound", limits=Limits(frozen=0.0, frozen_bad=1)).level == "bad"


# --- the way to it


@pytest.mark.direct("it makes its own pooler")
@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_X3_poolers_and_direct_urls(cli: Cli, holdfast_server: str) -> None:
    assert "notifications arrive" in diagnosed(cli, "pooler").found
    with pgbouncer(holdfast_server) as pooler:
        pooled = Cli(pooler.url(cli.url))
        alone = diagnosed(pooled, "pooler")
        assert alone.level == "fine" and "polling" in alone.found
        assert "directly for notifications" in diagnosed(pooled, "pooler", direct_url=cli.url).found
        assert diagnosed(pooled, "pooler", direct_url=pooled.url).level == "warning"
        elsewhere = diagnosed(pooled, "pooler", direct_url=holdfast_server)
        assert elsewhere.level == "bad" and "did not arrive" in elsewhere.found
        nowhere = make_conninfo("", **{**conninfo_to_dict(cli.url), "dbname": "nowhere"})
        away = diagnosed(pooled, "pooler", direct_url=nowhere)
        assert away.level == "bad" and "cannot be reached" in away.found


@pytest.mark.skipif(shutil.which("faketime") is None, reason="the program faketime is not installed")
def test_a_clock_that_is_wrong(cli: Cli) -> None:
    assert diagnosed(cli, "clock").level == "fine"
    command = ["faketime", "-f", "-10m", sys.executable, "-m", "holdfast.cli", "doctor"]
    shown = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HOLDFAST_URL": cli.url}).stdout
    assert "! clock          the database's clock is 9 min ahead of this machine's" in shown.replace("10 min", "9 min")


def test_M21_zone_data_that_differ(cli: Cli, tmp_path: Path) -> None:
    cli("schedules", "set", "nightly", "--step", "greeter.ReadName", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
    agreed = diagnosed(cli, "time zones")
    assert agreed.level == "fine" and "1 zone" in agreed.found
    (tmp_path / "Europe").mkdir()
    # A zone file without any transition: UTC for ever.
    header = b"TZif" + b"\0" * 16 + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    (tmp_path / "Europe" / "Berlin").write_bytes(header + struct.pack(">lbb", 0, 0, 0) + b"UTC\0")
    try:
        zoneinfo.reset_tzpath([str(tmp_path)])
        zoneinfo.ZoneInfo.clear_cache()
        found = diagnosed(cli, "time zones")
        assert found.level == "warning" and "Europe/Berlin (from " in found.found
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()
    rows(cli, """UPDATE holdfast.schedule SET definition = jsonb_set(definition, '{timing,tz}', '"Mars/Olympus"')""")
    assert "unknown to Python" in diagnosed(cli, "time zones").found


# --- cleaning up


@pytest.mark.direct("the statistics of a pooled session come when they come")
def test_dead_rows_that_nobody_removes(cli: Cli) -> None:
    assert diagnosed(cli, "autovacuum").level == diagnosed(cli, "dead rows").level == "fine"
    rows(cli, "ALTER TABLE holdfast.task SET (autovacuum_enabled = off)")
    off = diagnosed(cli, "autovacuum")
    assert off.level == "bad" and "task" in off.found
    plant(cli, 3000, state="ready")
    rows(cli, "DELETE FROM holdfast.task")
    few = Limits(dead=1000, dead_bad=2000)
    assert diagnosed(cli, "dead rows", limits=few).level == "fine", "autovacuum would come for them in a moment"
    plant(cli, 4000, state="ready")
    rows(cli, "DELETE FROM holdfast.task")
    # PostgreSQL 14 counts what happened a moment later.
    eventually(lambda: "7,000" in diagnosed(cli, "dead rows", limits=few).found, "they are not told")
    assert diagnosed(cli, "dead rows", limits=Limits(dead=1000)).level == "warning"
    found = diagnosed(cli, "dead rows", limits=few)
    assert found.level == "bad" and "7,000 in task (live: 0)" in found.found
    for each in found.cure:
        rows(cli, each)
    eventually(lambda: diagnosed(cli, "dead rows", limits=few).level == "fine", "they are told for ever")
    for each in off.cure:
        rows(cli, each)
    assert diagnosed(cli, "autovacuum").level == "fine"


@pytest.mark.direct("a session's transaction is looked at")
def test_a_held_snapshot_and_how_to_end_it(cli: Cli) -> None:
    assert diagnosed(cli, "transactions", limits=AT_ONCE).level == "fine"
    with session(cli.url, "SELECT 1") as analyst:
        assert diagnosed(cli, "transactions").level == "fine", "everybody may have a transaction for a moment"
        found = diagnosed(cli, "transactions", limits=AT_ONCE)
        assert found.level == "warning" and "an analyst, idle in transaction" in found.found
        assert (
            diagnosed(cli, "transactions", limits=Limits(transaction=timedelta(0), transaction_bad=timedelta(0))).level
            == "bad"
        )
        rows(cli, found.cure[0])
        with pytest.raises(psycopg.OperationalError):
            analyst.execute(b"SELECT 1")
    assert diagnosed(cli, "transactions", limits=AT_ONCE).level == "fine"


@pytest.mark.direct("a session's transaction is looked at")
def test_X5_a_viewer_is_told_what_is_hidden(cli: Cli, role: str) -> None:
    grant(cli.url, "holdfast", "viewer", [role])
    viewer = as_role(cli, role)
    with session(cli.url, "SELECT 1", "SELECT pg_current_xact_id()"):
        for _ in range(3):
            rows(cli, "SELECT pg_current_xact_id()")
        found = diagnosed(viewer, "transactions", limits=Limits(transaction_xids=1))
        assert found.level == "warning" and "transactions behind; those of other roles are hidden" in found.found
    for each in viewer.json("doctor", code=2 if rows(cli, "SHOW fsync") == [("off",)] else 0)["checks"]:
        assert "could not be checked" not in each["found"], each


def test_a_check_that_cannot_be_made_does_not_stop_the_others(cli: Cli, role: str) -> None:
    grant(cli.url, "holdfast", "viewer", [role])
    rows(cli, f"REVOKE SELECT ON holdfast.schedule FROM {role}")
    found = {each["check"]: each for each in as_role(cli, role).json("doctor", code=2)["checks"]}
    assert found["schedules"]["level"] == "warning" and "could not be checked: " in found["schedules"]["found"]
    assert "permission denied" in found["schedules"]["found"]
    assert found["parked"]["level"] == "fine"
