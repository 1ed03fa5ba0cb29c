"""T15, B3: the feed of failures is complete, also after an outage; T19: who is told of which failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from holdfast import (
    App,
    Context,
    DatabaseUnreachable,
    Done,
    Fail,
    Failure,
    InvalidDuration,
    Retry,
    TaskParked,
    embedded,
)
from holdfast._db import failures as feed
from holdfast._db.driver.connection import connect_sync
from holdfast._db.driver.facts import detect_pooler_sync
from holdfast._model.enqueue.ids import uuid7
from holdfast._sql.failures import beginning, places
from holdfast.testing import Harness

from .support import PATIENCE, answers, attempts, sql, until

LOGGED = """
    INSERT INTO holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, outcome, parked, error, finished_at)
    SELECT t.id, 'default', 'k', 'main', '{}', 0, 1, 'failed', true, '{"type": "T", "message": "m"}', $2
    FROM unnest($1::uuid[]) AS t(id)
"""
LISTENING = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'holdfast listen'"


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found was told."""
    monkeypatch.setattr(feed, "LOOK_EVERY", 3600.0)


@asynccontextmanager
async def following(app: App, since: Any = None) -> AsyncIterator[list[Failure]]:
    """What the feed gives, beside the body."""
    found: list[Failure] = []

    async def follow() -> None:
        async for failure in app.failures(since):
            found.append(failure)

    task = asyncio.create_task(follow())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


def is_full(found: list[Failure], count: int) -> bool:
    return len(found) >= count


async def reap(holdfast: Harness) -> None:
    """As a worker does."""
    worker = holdfast.worker(queues=["default"])
    await worker.reaper.reap()
    await worker.notifications.all_sent()
    await until(lambda: not worker.hooks.busy, "for the hooks")
    await worker.reaper._link.close()


async def hears(url: str) -> None:
    """Waits until the feed listens: nobody else does."""
    with connect_sync(url) as connection:
        if detect_pooler_sync(connection):
            pytest.skip("not through a pooler: it needs notifications")
    await until(lambda: sql(url, LISTENING + " AND state = 'idle' AND query LIKE 'LISTEN%'"), "for the feed to listen")


@pytest.mark.usefixtures("no_looks")
async def test_T15_failures_are_told_as_they_happen(holdfast: Harness) -> None:
    @holdfast.app.task(retry=Retry(1, delay=0))
    async def doomed(ctx: Context, n: int) -> None:
        ctx.report(rows=n)
        raise ValueError(f"no {n}")

    async with following(holdfast.app) as found:
        await hears(holdfast.url)
        ref = await holdfast.app.enqueue(doomed.bind(7), key="k", priority=3)
        await holdfast.drain()
        await until(lambda: found, "for the failure")
        await holdfast.app.retry(ref.id)
        await holdfast.drain()
        await until(lambda: len(found) == 2, "for the second failure")
    first, second = found
    assert (first.task.id, first.kind, first.step, first.attempt, second.attempt) == (ref.id, "doomed", "main", 2, 4)
    assert (first.error["type"], first.error["message"]) == ("ValueError", "no 7")
    task = first.task
    assert (task.state, task.args, task.errors, task.key, task.priority) == ("parked", {"n": 7}, 2, "k", 3)
    assert task.report == {"rows": 7}
    assert first.at <= second.at and first.at.tzinfo is not None


async def test_T15_since_tells_of_what_happened_before_whatever_became_of_it(holdfast: Harness) -> None:
    good = False

    @holdfast.app.task
    async def doomed() -> None:
        if not good:
            raise Fail("no way")

    refs = [await doomed.enqueue() for _ in range(3)]
    await holdfast.drain()
    await holdfast.app.discard(refs[1].id)
    good = True
    await holdfast.app.retry(refs[2].id)
    await holdfast.drain()
    for since in ("1h", 3600, timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1), datetime(2020, 1, 1)):
        async with following(holdfast.app, since) as found:
            await until(partial(is_full, found, 3), "for all")
        assert {failure.task.id for failure in found} == {ref.id for ref in refs}
        assert {failure.error["message"] for failure in found} == {"no way"}
    async with following(holdfast.app) as found:
        await hears(holdfast.url)
        later = uuid7()
        sql(holdfast.url, LOGGED, [later], datetime.now(UTC) + timedelta(seconds=5))
        sql(holdfast.url, "SELECT pg_notify('holdfast', 'failed')")
        await until(lambda: found, "for the new one")
        assert [failure.task.id for failure in found] == [later], "without since, from now on"


