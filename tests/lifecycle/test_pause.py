"""Q7: a queue or a kind is paused and resumed: the tables, the verbs, what people see, and who is told."""

import asyncio
import inspect
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import Connection

from holdfast import App, SyncApp
from holdfast._db.errors import explained
from holdfast._model.enqueue.ids import uuid7
from holdfast.errors import TaskNotFound, WrongState
from holdfast.testing import Harness

from .support import BOOM, NOW, Db, ids

GRAPH = b'{"ReadName": ["SayHello"]}'


@dataclass
class Send:
    def run(self) -> None: ...


def pause(db: Db, name: str | None, via: Connection[Any] | None = None, **options: object) -> str:
    return str(db.one("SELECT holdfast.pause($1, $2::jsonb)", name, json.dumps(options), via=via))


def resume(db: Db, name: str, via: Connection[Any] | None = None, **options: object) -> str:
    return str(db.one("SELECT holdfast.resume($1, $2::jsonb)", name, json.dumps(options), via=via))


def declare(db: Db, name: str = "greeter", queue: str = "default", priority: int = 0) -> None:
    db.run(db.queries.declare_kind(name, queue, priority, None, GRAPH))


def register(db: Db, *queues: str, steps: Sequence[str] = ("greeter.ReadName",)) -> UUID:
    id = uuid7()
    db.run(db.queries.register(id, name="w", host="h", pid=1, version="0", queues=[*queues], steps=[*steps], slots=1))
    return id


def changes(db: Db) -> list[tuple[Any, ...]]:
    rows = db.sql("SELECT action, by, why, old, new FROM holdfast.change ORDER BY id")
    return [(*row[:3], row[3] and json.loads(row[3]), json.loads(row[4])) for row in rows]


def heard(connection: Connection[Any]) -> set[str]:
    connection.execute(b"SELECT 1")
    return {note.payload for note in connection.notifies(timeout=0)}


def test_Q7_a_paused_queue_is_not_claimed_until_resumed(db: Db, worker: UUID) -> None:
    first = db.claimed(worker)
    second, elsewhere = db.enqueue(), db.enqueue(queue="other")
    assert pause(db, "default", by="ann", why="the mail server moves") == "paused"
    assert db.claim(worker, 10) == []
    assert ids(db.claim(worker, 10, queue="other")) == [elsewhere]
    assert db.run(db.finish(worker, [first])), "what is running goes on to its end"
    assert db.task(second)["attempt"] == 0 and db.log(second) == [], "nothing is charged"
    assert db.sql("SELECT name, paused_at, paused_by FROM holdfast.queue") == [
        ("default", NOW, "ann: the mail server moves")
    ]
    db.clock.advance("1h")
    assert resume(db, "default", by="bob") == "resumed"
    assert ids(db.claim(worker, 10)) == [second]
    was = {"paused_at": NOW.isoformat(), "paused_by": "ann: the mail server moves"}
    assert changes(db) == [
        ("pause", "ann", "the mail server moves", None, {"queue": "default"}),
        ("resume", "bob", None, was, {"queue": "default"}),
    ]


def test_Q7_a_paused_kind_is_not_claimed_until_resumed(db: Db, worker: UUID) -> None:
    declare(db)
    paused, other = db.enqueue(), db.enqueue("mailer.main")
    known = ["greeter.ReadName", "mailer.main"]
    assert pause(db, "greeter") == "paused"
    assert db.sql("SELECT paused_at, paused_by = session_user FROM holdfast.kind") == [(NOW, True)]
    assert ids(db.claim(worker, 10, known=known)) == [other]
    assert resume(db, "greeter") == "resumed"
    assert ids(db.claim(worker, 10, known=known)) == [paused]
    assert db.sql("SELECT paused_at, paused_by FROM holdfast.kind") == [(None, None)]
    assert [(c[0], c[4]) for c in changes(db)] == [("pause", {"kind": "greeter"}), ("resume", {"kind": "greeter"})]


def test_Q7_a_worker_that_declares_a_paused_kind_anew_leaves_it_paused(db: Db) -> None:
    declare(db)
    pause(db, "greeter", by="ann")
    declare(db, queue="other", priority=3)
    assert db.sql("SELECT queue, paused_at, paused_by FROM holdfast.kind") == [("other", NOW, "ann")]


@pytest.mark.parametrize("what", ["queue", "kind"])
def test_Q7_twice_is_once(db: Db, what: str) -> None:
    declare(db, "mail", "default")
    assert resume(db, "mail", what=what) == "not paused"
    assert pause(db, "mail", what=what, by="ann") == "paused"
    db.clock.advance("1h")
    assert pause(db, "mail", what=what, by="bob") == "paused"
    assert db.sql(f"SELECT paused_at, paused_by FROM holdfast.{what}") == [(NOW, "ann")], "the first one stays"
    assert resume(db, "mail", what=what) == "resumed"
    assert resume(db, "mail", what=what) == "not paused"
    assert [c[0] for c in changes(db)] == ["pause", "resume"]


