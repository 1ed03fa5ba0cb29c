"""Enqueuing: inside the caller's transaction, and what is refused at the door."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast import App, ConfigError, EncodeError, EnqueueRefused, Tasks, named
from holdfast.testing import Harness

from .support import row, sql

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(*, value: Any) -> Any:
    return value


def count(holdfast: Harness) -> int:
    return int(sql(holdfast.url, "SELECT count(*) FROM holdfast.task")[0][0])


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("commit", [True, False])
async def test_T7_on_an_async_connection_the_task_exists_exactly_if_it_commits(
    holdfast: Harness, commit: bool, many: bool
) -> None:
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        if many:
            [ref] = await holdfast.app.enqueue_many([store.bind(value=1)], conn=conn)
        else:
            ref = await holdfast.app.enqueue(store.bind(value=1), conn=conn)
        assert count(holdfast) == 0
        await (conn.commit() if commit else conn.rollback())
    assert count(holdfast) == int(commit)
    await holdfast.drain()
    if commit:
        assert await ref.result() == 1


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_T7_on_a_blocking_connection(holdfast: Harness, commit: bool, many: bool) -> None:
    with psycopg.connect(holdfast.url) as conn:
        if many:
            [ref] = holdfast.app.sync.enqueue_many([store.bind(value=1)], conn=conn)
        else:
            ref = holdfast.app.sync.enqueue(store.bind(value=1), conn=conn)
        assert count(holdfast) == 0
        if commit:
            conn.commit()
        else:
            conn.rollback()
    assert count(holdfast) == int(commit)
    if commit:
        assert ref.info().state == "ready"


async def test_T7_a_savepoint_rolled_back_takes_its_tasks_along(holdfast: Harness) -> None:
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        await holdfast.app.enqueue(store.bind(value="kept"), conn=conn)
        async with conn.transaction() as inner:
            await holdfast.app.enqueue(store.bind(value="dropped"), conn=conn)
            raise psycopg.Rollback(inner)
    assert sql(holdfast.url, "SELECT args ->> 'value' FROM holdfast.task") == [("kept",)]


async def test_T7_a_wrong_connection_object_is_a_clear_error(holdfast: Harness) -> None:
    with psycopg.connect(holdfast.url) as conn, pytest.raises(ConfigError, match=r"app\.sync\.enqueue"):
        await holdfast.app.enqueue(store.bind(value=1), conn=conn)
    async with await psycopg.AsyncConnection.connect(holdfast.url) as other:
        with pytest.raises(ConfigError, match=r"await app\.enqueue"):
            holdfast.app.sync.enqueue(store.bind(value=1), conn=other)
        with pytest.raises(ConfigError, match="psycopg connection"):
            await holdfast.app.enqueue(store.bind(value=1), conn=other.cursor())
    with pytest.raises(ConfigError, match=r"not builtins\.str"):
        await holdfast.app.enqueue(store.bind(value=1), conn=holdfast.url)
    assert count(holdfast) == 0


async def test_T7_delay_and_time(holdfast: Harness) -> None:
    holdfast.clock.set(datetime(2030, 1, 1, tzinfo=UTC))
    delayed = await holdfast.app.enqueue(store.bind(value=1), delay="90s")
    at = await holdfast.app.enqueue(store.bind(value=2), at=datetime(2031, 1, 1, tzinfo=UTC))
    assert row(holdfast.url, delayed.id)["run_at"] == datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=90)
    assert row(holdfast.url, at.id)["run_at"] == datetime(2031, 1, 1, tzinfo=UTC)
    await holdfast.drain()
    assert count(holdfast) == 2
    await holdfast.drain(until=datetime(2030, 6, 1, tzinfo=UTC))
    assert count(holdfast) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 5_000_000, "5,000,0"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ({"deep": [{"er": "\0"}]}, "deep"),
        (object(), "object"),
        (2**70, "64 bits"),
    ],
    ids=["5 MB", "NUL", "surrogate", "NaN", "Infinity", "nested NUL", "object", "2**70"],
)
async def test_Q11_refused_at_the_door_with_nothing_written(holdfast: Harness, value: Any, said: str) -> None:
    with pytest.raises((EnqueueRefused, EncodeError), match=rf"(?i){said}"):
        await store.enqueue(value=value)
    with pytest.raises((EnqueueRefused, EncodeError), match=rf"(?i){said}"):
        await holdfast.app.enqueue_many([store.bind(value=1), named("store", {"value": value})])
    with pytest.raises((EnqueueRefused, EncodeError), match=rf"(?i){said}"):
        await asyncio.to_thread(holdfast.app.sync.enqueue, named("store", {"value": value}))
    assert count(holdfast) == 0


async def test_Q11_what_the_encoding_has_no_character_for_is_refused_in_our_words(holdfast: Harness) -> None:
    said = r"(?s)cannot hold '€'.*has no such character.*UTF8"
    url = make_conninfo(holdfast.url, client_encoding="LATIN1")
    async with App(url, include=[tasks]) as app:
        with pytest.raises(EnqueueRefused, match=said):  # alone, and together with others that are as they should be
            await app.enqueue(store.bind(value="€"))
        first, second, third = await asyncio.gather(
            *(app.enqueue(store.bind(value=value)) for value in ("é", "€", "ü")), return_exceptions=True
        )
        assert isinstance(second, EnqueueRefused) and not isinstance(first, Exception), (first, second)
        assert not isinstance(third, Exception)
        with pytest.raises(EnqueueRefused, match=said):
            await app.enqueue(store.bind(value=1), key="€")
        with pytest.raises(EnqueueRefused, match=said):
            await asyncio.to_thread(app.sync.enqueue, store.bind(value="€"))
        app.sync.close()
    assert sql(holdfast.url, "SELECT args ->> 'value' FROM holdfast.task ORDER BY 1") == [("é",), ("ü",)]


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "Bad Queue"},
        {"priority": 10},
        {"priority": -1},
        {"delay": "soon"},
        {"delay": -1},
        {"at": "tomorrow"},
        {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)},
        {"key": ""},
        {"key": "a\0"},
        {"headers": {"a": 1}},
        {"headers": {"a": "\0"}},
        {"on_conflict": "skip"},
        {"speed": "high"},
    ],
    ids=str,
)
async def test_Q11_wrong_options_are_refused(holdfast: Harness, options: Any) -> None:
    with pytest.raises(EnqueueRefused):
        await holdfast.app.enqueue(store.bind(value=1), **options)
    assert count(holdfast) == 0


async def test_Q11_a_million_bytes_go_through(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Large values in a pipeline: psycopg must not wait for an answer to what it has not sent to its end."""
    text = "ä" * 500_000
    ref = await store.enqueue(value=text)
    await holdfast.drain()
    assert await ref.result() == text
    assert caplog.records == []  # no connection was given up on the way


