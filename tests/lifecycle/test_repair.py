"""Repair by people: retry and discard, and the record of who did what (T12)."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._db.errors import explained
from holdfast._model.enqueue.ids import uuid7
from holdfast.errors import WrongState

from .support import BOOM, NOW, Db

SHORT = {name: value for name, value in BOOM.items() if name != "traceback"}


def change(db: Db) -> dict[str, Any]:
    [id] = [row[0] for row in db.sql("SELECT id FROM holdfast.change")]
    return db._row("SELECT * FROM holdfast.change WHERE id = $1", id)


def crash_once(db: Db, id: UUID) -> None:
    db.sql("UPDATE holdfast.task SET crashes = 2, run_at = $1 WHERE id = $2", NOW - timedelta(days=1), id)


def test_T12_the_same_step_and_args_with_a_fresh_budget(db: Db, worker: UUID) -> None:
    id = db.parked(args='{"n": 1}')
    crash_once(db, id)
    db.clock.advance("1h")
    assert db.retry(id, by="ann", why="fixed the disk") == "ready"
    row = db.task(id)
    assert (row["state"], row["step"], row["args"], row["error"]) == ("ready", "ReadName", {"n": 1}, None)
    assert (row["errors"], row["crashes"], row["attempt"], row["moves"]) == (0, 0, 1, 0)
    assert row["run_at"] == NOW + timedelta(hours=1)
    made = change(db)
    assert (made["task_id"], made["action"], made["by"], made["why"]) == (id, "retry", "ann", "fixed the disk")
    assert made["at"] == NOW + timedelta(hours=1) and made["new"] == {}
    assert made["old"] == {"state": "parked", "step": "ReadName", "args": {"n": 1}, "attempt": 1, "error": SHORT}
    [again] = db.claim(worker)
    assert (again.id, again.attempt, again.errors) == (id, 2, 0)


def test_T12_patched_args_keep_the_visit_and_the_old_value(db: Db) -> None:
    id = db.parked(args='{"n": 1}')
    db.retry(id, args={"n": 2})
    row = db.task(id)
    assert (row["args"], row["step"], row["moves"]) == ({"n": 2}, "ReadName", 0)
    made = change(db)
    assert (made["old"]["args"], made["new"]) == ({"n": 1}, {"args": {"n": 2}})
    assert made["by"] == db.one("SELECT session_user")


def test_T12_another_step_is_another_visit(db: Db) -> None:
    id = db.parked(args='{"n": 1}')
    db.retry(id, step="SayHello", args={"greeting": "hi"})
    row = db.task(id)
    assert (row["step"], row["args"], row["moves"]) == ("SayHello", {"greeting": "hi"}, 1)
    made = change(db)
    assert (made["old"]["step"], made["new"]) == ("ReadName", {"step": "SayHello", "args": {"greeting": "hi"}})


def test_T12_the_step_it_stands_at_is_no_other_visit(db: Db) -> None:
    id = db.parked()
    db.retry(id, step="ReadName")
    assert db.task(id)["moves"] == 0


def test_T12_a_ready_task_becomes_due_now(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    db.run(db.stay(worker, [task], "retried", error=BOOM, errors=1, delay=3600))
    db.retry(task.id, expected_attempt=1)
    assert db.claim(worker)[0].errors == 0


def test_T12_expected_attempt_guards_against_two_operators(db: Db, worker: UUID) -> None:
    id = db.parked()
    db.retry(id, expected_attempt=1)
    [task] = db.claim(worker)
    db.run(db.stay(worker, [task], "failed", error=BOOM, errors=1))
    with pytest.raises(psycopg.Error, match="was changed: it is at attempt 2, not 1") as caught:
        db.retry(id, expected_attempt=1)
    assert isinstance(explained(caught.value, "holdfast"), WrongState)
    assert db.state(id) == "parked" and db.one("SELECT count(*) FROM holdfast.change") == 1


def test_T12_a_running_task_cannot_be_retried(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    with pytest.raises(psycopg.Error, match="it is running") as caught:
        db.retry(task.id)
    assert caught.value.sqlstate == "HF409" and "cancel" in (caught.value.diag.message_hint or "")
    assert db.state(task.id) == "running"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{"arg": {}}', "unknown option: arg"),
        ('{"args": []}', "args of ReadName must be a JSON object"),
        ('{"args": null}', "args of ReadName must be a JSON object"),
        ('{"step": "no way"}', "step_name"),
        ('{"expected_attempt": "x"}', "integer"),
        ('{"by": 1}', "by and why must be strings"),
        ('{"why": {"a": 1}}', "by and why must be strings"),
        ("[]", "options must be a JSON object"),
        ("1", "options must be a JSON object"),
    ],
)
def test_T12_wrong_options_are_refused(db: Db, options: str, message: str) -> None:
    id = db.parked()
    before = db.snapshot()
    with pytest.raises(psycopg.Error, match=message):
        db.run(db.queries.retry(id, options.encode()))
    assert db.snapshot() == before and db.one("SELECT count(*) FROM holdfast.change") == 0


def test_T12_args_over_the_limit_are_refused_here_too(db: Db) -> None:
    id = db.parked()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="the limit is 1048576"):
        db.retry(id, args={"blob": "x" * 1_048_576})


@pytest.mark.parametrize("verb", ["cancel", "discard"])
@pytest.mark.parametrize("options", ['{"because": "x"}', "[]", '"ann"', '{"by": ["ann"]}', '{"why": 5}'])
def test_wrong_options_of_the_other_verbs_are_refused(db: Db, verb: str, options: str) -> None:
    id = db.parked()
    make = db.queries.cancel_task if verb == "cancel" else db.queries.discard
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match=r"unknown option: because|must be a JSON object|must be str"
    ):
        db.run(make(id, options.encode()))
    assert db.state(id) == "parked"


def test_options_left_out_by_null_are_no_options(db: Db) -> None:
    first, second, third = db.parked(), db.parked(), db.parked()
    assert db.one("SELECT holdfast.retry($1, NULL)", first) == "ready"
    assert db.one("SELECT holdfast.cancel($1, NULL)", second) == "cancelled"
    assert db.one("SELECT holdfast.discard($1, NULL)", third) == "discarded"


def test_discard_archives_a_parked_task_with_its_error(db: Db) -> None:
    id = db.parked()
    assert db.discard(id, by="ann", why="hopeless") == "discarded"
    row = db.archived(id)
    assert (row["state"], row["error"], row["outcome"]) == ("discarded", BOOM, None)
    made = change(db)
    assert (made["action"], made["by"], made["why"]) == ("discard", "ann", "hopeless")
    assert made["old"] == {"state": "parked", "step": "ReadName", "error": SHORT}
    assert db.log(id) == [(1, "ReadName", "failed")]


def ready(db: Db) -> UUID:
    return db.enqueue()


def running(db: Db) -> UUID:
    return db.claimed(uuid7()).id


@pytest.mark.parametrize("make", [ready, running])
def test_only_a_parked_task_can_be_discarded(db: Db, make: Callable[[Db], UUID]) -> None:
    id = make(db)
    with pytest.raises(psycopg.Error, match=f"cannot discard task {id}: it is {make.__name__}") as caught:
        db.discard(id)
    assert caught.value.sqlstate == "HF409" and db.state(id) == make.__name__


def test_a_verb_rolled_back_with_its_transaction_never_was(db: Db) -> None:
    parked, ready = db.parked(), db.enqueue()
    before = db.snapshot()
    other = db.connect()
    other.execute(b"BEGIN")
    db.retry(parked, other)
    db.cancel(ready, other)
    other.execute(b"ROLLBACK")
    assert db.snapshot() == before and db.one("SELECT count(*) FROM holdfast.change") == 0
