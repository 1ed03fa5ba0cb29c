"""The claim: in which order, of which steps, and what the queries around it say (Q6, T14, L7, M2, M12, M16)."""

import itertools
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from holdfast._db.driver.session import Link
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._sql.query import Query, Statement

from .support import BEGINNING, KNOWN, LEASE, NOW, Db, ids


def test_Q6_higher_priority_first_then_run_at_then_id(db: Db, worker: UUID) -> None:
    tasks = [
        Request(uuid7(), "default", "greeter", "ReadName", b"{}", priority, at=NOW - timedelta(seconds=age))
        for priority, age, _ in itertools.product(range(10), (5, 60), range(2))
    ]
    random.Random(4).shuffle(tasks)
    db.run(db.queries.enqueue_many("default", tasks))
    expected = [t.id for t in sorted(tasks, key=lambda t: (-t.priority, t.at or NOW, t.id))]
    assert set(ids(db.claim(worker, 7))) == set(expected[:7]), "a batch is the first of that order"
    one_by_one = [row.id for _ in expected[7:] for row in db.claim(worker)]
    assert one_by_one == expected[7:]
    assert db.claim(worker, 5) == []


def test_a_claim_starts_an_attempt_under_a_lease(db: Db, worker: UUID) -> None:
    id = db.enqueue("greeter.ReadName", '{"a": [1, "é"]}', priority=3, key="k", headers=b'{"h": "1"}')
    [row] = db.claim(worker, crash_limits='{"greeter.ReadName": 1, "greeter.SayHello": 7}')
    assert (row.id, row.kind, row.step, row.attempt, row.moves) == (id, "greeter", "ReadName", 1, 0)
    assert (row.errors, row.crashes, row.priority, row.key, row.deadline) == (0, 0, 3, "k", None)
    assert row.run_at == row.claimed_at == NOW.timestamp()
    assert (row.args, row.headers) == ('{"a": [1, "é"]}'.encode(), b'{"h": "1"}')
    task = db.task(id)
    assert (task["state"], task["worker_id"], task["attempt"], task["max_crashes"]) == ("running", worker, 1, 1)
    assert (task["claimed_at"], task["lease_expires_at"]) == (NOW, NOW + LEASE)


def test_M5_the_default_crash_limit_is_three(db: Db, worker: UUID) -> None:
    task = db.claimed(worker, crash_limits='{"greeter.SayHello": 0}')
    assert db.task(task.id)["max_crashes"] == 3


def test_M5_one_crash_limit_for_all_steps_is_a_number(db: Db, worker: UUID) -> None:
    assert db.task(db.claimed(worker, crash_limits="7").id)["max_crashes"] == 7


def test_only_what_is_due_and_ready_in_this_queue(db: Db, worker: UUID) -> None:
    db.enqueue(delay=timedelta(microseconds=1))
    db.enqueue(queue="other")
    db.parked()
    assert db.claim(worker, 10) == []
    db.clock.advance(1)
    assert len(db.claim(worker, 10)) == 1


def test_T14_unknown_steps_are_neither_claimed_nor_touched(db: Db, worker: UUID) -> None:
    for step in ("greeter.Old", "greeter2.ReadName", "greete.rReadName", "other.ReadName"):
        db.enqueue(step, priority=9)
    before = db.snapshot()
    assert db.claim(worker, 10) == db.claim(worker, 10, known=[]) == []
    assert db.snapshot() == before
    mine = db.enqueue("greeter.ReadName")
    assert ids(db.claim(worker, 10)) == [mine]
    assert db.run(db.queries.unclaimable("default", KNOWN)) == (4, NOW)
    assert db.run(db.queries.unclaimable("default", [*KNOWN, "greeter.Old"])) == (3, NOW)
    assert db.run(db.queries.unclaimable("other", KNOWN)) == (0, NOW)


def test_two_claims_at_once_share_and_never_wait(db: Db, worker: UUID, other_worker: UUID) -> None:
    expected = [db.enqueue() for _ in range(5)]
    first = db.connect()
    first.execute(b"BEGIN")
    taken = ids(db.claim(worker, 3, via=first))
    rest = ids(db.claim(other_worker, 5))
    assert sorted(taken) == expected[:3] and sorted(rest) == expected[3:]
    first.execute(b"ROLLBACK")
    assert sorted(ids(db.claim(other_worker, 5))) == expected[:3], "a claim rolled back never was"
    assert db.task(expected[0])["attempt"] == 1


def test_a_claim_locks_no_more_rows_than_it_returns(db: Db, worker: UUID, other_worker: UUID) -> None:
    for priority in (0, 4, 9):
        for _ in range(3):
            db.enqueue(priority=priority)
    first = db.connect()
    first.execute(b"BEGIN")
    assert {row.priority for row in db.claim(worker, 4, via=first)} == {9, 4}
    assert len(db.claim(other_worker, 9)) == 5