def test_Q7_two_who_pause_at_once_pause_once(db: Db) -> None:
    db.enqueue()
    theirs, ours = db.connect(), db.connect()
    theirs.execute(b"BEGIN")
    pause(db, "default", theirs, by="ann")
    waiting = db.blocked(ours, lambda: pause(db, "default", ours, by="bob"))
    theirs.execute(b"COMMIT")
    assert waiting.result(20) == "paused"
    assert [(c[0], c[1]) for c in changes(db)] == [("pause", "ann")]
    theirs.execute(b"BEGIN")
    assert resume(db, "default", theirs) == "resumed"
    waiting = db.blocked(ours, lambda: resume(db, "default", ours))
    theirs.execute(b"COMMIT")
    assert waiting.result(20) == "not paused"
    assert [c[0] for c in changes(db)] == ["pause", "resume"]


def by_row(db: Db) -> None:
    db.sql("INSERT INTO holdfast.queue (name) VALUES ('mail')")


def by_kind(db: Db) -> None:
    declare(db, "mailer", "mail")


def by_worker(db: Db) -> None:
    register(db, "other", "mail")


def by_ready_task(db: Db) -> None:
    db.enqueue(queue="mail")


def by_running_task(db: Db) -> None:
    db.claimed(uuid7(), queue="mail")


def by_parked_task(db: Db) -> None:
    id = db.enqueue(queue="mail")
    db.sql("UPDATE holdfast.task SET state = 'parked', error = '{}' WHERE id = $1", id)


KNOWN_BY = [by_row, by_kind, by_worker, by_ready_task, by_running_task, by_parked_task]


@pytest.mark.parametrize("known", KNOWN_BY)
def test_Q7_what_makes_a_queue_known(db: Db, known: Any) -> None:
    with pytest.raises(psycopg.Error, match="there is neither a queue nor a kind 'mail'") as caught:
        pause(db, "mail")
    assert caught.value.sqlstate == "HF404" and "declared" in (caught.value.diag.message_hint or "")
    assert isinstance(explained(caught.value, "holdfast"), TaskNotFound)
    known(db)
    assert pause(db, "mail") == "paused"
    assert db.one("SELECT paused_at FROM holdfast.queue WHERE name = 'mail'") == NOW


def test_Q7_a_worker_that_is_gone_makes_no_queue_known(db: Db) -> None:
    db.run(db.queries.stopped(register(db, "mail")))
    register(db, "old")
    db.clock.advance("2m")
    for name in ("mail", "old"):
        with pytest.raises(psycopg.Error, match="neither a queue nor a kind"):
            pause(db, name)


@pytest.mark.parametrize("known", KNOWN_BY)
def test_Q7_a_name_that_is_both_must_be_said_to_be_one(db: Db, known: Any) -> None:
    declare(db, "mail", "default")
    known(db)
    for verb in (pause, resume):
        with pytest.raises(psycopg.Error, match="mail is both a queue and a kind: say which") as caught:
            verb(db, "mail")
        assert caught.value.sqlstate == "HF409" and '{"what": "queue"}' in (caught.value.diag.message_hint or "")
        assert isinstance(explained(caught.value, "holdfast"), WrongState)
    pause(db, "mail", what="kind")
    assert db.one("SELECT count(*) FROM holdfast.queue WHERE paused_at IS NOT NULL") == 0
    assert db.one("SELECT paused_at FROM holdfast.kind WHERE name = 'mail'") == NOW


def test_Q7_a_queue_may_be_paused_before_it_is_used_and_a_kind_may_not(db: Db, worker: UUID) -> None:
    assert pause(db, "tomorrow", what="queue") == "paused"
    db.enqueue(queue="tomorrow")
    assert db.claim(worker, queue="tomorrow") == []
    with pytest.raises(psycopg.Error, match="there is no kind 'tomorrow'") as caught:
        pause(db, "tomorrow", what="kind")
    assert caught.value.sqlstate == "HF404" and "holdfast" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('{"what": "task"}', "what must be queue or kind"),
        ('{"what": 1}', "what must be queue or kind"),
        ('{"who": "ann"}', "unknown option: who"),
        ('{"by": 1}', "by and why must be strings"),
        ('{"why": ["x"]}', "by and why must be strings"),
        ("[]", "options must be a JSON object"),
    ],
)
@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_Q7_wrong_options_are_refused(db: Db, verb: str, options: str, message: str) -> None:
    db.enqueue()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
        db.one(f"SELECT holdfast.{verb}('default', $1::jsonb)", options)
    assert db.one("SELECT count(*) FROM holdfast.queue") == 0


@pytest.mark.parametrize("name", [None, "", "Bad Queue", "x" * 64, "a\nb", ".a"])
def test_Q7_what_cannot_be_a_queue_is_refused(db: Db, name: str | None) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="is not the name of a queue"):
        pause(db, name, what="queue")
    with pytest.raises(psycopg.Error, match="neither a queue nor a kind"):
        pause(db, name)


