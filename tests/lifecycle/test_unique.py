"""Keys made from kind, step and args, and keys that outlive their task (Q3, Q4)."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast import insights
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import OnConflict, Request
from holdfast._model.json.codec import encode

from .support import NOW, Db
from .test_keys import HOUR, follow, new

VALUES: list[Any] = [
    {},
    {"a": 1, "bb": 2, "c": [1, 2, {"z": None, "y": True}]},
    {"x": 0.1},
    {"x": 1e300},
    {"x": 1.5e-9},
    {"x": 9007199254740993},
    {"x": -0.0},
    {"x": 1.0},
    {"x": 100.0},
    {"x": "1.0"},
    {"x": "1.50, 2.0"},
    {"x": 'a "quoted" 1.0 \\ back\\"slash 2.00'},
    {"ü": "Grüße 你好 🎉", "e": "\u00e9", "combining": "e\u0301"},
    {"nested": {"b": {"d": 1, "c": [1.25, "1.250"]}, "a": []}},
    {"line": "a\nb\tc\u0001\u2028"},
]


def stored_key(db: Db, id: UUID) -> str:
    return str(db.task(id)["key"])


def by_python(db: Db, args: Any, **fields: Any) -> Request:
    return Request(uuid7(), "default", "greeter", "ReadName", encode(args), unique=True, **fields)


def by_sql(db: Db, args_text: str, step: str = "greeter.ReadName", **options: Any) -> UUID:
    options = {"unique": True, **options}
    id: UUID = db.one("SELECT holdfast.enqueue($1, $2::jsonb, $3::jsonb)", step, args_text, json.dumps(options))
    return id


# --- unique


@pytest.mark.parametrize("args", VALUES, ids=lambda args: json.dumps(args)[:40])
def test_Q3_the_same_args_have_the_same_key_from_python_and_from_sql(db: Db, args: Any) -> None:
    made = follow(db, by_python(db, args))
    assert made.how == "created"
    for text in (json.dumps(args), json.dumps(args, ensure_ascii=False, indent=3), json.dumps(_turned(args))):
        assert by_sql(db, text) == made.id
    entries = json.dumps([{"step": "greeter.ReadName", "args": args}])
    assert db.one("SELECT holdfast.enqueue_many($1::jsonb, '{\"unique\": true}')", entries) == made.id
    assert follow(db, by_python(db, _turned(args))).how == "existing"
    assert db.one("SELECT count(*) FROM holdfast.task") == 1


def _turned(value: Any) -> Any:
    """The same with all keys in the opposite order."""
    if isinstance(value, dict):
        return {key: _turned(value[key]) for key in reversed(value)}
    return [_turned(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"x": 1}', '{"x": 1.0}'),
        ('{"x": 1.5}', '{"x": 1.500}'),
        ('{"x": 100}', '{"x": 1e2}'),
        ('{"x": -0.0}', '{"x": 0}'),
        ('{"x": 0.10}', '{"x": 1e-1}'),
        ('{"x": [10.0, 20.00, 0.0]}', '{"x": [10, 20, 0]}'),
        ('{"x": "\\u00e9"}', '{"x": "é"}'),
        ('{"x": 2, "x": 1}', '{"x": 1}'),
    ],
)
def test_Q3_what_is_equal_as_jsonb_is_the_same(db: Db, one: str, other: str) -> None:
    assert db.one("SELECT $1::jsonb = $2::jsonb", one, other) is True
    assert by_sql(db, one) == by_sql(db, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"x": 1}', '{"x": "1"}'),
        ('{"x": 10}', '{"x": 1}'),
        ('{"x": 10.01}', '{"x": 10.1}'),
        ('{"x": 1.05}', '{"x": 1.5}'),
        ('{"x": "1.0"}', '{"x": "1"}'),
        ('{"x": "a1.50"}', '{"x": "a1.5"}'),
        ('{"x": "\\"", "y": 1.0}', '{"x": "\\" 1.0", "y": 1}'),
        ('{"x": "\\\\", "y": "2.0"}', '{"x": "\\\\", "y": "2"}'),
        ('{"1.0": 1}', '{"1": 1}'),
        ('{"x": null}', "{}"),
        ('{"x": [1, 2]}', '{"x": [2, 1]}'),
        ('{"x": "\\u00e9"}', '{"x": "e\\u0301"}'),
    ],
)
def test_Q3_what_differs_is_not_the_same(db: Db, one: str, other: str) -> None:
    assert db.one("SELECT $1::jsonb = $2::jsonb", one, other) is False
    assert by_sql(db, one) != by_sql(db, other)


def test_Q3_kind_step_and_queue_are_a_part_of_it(db: Db) -> None:
    first = by_sql(db, '{"n": 1}')
    others = [by_sql(db, '{"n": 1}', "greeter.SayHello"), by_sql(db, '{"n": 1}', "other.ReadName")]
    assert len({first, *others, by_sql(db, '{"n": 1}', queue="slow")}) == 4
    key = stored_key(db, first)
    assert key.startswith("unique:greeter.ReadName:") and len(key) == len("unique:greeter.ReadName:") + 64
    assert key == db.one("SELECT holdfast.unique_key('greeter', 'ReadName', '{\"n\": 1.0}')")


def test_Q3_it_is_freed_by_the_end_of_the_task_but_not_by_parking(db: Db, worker: UUID) -> None:
    follow(db, by_python(db, {"n": 1}))
    [task] = db.claim(worker)
    db.run(db.stay(worker, [task], "failed", error={}, errors=1))
    assert follow(db, by_python(db, {"n": 1})).how == "existing"
    assert follow(db, by_python(db, {"n": 1}), "replace").how == "parked"
    db.discard(task.id)
    assert follow(db, by_python(db, {"n": 1})).how == "created"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": "k"}, "key or unique, not both"),
        ({"unique": "yes"}, "true or false"),
        ({"unique": False, "unique_for": "1h"}, "unique_for needs a key"),
        ({"unique_for": "0"}, "longer than nothing"),
        ({"unique_for": "long"}, "interval"),
        ({"unique": False, "on_conflict": "skip"}, "on_conflict needs a key"),
    ],
)
def test_Q3_wrong_options_are_refused_by_sql(db: Db, options: dict[str, Any], words: str) -> None:
    with pytest.raises(psycopg.Error, match=words):
        by_sql(db, "{}", **options)


# --- unique_for


def end(db: Db, id: UUID) -> None:
    worker = uuid7()
    assert db.run(db.finish(worker, db.claim(worker))) == {id: None}


RULES: list[OnConflict] = ["skip", "replace"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("unique_for", [HOUR, None])
def test_Q4_a_key_holds_after_its_task_has_ended(db: Db, rule: OnConflict, unique_for: timedelta | None) -> None:
    """Whoever asks: the key is held, not only for those who say unique_for."""
    first = follow(db, new(unique_for=HOUR)).id
    assert follow(db, new(unique_for=unique_for)).how == "existing"
    end(db, first)
    before = db.sql("SELECT * FROM holdfast.key")
    answer = follow(db, new(unique_for=unique_for), rule)
    assert (answer.id, answer.kind, answer.how) == (first, "greeter", "ended")
    assert db.sql("SELECT * FROM holdfast.key") == before == [("default", "k", first, "greeter", NOW + HOUR)]
    assert follow(db, new(queue="other", unique_for=unique_for)).how == "created"
    db.clock.advance("1h")
    assert follow(db, new(unique_for=unique_for), rule).how == "created"


@pytest.mark.parametrize("ending", ["cancelled", "expired", "discarded"])
def test_Q4_however_it_has_ended(db: Db, ending: str) -> None:
    id = follow(db, new(unique_for=HOUR, deadline=timedelta(minutes=1))).id
    worker = uuid7()
    if ending == "expired":
        db.clock.advance("1m")
        db.run(db.queries.expire("default", 10))
    elif ending == "discarded":
        db.run(db.stay(worker, db.claim(worker), "failed", error={}, errors=1))
        db.discard(id)
    else:
        db.cancel(id)
    assert db.state(id) == ending
    answer = follow(db, new(unique_for=HOUR))
    assert (answer.id, answer.how) == (id, "ended")
    info = db.run(insights.task(db.queries, answer.id))
    assert info is not None and info.state == ending


def test_Q4_raise_says_that_it_has_ended(db: Db) -> None:
    id = follow(db, new(unique_for=HOUR)).id
    end(db, id)
    with pytest.raises(Exception, match=rf"task {id} \(greeter\) has ended, and unique_for= still holds the key 'k'"):
        follow(db, new(), "raise")
    with pytest.raises(psycopg.Error, match=rf"task {id} \(greeter\) has ended, and unique_for still") as caught:
        db.sql("""SELECT holdfast.enqueue('a', '{}', '{"key": "k", "on_conflict": "raise"}')""")
    assert caught.value.sqlstate == "HF409"


def test_Q4_an_unfinished_task_holds_its_key_longer_than_its_time(db: Db) -> None:
    id = follow(db, new(unique_for=HOUR)).id
    db.clock.advance("2h")
    answer = follow(db, new(unique_for=HOUR))
    assert (answer.id, answer.how) == (id, "existing")
    db.run(db.queries.sweep_keys(10))
    assert follow(db, new(unique_for=HOUR)).how == "existing"
    assert db.one("SELECT count(*) FROM holdfast.key") == 0, "an enqueue that created nothing holds nothing"
    end(db, id)
    assert follow(db, new(unique_for=HOUR)).how == "created"


def test_Q4_replace_begins_the_time_anew(db: Db) -> None:
    id = follow(db, new(unique_for=HOUR)).id
    db.clock.advance("30m")
    assert follow(db, new(), "replace").how == "replaced"
    assert db.one("SELECT held_until FROM holdfast.key") == NOW + HOUR, "without a time of its own it changes nothing"
    assert follow(db, new(unique_for=HOUR), "replace").how == "replaced"
    assert db.sql("SELECT task_id, held_until FROM holdfast.key") == [(id, NOW + 1.5 * HOUR)]


def test_Q4_a_key_that_was_only_unfinished_is_held_from_a_replace_on(db: Db) -> None:
    id = follow(db, new()).id
    assert follow(db, new(unique_for=HOUR), "replace").how == "replaced"
    end(db, id)
    assert follow(db, new()).how == "ended"


def test_M9_sent_again_it_is_still_its_own(db: Db) -> None:
    task = new(unique_for=HOUR)
    assert follow(db, task).how == "created"
    assert follow(db, task, again=True).how == "created"
    end(db, task.id)
    with db.connection.transaction(force_rollback=True):
        assert follow(db, task, again=True).how == "created", "the archive decides, as for any other"
        assert db.run(db.queries.archived([task.id])) is True


def test_Q4_a_key_that_is_free_again_is_taken_over_or_swept(db: Db) -> None:
    for key in "abc":
        db.sql("DELETE FROM holdfast.task WHERE id = $1", follow(db, new(key, unique_for=HOUR)).id)
    follow(db, new("later", unique_for=2 * HOUR))
    assert db.run(db.queries.sweep_keys(10)) == 0
    db.clock.advance("1h")
    made = follow(db, new("a", unique_for=HOUR))
    assert made.how == "created"
    assert [db.run(db.queries.sweep_keys(1)) for _ in range(3)] == [1, 1, 0]
    assert db.sql("SELECT key, held_until FROM holdfast.key ORDER BY 1") == [
        ("a", NOW + 2 * HOUR),
        ("later", NOW + 2 * HOUR),
    ]


def test_Q4_a_sweep_and_a_take_over_in_both_orders(db: Db) -> None:
    db.sql("DELETE FROM holdfast.task WHERE id = $1", follow(db, new(unique_for=HOUR)).id)
    db.clock.advance("1h")
    first, second = db.connect(), db.connect()
    first.execute(b"BEGIN")
    assert db.run(db.queries.sweep_keys(10), first) == 1
    taking = db.blocked(second, lambda: follow(db, new(unique_for=HOUR), via=second))
    first.execute(b"COMMIT")
    made = taking.result(20)
    assert made.how == "created" and db.one("SELECT task_id FROM holdfast.key") == made.id
    db.sql("DELETE FROM holdfast.task WHERE id = $1", made.id)
    db.clock.advance("1h")
    first.execute(b"BEGIN")
    assert follow(db, new(unique_for=HOUR), via=first).how == "created"
    assert db.run(db.queries.sweep_keys(10), second) == 0, "passed over, not waited for"
    first.execute(b"COMMIT")
    assert db.run(db.queries.sweep_keys(10), second) == 0
    assert db.one("SELECT count(*) FROM holdfast.key") == 1


def test_Q4_a_task_whose_transaction_rolls_back_holds_nothing(db: Db) -> None:
    ours = db.connect()
    ours.execute(b"BEGIN")
    follow(db, new(unique_for=HOUR), via=ours)
    ours.execute(b"ROLLBACK")
    assert db.one("SELECT count(*) FROM holdfast.key") == 0
    assert follow(db, new(unique_for=HOUR)).how == "created"


def test_M9_what_ended_while_we_waited_still_holds_its_key(db: Db) -> None:
    """The first look at the key found nothing: it was not committed yet. Without a second one, it would run twice."""
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    first = follow(db, new(unique_for=HOUR), via=theirs).id
    waiting = db.blocked(ours, lambda: follow(db, new(), via=ours))
    # It ends in the same transaction: when that commits, the key is in no task any more.
    db.cancel(first, theirs)
    theirs.execute(b"COMMIT")
    assert (waiting.result(20).id, waiting.result(20).how) == (first, "ended")
    assert db.one("SELECT count(*) FROM holdfast.task") == 0


def test_M9_the_plans_of_keys_fit_large_tables(own_db: Db) -> None:
    """Made when the tables were small and known to be so, they are kept by the connection."""
    own_db.sql("ALTER TABLE holdfast.task SET (autovacuum_enabled = off)")
    own_db.sql("ALTER TABLE holdfast.key SET (autovacuum_enabled = off)")
    for n in range(24):
        if n == 12:
            own_db.sql("ANALYZE holdfast.task, holdfast.key")
        follow(own_db, new(f"k{n % 12}", unique_for=HOUR))
    own_db.sql(
        "INSERT INTO holdfast.key SELECT 'default', 'o' || n, gen_random_uuid(), 'greeter', $1"
        " FROM generate_series(1, 20000) AS n",
        NOW + HOUR,
    )
    own_db.sql(
        "INSERT INTO holdfast.task (id, kind, step, key) SELECT gen_random_uuid(), 'greeter', 'm', 't' || n"
        " FROM generate_series(1, 20000) AS n"
    )
    with own_db.connection.transaction():
        for n in range(12):
            assert follow(own_db, new(f"t{n + 1}")).how == "existing"
            assert follow(own_db, new(f"o{n + 1}")).how == "ended"
        scanned = "SELECT sum(seq_tup_read)::bigint FROM pg_stat_xact_user_tables WHERE relname IN ('task', 'key')"
        assert own_db.one(scanned) == 0
