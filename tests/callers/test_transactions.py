"""T7 with every kind of connection: the task exists exactly if its caller commits, and is what was asked for."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from holdfast import Done, EnqueueRefused, Entry, Every, KeyTaken, Tasks, named
from holdfast.testing import Harness

from .support import Caller

tasks = Tasks()
greeter = tasks.kind("greeter", result=str, queue="greetings", priority=4)


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(value: str | dict[str, int]) -> str | dict[str, int]:
    return value


@greeter.step
@dataclass
class Greet:
    name: str

    async def run(self) -> Done[str]:
        return Done(f"Hello, {self.name}")


def rows(holdfast: Harness) -> list[dict[str, Any]]:
    """The unfinished tasks that others can see."""
    names = "id, queue, kind, step, args #>> '{}', priority, run_at, key, headers #>> '{}', state, attempt"
    found = holdfast.sql(f"SELECT {names} FROM holdfast.task ORDER BY id")
    keys = ["id", "queue", "kind", "step", "args", "priority", "run_at", "key", "headers", "state", "attempt"]
    return [dict(zip(keys, row, strict=True)) for row in found]


async def test_T7_committed_it_exists_and_a_worker_runs_it(holdfast: Harness, any_caller: Caller) -> None:
    ref = await any_caller.enqueue(Greet("Ada"))
    assert isinstance(ref.id, UUID)
    assert ref.created
    assert rows(holdfast) == []
    assert await any_caller.execute("SELECT kind FROM holdfast.task") == [("greeter",)]
    await any_caller.commit()
    [row] = rows(holdfast)
    assert (row["id"], row["queue"], row["kind"], row["step"]) == (ref.id, "greetings", "greeter", "Greet")
    assert (row["args"], row["priority"], row["state"], row["attempt"]) == ('{"name": "Ada"}', 4, "ready", 0)
    await holdfast.drain()
    info = await holdfast.app.info(ref.id)
    assert (info.state, info.result) == ("done", "Hello, Ada")


async def test_T7_rolled_back_it_never_existed(holdfast: Harness, any_caller: Caller) -> None:
    await any_caller.enqueue(Greet("Ada"))
    await any_caller.enqueue_many([Greet("Bob"), Greet("Cyd")])
    assert await any_caller.execute("SELECT count(*) FROM holdfast.task") == [(3,)]
    await any_caller.rollback()
    assert rows(holdfast) == []
    assert holdfast.sql("SELECT count(*) FROM holdfast.archive") == [(0,)]


async def test_T7_a_savepoint_rolled_back_takes_its_tasks_along(holdfast: Harness, any_caller: Caller) -> None:
    await any_caller.enqueue(store.bind("before"))
    async with any_caller.undone():
        await any_caller.enqueue(store.bind("dropped"))
        await any_caller.enqueue_many([store.bind("dropped too")])
    await any_caller.enqueue(store.bind("after"))
    await any_caller.commit()
    assert [row["args"] for row in rows(holdfast)] == ['{"value": "before"}', '{"value": "after"}']


async def test_T7_a_thousand_at_once(holdfast: Harness, caller: Caller) -> None:
    entries = [Entry(store.bind({"n": n}), key=f"k-{n}", priority=n % 10) for n in range(1000)]
    entries[7] = Entry(store.bind({"n": 7}), delay="1h", headers={"who": "seven"})
    refs = await caller.enqueue_many(entries)
    assert [ref.created for ref in refs] == [True] * 1000
    await caller.commit()
    found = {row["id"]: row for row in rows(holdfast)}
    in_order = sorted(range(1000), key=lambda n: 0 if n == 7 else -(n % 10))  # ids go by priority, then as they came
    assert list(found) == [refs[n].id for n in in_order]
    for n, ref in enumerate(refs):
        assert found[ref.id]["args"] == f'{{"value": {{"n": {n}}}}}'
        assert found[ref.id]["key"] == (None if n == 7 else f"k-{n}")
        assert found[ref.id]["headers"] == ('{"who": "seven"}' if n == 7 else None)
    soon = holdfast.clock.now() + timedelta(minutes=30)
    assert [row["id"] for row in found.values() if row["run_at"] > soon] == [refs[7].id]


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_T7_options_arrive_as_given(holdfast: Harness, caller: Caller, many: bool) -> None:
    """However the session writes times; and a day has 24 hours, also when its zone changes the clocks."""
    now = datetime(2030, 3, 30, 12, tzinfo=UTC)
    holdfast.clock.set(now)
    for setting in ("TimeZone = 'Europe/Berlin'", "IntervalStyle = 'sql_standard'", "DateStyle = 'SQL, DMY'"):
        await caller.execute(f"SET LOCAL {setting}")
    at = datetime(2031, 7, 1, 12, 30, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    value = "quotes ' \" \\ {} %s %(p1)s $1 :x ä 😀 \n"
    given: list[dict[str, Any]] = [
        {"delay": timedelta(days=40, seconds=5, microseconds=7), "priority": 9, "queue": "mail"},
        {"at": at, "priority": 0, "key": value, "headers": {value: value, "b": ""}},
        {},
    ]
    if many:
        refs = await caller.enqueue_many([Entry(store.bind(value), **options) for options in given])
    else:
        refs = [await caller.enqueue(store.bind(value), **options) for options in given]
    await caller.commit()
    found = {row["id"]: row for row in rows(holdfast)}
    delayed, timed, plain = (found[ref.id] for ref in refs)
    assert delayed["run_at"] == now + timedelta(days=40, seconds=5, microseconds=7)
    assert (delayed["priority"], delayed["queue"], delayed["key"], delayed["headers"]) == (9, "mail", None, None)
    assert timed["run_at"] == at
    assert (timed["priority"], timed["queue"], timed["key"]) == (0, "default", value)
    [(headers,)] = holdfast.sql("SELECT headers ->> $1 FROM holdfast.task WHERE id = $2", value, refs[1].id)
    assert headers == value
    assert (plain["run_at"], plain["priority"], plain["queue"]) == (now, 0, "default")
    assert holdfast.sql("SELECT args ->> 'value' FROM holdfast.task") == [(value,)] * 3


async def test_T7_a_taken_key_is_skipped(holdfast: Harness, caller: Caller) -> None:
    first = await holdfast.app.enqueue(store.bind("first"), key="k")
    second = await caller.enqueue(store.bind("second"), key="k")
    assert (second.id, second.created) == (first.id, False)
    assert isinstance(second.id, UUID)
    own = await caller.enqueue(store.bind("third"), key="own")
    again = await caller.enqueue_many([Entry(store.bind("x"), key="own"), Entry(store.bind("y"), key="k")])
    assert [(ref.id, ref.created) for ref in again] == [(own.id, False), (first.id, False)]
    await caller.commit()
    assert [row["args"] for row in rows(holdfast)] == ['{"value": "first"}', '{"value": "third"}']


async def test_T7_a_taken_key_is_refused_and_the_transaction_goes_on(holdfast: Harness, caller: Caller) -> None:
    first = await holdfast.app.enqueue(store.bind("first"), key="k")
    await caller.enqueue(store.bind("mine"))
    with pytest.raises(KeyTaken, match=str(first.id)):
        await caller.enqueue(store.bind("second"), key="k", on_conflict="raise")
    with pytest.raises(EnqueueRefused, match="delay"):
        await caller.enqueue(store.bind("second"), delay="soon")
    await caller.enqueue(store.bind("mine as well"))
    await caller.commit()
    assert [row["args"] for row in rows(holdfast)] == [
        '{"value": "first"}',
        '{"value": "mine"}',
        '{"value": "mine as well"}',
    ]


async def test_T7_the_holder_of_a_key_is_replaced(holdfast: Harness, caller: Caller) -> None:
    first = await holdfast.app.enqueue(store.bind("first"), key="k")
    second = await caller.enqueue(
        store.bind("second"), key="k", on_conflict="replace", delay="1d", priority=3, headers={"a": "b"}
    )
    assert (second.id, second.created) == (first.id, False)
    assert [row["args"] for row in rows(holdfast)] == ['{"value": "first"}']
    await caller.commit()
    [row] = rows(holdfast)
    assert (row["args"], row["priority"], row["headers"]) == ('{"value": "second"}', 3, '{"a": "b"}')
    assert row["run_at"] > holdfast.clock.now() + timedelta(hours=20)


async def test_T7_by_name_where_only_the_database_knows_the_queue(holdfast: Harness, caller: Caller) -> None:
    """A queue may look like an id and is still a text."""
    queue = "01890a5d-ac96-774b-bcce-b302099a8057"
    insert = "INSERT INTO holdfast.kind (name, queue, priority, first, graph) VALUES ('remote', $1, 6, 'Begin', '{}')"
    holdfast.sql(insert, queue)
    ref = await caller.enqueue(named("remote", {"a": [1, None, "x"]}))
    await caller.commit()
    [row] = rows(holdfast)
    assert (row["id"], row["queue"], row["step"], row["priority"]) == (ref.id, queue, "Begin", 6)


async def test_T7_a_committed_enqueue_wakes_a_worker(holdfast: Harness, caller: Caller) -> None:
    """The notification travels with the transaction: the worker would not look again for an hour."""
    async with holdfast.app.worker(queues="greetings", poll="1h"):
        ref = await caller.enqueue(Greet("Ada"))
        await caller.commit()
        assert await holdfast.app.ref(ref.id, greeter).result(timeout=60) == "Hello, Ada"


async def test_T7_an_error_of_the_server_is_the_librarys_own(holdfast: Harness, caller: Caller) -> None:
    """40001 under stricter isolation, as from any other statement; a savepoint around it saves the transaction."""
    await caller.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    await caller.execute("SELECT count(*) FROM holdfast.task")
    await holdfast.app.enqueue(store.bind("first"), key="k")
    async with caller.undone():
        with pytest.raises(Exception, match="could not serialize") as raised:
            await caller.enqueue(store.bind("second"), key="k")
    module = type(raised.value).__module__.partition(".")[0]
    assert module in type(caller.conn).__module__, f"{type(raised.value)} is not what this caller is used to"
    await caller.enqueue(store.bind("kept"))
    await caller.commit()
    assert [row["args"] for row in rows(holdfast)] == ['{"value": "first"}', '{"value": "kept"}']


async def test_S1_changes_of_schedules_belong_to_the_callers_transaction(holdfast: Harness, caller: Caller) -> None:
    if caller.blocking:
        pytest.skip("app.schedules is for asynchronous callers")
    schedules, conn = holdfast.app.schedules, caller.conn
    async with caller.undone():
        assert await schedules.set("hourly", Every("1h"), store.bind("x"), conn=conn) == "created"
        assert await schedules.all() == [], "nobody else sees it before the commit"
    assert await schedules.set("hourly", Every("1h"), store.bind("x"), conn=conn) == "created"
    await schedules.pause("hourly", conn=conn)
    await schedules.resume("hourly", conn=conn)
    [id] = await schedules.fire("hourly", conn=conn)
    assert rows(holdfast) == []
    await caller.commit()
    assert [row["id"] for row in rows(holdfast)] == [id]
    assert (await schedules.get("hourly")).condition == "active"
    assert await schedules.delete("hourly")
    assert not await schedules.delete("hourly"), "twice is no error"
