"""Whether an enqueue waits for the disk (Q10): always, unless somebody says otherwise; never for a whole session."""

import asyncio
import os
from typing import Any

import psycopg
import pytest

from holdfast import App, ConfigError, Context, EnqueueRefused, Entry, HoldfastError, Tasks
from holdfast._db.driver.pipeline import PipelinedConnection
from holdfast.embedded import Server
from holdfast.testing import Harness
from pgbouncer import Way

from .support import row, sql

tasks = Tasks()
MANY = 300


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(*, value: Any) -> Any:
    return value


@tasks.task
async def parent(ctx: Context) -> None:
    ctx.enqueue(store.bind(value=1), durable=False)


@pytest.fixture(params=["on", "off", "local"])
def by_itself(request: pytest.FixtureRequest, holdfast: Harness, way: Way) -> str:
    """What transactions of this database do unless told; each task tells in its headers what its own one did."""
    if way.pooled and request.param == "local":
        pytest.skip("not through a pooler: what is set for a database holds for new connections of the server")
    name = holdfast.sql("SELECT current_database()")[0][0]
    holdfast.sql(f"ALTER DATABASE {name} SET synchronous_commit = {request.param}")
    holdfast.sql(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.headers = jsonb_build_object('commit', current_setting('synchronous_commit')); RETURN NEW; END $$;"
        "CREATE TRIGGER tell BEFORE INSERT ON holdfast.task FOR EACH ROW EXECUTE FUNCTION tell()"
    )
    return str(request.param)


def told(holdfast: Harness) -> dict[str, str]:
    """What is said about the commit of each task, by its value."""
    return dict(holdfast.sql("SELECT args ->> 'value', headers ->> 'commit' FROM holdfast.task"))


async def enqueue_all_ways(app: App, **options: Any) -> set[str]:
    """One task by each way there is; their values."""
    await app.enqueue(store.bind(value="lone"), **options)
    await asyncio.gather(*(app.enqueue(store.bind(value=f"together {n}"), **options) for n in range(5)))
    await app.enqueue(store.bind(value="keyed"), key="a", **options)
    await app.enqueue_many([store.bind(value="few")], **options)
    await app.enqueue_many([store.bind(value="many")] * MANY, **options)
    await asyncio.to_thread(lambda: app.sync.enqueue(store.bind(value="sync"), **options))
    await asyncio.to_thread(lambda: app.sync.enqueue(store.bind(value="sync keyed"), key="b", **options))
    await asyncio.to_thread(lambda: app.sync.enqueue_many([store.bind(value="sync few")], **options))
    await asyncio.to_thread(lambda: app.sync.enqueue_many([store.bind(value="sync many")] * MANY, **options))
    app.sync.close()
    ways = {"lone", "keyed", "few", "many", "sync", "sync keyed", "sync few", "sync many"}
    return ways | {f"together {n}" for n in range(5)}


async def test_Q10_an_enqueue_waits_for_the_disk_whatever_the_database_does_by_itself(
    holdfast: Harness, by_itself: str
) -> None:
    expected = "on" if by_itself == "off" else by_itself
    ways = await enqueue_all_ways(holdfast.app)
    assert told(holdfast) == dict.fromkeys(ways, expected)


async def test_Q10_unless_it_says_otherwise(holdfast: Harness, by_itself: str) -> None:
    ways = await enqueue_all_ways(holdfast.app, durable=False)
    assert told(holdfast) == dict.fromkeys(ways, "off")
    await holdfast.app.enqueue(store.bind(value="after"))  # on the same connection: nothing of it is left
    assert told(holdfast)["after"] == ("on" if by_itself == "off" else by_itself)


async def test_Q10_or_its_app_does(holdfast: Harness, by_itself: str) -> None:
    app = App(holdfast.url, include=[tasks], durable=False)
    async with app:
        ways = await enqueue_all_ways(app)
        assert told(holdfast) == dict.fromkeys(ways, "off")
        await app.enqueue(store.bind(value="important"), durable=True)
    assert told(holdfast)["important"] == ("on" if by_itself == "off" else by_itself)


@pytest.mark.parametrize("by_itself", ["on"], indirect=True)
async def test_Q10_both_kinds_at_the_same_time_do_not_mix(holdfast: Harness, by_itself: str) -> None:
    await asyncio.gather(*(holdfast.app.enqueue(store.bind(value=n), durable=n % 2 == 0) for n in range(20)))
    assert told(holdfast) == {str(n): "on" if n % 2 == 0 else "off" for n in range(20)}


