"""Enqueue: the statement, and the SQL function for people without Python (T7, T8, Q11, M2)."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request

from .support import NOW, Db, with_text


def sql_enqueue(db: Db, step: str | None, args: str | None = "{}", options: str | None = "{}") -> UUID:
    id = db.one("SELECT holdfast.enqueue($1, $2::jsonb, $3::jsonb)", step, args, options)
    assert isinstance(id, UUID)
    return id


def test_T8_sql_enqueue_of_a_step(db: Db) -> None:
    id = db.one("""SELECT holdfast.enqueue('greeter.ReadName', '{"filename": "name.txt"}')""")
    task = db.task(id)
    assert (task["kind"], task["step"], task["args"]) == ("greeter", "ReadName", {"filename": "name.txt"})
    assert (task["state"], task["queue"], task["priority"], task["attempt"]) == ("ready", "default", 0, 0)
    assert task["run_at"] == task["created_at"] == NOW
    assert id.version == 7 and id.variant == "specified in RFC 4122"


def test_T8_sql_enqueue_of_a_function_by_its_kind_alone(db: Db) -> None:
    assert db.task(sql_enqueue(db, "send_receipt"))["step"] == "main"


def test_T8_queue_priority_and_only_step_come_from_the_declared_kind(db: Db) -> None:
    db.run(db.queries.declare_kind("mailer", "mail", 7, "Send", b"{}"))
    task = db.task(sql_enqueue(db, "mailer"))
    assert (task["queue"], task["priority"], task["step"]) == ("mail", 7, "Send")
    said = db.task(sql_enqueue(db, "mailer.Other", "{}", '{"queue": "urgent", "priority": 0}'))
    assert (said["queue"], said["priority"], said["step"]) == ("urgent", 0, "Other")
    assert db.run(db.queries.declared("mailer")) == ("mail", 7, "Send")
    assert db.run(db.queries.declared("nobody")) is None


def test_T8_all_options(db: Db) -> None:
    id = uuid7()
    options = {"id": str(id), "queue": "mail", "priority": 9, "delay": "90s", "key": "k", "headers": {"a": "b"}}
    assert sql_enqueue(db, "greeter.ReadName", "{}", json.dumps(options)) == id
    task = db.task(id)
    assert task["run_at"] == NOW + timedelta(seconds=90)
    assert (task["queue"], task["priority"], task["key"], task["headers"]) == ("mail", 9, "k", {"a": "b"})
    at = db.task(sql_enqueue(db, "greeter.ReadName", "{}", '{"at": "2040-01-01 00:00+00", "headers": null}'))
    assert at["run_at"].year == 2040 and at["headers"] is None


BAD_STEPS = [
    None, "", ".", "greeter.", ".ReadName", "Greeter.ReadName", "greeter.Read Name", "greeter.Read.Name", "greeter.1st",
    "greeter.ReadName\n", "greeter\n", "gr'eeter", 'gr"eeter.X', "greeter;drop table x", "grüßer", "greeter.Straße",
    "x" * 64, "greeter." + "X" * 64, "1greeter", "-greeter", " greeter", "greeter.-",
]  # fmt: skip


@pytest.mark.parametrize("step", BAD_STEPS)
def test_T8_Q1_bad_names_are_refused(db: Db, step: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not the name of a step") as caught:
        sql_enqueue(db, step)
    assert "Write kind.Step" in (caught.value.diag.message_hint or "")
    assert db.one("SELECT count(*) FROM holdfast.task") == 0


def test_Q1_the_longest_names_are_taken(db: Db) -> None:
    kind, step, queue = "k" * 63, "S" * 63, "q" * 63
    task = db.task(sql_enqueue(db, f"{kind}.{step}", "{}", json.dumps({"queue": queue})))
    assert (task["kind"], task["step"], task["queue"]) == (kind, step, queue)


@pytest.mark.parametrize("args", [None, "[]", '[{"a": 1}]', '"text"', "1", "true", "null"])
def test_T8_args_that_are_no_object_are_refused(db: Db, args: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="args of greeter must be a JSON object"):
        sql_enqueue(db, "greeter", args)


@pytest.mark.parametrize("text", ["{", "{'a': 1}", "{a: 1}", '{"a": NaN}', '{"a": "\\u0000"}', '{"a": "\\ud800"}', ""])
def test_T8_Q11_bad_json_is_refused(db: Db, text: str) -> None:
    with pytest.raises(psycopg.DataError):
        sql_enqueue(db, "greeter", text)


def test_Q11_args_of_5_MB_are_refused_with_their_size(db: Db) -> None:
    text = json.dumps({"blob": "x" * 5_000_000})
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=rf"take {len(text)} bytes; the limit is 1048576"):
        sql_enqueue(db, "greeter", text)
    sql_enqueue(db, "greeter", json.dumps({"blob": "x" * 1_000_000}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("[]", "options must be a JSON object"),
        ("1", "options must be a JSON object"),
        ('{"prio": 1}', "unknown option: prio"),
        ('{"Queue": "x", "keys": []}', "unknown option: keys, Queue|unknown option: Queue, keys"),
        ('{"delay": "1s", "at": "2040-01-01"}', "delay or at, not both"),
        ('{"priority": "high"}', "smallint"),
        ('{"priority": 1.5}', "smallint"),
        ('{"priority": {}}', "smallint"),
        ('{"priority": 10}', "priority must be 0 to 9, not 10"),
        ('{"priority": -1}', "priority must be 0 to 9"),
        ('{"priority": 99999}', "out of range"),
        ('{"delay": "soon"}', "interval"),
        ('{"delay": []}', "interval"),
        ('{"delay": "1000000 years"}', "out of range|no task can wait until"),
        ('{"at": "tomorrow-ish"}', "timestamp"),
        ('{"at": "infinity"}', "no task can wait until infinity"),
        ('{"at": "-infinity"}', "no task can wait until -infinity"),
        ('{"id": "42"}', "uuid"),
        ('{"queue": "Bad Queue"}', "'Bad Queue' is not the name of a queue"),
        ('{"queue": ""}', "'' is not the name of a queue"),
        ('{"queue": "' + "q" * 64 + '"}', "is not the name of a queue"),
        ('{"queue": ["a"]}', "is not the name of a queue"),
        ('{"headers": []}', "headers must be a JSON object of strings"),
        ('{"headers": "x"}', "headers must be a JSON object of strings"),
        ('{"headers": {"n": 1}}', "headers must be a JSON object of strings"),
        ('{"headers": {"n": ["x"]}}', "headers must be a JSON object of strings"),
        ('{"headers": {"n": "%s"}}' % ("x" * 65_536), "65536 bytes at most"),
        ('{"key": ""}', "key must be a string of 1 to 512 characters"),
        ('{"key": "%s"}' % ("x" * 513), "key must be a string of 1 to 512 characters"),
        ('{"key": "k", "on_conflict": "ignore"}', "on_conflict must be skip, raise or replace"),
        ('{"key": "k", "on_conflict": 1}', "on_conflict must be skip, raise or replace"),
        ('{"on_conflict": "skip"}', "on_conflict needs a key"),
        ('{"key": {"a": 1}}', "key must be a string"),
        ('{"key": ["a"]}', "key must be a string"),
        ('{"key": 5}', "key must be a string"),
    ],
)
def test_T8_options_of_a_wrong_name_or_type_are_refused(db: Db, options: str | None, message: str) -> None:
    with pytest.raises(psycopg.Error, match=message) as caught:
        sql_enqueue(db, "greeter", "{}", options)
    assert (caught.value.sqlstate or "").startswith(("22", "23"))
    assert db.one("SELECT count(*) FROM holdfast.task") == 0


def test_T7_an_enqueue_exists_exactly_if_its_transaction_commits(db: Db) -> None:
    other = db.connect()
    other.execute(b"BEGIN")
    kept = db.enqueue(via=other)
    assert db.sql("SELECT id FROM holdfast.task") == []
    other.execute(b"COMMIT")
    other.execute(b"BEGIN")
    dropped = db.enqueue(via=other)
    other.execute(b"ROLLBACK")
    assert db.sql("SELECT id FROM holdfast.task") == [(kept,)] and dropped != kept


def test_M2_a_delay_counts_from_the_statement_not_from_the_transaction(db: Db) -> None:
    """The naive form with now() makes a task due at once in a transaction older than the delay."""
    db.clock.resume()
    other = db.connect()
    other.execute(b"BEGIN")
    other.execute(b"SELECT pg_sleep(0.2)")
    id, naive = uuid7(), uuid7()
    delay = timedelta(milliseconds=150)

    def new(id: UUID) -> Any:
        return db.queries.enqueue(Request(id, "default", "greeter", "ReadName", b"{}", delay=delay))

    db.run(new(id), other)
    db.run(with_text(new(naive), '"holdfast".now()', "pg_catalog.now()"), other)
    [(read, real)] = db.sql("SELECT statement_timestamp(), now()", via=other)
    assert read - real >= timedelta(milliseconds=200), "this transaction is old"
    due = dict(db.sql("SELECT id, run_at FROM holdfast.task", via=other))
    other.execute(b"COMMIT")
    assert due[naive] == real + delay < read - timedelta(milliseconds=40), "was due before it was enqueued"
    assert due[id] >= real + timedelta(milliseconds=200) + delay


def test_an_id_that_exists_is_left_as_it_is(db: Db) -> None:
    id = db.enqueue(args='{"n": 1}')
    again = Request(id, "default", "greeter", "ReadName", b'{"n": 2}')
    assert db.run(db.queries.enqueue(again)) is False
    assert db.task(id)["args"] == {"n": 1}


def test_enqueue_many_answers_the_ids_that_were_new(db: Db) -> None:
    tasks = [
        Request(db.enqueue(), "default", "greeter", "ReadName", b"{}"),
        Request(uuid7(), "default", "greeter", "ReadName", b"{}", headers=b'{"h": "1"}'),
        Request(uuid7(), "default", "greeter", "ReadName", b"{}", deadline=timedelta(hours=1)),
        Request(uuid7(), "default", "greeter", "SayHello", b'{"x": 1}', 4, timedelta(hours=1)),
        Request(uuid7(), "default", "greeter", "SayHello", b"{}", at=NOW + timedelta(days=1)),
    ]
    assert db.run(db.queries.enqueue_many("default", tasks)) == {task.id for task in tasks[1:]}
    assert db.task(tasks[1].id)["headers"] == {"h": "1"}
    assert db.task(tasks[2].id)["deadline"] == NOW + timedelta(hours=1)
    delayed = db.task(tasks[3].id)
    assert (delayed["priority"], delayed["run_at"], delayed["args"]) == (4, NOW + timedelta(hours=1), {"x": 1})
    assert db.task(tasks[4].id)["run_at"] == NOW + timedelta(days=1)


def test_new_ids_are_ordered_by_time_and_of_version_7(db: Db) -> None:
    found = [db.one("SELECT holdfast.new_id()") for _ in range(50)]
    assert all(id.version == 7 for id in found)
    assert found == sorted(found), "also within a millisecond: the order of changes is told by it"
    assert len(set(found)) == 50
    mine = uuid7()
    assert abs((mine.int >> 80) - (db.one("SELECT holdfast.new_id()").int >> 80)) < 60_000, "the same clock as Python's"