async def test_T7_a_day_has_24_hours_also_where_the_clocks_are_changed(holdfast: Harness) -> None:
    """In Berlin the night of 26 March 2028 has an hour less."""
    name = holdfast.sql("SELECT current_database()")[0][0]
    holdfast.sql(f"ALTER DATABASE {name} SET TimeZone = 'Europe/Berlin'")
    holdfast.clock.set(datetime(2028, 3, 25, 12, tzinfo=UTC))
    ref = await holdfast.app.enqueue(store.bind(value=1), delay="1d")
    many = await holdfast.app.enqueue_many([store.bind(value=1)], delay="1d")
    for each in (ref, *many):
        assert (await each.info()).run_at == datetime(2028, 3, 26, 12, tzinfo=UTC)


async def test_T7_an_enqueue_that_was_committed_is_never_told_to_have_failed(holdfast: Harness) -> None:
    """A role that may insert tasks but not look at workers: nobody is woken, and the task is there all the same."""
    role = f"producer_{uuid4().hex[:8]}"
    holdfast.sql(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA holdfast TO {role}")
    holdfast.sql(f"GRANT SELECT, INSERT ON holdfast.task TO {role}; GRANT EXECUTE ON FUNCTION holdfast.now() TO {role}")
    try:
        app = App(make_conninfo(holdfast.url, user=role))
        async with app:
            one = await app.enqueue(named("store.main", {"value": 1}), queue="default", priority=0)
            big = await app.enqueue(named("store.main", {"value": "x" * 20_000}), queue="default", priority=0)
            many = await app.enqueue_many([named("store.main", {"value": 2})], queue="default", priority=0)
        two = await asyncio.to_thread(app.sync.enqueue, named("store.main", {"value": 3}), queue="default", priority=0)
        more = await asyncio.to_thread(
            app.sync.enqueue_many, [named("store.main", {"value": 4})], queue="default", priority=0
        )
        app.sync.close()
        for id in (one.id, big.id, many[0].id, two.id, more[0].id):
            assert row(holdfast.url, id)["state"] == "ready"
    finally:
        holdfast.sql(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_T7_a_bulk_enqueue_whose_workers_cannot_be_woken_in_time_has_not_failed(
    holdfast: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast._db.pool.HINT_TIMEOUT", 0.1, raising=False)
    monkeypatch.setattr("holdfast._db.pool.CALL_TIMEOUT", 5)
    sql(
        holdfast.url,
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '', '{default}', '{}', 1, true)",
    )
    sql(
        holdfast.url,
        "CREATE OR REPLACE FUNCTION holdfast.channel() RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_sleep(600); RETURN 'never'; END $$",
    )
    refs = await holdfast.app.enqueue_many([store.bind(value=n) for n in range(3)])
    assert [row(holdfast.url, ref.id)["state"] for ref in refs] == ["ready"] * 3
    await holdfast.app.enqueue(store.bind(value=4), key="a-key")
    assert count(holdfast) == 4