@pytest.mark.usefixtures("no_looks")
async def test_T15_what_the_reaper_parks_is_told_and_what_it_gives_back_is_not(holdfast: Harness) -> None:
    hooked: list[Failure] = []
    holdfast.app.on_failure(hooked.append)

    @holdfast.app.task(on_lost="fail")
    async def once(n: int) -> None: ...

    @holdfast.app.task(max_crashes=1)
    async def twice() -> None: ...

    refs = [await once.enqueue(5), await twice.enqueue()]
    async with following(holdfast.app) as found:
        await hears(holdfast.url)
        for parked in (1, 2):
            with holdfast.crash_after():
                while sql(holdfast.url, "SELECT 1 FROM holdfast.task WHERE state = 'ready'"):
                    await holdfast.drain()
            holdfast.clock.advance("31s")
            await reap(holdfast)
            await until(partial(is_full, found, parked), "for what was parked")
    assert [failure.task.id for failure in found] == [ref.id for ref in refs]
    assert [failure.error["type"] for failure in found] == ["WorkerLost", "WorkerLost"]
    assert "must not be rerun" in found[0].error["message"] and "lost 2 times" in found[1].error["message"]
    assert [outcome for _, _, outcome in attempts(holdfast.url, refs[1].id)] == ["lost", "lost"]
    told = [(each.task.id, each.attempt, each.task.args, each.error, each.task.crashes) for each in hooked]
    assert told == [(each.task.id, each.attempt, each.task.args, each.error, each.task.crashes) for each in found]