def test_L7_a_lease_counts_from_the_claim_not_from_an_earlier_time(db: Db, worker: UUID) -> None:
    """A claim in an old transaction gets a whole lease: the clock is that of the statement."""
    db.clock.resume()
    db.enqueue()
    other = db.connect()
    other.execute(b"BEGIN")
    [(began, _)] = db.sql("SELECT now(), pg_sleep(0.1)", via=other)
    [row] = db.claim(worker, via=other)
    other.execute(b"COMMIT")
    task = db.task(row.id)
    assert task["lease_expires_at"] - LEASE == task["claimed_at"] >= began + timedelta(milliseconds=100)


def test_M2_the_clock_is_part_of_the_index_condition(db: Db, worker: UUID) -> None:
    db.clock.resume()
    query = db.queries.claim(
        "default", worker, limit=5, lease=LEASE, known=KNOWN, crash_limits="{}", marks=[BEGINNING] * 10
    )
    # On a table this small the planner may find a scan cheaper: whether the clock can be a condition is the question.
    db.sql("SET enable_seqscan = off")
    db.sql("SET enable_bitmapscan = off")
    try:
        plan = db.explain(query)
    finally:
        db.sql("RESET enable_seqscan")
        db.sql("RESET enable_bitmapscan")
    conditions = [line for line in plan.splitlines() if "Index Cond" in line and "run_at" in line]
    assert len(conditions) == 2 and all("run_at <= statement_timestamp()" in each for each in conditions)


def test_M2_time_moved_by_replacing_the_clock_is_followed_by_prepared_plans(db: Db, worker: UUID) -> None:
    db.enqueue(delay=timedelta(hours=1))
    for _ in range(10):  # the driver prepares it after a few executions
        assert db.claim(worker) == []
    db.clock.advance("1h")
    assert len(db.claim(worker)) == 1


def test_M12_a_mark_hides_what_lies_before_it_and_only_there(db: Db, worker: UUID) -> None:
    old = db.enqueue(at=NOW - timedelta(minutes=2), priority=1)
    at_mark = db.enqueue(at=NOW - timedelta(minutes=1), priority=1)
    elsewhere = db.enqueue(at=NOW - timedelta(minutes=2), priority=2)
    marks = [BEGINNING] * 10
    marks[1] = NOW - timedelta(minutes=1)
    assert set(ids(db.claim(worker, 10, marks=marks))) == {at_mark, elsewhere}
    assert ids(db.claim(worker, 10)) == [old], "a full scan finds everything"


def test_M12_a_mark_tells_tasks_of_one_instant_apart(db: Db, worker: UUID) -> None:
    """All tasks of a bulk enqueue are due at one: only ids tell where those begin that were not claimed yet."""
    first, second, third = sorted(db.enqueue(at=NOW - timedelta(minutes=1)) for _ in range(3))
    instant = [NOW - timedelta(minutes=1)] * 10
    assert ids(db.claim(worker, 10, marks=instant, mark_ids=[second] * 10)) == [second, third]
    assert ids(db.claim(worker, 10)) == [first], "a full scan finds everything"


def test_M12_a_mark_learned_from_a_claim_does_not_hide_its_own_instant(db: Db, worker: UUID) -> None:
    """Times come back as seconds: they must name the same microsecond when they return as a mark."""
    for micro in range(0, 1_000_000, 24_691):
        at = NOW - timedelta(days=400) + timedelta(microseconds=micro)
        db.enqueue(at=at)
        db.enqueue(at=at)
    while first := db.claim(worker):
        mark = datetime.fromtimestamp(first[0].run_at, UTC)
        assert len(db.claim(worker, marks=[mark] * 10)) == 1, first[0].run_at
        assert mark == db.task(first[0].id)["run_at"]


def test_M12_released_rows_keep_their_place(db: Db, worker: UUID) -> None:
    task = db.claimed(worker, at=NOW - timedelta(hours=1))
    db.run(db.stay(worker, [task], "released"))
    assert db.task(task.id)["run_at"] == NOW - timedelta(hours=1)


@pytest.mark.direct("what is set for a database holds for new connections of the server")
async def test_M16_a_link_claims_under_a_stricter_default_isolation(own_db: Db, worker: UUID) -> None:
    name = own_db.one("SELECT current_database()")
    own_db.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    own_db.enqueue()
    # The naive way: a claim in a transaction of the default isolation that has read before another one's claim.
    strict = own_db.connect()
    strict.execute(b"BEGIN")
    own_db.sql("SELECT count(*) FROM holdfast.task", via=strict)
    own_db.claim(uuid7())
    own_db.sql("UPDATE holdfast.task SET state = 'ready', worker_id = NULL, lease_expires_at = NULL")
    with pytest.raises(psycopg.errors.SerializationFailure):
        own_db.claim(worker, via=strict)
    strict.execute(b"ROLLBACK")

    link = Link(own_db.url, own_db.queries, "test")
    setting = Statement("isolation", "", "SELECT current_setting('transaction_isolation')", ())
    ask = Query(setting, (), lambda rows: str(rows[0][0]))
    claim = own_db.queries.claim(
        "default", worker, limit=1, lease=LEASE, known=KNOWN, crash_limits="{}", marks=[BEGINNING] * 10
    )
    try:
        assert await link.run(ask) == "read committed"
        (answer,) = await link.transact([ask])
        assert await answer.read() == "read committed"
        assert len(await link.run(claim)) == 1
    finally:
        await link.close()


