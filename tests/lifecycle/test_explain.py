"""Q13: `explain(id)` says in one sentence why a task is not running, or how it stands."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import insights
from holdfast._db.migrate import migrate
from holdfast._model.enqueue.ids import uuid7

from .support import BOOM, NOW, Db, ids
from .test_pause import declare, pause

TODAY = "2031-05-20"


@pytest.fixture
def utc(db: Db) -> Iterator[Db]:
    """Times are told in the zone of the session."""
    db.sql("SET TimeZone = 'UTC'")
    yield db


def explained(db: Db, id: UUID) -> str:
    """What it says; always one line, and one sentence."""
    text = str(db.run(insights.explain(db.queries, id)))
    assert text.endswith(".") and text.isprintable(), text
    return text


def register(
    db: Db, name: str = "w1", queues: str = "default", steps: str = "greeter.ReadName greeter.SayHello", slots: int = 4
) -> UUID:
    id = uuid7()
    db.run(
        db.queries.register(
            id, name=name, host="tower", pid=42, version="0", queues=queues.split(), steps=steps.split(), slots=slots
        )
    )
    return id


def test_Q13_not_due_yet(utc: Db) -> None:
    id = utc.enqueue(delay=timedelta(hours=2, minutes=5))
    assert explained(utc, id) == f"It is not due until {TODAY} 14:05:00+00 (in 2 h 5 min)."


def test_Q13_times_are_told_in_the_zone_of_the_session(db: Db) -> None:
    id = db.enqueue(delay=timedelta(seconds=90))
    db.sql("SET TimeZone = 'Asia/Kolkata'")
    assert explained(db, id) == f"It is not due until {TODAY} 17:31:30+05:30 (in 1 min 30 s)."


def test_Q13_waiting_for_a_retry(utc: Db, worker: UUID) -> None:
    task = utc.claimed(worker)
    utc.run(utc.stay(worker, [task], "retried", error=BOOM, errors=1, delay=0))
    [task] = utc.claim(worker)
    utc.run(utc.stay(worker, [task], "retried", error=BOOM, errors=1, delay=10))
    assert explained(utc, task.id) == (
        f"It waits for its next attempt at {TODAY} 12:00:10+00 (in 10 s) after 2 errors at this step,"
        " the last of them ValueError: boom."
    )
    about = b'{"ReadName": {"errors": 6}}'
    utc.run(utc.queries.declare_kind("greeter", "default", 0, None, b'{"ReadName": []}', about=about))
    assert "after 2 errors at this step, of 6 that park it, the last of them" in explained(utc, task.id)
    utc.run(utc.queries.declare_kind("welcome", "default", 0, None, b"{}", was=["greeter"]))
    utc.sql("DELETE FROM holdfast.kind WHERE name = 'greeter'")
    assert "after 2 errors at this step, the last of them" in explained(utc, task.id), "not everybody tells"


def test_Q13_a_paused_queue(utc: Db) -> None:
    id = utc.enqueue(queue="mail")
    pause(utc, "mail", by="ann")
    utc.clock.advance("1h")
    assert explained(utc, id) == (
        f"It is due, but queue mail is paused since {TODAY} 12:00:00+00 by ann; to resume it: holdfast resume mail,"
        """ or select holdfast.resume('mail', '{"what": "queue"}')."""
    )


def test_Q13_a_paused_kind_in_a_paused_queue(utc: Db) -> None:
    declare(utc)
    id = utc.enqueue()
    pause(utc, "greeter", by="ann")
    text = explained(utc, id)
    assert text.startswith(f"It is due, but kind greeter is paused since {TODAY} 12:00:00+00 by ann; to resume it:")
    assert """select holdfast.resume('greeter', '{"what": "kind"}')""" in text
    pause(utc, "default", by="bob")
    text = explained(utc, id)
    assert "queue default is paused" in text and "; and kind greeter is paused" in text
    assert "not due" in explained(utc, utc.enqueue(delay=timedelta(hours=1))), "that comes first"


def test_Q13_the_commands_of_a_pause_can_be_used(utc: Db, worker: UUID) -> None:
    id = utc.enqueue()
    pause(utc, "default")
    command = explained(utc, id).partition(", or ")[2].removesuffix(".")
    assert utc.one(command) == "resumed"
    assert ids(utc.claim(worker)) == [id]


def test_Q13_no_worker_at_all(utc: Db) -> None:
    id = utc.enqueue()
    utc.run(utc.queries.stopped(register(utc)))
    alone = (
        "It is due, but no worker is alive: start one that serves queue default and knows the step greeter.ReadName."
    )
    assert explained(utc, id) == alone
    register(utc)
    utc.clock.advance("2m")
    assert explained(utc, id) == alone, "one that was not seen for a minute is not alive"


def test_Q13_nobody_serves_the_queue(utc: Db) -> None:
    id = utc.enqueue(queue="mail")
    register(utc, queues="reports default")
    register(utc, queues="default")
    assert explained(utc, id) == "It is due, but no live worker serves queue mail; served are: default, reports."


def test_Q13_nobody_knows_the_step(utc: Db) -> None:
    id = utc.enqueue("greeter.Gone")
    register(utc)
    begin = "It is due and 1 live worker serves queue default, but none knows the step greeter.Gone: "
    assert explained(utc, id) == begin + "see whether the name is right and the code deployed."
    old = register(utc, "w0", steps="greeter.Gone")
    utc.run(utc.queries.stopped(old))
    assert explained(utc, id) == begin + (
        f"the last that did was worker w0 of version 0, seen until {TODAY} 12:00:00+00;"
        " it may have been renamed or removed."
    )
    register(utc, "w2", queues="mail reports", steps="greeter.Gone")
    assert explained(utc, id) == begin + "worker w2 does, and serves mail, reports."
    register(utc, "w3")
    assert "2 live workers serve queue default, but none knows" in explained(utc, id)


def test_Q13_all_that_could_are_stopping(utc: Db) -> None:
    id = utc.enqueue()
    worker = register(utc)
    register(utc, steps="other.main")
    utc.run(utc.queries.stop_workers(worker))
    said = "It is due, but all live workers that serve queue default and know the step greeter.ReadName are stopping."
    assert explained(utc, id) == said
    utc.sql("UPDATE holdfast.worker SET stop_requested_at = NULL")
    assert explained(utc, id) != said
    utc.run(utc.queries.stopping(worker))
    assert explained(utc, id) == said


def test_Q13_behind_others(utc: Db) -> None:
    worker = register(utc, slots=2, queues="default mail")
    register(utc, slots=5, steps="other.main")
    utc.claimed(worker)
    utc.claimed(worker, queue="mail")
    first = utc.enqueue(priority=5, at=NOW - timedelta(minutes=1))
    utc.enqueue(priority=5, at=NOW + timedelta(minutes=1))
    second, third = utc.enqueue(), utc.enqueue()
    utc.enqueue(queue="mail", priority=9)
    assert explained(utc, first) == (
        f"It is due since {TODAY} 11:59:00+00 (for 1 min) and the next in queue default;"
        " 1 live worker with 2 slots can claim it and holds 2 tasks now: all are busy."
    )
    assert "and has 1 due task before it in queue default;" in explained(utc, second)
    assert f"due since {TODAY} 12:00:00+00 (for less than a second) and has 2 due tasks" in explained(utc, third)
    register(utc, slots=3)
    assert "2 live workers with 5 slots can claim it and hold 2 tasks now." in explained(utc, third)


def test_Q13_behind_others_where_workers_have_a_limit_for_the_queue(utc: Db) -> None:
    """Of two slots for mail one is free, so it is the next to start; of one none is, whatever else is free."""
    worker = uuid7()

    def limit(most: int) -> None:
        queues, steps = ["default", "mail"], ["greeter.ReadName"]
        utc.run(
            utc.queries.register(
                worker,
                name="w",
                host="h",
                pid=1,
                version="0",
                queues=queues,
                steps=steps,
                slots=9,
                limits={"mail": most},
            )
        )

    limit(2)
    utc.claimed(worker)
    utc.claimed(worker, queue="mail")
    id = utc.enqueue(queue="mail")
    ends = "1 live worker with 2 slots for this queue can claim it and holds 1 task now."
    assert explained(utc, id).endswith(ends)
    utc.sql("DELETE FROM holdfast.worker")
    limit(1)
    assert explained(utc, id).endswith("with 1 slot for this queue can claim it and holds 1 task now: all are busy.")


def test_Q13_nobody_counts_further_than_ten_thousand(utc: Db) -> None:
    register(utc)
    utc.sql(
        "INSERT INTO holdfast.task (id, kind, step, priority)"
        " SELECT gen_random_uuid(), 'greeter', 'ReadName', 1 + n % 9 FROM generate_series(1, 10500) AS n"
    )
    assert "and has more than 10000 due tasks before it in queue default;" in explained(utc, utc.enqueue())


def test_Q13_a_suspect_waits_its_turn(utc: Db) -> None:
    register(utc)
    first, second = utc.enqueue(), utc.enqueue(priority=9)
    utc.enqueue()
    utc.sql("UPDATE holdfast.task SET crashes = 2 WHERE id IN ($1, $2)", first, second)
    begin = f"It is due since {TODAY} 12:00:00+00 (for less than a second) and a suspect, because its worker was lost"
    rest = "2 times at this step: a worker tries one suspect at a time, and it"
    assert explained(utc, first) == f"{begin} {rest} is the next in queue default."
    assert explained(utc, second) == f"{begin} {rest} has 1 other before it in queue default."


def test_Q13_running(utc: Db) -> None:
    worker = register(utc)
    task = utc.claimed(worker)
    utc.clock.advance(5)
    doer = f"attempt 1 at greeter.ReadName by worker w1 (tower, process 42), since {TODAY} 12:00:00+00 (for 5 s)"
    assert (
        explained(utc, task.id) == f"It is running: {doer}; its lease lasts until {TODAY} 12:00:30+00 unless renewed."
    )
    utc.cancel(task.id, by="ann", why="a mistake")
    assert explained(utc, task.id) == (
        f"It is being cancelled since {TODAY} 12:00:05+00 (cancelled by ann: a mistake),"
        f" and its step has not ended yet: {doer}."
    )
    other = utc.claimed(uuid7())
    assert f"by worker {utc.task(other.id)['worker_id']}, since" in explained(utc, other.id), "nobody knows that one"


def test_Q13_running_by_a_worker_that_is_lost(utc: Db) -> None:
    task, cancelled = utc.claimed(register(utc)), utc.claimed(uuid7())
    utc.cancel(cancelled.id)
    utc.clock.advance(30)
    text = explained(utc, task.id)
    assert text.startswith(
        "Its worker seems lost: attempt 1 at greeter.ReadName by worker w1 (tower, process 42), since"
    )
    assert text.endswith(
        f"but the lease ran out at {TODAY} 12:00:30+00; any live worker of queue default will take it over."
    )
    assert explained(utc, cancelled.id).endswith("will end it, because it was cancelled.")


def test_Q13_parked(utc: Db) -> None:
    worker = uuid7()
    task = utc.claimed(worker)
    utc.clock.advance(3)
    utc.run(utc.stay(worker, [task], "failed", error=BOOM, errors=1))
    utc.clock.advance("1h")
    assert explained(utc, task.id) == (
        f"It is parked since {TODAY} 12:00:03+00 at greeter.ReadName: ValueError: boom; repair the cause, then resume"
        f" it (holdfast retry {task.id}, or select holdfast.retry('{task.id}')), or give it up"
        f" (holdfast discard {task.id}, or select holdfast.discard('{task.id}'))."
    )
    utc.sql("DELETE FROM holdfast.attempt")
    assert f"parked since {TODAY} 12:00:00+00 at" in explained(utc, task.id), "the log is kept for a while only"


def test_Q13_Q3_parked_with_a_key(utc: Db) -> None:
    id = utc.parked(key="order\n42")
    assert explained(utc, id).endswith(
        f"discard('{id}')); until then it holds the key order 42, and no other task of queue default gets that."
    )


def test_Q13_Q4_a_key_that_outlives_its_task(utc: Db, worker: UUID) -> None:
    done = utc.claimed(worker, key="order-42")
    utc.run(utc.finish(worker, [done]))
    ended = f"It was done at {TODAY} 12:00:00+00, after 1 attempt"
    assert explained(utc, done.id) == f"{ended}."
    utc.sql(
        "INSERT INTO holdfast.key (queue, key, task_id, kind, held_until)"
        " VALUES ('default', 'order-42', $1, 'greeter', $2)",
        done.id,
        NOW + timedelta(hours=1),
    )
    assert explained(utc, done.id) == f"{ended}; its key order-42 is held until {TODAY} 13:00:00+00 all the same."
    utc.clock.advance("1h")
    assert explained(utc, done.id) == f"{ended}."


def test_Q13_Q5_a_deadline(utc: Db) -> None:
    id = utc.enqueue(delay=timedelta(hours=1), deadline=timedelta(hours=2))
    until = f"; it will expire at {TODAY} 14:00:00+00 unless it is started before."
    assert explained(utc, id) == f"It is not due until {TODAY} 13:00:00+00 (in 1 h){until}"
    utc.clock.advance("1h")
    register(utc)
    assert explained(utc, id).startswith("It is due since") and explained(utc, id).endswith(until)
    utc.clock.advance("1h")
    assert explained(utc, id) == (
        f"It is expired: it was not started before its deadline, {TODAY} 14:00:00+00; any live worker of queue default"
        " will archive it."
    )


def test_Q13_running_and_how_far(utc: Db) -> None:
    task = utc.claimed(register(utc))
    utc.sql(
        "INSERT INTO holdfast.progress (task_id, queue, attempt, fraction, note)"
        " VALUES ($1, 'default', 1, 0.4, 'row 400')",
        task.id,
    )
    assert "(for less than a second) at 40 % (row 400); its lease" in explained(utc, task.id)


def test_Q13_the_commands_of_a_parked_task_can_be_used(utc: Db) -> None:
    one, two = utc.parked(), utc.parked()
    commands = [part.split(")),")[0].split("))")[0] + ")" for part in explained(utc, one).split(", or ")[1:3]]
    assert commands[0] == f"select holdfast.retry('{one}')"
    assert utc.one(commands[0]) == "ready" and utc.state(one) == "ready"
    discard = explained(utc, two).rpartition(", or ")[2].removesuffix(").")
    assert utc.one(discard) == "discarded"


@pytest.mark.parametrize("error", [{}, {"type": None}, [], "x", 5, {"message": ""}])
def test_Q13_an_error_that_says_nothing(utc: Db, error: object) -> None:
    id = utc.parked(error)
    assert "greeter.ReadName: an error that says nothing; repair" in explained(utc, id)


def test_Q13_waiting(utc: Db) -> None:
    id = utc.enqueue()
    utc.sql("UPDATE holdfast.task SET state = 'waiting'")
    assert explained(utc, id) == "It waits for an event or for other tasks."


def test_Q13_ended(utc: Db, worker: UUID) -> None:
    done = utc.claimed(worker)
    utc.run(utc.finish(worker, [done]))
    assert explained(utc, done.id) == f"It was done at {TODAY} 12:00:00+00, after 1 attempt."
    cancelled = utc.enqueue()
    utc.cancel(cancelled, by="ann", why="a mistake")
    assert explained(utc, cancelled) == f"It was cancelled at {TODAY} 12:00:00+00: cancelled by ann: a mistake."
    discarded = utc.parked()
    utc.discard(discarded, by="ann", why="hopeless")
    assert explained(utc, discarded) == (
        f"It was discarded at {TODAY} 12:00:00+00 by ann (hopeless), while it was parked at greeter.ReadName:"
        " ValueError: boom."
    )
    expired = utc.enqueue()
    utc.cancel(expired)
    utc.sql(
        "UPDATE holdfast.archive SET state = 'expired', error = '{\"message\": \"too late\"}' WHERE id = $1", expired
    )
    assert explained(utc, expired) == f"It was expired at {TODAY} 12:00:00+00: too late."


def test_Q13_not_there(utc: Db) -> None:
    id = uuid7()
    text = explained(utc, id)
    assert text.startswith(f"There is no task {id}: it is in another database or schema than holdfast_")
    assert ".holdfast, was never committed, or ended longer ago than finished tasks are kept (7 d at most)." in text
    assert str(utc.one("SELECT holdfast.explain(NULL)")).startswith("There is no task without an id: ")


NASTY = "first\r\nsecond\t\x1b[31mred\x07 \u202eright\u200b to left\u2028end\x85" + "x" * 500


def test_Q13_texts_of_users_are_shortened_to_one_plain_line(utc: Db) -> None:
    parked = utc.parked({"type": "Bad\nError", "message": NASTY})
    text = explained(utc, parked)
    assert "Bad Error: first second [31mred right to left end xxxx" in text and "xxx…; repair" in text
    assert len(text) < 600
    task = utc.claimed(register(utc, NASTY))
    assert "worker first second [31mred right to left end xxx" in explained(utc, task.id)
    utc.cancel(task.id, by=NASTY, why=NASTY)
    assert "cancelled by first second [31mred" in explained(utc, task.id)
    paused = utc.enqueue()
    pause(utc, "default", by=NASTY)
    assert "by first second [31mred" in explained(utc, paused)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("0.4 s", "less than a second"), ("59.9 s", "59 s"), ("60 s", "1 min"), ("61 s", "1 min 1 s"),
        ("59 min 59 s", "59 min 59 s"), ("1 h", "1 h"), ("1 h 59 s", "1 h"), ("25 h", "1 d 1 h"), ("48 h", "2 d"),
        ("-90 s", "1 min 30 s"), ("1000 years", "365250 d"),
    ],
)  # fmt: skip
def test_Q13_how_long(db: Db, span: str, text: str) -> None:
    assert db.one("SELECT holdfast.how_long($1::interval)", span) == text


async def test_Q13_X4_the_commands_name_the_schema_they_are_for(holdfast_url: str) -> None:
    await migrate(holdfast_url, "select")  # a word of SQL: it must be quoted
    db = Db(holdfast_url)
    try:
        id = db.one("""SELECT "select".enqueue('greeter')""")
        db.sql("""SELECT "select".pause('default')""")
        assert """, or select "select".resume('default',""" in db.one("""SELECT "select".explain($1)""", id)
        assert ".select, was never" in db.one("""SELECT "select".explain($1)""", uuid7())
    finally:
        db.close()


def plan_nodes(db: Db, text: str, *values: object) -> str:
    """What every statement inside a function did, as auto_explain tells it."""
    said: list[str] = []
    connection: Any = db.connect(options="-c client_min_messages=log")
    connection.add_notice_handler(lambda diagnostic: said.append(diagnostic.message_primary or ""))
    for setting in (
        "LOAD 'auto_explain'", "SET auto_explain.log_min_duration = 0", "SET auto_explain.log_nested_statements = on",
    ):  # fmt: skip
        connection.execute(setting.encode())
    db.sql(text, *values, via=connection)
    assert said
    return "\n".join(said)


def test_Q13_explain_enters_an_index_whatever_there_is(own_db: Db) -> None:
    own_db.sql(
        "INSERT INTO holdfast.task (id, kind, step, priority) SELECT gen_random_uuid(), 'greeter', 'ReadName', n % 10"
        " FROM generate_series(1, 20000) AS n"
    )
    own_db.sql("VACUUM ANALYZE holdfast.task")
    register(own_db)
    plan = plan_nodes(own_db, "SELECT holdfast.explain($1)", own_db.enqueue())
    assert "task_ready" in plan and "task_running" in plan and "task_pkey" in plan
    assert "Seq Scan on task" not in plan, plan
