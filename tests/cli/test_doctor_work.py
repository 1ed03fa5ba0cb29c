"""`holdfast doctor`: workers, what waits, what recurs; and the command itself."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import embedded
from holdfast.app import package_version
from holdfast.doctor import CHECKS, Limits

from .conftest import Cli, eventually
from .diagnosed import diagnosed
from .planted import HARMFUL, is_harmless, parked, plant, plant_kind, plant_worker, rows
from .terminal import Terminal

LONG_AGO = "UPDATE holdfast.task SET run_at = holdfast.now() - interval '{}'"


# --- workers


def test_a_worker_that_vanished_and_threads_that_are_stuck(cli: Cli) -> None:
    assert "none is running" in diagnosed(cli, "workers").found
    plant_worker(cli)
    assert "1 running, 0 of 10 slots" in diagnosed(cli, "workers").found
    rows(cli, "UPDATE holdfast.worker SET stuck = 2")
    stuck = diagnosed(cli, "workers")
    assert stuck.level == "warning" and "2 of 10 slots of w1 on box stuck" in stuck.found
    plant_worker(cli, "gone", silent="5min")
    lost = diagnosed(cli, "workers")
    assert lost.level == "warning" and "gone on box" in lost.found


def test_M19_a_worker_that_is_late(cli: Cli) -> None:
    plant_worker(cli)
    rows(cli, "UPDATE holdfast.worker SET late = '{loop}'")
    late = diagnosed(cli, "workers")
    assert late.level == "warning" and late.found == "late: w1 on box (loop)"
    assert any(line.startswith("holdfast stop ") for line in late.cure)
    rows(cli, "UPDATE holdfast.worker SET late = '{}'")
    assert diagnosed(cli, "workers").level == "fine"


def test_X4_workers_of_different_versions_and_declarations(cli: Cli) -> None:
    plant_worker(cli)
    assert diagnosed(cli, "versions", version="1.2.3").level == "fine"
    assert diagnosed(cli, "versions", version="1.3.0").level == "warning"
    plant_worker(cli, "w2")
    rows(cli, "UPDATE holdfast.worker SET version = '1.2.4' WHERE name = 'w2'")
    assert "1.2.3, 1.2.4" in diagnosed(cli, "versions").found
    plant_kind(cli)
    rows(cli, "UPDATE holdfast.worker SET version = '1.2.3', kinds = jsonb_build_object('greeter', name)")
    differing = diagnosed(cli, "versions")
    assert differing.level == "warning" and "greeter" in differing.found


# --- what waits


def test_a_queue_that_nobody_serves(cli: Cli) -> None:
    assert diagnosed(cli, "queues").level == "fine"
    cli.enqueue("greeter.ReadName", "--queue", "mail", "--delay", "1h")
    assert diagnosed(cli, "queues").level == "fine", "nothing is due"
    cli.enqueue("greeter.ReadName", "--queue", "mail")
    now = diagnosed(cli, "queues")
    assert (now.level, now.cure) == ("warning", ("holdfast worker APP -q mail",)), "it may be started in a moment"
    rows(cli, LONG_AGO.format("6 min"))
    assert diagnosed(cli, "queues").level == "bad"
    plant_worker(cli, queues=["mail"])
    assert diagnosed(cli, "queues").level == "fine"


def test_tasks_that_have_been_due_for_long(cli: Cli) -> None:
    plant_worker(cli)
    cli.enqueue("greeter.ReadName")
    assert diagnosed(cli, "due").level == "fine"
    rows(cli, LONG_AGO.format("6 min"))
    found = diagnosed(cli, "due")
    assert found.level == "warning" and "default (greeter.ReadName for 6 min)" in found.found
    rows(cli, LONG_AGO.format("2 h"))
    assert diagnosed(cli, "due").level == "bad"
    # What nobody knows and what is paused has other reasons, and checks of its own.
    rows(cli, "UPDATE holdfast.task SET step = 'Gone'")
    assert diagnosed(cli, "due").level == "fine"


def test_T14_steps_that_no_live_worker_knows(cli: Cli) -> None:
    plant_worker(cli)
    plant(cli, 2, state="ready")
    assert diagnosed(cli, "unroutable").level == "fine"
    plant(cli, 3, state="ready", step="Gone")
    found = diagnosed(cli, "unroutable")
    assert found.level == "warning" and "greeter.Gone (3 tasks in default)" in found.found
    cli(*found.cure[0].split()[1:])
    mine = diagnosed(cli, "unroutable", steps={"greeter.Gone"})
    assert "this App knows it" in mine.why and mine.cure[0] == "holdfast worker APP -q default"
    plant_worker(cli, "w2", queues=["other"], steps=["greeter.Gone"])
    assert diagnosed(cli, "unroutable").level == "warning", "it serves another queue"
    plant_worker(cli, "w3", steps=["greeter.Gone"], silent="2min")
    assert diagnosed(cli, "unroutable").level == "warning", "it is not alive"
    plant_worker(cli, "w4", steps=["greeter.Gone"])
    assert diagnosed(cli, "unroutable").level == "fine"


def test_L8_expired_leases_that_nobody_reaped(cli: Cli) -> None:
    worker = plant_worker(cli, silent="1h")
    cli.enqueue("greeter.ReadName")
    lease = (
        "UPDATE holdfast.task SET state = 'running', worker_id = $1::uuid, claimed_at = holdfast.now(),"
        " lease_expires_at = holdfast.now() - $2::text::interval"
    )
    rows(cli, lease, worker, "10s")
    assert diagnosed(cli, "leases").level == "fine", "it will be taken over in a moment"
    rows(cli, lease, worker, "10min")
    found = diagnosed(cli, "leases")
    assert found.level == "warning" and "1 task in default since 10 min" in found.found
    assert "holdfast worker APP -q default" in found.cure
    plant_worker(cli, "w2")
    assert diagnosed(cli, "leases").level == "bad", "somebody is there to do it, and does not"


def test_Q7_pauses_with_due_tasks(cli: Cli) -> None:
    plant_worker(cli)
    plant_kind(cli)
    cli("pause", "default", "--queue")
    assert diagnosed(cli, "pauses").level == "fine", "nothing waits for it"
    cli.enqueue("greeter.ReadName")
    queue = diagnosed(cli, "pauses")
    assert queue.level == "warning" and "queue default (1 due, by tester)" in queue.found
    cli(*queue.cure[0].split()[1:])
    assert diagnosed(cli, "pauses").level == "fine"
    cli("pause", "greeter", "--kind")
    rows(cli, LONG_AGO.format("1h"))
    kind = diagnosed(cli, "pauses")
    assert kind.level == "warning" and "kind greeter" in kind.found
    assert diagnosed(cli, "due").level == "fine"
    cli(*kind.cure[0].split()[1:])
    assert diagnosed(cli, "pauses").level == "fine"


def test_more_tasks_are_parked_than_before(cli: Cli) -> None:
    parked(cli)
    assert "1 task waits for a person" in diagnosed(cli, "parked").found
    end = (
        "INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, outcome, parked, finished_at)"
        " SELECT gen_random_uuid(), 'default', 'greeter', 'ReadName', '{}', 0, 1, 'failed', true,"
        " holdfast.now() - $2::text::interval FROM generate_series(1, $1::integer)"
    )
    rows(cli, "SELECT holdfast.ensure_partition(current_date - 1)")
    rows(cli, end, 12, "10 min")
    found = diagnosed(cli, "parked")
    assert found.level == "warning" and found.found.startswith("12 tasks parked in the last hour, 0")
    rows(cli, end, 200, "5 h")
    assert diagnosed(cli, "parked").level == "fine", "as many as always"


def test_S11_schedules_that_are_late_or_broken(cli: Cli) -> None:
    cli("schedules", "set", "nightly", "--step", "greeter.ReadName", "--cron", "0 3 * * *")
    rows(cli, "UPDATE holdfast.schedule SET next_at = holdfast.now() + interval '1 h'")
    assert diagnosed(cli, "schedules").level == "fine"
    rows(cli, "UPDATE holdfast.schedule SET next_at = holdfast.now() - interval '10 min'")
    late = diagnosed(cli, "schedules")
    assert late.level == "warning" and "nightly 10 min ago" in late.found and "No live worker" in late.why
    plant_worker(cli)
    assert "those that run are behind" in diagnosed(cli, "schedules").why
    rows(cli, "UPDATE holdfast.schedule SET next_at = holdfast.now() - interval '2 h'")
    assert diagnosed(cli, "schedules").level == "bad"
    rows(cli, "UPDATE holdfast.schedule SET error = 'scopes: no such table', failures = 3")
    broken = diagnosed(cli, "schedules")
    assert broken.level == "warning" and "nightly (scopes: no such table)" in broken.found
    cli(*broken.cure[0].split()[1:])
    cli("schedules", "pause", "nightly")
    assert diagnosed(cli, "schedules").level == "fine"


# --- the command


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as people have it on their laptop, not one for tests."""
    folder = tmp_path_factory.mktemp("durable")
    folder.chmod(0o755)
    started = embedded.start(folder)
    yield started.url()
    started.stop("immediate")
    embedded.reset(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_fresh_install_is_fine(durable: str, project: Path) -> None:
    cli = Cli(durable)
    cli("migrate")
    found = cli.json("doctor")
    assert found["level"] == "fine" and [each["check"] for each in found["checks"]] == list(CHECKS)
    assert all(each["level"] == "fine" and not each["cure"] for each in found["checks"])
    # A short look at a laptop where something is going on.
    plant_worker(cli)
    plant(cli, 500, state="ready")
    parked(cli)
    worker = plant_worker(cli, "busy")
    rows(
        cli,
        "UPDATE holdfast.task SET state = 'running', worker_id = $1::uuid, claimed_at = holdfast.now(),"
        " lease_expires_at = holdfast.now() + interval '30 s' WHERE args ->> 'n' = '7'",
        worker,
    )
    rows(cli, "UPDATE holdfast.worker SET version = $1", package_version())
    shown = cli("doctor").stdout
    assert shown.endswith("All 24 checks are fine.\n") and len(CHECKS) == 24


def test_settings_of_a_role_that_hurt(durable: str, project: Path) -> None:
    cli = Cli(durable)
    cli("migrate")
    assert diagnosed(cli, "settings").level == "fine"
    for name, value in (("statement_timeout", "2s"), ("idle_in_transaction_session_timeout", "3s")):
        rows(cli, f"ALTER DATABASE postgres SET {name} = '{value}'")
    short = diagnosed(cli, "settings")
    assert short.level == "warning"
    assert "statement_timeout is 2 s, idle_in_transaction_session_timeout is 3 s" in short.found
    rows(cli, "ALTER DATABASE postgres SET synchronous_commit = off")
    assert "synchronous_commit is off" in diagnosed(cli, "settings").found
    for name in ("statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit"):
        rows(cli, f"ALTER DATABASE postgres RESET {name}")
    assert diagnosed(cli, "settings").level == "fine"
    for name, value, level in (
        ("enable_indexscan", "off", "bad"),
        ("default_transaction_isolation", "repeatable read", "warning"),
        ("track_activities", "off", "warning"),
    ):
        rows(cli, f"ALTER DATABASE postgres SET {name} = '{value}'")
        found = diagnosed(cli, "settings")
        assert found.level == level and f"{name} is {value}" in found.found
        rows(cli, f"ALTER DATABASE postgres RESET {name}")
    rows(cli, "ALTER SYSTEM SET autovacuum = off")
    rows(cli, "SELECT pg_reload_conf()")
    eventually(lambda: diagnosed(cli, "autovacuum").level == "bad", "autovacuum is off, and nobody says so")
    rows(cli, "ALTER SYSTEM RESET autovacuum")
    rows(cli, "SELECT pg_reload_conf()")
    eventually(lambda: diagnosed(cli, "autovacuum").level == "fine", "autovacuum is on again")
    # The transaction of a program that died between its two phases.
    if rows(cli, "SHOW max_prepared_transactions") != [("0",)]:
        rows(cli, "BEGIN; CREATE TABLE prepared (); PREPARE TRANSACTION 'of a bank'")
        found = diagnosed(cli, "transactions", limits=Limits(transaction=timedelta(0)))
        assert "prepared transaction of a bank" in found.found
        rows(cli, found.cure[0])


def test_exit_codes_and_what_is_shown(cli: Cli) -> None:
    # The server of tests is not durable: that is bad, and said so, with the rest.
    is_durable = rows(cli, "SHOW fsync") == [("on",)]
    plant(cli, 1, state="ready")
    code = 1 if is_durable else 2
    found = cli.json("doctor", code=code)
    assert found["level"] == ("warning" if is_durable else "bad") and found["schema"] == "holdfast"
    queues = next(each for each in found["checks"] if each["check"] == "queues")
    assert queues["cure"] == ["holdfast worker APP -q default"] and queues["why"]
    shown = cli("doctor", code=code).stdout
    assert "! queues         no live worker serves default (1 due)" in shown
    assert "                 → holdfast worker APP -q default" in shown
    assert shown.rstrip().splitlines()[-1].endswith("1 warning in 24 checks.")
    with Terminal(cli.url, "doctor") as terminal:
        assert terminal.ended() == code
        assert "no live worker serves default" in terminal.shown
        assert all(len(each) <= 80 for each in terminal.shown.splitlines() if "→" not in each)


def test_texts_of_strangers_do_no_harm(cli: Cli) -> None:
    plant_worker(cli, HARMFUL, silent="5min")
    rows(cli, "UPDATE holdfast.worker SET host = $1", HARMFUL)
    shown = cli("doctor", code=2 if rows(cli, "SHOW fsync") == [("off",)] else 1).stdout
    assert "vanished" in shown and is_harmless(shown)


def test_with_an_app_its_code_and_database_are_known(cli: Cli, project: Path) -> None:
    (project / "shop.py").write_text(
        f"from holdfast import App\napp = App({cli.url!r})\n\n@app.task\ndef send() -> None: ...\n"
    )
    cli.environment["HOLDFAST_URL"] = None
    plant_worker(cli)
    plant(cli, 1, kind="send", step="main", state="ready")
    code = 2 if rows(cli, "SHOW fsync") == [("off",)] else 1
    found = {each["check"]: each for each in cli.json("doctor", "shop.py", code=code)["checks"]}
    assert found["unroutable"]["cure"][0] == "holdfast worker shop.py -q default"


def test_a_database_that_is_away_is_told_as_by_every_command(cli: Cli) -> None:
    cli("doctor", "--url", "postgresql:///nowhere?host=/nowhere", code=4)