def test_next_due_tells_how_long_until_the_nearest_task_that_is_not_due(db: Db) -> None:
    assert db.run(db.queries.next_due(["default"])) == (None, False)
    db.enqueue("greeter.Unknown")
    assert db.run(db.queries.next_due(["default"])) == (None, False), "due tasks are left out"
    db.enqueue(delay=timedelta(seconds=90), priority=2)
    db.enqueue(delay=timedelta(seconds=30), priority=7)
    db.enqueue(delay=timedelta(seconds=1), queue="other")
    assert db.run(db.queries.next_due(["default"])) == (30.0, False)
    assert db.run(db.queries.next_due(["default", "other"])) == (1.0, False)


def test_M15_who_leaves_suspects_is_told_that_one_waits(db: Db, worker: UUID) -> None:
    suspect, innocent = db.enqueue(), db.enqueue()
    db.sql("UPDATE holdfast.task SET crashes = 1 WHERE id = $1", suspect)
    assert db.run(db.queries.next_due(["default"])) == (None, True)
    assert db.run(db.queries.next_due(["other"])) == (None, False)
    assert ids(db.claim(worker, 5, suspects=0)) == [innocent]
    db.sql("UPDATE holdfast.task SET run_at = holdfast.now() + interval '1 hour' WHERE id = $1", suspect)
    assert db.run(db.queries.next_due(["default"])) == (3600.0, False), "it is not due"


def test_a_higher_priority_that_waits_is_an_obstacle(db: Db) -> None:
    def ask(above: int) -> int | None:
        return db.run(db.queries.obstacles("default", above, KNOWN)).higher

    assert ask(0) is None
    db.enqueue(priority=3)
    db.enqueue(priority=6)
    db.enqueue("greeter.Unknown", priority=9)
    db.enqueue(priority=8, delay=timedelta(hours=1))
    assert (ask(0), ask(5), ask(6), ask(9)) == (6, 6, None, None)


def test_due_asks_for_a_task_that_this_worker_could_claim(db: Db, worker: UUID) -> None:
    def ask() -> bool:
        return db.run(db.queries.due("default", KNOWN))

    db.enqueue("greeter.Unknown")
    db.enqueue(delay=timedelta(hours=1))
    assert not ask()
    db.enqueue()
    assert ask()
    db.claim(worker)
    assert not ask()


def test_W3_one_task_is_claimed_by_its_id_and_no_other(db: Db, worker: UUID) -> None:
    _, wanted, _ = db.enqueue(priority=9), db.enqueue(), db.enqueue()
    [row] = db.claim(worker, id=wanted)
    assert (row.id, row.attempt) == (wanted, 1)
    task = db.task(wanted)
    assert (task["state"], task["worker_id"], task["lease_expires_at"]) == ("running", worker, NOW + LEASE)
    assert db.claim(worker, id=wanted) == db.claim(worker, id=uuid7()) == []
    assert len(db.claim(worker, 10)) == 2


PAUSED_KIND = """
INSERT INTO holdfast.kind (name, queue, priority, graph, paused_at) VALUES ('greeter', 'default', 0, '{}', now())
"""


@pytest.mark.parametrize(
    ("fields", "hindrance"),
    [
        ({"delay": timedelta(hours=1)}, ""),
        ({"step": "greeter.Old"}, ""),
        ({"queue": "other"}, ""),
        ({}, "UPDATE holdfast.task SET crashes = 1"),
        ({}, "UPDATE holdfast.task SET deadline = holdfast.now() - interval '1s'"),
        ({}, "UPDATE holdfast.task SET state = 'parked', error = '{}'"),
        ({}, "SELECT holdfast.pause('default')"),
        ({}, PAUSED_KIND),
    ],
)  # fmt: skip
def test_W3_one_that_a_claim_would_not_find_is_not_claimed_by_its_id_either(
    db: Db, worker: UUID, fields: dict[str, Any], hindrance: str
) -> None:
    id = db.enqueue(**fields)
    if hindrance:
        db.sql(hindrance)
    assert db.claim(worker, 10, suspects=0) == db.claim(worker, id=id) == []


def test_W3_who_claims_by_id_waits_for_nobody(db: Db, worker: UUID, other_worker: UUID) -> None:
    id = db.enqueue()
    other = db.connect()
    other.execute(b"BEGIN")
    assert len(db.claim(other_worker, via=other)) == 1
    assert db.claim(worker, id=id) == []
    other.execute(b"ROLLBACK")
    assert len(db.claim(worker, id=id)) == 1
