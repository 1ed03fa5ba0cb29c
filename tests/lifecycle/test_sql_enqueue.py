"""Enqueue from SQL: keys and who holds them, given ids, many at once (T8, Q2, M8, M9, M14)."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from holdfast._model.enqueue.ids import uuid7

from .support import NOW, Db


def enqueue(
    db: Db, args: object = None, via: Connection[Any] | None = None, step: str = "greeter.ReadName", **options: Any
) -> UUID:
    text = "SELECT holdfast.enqueue($1, $2::jsonb, $3::jsonb)"
    id = db.one(text, step, json.dumps(args or {}), json.dumps(options), via=via)
    assert isinstance(id, UUID)
    return id


def enqueue_many(db: Db, *entries: object, via: Connection[Any] | None = None, **options: Any) -> list[UUID]:
    text = "SELECT holdfast.enqueue_many($1::jsonb, $2::jsonb)"
    return [row[0] for row in db.sql(text, json.dumps(entries), json.dumps(options), via=via)]


def entry(n: int = 0, **options: object) -> dict[str, object]:
    return {"step": "greeter.ReadName", "args": {"n": n}, **options}


def notices(connection: Connection[Any]) -> list[str]:
    said: list[str] = []
    connection.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary or ""))
    return said


def heard(connection: Connection[Any]) -> list[str]:
    connection.execute(b"SELECT 1")
    return sorted(note.payload for note in connection.notifies(timeout=0))


def rows(db: Db) -> int:
    return int(db.one("SELECT count(*) FROM holdfast.task"))


# --- one


def test_Q2_skip_is_the_default_and_answers_the_holder(db: Db) -> None:
    id = enqueue(db, {"n": 1}, key="k")
    assert enqueue(db, {"n": 2}, key="k") == id == enqueue(db, {"n": 3}, key="k", on_conflict="skip")
    assert db.task(id)["args"] == {"n": 1} and rows(db) == 1
    assert enqueue(db, key="k", queue="other") != id, "a key counts within its queue"


def test_Q2_raise_names_the_holder(db: Db) -> None:
    id = enqueue(db, key="it's")
    with pytest.raises(psycopg.Error, match=rf"task {id} \(greeter, ready\) already holds the key 'it''s'") as caught:
        enqueue(db, key="it's", on_conflict="raise")
    assert caught.value.sqlstate == "HF409" and "another key" in (caught.value.diag.message_hint or "")
    assert rows(db) == 1
    assert enqueue(db, key="other", on_conflict="raise") != id


def test_Q2_replace_gives_new_args_and_time_to_what_was_never_started(db: Db) -> None:
    said = notices(db.connection)
    id = enqueue(db, {"n": 1}, key="k", delay="1h", on_conflict="replace")
    options: Any = {"delay": "90s", "priority": 5, "headers": {"h": "x"}}
    assert enqueue(db, {"n": 2}, step="greeter.SayHello", key="k", on_conflict="replace", **options) == id
    row = db.task(id)
    assert (row["args"], row["step"], row["priority"], row["headers"]) == ({"n": 2}, "SayHello", 5, {"h": "x"})
    assert row["run_at"] == NOW + timedelta(seconds=90) and row["created_at"] == NOW
    assert rows(db) == 1 and said == []


def start(db: Db) -> str:
    db.claim(uuid7())
    return "it is running"


def snooze(db: Db) -> str:
    worker = uuid7()
    db.run(db.stay(worker, db.claim(worker), "snoozed", delay=60))
    return "it has been started"


def park(db: Db) -> str:
    worker = uuid7()
    db.run(db.stay(worker, db.claim(worker), "failed", error={}, errors=1))
    return "it is parked"


@pytest.mark.parametrize("begin", [start, snooze, park])
def test_Q2_replace_leaves_what_was_started_alone_and_says_why(db: Db, begin: Callable[[Db], str]) -> None:
    id = enqueue(db, {"n": 1}, key="k")
    why = begin(db)
    before, said = db.snapshot(), notices(db.connection)
    assert enqueue(db, {"n": 2}, key="k", on_conflict="replace") == id
    assert said == [f"holdfast: task {id} was not replaced: {why}"]
    assert db.snapshot() == before


@pytest.mark.parametrize(("end", "args"), [(b"COMMIT", {"n": 1}), (b"ROLLBACK", {"n": 2})])
def test_M9_replace_of_what_is_just_being_claimed(db: Db, worker: UUID, end: bytes, args: object) -> None:
    id = enqueue(db, {"n": 1}, key="k")
    theirs, ours = db.connect(), db.connect()
    said = notices(ours)
    theirs.execute(b"BEGIN")
    db.claim(worker, via=theirs)
    waiting = db.blocked(ours, lambda: enqueue(db, {"n": 2}, ours, key="k", on_conflict="replace"))
    theirs.execute(end)
    assert waiting.result(20) == id and db.task(id)["args"] == args
    assert said == ([] if end == b"ROLLBACK" else [f"holdfast: task {id} was not replaced: it is running"])


def test_M9_replace_does_not_wait_for_somebody_who_holds_the_row(db: Db) -> None:
    id = enqueue(db, {"n": 1}, key="k")
    theirs, said = db.connect(), notices(db.connection)
    theirs.execute(b"BEGIN")
    db.sql("SELECT FROM holdfast.task FOR UPDATE", via=theirs)
    assert enqueue(db, {"n": 2}, key="k", on_conflict="replace") == id
    assert said == [f"holdfast: task {id} was not replaced: somebody is just claiming or changing it"]
    theirs.execute(b"COMMIT")
    assert db.task(id)["args"] == {"n": 1}


@pytest.mark.parametrize("on_conflict", ["skip", "replace"])
def test_M9_the_other_transaction_commits_while_we_wait(db: Db, on_conflict: str) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = enqueue(db, {"n": 1}, theirs, key="k")
    waiting = db.blocked(ours, lambda: enqueue(db, {"n": 2}, ours, key="k", on_conflict=on_conflict))
    theirs.execute(b"COMMIT")
    assert waiting.result(20) == first and rows(db) == 1


def test_M9_the_other_transaction_commits_while_we_wait_to_raise(db: Db) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = enqueue(db, None, theirs, key="k")
    waiting = db.blocked(ours, lambda: enqueue(db, None, ours, key="k", on_conflict="raise"))
    theirs.execute(b"COMMIT")
    with pytest.raises(psycopg.Error, match=str(first)):
        waiting.result(20)


@pytest.mark.parametrize("on_conflict", ["skip", "replace", "raise"])
def test_M9_the_other_transaction_rolls_back_while_we_wait(db: Db, on_conflict: str) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = enqueue(db, None, theirs, key="k")
    waiting = db.blocked(ours, lambda: enqueue(db, None, ours, key="k", on_conflict=on_conflict))
    theirs.execute(b"ROLLBACK")
    mine = waiting.result(20)
    assert mine != first and db.sql("SELECT id FROM holdfast.task") == [(mine,)]


def test_M9_the_holder_finishes_while_we_wait(db: Db, worker: UUID) -> None:
    first = enqueue(db, key="k")
    tasks = db.claim(worker)
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    db.run(db.finish(worker, tasks), theirs)
    waiting = db.blocked(ours, lambda: enqueue(db, None, ours, key="k"))
    theirs.execute(b"COMMIT")
    assert waiting.result(20) != first and rows(db) == 1


def test_M9_at_repeatable_read_the_caller_is_told(db: Db) -> None:
    ours = db.connect()
    ours.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ")
    db.sql("SELECT count(*) FROM holdfast.task", via=ours)
    enqueue(db, key="k")
    with pytest.raises(psycopg.errors.SerializationFailure):
        enqueue(db, None, ours, key="k")


def test_T8_a_given_id_that_exists_is_a_clear_error(db: Db, worker: UUID) -> None:
    id = enqueue(db, {"n": 1}, id=str(uuid7()))
    taken = f"there is already a task with the id {id}: it is "

    def refused(message: str, **options: Any) -> None:
        before = db.snapshot()
        with pytest.raises(psycopg.errors.UniqueViolation, match=taken + message) as caught:
            enqueue(db, {"n": 2}, id=str(id), **options)
        assert "leave the id out" in (caught.value.diag.message_hint or "")
        assert db.snapshot() == before

    refused("unfinished")
    refused("unfinished", key="k")
    refused("in queue default", queue="other")
    db.run(db.finish(worker, db.claim(worker)))
    refused("done")
    refused("done", queue="other", key="k")


def test_M8_an_id_whose_task_ends_while_we_wait_is_not_enqueued_again(db: Db, worker: UUID) -> None:
    id = enqueue(db, id=str(uuid7()))
    tasks = db.claim(worker)
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    db.run(db.finish(worker, tasks), theirs)
    waiting = db.blocked(ours, lambda: enqueue(db, None, ours, id=str(id)))
    theirs.execute(b"COMMIT")
    with pytest.raises(psycopg.errors.UniqueViolation, match="it is done"):
        waiting.result(20)
    assert rows(db) == 0


@pytest.mark.parametrize("on_conflict", ["skip", "raise", "replace"])
def test_M9_the_same_id_and_key_again_is_the_same_task(db: Db, on_conflict: str) -> None:
    id = enqueue(db, key="k", id=str(uuid7()))
    assert enqueue(db, key="k", id=str(id), on_conflict=on_conflict) == id
    assert rows(db) == 1


def test_Q2_a_key_held_by_another_is_answered_even_if_the_given_id_has_ended(db: Db, worker: UUID) -> None:
    ended = enqueue(db)
    db.run(db.finish(worker, db.claim(worker)))
    holder = enqueue(db, key="k")
    assert enqueue(db, key="k", id=str(ended)) == holder


def test_M14_only_what_is_due_now_or_soon_wakes_workers(db: Db) -> None:
    ears = db.listen()
    enqueue(db, key="k")
    assert heard(ears) == ["queue default"]
    enqueue(db, key="k")
    assert heard(ears) == [], "nothing is new"
    enqueue(db, key="k", delay="1h", on_conflict="replace")
    enqueue(db, delay="1h", queue="later")
    assert heard(ears) == []
    enqueue(db, delay="2s", queue="soon")
    assert heard(ears) == ["queue soon"], "a worker that sleeps until its next look would be late"
    enqueue(db, key="k", on_conflict="replace")
    assert heard(ears) == ["queue default"]


def test_T8_options_left_out_by_null(db: Db) -> None:
    id = db.one("SELECT holdfast.enqueue('greeter', '{}', NULL)")
    nulls = '{"id": null, "queue": null, "priority": null, "delay": null, "key": null, "on_conflict": null}'
    other = db.one("SELECT holdfast.enqueue('greeter', '{}', $1::jsonb)", nulls)
    assert db.task(id)["queue"] == db.task(other)["queue"] == "default"


# --- many


def test_T8_many_in_their_order_with_defaults(db: Db) -> None:
    db.run(db.queries.declare_kind("mailer", "mail", 7, "Send", b"{}"))
    made = enqueue_many(
        db, entry(1), {"step": "mailer"}, entry(3, priority=9, delay="1h", queue="urgent", headers={"a": "b"}),
        {"step": "send_receipt"}, priority=2,
    )  # fmt: skip
    found = [db.task(id) for id in made]
    assert [t["kind"] for t in found] == ["greeter", "mailer", "greeter", "send_receipt"]
    assert [t["step"] for t in found] == ["ReadName", "Send", "ReadName", "main"]
    assert [t["args"] for t in found] == [{"n": 1}, {}, {"n": 3}, {}]
    assert [t["queue"] for t in found] == ["default", "mail", "urgent", "default"]
    assert [t["priority"] for t in found] == [2, 2, 9, 2]
    assert found[2]["run_at"] == NOW + timedelta(hours=1) and found[2]["headers"] == {"a": "b"}
    assert all(id.version == 7 for id in made)


def test_T8_none_at_all(db: Db) -> None:
    assert enqueue_many(db) == [] and db.sql("SELECT holdfast.enqueue_many('[]', NULL)") == []


def test_Q2_many_with_keys_that_are_held_or_come_twice(db: Db) -> None:
    held = enqueue(db, {"n": 0}, key="a")
    made = enqueue_many(db, entry(1, key="b"), entry(2, key="a"), entry(3, key="b"), entry(4), entry(5, key="c"))
    assert made[1] == held and made[0] == made[2] and len(set(made)) == 4
    assert [db.task(id)["args"]["n"] for id in made] == [1, 0, 1, 4, 5], "the first of two with one key is the task"


def test_Q2_many_replace_in_their_order(db: Db) -> None:
    held = enqueue(db, {"n": 0}, key="a")
    both: Any = {"on_conflict": "replace"}
    made = enqueue_many(db, entry(1, key="b"), entry(2, key="a"), entry(3, key="b"), entry(4, key="a"), **both)
    assert made == [made[0], held, made[0], held]
    assert (db.task(made[0])["args"], db.task(held)["args"]) == ({"n": 3}, {"n": 4}), "the last one counts"


def test_Q2_each_entry_may_have_its_own_rule(db: Db) -> None:
    held = enqueue(db, {"n": 0}, key="a")
    made = enqueue_many(db, entry(1, key="a"), entry(2, key="b"), entry(3, key="b", on_conflict="replace"))
    assert made[0] == held and db.task(held)["args"] == {"n": 0}
    assert made[1] == made[2] and db.task(made[1])["args"] == {"n": 3}
    with pytest.raises(psycopg.Error, match=rf"entries\[1\]: task {held} .* already holds the key 'a'") as caught:
        enqueue_many(db, entry(1, key="x"), entry(2, key="a", on_conflict="raise"))
    assert caught.value.sqlstate == "HF409"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"step": "Bad Name"}, "'Bad Name' is not the name of a step"),
        ({"step": "greeter.ReadName", "args": [1]}, "args of greeter.ReadName must be a JSON object"),
        ({"step": "greeter.ReadName", "args": None}, "args of greeter.ReadName must be a JSON object"),
        ({"step": "greeter.ReadName", "priority": 10}, "priority must be 0 to 9"),
        ({"step": "greeter.ReadName", "priority": "high"}, "smallint"),
        ({"step": "greeter.ReadName", "at": "infinity"}, "no task can wait until"),
        ({"step": "greeter.ReadName", "delay": "1h", "at": "2040-01-01"}, "delay or at, not both"),
        ({"step": "greeter.ReadName", "queue": "Bad Queue"}, "is not the name of a queue"),
        ({"step": "greeter.ReadName", "prio": 1}, "unknown option: prio"),
        ({"step": 5}, "an entry must be a JSON object with the name of a step"),
        ({}, "an entry must be a JSON object with the name of a step"),
        ("greeter", "an entry must be a JSON object with the name of a step"),
        ([], "an entry must be a JSON object with the name of a step"),
        (None, "an entry must be a JSON object with the name of a step"),
    ],
)
def test_T8_an_error_names_the_entry_and_nothing_is_enqueued(db: Db, bad: object, message: str) -> None:
    ears = db.listen()
    with pytest.raises(psycopg.Error, match=rf"^holdfast: entries\[2\]: .*{message}") as caught:
        enqueue_many(db, entry(), entry(), bad, entry())
    assert (caught.value.sqlstate or "").startswith("22") and caught.value.diag.message_hint
    assert rows(db) == 0 and heard(ears) == []


@pytest.mark.parametrize("entries", ["{}", '"x"', "null", None])
def test_T8_entries_that_are_no_array_are_refused(db: Db, entries: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="entries must be a JSON array"):
        db.sql("SELECT holdfast.enqueue_many($1::jsonb)", entries)


@pytest.mark.parametrize("options", ['{"prio": 1}', '{"id": "x"}', "[]"])
def test_T8_wrong_defaults_are_refused_before_any_entry(db: Db, options: str) -> None:
    with pytest.raises(psycopg.Error, match=r"^holdfast: (unknown option|options must)"):
        db.sql("SELECT holdfast.enqueue_many('[]', $1::jsonb)", options)


def test_T8_given_ids_of_many(db: Db, worker: UUID) -> None:
    one, two, ended = uuid7(), uuid7(), enqueue(db)
    db.run(db.finish(worker, db.claim(worker)))
    assert enqueue_many(db, entry(1, id=str(one)), entry(2))[0] == one
    before = db.snapshot()
    for bad, message in [
        (
            [entry(0), entry(1, id=str(one))],
            rf"entries\[1\]: there is already a task with the id {one}: it is unfinished",
        ),
        (
            [entry(0), entry(0), entry(1, id=str(one), queue="other")],
            rf"entries\[2\]: .* {one}: it is in queue default",
        ),
        ([entry(1, id=str(ended))], rf"entries\[0\]: .* {ended}: it is done"),
        ([entry(1, id=str(two)), entry(2), entry(3, id=str(two))], rf"entries\[2\]: .* {two}: it is given twice"),
    ]:
        with pytest.raises(psycopg.errors.UniqueViolation, match=message):
            enqueue_many(db, *bad)
        assert db.snapshot() == before


def test_M14_many_wake_each_queue_once(db: Db) -> None:
    ears = db.listen()
    enqueue_many(db, entry(queue="a"), entry(queue="b"), entry(queue="a"), entry(queue="later", delay="1h"))
    assert heard(ears) == ["queue a", "queue b"]
    enqueue_many(db, entry(queue="a", delay="1h"), entry(queue="a"), entry(queue="a", delay="2h"))
    assert heard(ears) == ["queue a"], "one of them is due"


def test_M9_many_take_their_keys_in_one_order_so_that_callers_never_wait_for_each_other(db: Db) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = enqueue(db, None, theirs, key="a")
    waiting = db.blocked(ours, lambda: enqueue_many(db, entry(3, key="b"), entry(4, key="a"), entry(5), via=ours))
    second = enqueue(db, None, theirs, key="b")  # while we wait for the first, we hold none behind it
    theirs.execute(b"COMMIT")
    assert waiting.result(20)[:2] == [second, first] and rows(db) == 3


def test_M9_many_whose_key_is_freed_by_a_rollback(db: Db) -> None:
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    enqueue(db, None, theirs, key="k")
    waiting = db.blocked(ours, lambda: enqueue_many(db, entry(1), entry(2, key="k"), via=ours))
    theirs.execute(b"ROLLBACK")
    made = waiting.result(20)
    assert [db.task(id)["args"]["n"] for id in made] == [1, 2] and rows(db) == 2


def test_T8_ten_thousand_at_once_half_of_them_with_a_key_that_is_taken(db: Db) -> None:
    keyed = [entry(n, key=f"k{n // 2}") for n in range(10_000)]
    made = enqueue_many(db, *keyed)
    assert len(made) == 10_000 and made[0::2] == made[1::2] and rows(db) == 5000
    assert [db.task(made[n])["args"]["n"] for n in (0, 4999, 9999)] == [0, 4998, 9998]