async def test_B3_what_commits_late_is_told_once(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LOOK_EVERY", 0.05)
    late, soon = uuid7(), uuid7()
    now = holdfast.clock.now()
    async with following(holdfast.app, "1h") as found:
        with connect_sync(holdfast.url) as connection, connection.transaction():
            connection.execute(LOGGED.encode(), [[late], now - timedelta(seconds=30)])
            sql(holdfast.url, LOGGED, [soon], now)
            await until(lambda: found, "for the one that is committed")
        await until(lambda: len(found) > 1, "for the late one")
        again = uuid7()
        sql(holdfast.url, LOGGED, [again], now)
        await until(lambda: len(found) > 2, "for one more")
    assert [failure.task.id for failure in found] == [soon, late, again]


async def test_T15_there_is_no_gap_after_an_outage(
    own_url: str, own_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "LOOK_EVERY", 0.2)
    ids = [uuid7() for _ in range(4)]
    async with App(own_url) as app, following(app, "1h") as found:
        sql(own_url, LOGGED, [ids[0]], datetime.now(UTC))
        await until(lambda: len(found) == 1, "for the first")
        sql(own_url, LOGGED, [ids[1]], datetime.now(UTC))
        await asyncio.to_thread(own_server.stop, "immediate")
        await asyncio.to_thread(embedded.start, own_server.folder, durable=False)
        await until(lambda: answers(own_url), "for the database")
        sql(own_url, LOGGED, [ids[2]], datetime.now(UTC))
        await until(lambda: len(found) >= 3, "for those of the outage")
        sql(own_url, LOGGED, [ids[3]], datetime.now(UTC))
        await until(lambda: len(found) >= 4, "for the last")
    assert [failure.task.id for failure in found] == ids


async def test_T15_only_the_last_minute_is_remembered(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PAGE", 10)
    now = holdfast.clock.now()
    old = [uuid7() for _ in range(35)]
    for number, id in enumerate(old):
        sql(holdfast.url, LOGGED, [id], now - timedelta(minutes=40 - number))
    sql(holdfast.url, LOGGED, [new := uuid7()], now)
    made = feed.FailureFeed(holdfast.url, holdfast.app._queries, holdfast.app._run, timedelta(hours=1))
    follow = made.follow()
    assert [(await anext(follow)).task.id for _ in range(36)] == [*old, new]
    reading = asyncio.ensure_future(anext(follow))
    await until(lambda: made._cursor is not None and made._cursor >= now, "for the end of the reading")
    assert list(made._seen) == [(new, 1)]
    reading.cancel()
    await asyncio.wait([reading])
    await follow.aclose()


async def test_T15_a_feed_that_is_left_closes_its_connection(holdfast: Harness) -> None:
    sql(holdfast.url, LOGGED, [uuid7()], holdfast.clock.now())
    follow = holdfast.app.failures("1h")
    assert (await anext(follow)).kind == "k"
    await hears(holdfast.url)
    await follow.aclose()  # type: ignore[attr-defined]
    await until(lambda: not sql(holdfast.url, LISTENING), "for the connection to go")


async def test_T15_what_is_no_time_is_refused_and_no_database_is_told() -> None:
    async with App("postgresql://nobody@127.0.0.1:1/none") as app:
        with pytest.raises(ValueError, match="since"):
            await anext(app.failures("yesterday"))
        for since in (None, "1h", datetime.now(UTC)):
            with pytest.raises(DatabaseUnreachable):
                await anext(app.failures(since))


async def test_T15_only_an_index_of_few_days_is_read(holdfast: Harness) -> None:
    now = holdfast.clock.now()
    ids = [uuid7() for _ in range(2000)]
    sql(holdfast.url, LOGGED.replace("true", "false").replace("failed", "retried"), ids, now)
    sql(holdfast.url, "ANALYZE holdfast.attempt")
    query = places(holdfast.app._queries, beginning(now - timedelta(minutes=1)), 500)
    with connect_sync(holdfast.url) as connection:
        text = f"EXPLAIN (COSTS OFF) {query.statement.text}"
        shown = "\n".join(row[0] for row in connection.execute(text.encode(), query.parameters).fetchall())
    assert 1 <= shown.count(" on attempt_p") <= 3, shown
    today = f"attempt_p{now.astimezone(UTC):%Y%m%d}"
    assert f"Scan using {today}_finished_at" in shown, shown


async def test_T19_hooks_and_feed_are_told_of_every_way_to_be_parked(holdfast: Harness) -> None:
    hooked: dict[UUID, Failure] = {}

    @holdfast.app.on_failure
    async def hook(failure: Failure) -> None:
        hooked[failure.task.id] = failure

    @holdfast.app.task
    async def raises() -> None:
        raise ValueError("handler")

    @holdfast.app.task
    async def decodes(n: int) -> None: ...

    @holdfast.app.task
    async def returns() -> object:
        return object()

    loop = holdfast.app.kind("loop", max_moves=2)

    @loop.step
    @dataclass
    class Round:
        async def run(self) -> "Round | Done[None]":
            return Round()

    expected = {
        (await raises.enqueue()).id: "ValueError",
        UUID(sql(holdfast.url, "SELECT holdfast.enqueue('decodes', '{\"n\": \"x\"}')::text")[0][0]): "DecodeError",
        (await returns.enqueue()).id: "EncodeError",
        (await loop.enqueue(Round())).id: "TooManyMoves",
    }
    await holdfast.drain()
    async with following(holdfast.app, "1h") as found:
        await until(lambda: len(found) == len(expected), "for all failures")
    fed = {failure.task.id: failure for failure in found}
    for id, kind in expected.items():
        assert str(hooked[id].error["type"]).endswith(kind)
        assert fed[id].error == hooked[id].error
        assert (fed[id].attempt, fed[id].step, fed[id].kind) == (hooked[id].attempt, hooked[id].step, hooked[id].kind)
        with pytest.raises(TaskParked):
            await holdfast.app.ref(id).result(PATIENCE)


async def test_T15_blocking_code_follows_the_same_feed(holdfast: Harness) -> None:
    def follow() -> list[str]:
        found: list[str] = []
        told = holdfast.app.sync.failures(since="1h")
        for failure in told:
            found.append(failure.error["message"])
            if len(found) == 2:
                break
        told.close()
        return found

    following = asyncio.create_task(asyncio.to_thread(follow))
    for message in ("first", "second"):
        text = LOGGED.replace('"m"', f'"{message}"').replace("$2", "holdfast.now()")
        await asyncio.to_thread(holdfast.sql, text, [uuid7()])
    assert await following == ["first", "second"]
    await until(lambda: sql(holdfast.url, LISTENING) == [], "for its connection to be closed")
    with pytest.raises(InvalidDuration):
        await asyncio.to_thread(holdfast.app.sync.failures, since="soon")