@pytest.mark.parametrize("by_itself", ["on"], indirect=True)
async def test_Q10_also_when_it_is_asked_for_again(
    holdfast: Harness, by_itself: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await holdfast.app.enqueue(store.bind(value="first"))

    def lost(pipeline: PipelinedConnection, queries: Any, tell: Any) -> None:
        error = psycopg.OperationalError("server closed the connection unexpectedly")
        tell([], error)
        pipeline.close(error)

    monkeypatch.setattr(PipelinedConnection, "send", lost)
    await holdfast.app.enqueue(store.bind(value="again"), durable=False)
    assert told(holdfast) == {"first": "on", "again": "off"}


@pytest.mark.parametrize("by_itself", ["on"], indirect=True)
async def test_Q10_also_for_those_that_are_sent_alone(holdfast: Harness, by_itself: str) -> None:
    holdfast.sql("ALTER TABLE holdfast.task ADD CHECK (args ->> 'value' <> '3')")
    calls = (holdfast.app.enqueue(store.bind(value=n), durable=False) for n in range(5))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[3], HoldfastError)
    assert told(holdfast) == {str(n): "off" for n in range(5) if n != 3}


async def test_Q10_in_the_callers_transaction_it_is_the_callers(holdfast: Harness) -> None:
    async with await psycopg.AsyncConnection.connect(holdfast.url) as conn:
        with pytest.raises(EnqueueRefused, match="SET LOCAL synchronous_commit"):
            await holdfast.app.enqueue(store.bind(value=1), conn=conn, durable=False)
        with pytest.raises(EnqueueRefused, match="the commit is yours"):
            await holdfast.app.enqueue_many([store.bind(value=1)], conn=conn, durable=True)
    with psycopg.connect(holdfast.url) as blocking:
        with pytest.raises(EnqueueRefused, match="the commit is yours"):
            holdfast.app.sync.enqueue(store.bind(value=1), conn=blocking, durable=False)
        App(holdfast.url, include=[tasks], durable=False).sync.enqueue(store.bind(value=2), conn=blocking)
    assert holdfast.sql("SELECT args ->> 'value' FROM holdfast.task") == [("2",)]


async def test_Q10_what_makes_no_sense_is_refused(holdfast: Harness) -> None:
    with pytest.raises(EnqueueRefused, match="True or False"):
        await holdfast.app.enqueue(store.bind(value=1), durable="yes")  # type: ignore[call-overload]
    with pytest.raises(EnqueueRefused, match="not to an Entry"):
        await holdfast.app.enqueue_many([Entry(store.bind(value=1), durable=False), Entry(store.bind(value=2))])
    with pytest.raises(ConfigError, match="durable must be true or false"):
        App(holdfast.url, durable="no")  # type: ignore[arg-type]
    assert holdfast.sql("SELECT count(*) FROM holdfast.task") == [(0,)]
    ref = await parent.enqueue()
    await holdfast.drain()
    error = row(holdfast.url, ref.id)["error"]
    assert b"takes no durable=" in error


@pytest.mark.parametrize(("text", "expected"), [("false", False), ("off", False), ("0", False), ("True", True)])
def test_Q10_as_a_setting(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    monkeypatch.setitem(os.environ, "HOLDFAST_DURABLE", text)
    assert App("postgresql:///x").durable is expected
    assert App("postgresql:///x", durable=not expected).durable is not expected
    monkeypatch.setitem(os.environ, "HOLDFAST_DURABLE", "maybe")
    with pytest.raises(ConfigError, match="HOLDFAST_DURABLE must be true or false, not 'maybe'"):
        assert App("postgresql:///x").durable


async def test_Q10_a_server_that_crashes_right_after_keeps_what_was_acknowledged(
    own_server: Server, own_url: str
) -> None:
    name = sql(own_url, "SELECT current_database()")[0][0]
    sql(own_url, f"ALTER DATABASE {name} SET synchronous_commit = off")
    app = App(own_url, include=[tasks])
    async with app:
        await asyncio.gather(*(app.enqueue(store.bind(value=n)) for n in range(20)))
        await app.enqueue_many([store.bind(value=n) for n in range(MANY)])
        own_server.restart("immediate")
    assert sql(own_url, "SELECT count(*) FROM holdfast.task") == [(20 + MANY,)]
