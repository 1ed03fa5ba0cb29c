"""Two connections that want one key, in all orders of commit and rollback (M9, Q2, Q3, Q4, PROTOCOL B1).

Whatever the rule, the form of the key and the door: if the first transaction commits, there is one task and the
second is told of it; if it rolls back, the second's task is not lost.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import psycopg
import pytest
from msgspec.structs import replace
from psycopg import Connection

from holdfast._db.driver.connection import run_sync
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import OnConflict, Request
from holdfast._sql.plans import drive_sync, enqueue, enqueue_many
from holdfast.errors import KeyTaken

from .support import PATIENCE, Db
from .test_keys import HOUR


@dataclass(frozen=True)
class Form:
    """How a key is asked for."""

    name: str
    python: dict[str, Any]
    sql: dict[str, Any]


FORMS = [
    Form("key", {"key": "k"}, {"key": "k"}),
    Form("unique", {"unique": True}, {"unique": True}),
    Form("key for an hour", {"key": "k", "unique_for": HOUR}, {"key": "k", "unique_for": "1h"}),
    Form("unique for an hour", {"unique": True, "unique_for": HOUR}, {"unique": True, "unique_for": "1h"}),
]
RULES: list[OnConflict] = ["skip", "raise", "replace"]
ARGS: dict[str, Any] = {"file": "name.txt", "n": 1}


def _task(form: Form, rule: OnConflict, priority: int) -> Request:
    args = json.dumps(ARGS).encode()
    return Request(uuid7(), "default", "greeter", "ReadName", args, priority, on_conflict=rule, **form.python)


def python_one(db: Db, via: Connection[Any], form: Form, rule: OnConflict, priority: int = 0) -> UUID:
    return drive_sync(enqueue(db.queries, _task(form, rule, priority)), partial(run_sync, via)).id


def python_many(db: Db, via: Connection[Any], form: Form, rule: OnConflict, priority: int = 0) -> UUID:
    plain = replace(_task(form, "skip", 0), key=None, unique=False, unique_for=None, queue="other")
    requests = [plain, _task(form, rule, priority)]
    return drive_sync(enqueue_many(db.queries, requests), partial(run_sync, via))[0][1].id


def sql_one(db: Db, via: Connection[Any], form: Form, rule: OnConflict, priority: int = 0) -> UUID:
    options = json.dumps({**form.sql, "on_conflict": rule, "priority": priority})
    id: UUID = db.one(
        "SELECT holdfast.enqueue('greeter.ReadName', $1::jsonb, $2::jsonb)", json.dumps(ARGS), options, via=via
    )
    return id


def sql_many(db: Db, via: Connection[Any], form: Form, rule: OnConflict, priority: int = 0) -> UUID:
    entries = [
        {"step": "greeter.ReadName", "queue": "other"},
        {"step": "greeter.ReadName", "args": ARGS, "priority": priority, "on_conflict": rule, **form.sql},
    ]
    id: UUID = db.sql("SELECT holdfast.enqueue_many($1::jsonb)", json.dumps(entries), via=via)[1][0]
    return id


Door = Callable[[Db, Connection[Any], Form, OnConflict, int], UUID]
DOORS: list[Door] = [python_one, python_many, sql_one, sql_many]

every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
every_rule = pytest.mark.parametrize("rule", RULES)
every_door = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


def tasks(db: Db) -> list[tuple[UUID, int]]:
    return [(row[0], row[1]) for row in db.sql("SELECT id, priority FROM holdfast.task WHERE queue = 'default'")]


def is_taken(error: Exception) -> bool:
    return isinstance(error, KeyTaken) or getattr(error, "sqlstate", None) == "HF409"


@every_door
@every_rule
@every_form
def test_M9_the_first_commits_while_the_second_waits(db: Db, form: Form, rule: OnConflict, door: Door) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = python_one(db, theirs, form, "skip", 1)
    waiting = db.blocked(ours, lambda: door(db, ours, form, rule, 2))
    theirs.execute(b"COMMIT")
    if rule == "raise":
        error = waiting.exception(20)
        assert isinstance(error, Exception) and is_taken(error) and str(first) in str(error), error
    else:
        assert waiting.result(20) == first
    assert tasks(db) == [(first, 2 if rule == "replace" else 1)]


@every_door
@every_rule
@every_form
def test_Q3_the_first_rolls_back_while_the_second_waits(db: Db, form: Form, rule: OnConflict, door: Door) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    python_one(db, theirs, form, "skip", 1)
    waiting = db.blocked(ours, lambda: door(db, ours, form, rule, 2))
    theirs.execute(b"ROLLBACK")
    made = waiting.result(20)
    assert tasks(db) == [(made, 2)], "the second is not lost, and nothing of the first is left"
    assert db.one("SELECT count(*) FROM holdfast.key") == (1 if "unique_for" in form.python else 0)


@every_door
@every_rule
@every_form
def test_M9_the_second_rolls_back_and_leaves_the_first_alone(db: Db, form: Form, rule: OnConflict, door: Door) -> None:
    first = python_one(db, db.connection, form, "skip", 1)
    before, holds = db.snapshot(), db.sql("SELECT * FROM holdfast.key")
    ours = db.connect()
    ours.execute(b"BEGIN")
    if rule == "raise":
        with pytest.raises((KeyTaken, psycopg.Error)) as caught:
            door(db, ours, form, rule, 2)
        assert is_taken(caught.value)
    else:
        assert door(db, ours, form, rule, 2) == first
    ours.execute(b"ROLLBACK")
    assert db.snapshot() == before and db.sql("SELECT * FROM holdfast.key") == holds


@every_door
@every_form
def test_B1_a_lock_timeout_of_the_caller_ends_the_wait(db: Db, form: Form, door: Door) -> None:
    theirs, ours = db.connect(), db.connect(options="-c lock_timeout=50ms")
    theirs.execute(b"BEGIN")
    python_one(db, theirs, form, "skip", 1)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        door(db, ours, form, "skip", 2)
    theirs.execute(b"ROLLBACK")
    made = door(db, ours, form, "skip", 2)
    assert tasks(db) == [(made, 2)]


@every_door
@every_form
def test_M9_at_repeatable_read_the_caller_is_told(db: Db, form: Form, door: Door) -> None:
    ours = db.connect()
    ours.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
    ours.execute(b"SELECT count(*) FROM holdfast.task")
    python_one(db, db.connection, form, "skip", 1)
    with pytest.raises(psycopg.errors.SerializationFailure):
        door(db, ours, form, "skip", 2)


@every_door
@every_form
def test_M9_the_holder_ends_while_the_second_waits(db: Db, worker: UUID, form: Form, door: Door) -> None:
    """The finish commits: a key is free then, unless it was taken for an hour."""
    theirs, ours = db.connect(), db.connect()
    first = python_one(db, db.connection, form, "skip", 1)
    [task] = db.claim(worker)
    theirs.execute(b"BEGIN")
    db.run(db.finish(worker, [task]), theirs)
    second = partial(door, db, ours, form, "skip", 2)
    waiting = db.blocked(ours, second)
    theirs.execute(b"COMMIT")
    made = waiting.result(20)
    if "unique_for" in form.python:
        assert (made, tasks(db)) == (first, [])
    else:
        assert made != first and tasks(db) == [(made, 2)]


@pytest.mark.parametrize("first_by_sql", [True, False])
@pytest.mark.parametrize("second_by_sql", [True, False])
def test_B1_many_keys_are_taken_in_one_order_whoever_asks(db: Db, first_by_sql: bool, second_by_sql: bool) -> None:
    """Both come by the keys in opposite orders, and stop at the same one: no deadlock can come of that."""
    gate, first, second = db.connect(), db.connect(), db.connect()
    keys = ["a", "Z", "ä", "b", "B", "z"]
    gate.execute(b"BEGIN")
    _all(db, gate, ["Z"], sql=True)
    waiting = []
    for via, order, sql in ((first, keys, first_by_sql), (second, keys[::-1], second_by_sql)):
        via.execute(b"BEGIN")
        waiting.append(db.blocked(via, partial(_all, db, via, order, sql=sql)))
    gate.execute(b"ROLLBACK")
    done = next(index for index in _endless() if waiting[index].done())
    assert waiting[done].result(0) == 6
    [first, second][done].execute(b"COMMIT")
    assert waiting[1 - done].result(20) == 6
    [second, first][done].execute(b"COMMIT")
    assert db.one("SELECT count(*) FROM holdfast.task") == 6


def _endless() -> Iterator[int]:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        yield from (0, 1)
        time.sleep(0.005)
    raise AssertionError("neither of the two has ended")


def _all(db: Db, via: Connection[Any], keys: list[str], *, sql: bool) -> int:
    if sql:
        entries = [{"step": "greeter.ReadName", "key": key} for key in keys]
        return len(db.sql("SELECT holdfast.enqueue_many($1::jsonb)", json.dumps(entries), via=via))
    requests = [Request(uuid7(), "default", "greeter", "ReadName", b"{}", key=key) for key in keys]
    return len(drive_sync(enqueue_many(db.queries, requests), partial(run_sync, via))[0])
