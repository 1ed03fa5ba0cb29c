"""Enqueues of many callers in one statement (M17, M8): each gets an answer of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.pq.abc import PGresult
from psycopg_pool import AsyncConnectionPool

from holdfast import App, EnqueueRefused, Entry, HoldfastError, Tasks, named
from holdfast._db import coalescer as coalesce
from holdfast._db import pool
from holdfast._db.driver.connection import run as connection_run
from holdfast._db.driver.pipeline import PipelinedConnection
from holdfast._db.pool import Pool
from holdfast._model.enqueue import request
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql import plans
from holdfast.testing import Harness

from .support import WAITING, attempts, row, until, values, waiting

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(*, value: Any) -> Any:
    return value


@tasks.task(queue="mail")
async def mail(*, value: Any) -> Any:
    return value


def transactions(holdfast: Harness) -> int:
    return int(holdfast.sql("SELECT count(DISTINCT xmin::text) FROM holdfast.task")[0][0])


@contextmanager
def closed_table(holdfast: Harness) -> Iterator[psycopg.Connection[Any]]:
    """Nobody can write a task until the body ends."""
    with psycopg.connect(holdfast.url) as other:
        other.execute("LOCK TABLE holdfast.task IN EXCLUSIVE MODE")
        yield other
        other.rollback()


async def test_M17_callers_at_the_same_time_share_a_transaction(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    refs = await asyncio.gather(*(store.enqueue(value=n) for n in range(1, 200)))
    assert values(holdfast) == list(range(200))
    assert transactions(holdfast) == 2
    assert len({ref.id for ref in refs}) == 199
    assert all(ref.created for ref in refs)


async def test_M17_those_who_come_while_one_is_on_its_way_go_together(holdfast: Harness) -> None:
    with closed_table(holdfast):
        first = asyncio.create_task(store.enqueue(value=0))
        await waiting(holdfast, 1)
        others = [asyncio.create_task(store.enqueue(value=n)) for n in range(1, 30)]
        others += [asyncio.create_task(mail.enqueue(value=n)) for n in range(30, 40)]
        await asyncio.sleep(0)
    await asyncio.gather(first, *others)
    assert values(holdfast) == list(range(40))
    assert transactions(holdfast) == 2
    assert holdfast.sql("SELECT count(*) FROM holdfast.task WHERE queue = 'mail'") == [(10,)]


async def test_M17_the_one_that_is_refused_is_refused_alone(holdfast: Harness) -> None:
    holdfast.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'not this one: %', NEW.args ->> 'value' USING ERRCODE = '23514'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON holdfast.task FOR EACH ROW "
        "WHEN ((NEW.args ->> 'value')::int % 10 = 7) EXECUTE FUNCTION refuse()"
    )
    answers = await asyncio.gather(*(store.enqueue(value=n) for n in range(30)), return_exceptions=True)
    for n, answer in enumerate(answers):
        if n % 10 == 7:
            assert isinstance(answer, HoldfastError)
            assert f"not this one: {n}" in str(answer)
        else:
            assert not isinstance(answer, BaseException)
    assert values(holdfast) == [n for n in range(30) if n % 10 != 7]


DIFFERENCES: list[dict[str, Any]] = [
    {},
    {"priority": 3},
    {"delay": 60},
    {"at": datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)},
    {"deadline": "1h"},
    {"deadline": datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)},
    {"headers": {"a": 'ä"\\{,}'}},
    {"queue": "q.1-x"},
]


@pytest.mark.parametrize("alike", [True, False])
async def test_M17_a_batch_writes_what_single_enqueues_write(holdfast: Harness, alike: bool) -> None:
    holdfast.clock.set(datetime(2030, 1, 1, 0, 0, 0, 654321, tzinfo=UTC))
    enqueue, ODD = holdfast.app.enqueue, 'ä"\\{,}'
    expected = [row(holdfast.url, (await enqueue(store.bind(value=ODD), **each)).id) for each in DIFFERENCES]
    if alike:
        batches = [[each] * 3 for each in DIFFERENCES]
    else:
        # Each of them after one that differs from it in one thing.
        batches = [[{"queue": "default"}, each, {"queue": "default"}] for each in DIFFERENCES]
    for batch, alone in zip(batches, expected, strict=True):
        refs = await asyncio.gather(*(enqueue(store.bind(value=ODD), **each) for each in batch))
        found = [row(holdfast.url, ref.id) | {"id": None} for ref in refs]
        others = alone if alike else expected[0]
        assert found == [each | {"id": None} for each in (others, alone, others)]
    assert transactions(holdfast) == len(expected) + len(batches)  # none was refused and sent one by one


@pytest.mark.parametrize(("name", "expected"), [("other", ("other", "main")), ("store.More", ("store", "More"))])
async def test_M17_kinds_and_steps_of_one_batch_are_kept_apart(
    holdfast: Harness, name: str, expected: tuple[str, str]
) -> None:
    await store.enqueue(value=0)
    calls = [store.bind(value=1), named(name, {"value": 2}), store.bind(value=3)]
    options: Any = {"queue": "default", "priority": 0}
    await asyncio.gather(*(holdfast.app.enqueue(each, **options) for each in calls))
    assert transactions(holdfast) == 2
    plain = ("store", "main")
    assert holdfast.sql("SELECT kind, step FROM holdfast.task ORDER BY id") == [plain, plain, expected, plain]


async def test_M17_the_hour_that_comes_twice_is_not_taken_for_one(holdfast: Harness) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    twice = [datetime(2030, 10, 27, 2, 30, tzinfo=berlin, fold=fold) for fold in (0, 1)]
    calls = [Entry(store.bind(value=fold), at=at) for fold, at in enumerate(twice)]
    await asyncio.gather(*(holdfast.app.enqueue(each.what, **each.options) for each in calls))
    await holdfast.app.enqueue_many(calls * plans.COPIED)
    found = holdfast.sql("SELECT DISTINCT (args -> 'value')::int, run_at FROM holdfast.task ORDER BY 1")
    assert found == [(0, datetime(2030, 10, 27, 0, 30, tzinfo=UTC)), (1, datetime(2030, 10, 27, 1, 30, tzinfo=UTC))]


@pytest.mark.parametrize("other", [store, mail])
async def test_M17_an_id_that_exists_is_refused_alone(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, other: Any
) -> None:
    taken = await store.enqueue(value=0)
    ids = [uuid7(), taken.id, uuid7()]
    monkeypatch.setattr(request, "uuid7", iter(ids).__next__)
    calls = [other.bind(value=1), store.bind(value=2), other.bind(value=3)]
    answers = await asyncio.gather(*map(holdfast.app.enqueue, calls), return_exceptions=True)
    assert [getattr(answer, "id", None) for answer in answers] == [ids[0], None, ids[2]]
    with pytest.raises(EnqueueRefused, match=f"already a task with the id {taken.id}"):
        raise answers[1]  # type: ignore[misc]
    assert values(holdfast) == [0, 1, 3]


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["bare", "with options"])
async def test_M17_an_id_that_exists_is_refused_to_a_lone_caller(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    taken = await store.enqueue(value=0)
    with monkeypatch.context() as repeating:
        repeating.setattr(request, "uuid7", lambda: taken.id)
        with pytest.raises(EnqueueRefused, match=f"already a task with the id {taken.id}"):
            await holdfast.app.enqueue(store.bind(value=1), **options)
    await store.enqueue(value=2)
    assert values(holdfast) == [0, 2]


async def test_M17_a_value_that_cannot_be_sent_is_refused_alone(holdfast: Harness) -> None:
    broken = msgspec.Raw(b'"\xff"')
    calls = [store.bind(value=1), named("store.main", {"value": broken}), store.bind(value=2)]
    answers = await asyncio.gather(*map(holdfast.app.enqueue, calls), return_exceptions=True)
    assert [isinstance(answer, Exception) for answer in answers] == [False, True, False]
    with pytest.raises(UnicodeError):
        await holdfast.app.enqueue(named("store.main", {"value": broken}), delay=1)
    await store.enqueue(value=3)
    assert values(holdfast) == [1, 2, 3]


async def test_M17_a_value_with_nul_is_refused(holdfast: Harness) -> None:
    with pytest.raises(Exception, match="NUL"):
        await holdfast.app.enqueue(named("store.main", {"value": msgspec.Raw(b"1}\0")}))
    assert values(holdfast) == []


async def test_M17_a_key_that_is_held_keeps_nobody_else_waiting(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalesce, "CALL_TIMEOUT", 3600)  # nobody gets by because a stuck connection was given up
    with psycopg.connect(holdfast.url) as other:
        holdfast.app.sync.enqueue(store.bind(value=1), key="k", conn=other)
        keyed = asyncio.create_task(holdfast.app.enqueue(store.bind(value=2), key="k"))
        await waiting(holdfast, 1)
        await asyncio.wait_for(asyncio.gather(*(store.enqueue(value=n) for n in range(10, 20))), 60)
        assert not keyed.done()
        other.rollback()
    assert (await keyed).created
    assert values(holdfast) == [2, *range(10, 20)]


async def test_M17_a_caller_that_goes_away_disturbs_nobody(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    with closed_table(holdfast):
        sent = [asyncio.create_task(store.enqueue(value=n)) for n in range(1, 5)]
        await waiting(holdfast, 1)
        later = [asyncio.create_task(store.enqueue(value=n)) for n in range(11, 15)]
        await asyncio.sleep(0)
        for each in (sent[1], later[1]):
            each.cancel()
        gone = await asyncio.gather(sent[1], later[1], return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in gone)
    for each in (*sent, *later):
        if each is not sent[1] and each is not later[1]:
            await each
    # The one was on its way already; the other had not been sent.
    assert values(holdfast) == [0, 1, 2, 3, 4, 11, 13, 14]


async def test_M17_all_callers_may_go_away(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    with closed_table(holdfast):
        sent = asyncio.create_task(store.enqueue(value=1))
        await waiting(holdfast, 1)
        later = asyncio.create_task(store.enqueue(value=2))
        await asyncio.sleep(0)
        sent.cancel()
        later.cancel()
        await asyncio.gather(sent, later, return_exceptions=True)
    await store.enqueue(value=3)
    assert values(holdfast) == [0, 1, 3]


async def test_M17_large_tasks_go_in_several_batches(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "LARGEST", 300_000)
    monkeypatch.setattr(coalesce, "MOST", 5)
    texts = ["ä\\\"'{},NULL\n\t" * 15_000 for _ in range(5)]
    small = [store.enqueue(value=n) for n in range(12)]
    refs = await asyncio.gather(*(store.enqueue(value=text) for text in texts), *small)
    assert transactions(holdfast) > 4
    stored = dict(holdfast.sql("SELECT id, args ->> 'value' FROM holdfast.task"))
    assert [stored[ref.id] for ref in refs] == [*texts, *map(str, range(12))]


async def test_M17_closing_waits_for_what_is_on_its_way(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    with closed_table(holdfast):
        callers = [asyncio.create_task(store.enqueue(value=1))]
        await waiting(holdfast, 1)
        callers += [asyncio.create_task(store.enqueue(value=2))]
        await asyncio.sleep(0)
        closing = asyncio.create_task(holdfast.app.close())
        await asyncio.sleep(0)
        assert not closing.done()
    await closing
    await asyncio.gather(*callers)
    await store.enqueue(value=3)  # opens anew
    assert values(holdfast) == [0, 1, 2, 3]


def test_M17_an_app_on_one_loop_after_the_other(holdfast: Harness) -> None:
    app = App(holdfast.url, include=[tasks])

    async def some() -> None:
        await asyncio.gather(*(app.enqueue(store.bind(value=1)) for _ in range(5)))

    for _ in range(3):
        asyncio.run(some())
    assert values(holdfast) == [1] * 15


@pytest.mark.parametrize("place", ["opening", "configuring", "adding"])
async def test_M17_a_loop_can_end_while_a_connection_is_set_up(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    begun = asyncio.Event()
    add = AsyncConnectionPool._add_to_pool

    async def endless(*_: object, **__: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def adding(to: AsyncConnectionPool[Any], connection: AsyncConnection[Any]) -> None:
        task = asyncio.current_task()
        await (endless() if task and task.get_name().startswith("pool-") else add(to, connection))

    app = App(holdfast.url, include=[tasks])
    ref = await app.enqueue(store.bind(value=1))
    if place == "opening":
        monkeypatch.setattr(AsyncConnection, "connect", endless)
    elif place == "configuring":
        monkeypatch.setattr(pool, "learn_durability", endless)
    else:
        monkeypatch.setattr(AsyncConnectionPool, "_add_to_pool", adding)
    # As `asyncio.run` does at its end: everything is cancelled once, and waited for.
    async with asyncio.timeout(60):
        callers = [asyncio.create_task(app.info(ref.id)) for _ in range(20)]
        await begun.wait()
    workers = [each for each in asyncio.all_tasks() if each.get_name().startswith("pool-")]
    assert len(workers) >= 4
    for each in (*callers, *workers):
        each.cancel()
    _, pending = await asyncio.wait([*callers, *workers], timeout=10)
    for each in pending:
        each.cancel()
    assert not pending
    assert caplog.text == ""


async def test_M17_who_goes_away_does_not_wait_for_a_server_that_is_silent(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(holdfast.url, include=[tasks])
    with monkeypatch.context() as silence:
        silence.setattr(
            PipelinedConnection, "_read", lambda pipeline: asyncio.get_running_loop().remove_reader(pipeline._socket)
        )
        caller = asyncio.create_task(app.enqueue(store.bind(value=1)))
        await until(lambda: app._pool._coalescer._pipeline is not None, "for the connection to be prepared")
        caller.cancel()
        _, pending = await asyncio.wait([caller], timeout=10)
        for each in pending:
            each.cancel()
        await asyncio.wait([caller])
        assert not pending
    await app.enqueue(store.bind(value=2))
    await app.close()
    assert values(holdfast) == [2]


# --- lost answers


EXECUTED = pytest.mark.parametrize("executed", [True, False], ids=["executed", "never sent"])


def lose(monkeypatch: pytest.MonkeyPatch, *, executed: bool) -> list[int]:
    """The answer to the next enqueue is lost; tells how many statements were."""
    send = PipelinedConnection.send
    lost: list[int] = []

    def faulty(pipeline: PipelinedConnection, queries: Any, told: Any) -> None:
        writes = [query for query in queries if query.statement.name.startswith("enqueue")]
        if lost or not writes:
            send(pipeline, queries, told)
            return
        lost.append(len(writes))
        error = psycopg.OperationalError("server closed the connection unexpectedly")

        def drop(results: list[PGresult], _: BaseException | None) -> None:
            assert results
            told([], error)
            pipeline.close(error)

        if executed:
            send(pipeline, queries, drop)
        else:
            told([], error)
            pipeline.close(error)

    monkeypatch.setattr(PipelinedConnection, "send", faulty)
    return lost


@EXECUTED
async def test_M8_each_caller_asks_again_and_nothing_is_there_twice(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch, executed: bool
) -> None:
    await store.enqueue(value=99)
    lost = lose(monkeypatch, executed=executed)
    refs = await asyncio.gather(*(store.enqueue(value=n) for n in range(10)))
    assert lost == [1]
    assert values(holdfast) == [*range(10), 99]
    stored = dict(holdfast.sql("SELECT id, (args -> 'value')::int FROM holdfast.task"))
    assert [stored[ref.id] for ref in refs] == list(range(10))
    assert all(ref.created for ref in refs)


async def test_M8_what_ran_before_it_was_asked_for_again_does_not_run_twice(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue(value=0)
    lost = lose(monkeypatch, executed=True)
    again, drained = Pool.again, asyncio.Lock()

    async def late(pool: Pool, *arguments: Any, durable: bool) -> Any:
        async with drained:
            await holdfast.drain()
        return await again(pool, *arguments, durable=durable)

    monkeypatch.setattr(Pool, "again", late)
    refs = await asyncio.gather(*(store.enqueue(value=n) for n in range(5)))
    assert lost == [1]
    assert values(holdfast) == []
    for n, ref in enumerate(refs):
        assert await ref.result(timeout=60) == n
        assert attempts(holdfast.url, ref.id) == [(1, "main", "done")]


async def test_M8_sessions_that_are_ended_under_way(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    with closed_table(holdfast):
        sent = [asyncio.create_task(store.enqueue(value=n)) for n in range(1, 5)]
        await waiting(holdfast, 1)
        later = [asyncio.create_task(store.enqueue(value=n)) for n in range(5, 9)]
        await asyncio.sleep(0)
        [(ended,)] = holdfast.sql(WAITING.replace("count(*)", "pid"))  # whoever asks again waits for the lock as well
        end_sessions(holdfast)
        gone = "SELECT FROM pg_stat_activity WHERE pid = $1"
        await until(lambda: not holdfast.sql(gone, ended), "for the session to end")
    refs = await asyncio.gather(*sent, *later)
    assert values(holdfast) == list(range(9))
    assert len({ref.id for ref in refs}) == 8


async def test_M8_sessions_that_were_ended_before(holdfast: Harness) -> None:
    await store.enqueue(value=0)
    end_sessions(holdfast)
    await asyncio.gather(*(store.enqueue(value=n) for n in range(1, 9)))
    assert values(holdfast) == list(range(9))


def end_sessions(holdfast: Harness) -> list[UUID]:
    return holdfast.sql(  # type: ignore[return-value]
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'holdfast'"
        " AND query NOT LIKE 'LOCK%'"
    )


async def test_M8_a_pool_of_connections_that_never_answer_keeps_nobody_for_ever(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await (await store.enqueue(value=0)).info()  # over another connection, which stays in the pool
    asked: list[Any] = []

    async def silent(connection: Any, query: Any, **options: Any) -> Any:
        if query.statement.name == "isolation":
            asked.append(connection)
            if len(asked) == 1:
                await asyncio.Event().wait()
        return await connection_run(connection, query, **options)

    monkeypatch.setattr(pool, "run", silent)
    monkeypatch.setattr(pool, "HINT_TIMEOUT", 0.1)
    lose(monkeypatch, executed=True)
    caller = asyncio.create_task(store.enqueue(value=1))
    _, pending = await asyncio.wait([caller], timeout=20)
    for each in pending:
        each.cancel()
    assert not pending
    assert (await caller).created
    assert len(asked) == 2
    assert values(holdfast) == [0, 1]


async def test_M17_a_connection_that_is_stuck_is_given_up(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    await store.enqueue(value=0)
    monkeypatch.setattr(coalesce, "CALL_TIMEOUT", 0.2)
    with closed_table(holdfast):
        callers = [asyncio.create_task(store.enqueue(value=n)) for n in range(1, 5)]
        # Its statement still waits in the server; each caller asks again for itself.
        await waiting(holdfast, 5)
    await asyncio.gather(*callers)
    assert values(holdfast) == list(range(5))


async def test_M17_a_connection_that_gets_stuck_after_long_use_is_given_up(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one timer for many batches: it must be set anew for those that came after it."""
    await store.enqueue(value=0)
    coalescer, stuck = holdfast.app._pool._coalescer, asyncio.Event()
    await coalescer._idle.wait()
    monkeypatch.setattr(coalesce, "CALL_TIMEOUT", 0.2)

    async def enqueue_without_a_pause() -> None:
        while not stuck.is_set():
            await store.enqueue(value=0)

    caller = asyncio.create_task(enqueue_without_a_pause())
    await until(lambda: coalescer._limit is not None, "for the timer")
    limit = coalescer._limit
    await until(lambda: coalescer._limit is not limit, "for the timer to be set anew")
    with closed_table(holdfast):
        # The one waits in the server, given up; the other asks again.
        await waiting(holdfast, 2)
        stuck.set()
    await caller