def test_Q7_options_left_out(db: Db) -> None:
    db.enqueue()
    assert db.one("SELECT holdfast.pause('default')") == "paused"
    assert db.one("SELECT holdfast.resume('default', NULL)") == "resumed"


def phases(db: Db) -> list[str]:
    return [row[0] for row in db.sql("SELECT phase FROM holdfast.tasks ORDER BY id")]


@pytest.mark.parametrize("what", ["queue", "kind"])
def test_Q7_the_phase_of_paused_tasks(db: Db, worker: UUID, what: str) -> None:
    """Not due comes first, then paused, then unserved or unroutable."""
    declare(db)
    name = "default" if what == "queue" else "greeter"
    [retrying] = [db.claimed(worker)]
    db.run(db.stay(worker, [retrying], "retried", error=BOOM, errors=1, delay=60))
    db.claimed(worker)
    db.enqueue(at=NOW.replace(hour=13))
    db.enqueue()
    db.enqueue("mailer.main", queue="other")
    assert phases(db) == ["retrying", "running", "scheduled", "unserved", "unroutable"]
    pause(db, name, what=what)
    assert phases(db) == ["retrying", "running", "scheduled", "paused", "unroutable"]
    register(db, "default")
    assert phases(db)[3] == "paused"
    resume(db, name, what=what)
    assert phases(db)[3] == "due"


def test_T14_a_known_kind_without_a_live_worker_is_not_unroutable(db: Db, worker: UUID) -> None:
    """Nothing is wrong with it but that nobody works: it was told as if its name were."""
    declare(db)
    for step in ("greeter.ReadName", "greeter.Typo", "typo.main"):
        db.enqueue(step)
    assert phases(db) == ["unserved", "unroutable", "unroutable"]
    assert db.sql("SELECT kind FROM holdfast.tasks WHERE phase = 'unserved'") == [("greeter",)]
    register(db, "other")
    assert phases(db)[0] == "unserved"
    register(db, "default", steps=["mailer.main"])
    assert phases(db) == ["unroutable"] * 3, "somebody serves the queue, and does not know it"


def test_Q7_pause_and_resume_of_a_queue_are_told(db: Db) -> None:
    db.enqueue()
    ears = db.listen()
    pause(db, "default")
    assert heard(ears) == {"pause"}
    pause(db, "default")
    assert heard(ears) == set(), "nothing changed"
    resume(db, "default")
    assert heard(ears) == {"pause", "queue default"}
    resume(db, "default")
    assert heard(ears) == set()


def test_Q7_the_end_of_a_kinds_pause_is_told_to_all_queues_where_its_tasks_may_be(db: Db) -> None:
    declare(db, queue="mail")
    register(db, "default", "urgent")
    db.run(db.queries.stopped(register(db, "gone")))
    ears = db.listen()
    pause(db, "greeter")
    assert heard(ears) == {"pause"}
    resume(db, "greeter")
    assert heard(ears) == {"pause", "queue mail", "queue default", "queue urgent"}


def test_Q7_rolled_back_with_its_transaction_it_never_was(db: Db, worker: UUID) -> None:
    db.enqueue()
    ours = db.connect()
    ours.execute(b"BEGIN")
    pause(db, "default", ours)
    ours.execute(b"ROLLBACK")
    assert len(db.claim(worker)) == 1 and changes(db) == []


@pytest.mark.parametrize("verb", ["pause", "resume", "explain"])
def test_the_verbs_of_app_and_sync_app_have_the_same_signature(verb: str) -> None:
    def parameters(function: Any) -> list[tuple[object, ...]]:
        return [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(function).parameters.values()]

    assert parameters(getattr(App, verb)) == parameters(getattr(SyncApp, verb))


async def test_Q7_Q13_from_python(holdfast: Harness) -> None:
    app, sync = holdfast.app, holdfast.app.sync
    app.kind("mailer").step(Send)
    ref = await app.enqueue(Send())
    assert await app.pause("default", by="ann", why="a deploy") == "paused"
    assert "queue default is paused" in await app.explain(ref.id) == await asyncio.to_thread(sync.explain, str(ref.id))
    await holdfast.drain()
    assert (await ref.info()).phase == "paused"
    assert await app.pause("mailer", what="queue") == "paused"
    with pytest.raises(WrongState, match="both a queue and a kind"):
        await app.resume("mailer")
    with pytest.raises(TaskNotFound, match="neither a queue nor a kind"):
        await asyncio.to_thread(sync.resume, "nobody")
    assert await asyncio.to_thread(sync.resume, "default", by="bob") == "resumed"
    await holdfast.drain()
    assert (await ref.info()).state == "done"
    assert holdfast.sql("SELECT action, by, why FROM holdfast.change ORDER BY id")[0] == ("pause", "ann", "a deploy")
