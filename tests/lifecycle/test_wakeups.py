"""Wake-ups and what workers tell about themselves (M14, W4)."""

from typing import Any
from uuid import UUID

from psycopg import Connection

from holdfast._model.enqueue.ids import uuid7

from .support import NOW, Db


def heard(connection: Connection[Any]) -> list[str]:
    """What has been delivered so far: an answered statement brings all notifications that were committed before it."""
    connection.execute(b"SELECT 1")
    return [note.payload for note in connection.notifies(timeout=0)]


def register(db: Db, worker: UUID, queues: list[str] | None = None) -> None:
    db.run(
        db.queries.register(
            worker, name="w", host="h", pid=1, version="0", queues=queues or ["default"], steps=["a.B"], slots=2
        )
    )


def test_M14_notify_inside_a_transaction_arrives_at_its_commit_only(db: Db) -> None:
    ears, ours = db.listen(), db.connect()
    ours.execute(b"BEGIN")
    db.run(db.queries.notify("mail"), ours)
    assert heard(ears) == []
    ours.execute(b"COMMIT")
    assert heard(ears) == ["queue mail"]
    ours.execute(b"BEGIN")
    db.run(db.queries.notify("mail"), ours)
    ours.execute(b"ROLLBACK")
    assert heard(ears) == []


def test_M14_at_most_one_notification_per_transaction_and_queue(db: Db) -> None:
    ears, ours = db.listen(), db.connect()
    ours.execute(b"BEGIN")
    for _ in range(5):
        db.sql("SELECT holdfast.enqueue('greeter')", via=ours)
    ours.execute(b"COMMIT")
    assert heard(ears) == ["queue default"]


def test_M14_notify_if_idle_wakes_only_a_worker_that_may_sleep(db: Db, worker: UUID) -> None:
    ears = db.listen()

    def wakes(queue: str = "default") -> bool:
        db.run(db.queries.notify_if_idle(queue))
        return heard(ears) == [f"queue {queue}"]

    assert not wakes(), "nobody is there"
    register(db, worker)
    assert not wakes(), "it is busy"
    db.run(db.queries.idle(worker, True))
    assert wakes() and not wakes("other")
    db.run(db.queries.idle(worker, False))
    assert not wakes()
    db.run(db.queries.idle(worker, True))
    db.run(db.queries.stopping(worker))
    assert not wakes()
    register(db, other := uuid7(), ["default", "other"])
    db.run(db.queries.idle(other, True))
    assert wakes("other")
    db.sql("UPDATE holdfast.worker SET stopped_at = holdfast.now()")
    assert not wakes()


def test_M14_the_flag_must_be_read_after_the_commit(db: Db, worker: UUID) -> None:
    """Asked inside the enqueue's transaction, the flag misses a worker that falls asleep before the commit."""
    ears, ours = db.listen(), db.connect()
    register(db, worker)
    ours.execute(b"BEGIN")
    id = db.enqueue(via=ours)
    db.run(db.queries.notify_if_idle("default"), ours)
    db.run(db.queries.idle(worker, True))
    assert db.claim(worker) == []  # its last look before it sleeps
    ours.execute(b"COMMIT")
    assert heard(ears) == [], "the naive order: the task is there and nobody was told"
    db.run(db.queries.notify_if_idle("default"), ours)
    assert heard(ears) == ["queue default"] and db.state(id) == "ready"


def test_M11_cancelling_a_running_task_is_told_at_once(db: Db, worker: UUID) -> None:
    task = db.claimed(worker)
    ears = db.listen()
    db.cancel(task.id)
    assert heard(ears) == [f"cancel {task.id}"]
    waiting = db.enqueue()
    db.cancel(waiting)
    assert heard(ears) == [f"ended {waiting}"]


def test_T12_a_retry_wakes_the_queue(db: Db) -> None:
    parked = db.parked()
    ears = db.listen()
    db.retry(parked)
    assert heard(ears) == ["queue default"]


def test_W4_stop_workers_asks_one_or_all_and_tells_them(db: Db) -> None:
    one, two, gone = uuid7(), uuid7(), uuid7()
    for each in (one, two, gone):
        register(db, each)
    db.run(db.queries.stopped(gone))
    ears = db.listen()
    assert db.run(db.queries.stop_workers(one)) == 1
    assert db.run(db.queries.seen(one, 0)) is True and db.run(db.queries.seen(two, 0)) is False
    assert db.run(db.queries.stop_workers(None)) == 2
    assert db.run(db.queries.seen(two, 3)) is True
    assert heard(ears) == ["stop", "stop"]
    assert db.run(db.queries.stop_workers(uuid7())) == 0
    rows = db.sql("SELECT action, new ->> 'worker' FROM holdfast.change ORDER BY id")
    assert rows[:2] == [("stop", str(one)), ("stop", "all")]
    assert db.one("SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == 2


def test_a_worker_that_is_not_registered_is_told_by_silence(db: Db) -> None:
    assert db.run(db.queries.seen(uuid7(), 0)) is None


def test_a_worker_registers_once_and_is_seen(db: Db, worker: UUID) -> None:
    register(db, worker)
    db.clock.advance(5)
    register(db, worker)
    db.run(db.queries.seen(worker, 2))
    [row] = db.run(db.queries.workers(10))
    assert row[0] == worker and row[10:12] == (False, 2) and row[12] == NOW
    assert (row[13] - NOW).total_seconds() == 5 and row[14:17] == (None, None, None)
    db.run(db.queries.stopping(worker))
    db.run(db.queries.stopped(worker))
    [row] = db.run(db.queries.workers(10))
    assert None not in row[15:]


def test_a_kind_declared_again_is_written_only_if_it_differs(db: Db) -> None:
    def declare(**changed: Any) -> tuple[Any, ...]:
        values = {"queue": "mail", "priority": 1, "first": "Send", "graph": b'{"Send": []}', "was": ["post"], **changed}
        db.run(db.queries.declare_kind("mailer", **values))
        return db.sql("SELECT xmin::text, queue, priority, first, graph, seen_at FROM holdfast.kind")[0]

    first = declare()
    db.clock.advance(5)
    assert declare() == first
    changes: list[dict[str, Any]] = [
        {"queue": "other"},
        {"priority": 2},
        {"first": None},
        {"graph": b"{}"},
        {"was": []},
    ]
    for change in changes:
        before = db.one("SELECT xmin::text FROM holdfast.kind")
        assert declare(**change)[0] != before


def test_the_server_tells_who_it_is(db: Db) -> None:
    assert db.run(db.queries.server()) == db.run(db.queries.server())
    assert db.run(db.queries.server()).endswith(" false")
    assert db.run(db.queries.isolation()) == ("read committed", "off")
    assert db.run(db.queries.schema_version()) >= 1
