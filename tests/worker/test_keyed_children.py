"""What steps enqueue under keys that somebody else's open transaction holds: it holds up nobody else (M7, M6)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from psycopg import Connection

from holdfast import Context, Retry, Tasks
from holdfast._db.driver.connection import connect_sync
from holdfast._engine.settle import keyed_queue
from holdfast._engine.settle.ending import Ending
from holdfast._engine.worker import Worker
from holdfast.testing import Harness

from .support import attempts, row, running, sql, until

tasks = Tasks()
gates: dict[int, asyncio.Event] = {}


@pytest.fixture
def holdfast_tasks() -> Tasks:
    gates.clear()
    return tasks


@pytest.fixture
def other(holdfast: Harness) -> Iterator[Connection[Any]]:
    """Somebody with an open transaction."""
    with connect_sync(holdfast.url) as connection:
        connection.execute(b"BEGIN")
        yield connection
        connection.execute(b"ROLLBACK")


def hold(other: Connection[Any], key: str) -> None:
    other.execute(
        b"SELECT holdfast.enqueue('child', '{}', jsonb_build_object('queue', 'small', 'key', $1::text))", [key]
    )


@tasks.task(queue="small")
async def child() -> None: ...


@tasks.task
async def parent(ctx: Context, keys: list[str]) -> None:
    for key in keys:
        ctx.enqueue(child.bind(), key=key)


@tasks.task
async def plain(n: int) -> None:
    await gates.setdefault(n, asyncio.Event()).wait()


@tasks.task(transactional=True, retry=Retry(1, delay="10ms"))
async def refused_in_a_transaction(ctx: Context) -> None:
    ctx.enqueue(child.bind(), key="taken", on_conflict="raise")


@tasks.task(retry=Retry(1, delay="10ms"))
async def refused(ctx: Context) -> None:
    ctx.enqueue(child.bind(), key="taken", on_conflict="raise")


def children(harness: Harness) -> list[str]:
    return [key for (key,) in sql(harness.url, "SELECT key FROM holdfast.tasks WHERE kind = 'child' ORDER BY key")]


def spied(worker: Worker) -> list[Any]:
    """The plans that the settler follows, one for each try."""
    link = worker._links["settle"]
    follow, tries = link.follow, []

    async def counted(plan: Any, **options: Any) -> Any:
        tries.append(plan)
        return await follow(plan, **options)

    link.follow = counted  # type: ignore[method-assign]
    return tries


async def test_M7_a_held_key_is_tried_once_in_a_round_by_all_who_want_it(
    holdfast: Harness, other: Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_queue, "ROUND_SECONDS", 600)
    hold(other, "held")
    worker = holdfast.worker(queues=["default"])
    tries = spied(worker)
    refs = await holdfast.app.enqueue_many([parent.bind(["held"]) for _ in range(50)])
    async with running(worker):
        await until(lambda: len(worker.settler._keyed._resting) == 50, "for all to be postponed")
        assert len(tries) == 1
        free = await parent.enqueue(["free"])
        await free.result(timeout=60)
        other.execute(b"ROLLBACK")
        worker.settler._keyed._new_round()
        for ref in refs:
            await ref.result(timeout=60)
    assert children(holdfast) == ["free", "held"]
    assert [attempts(holdfast.url, ref.id) for ref in refs] == [[(1, "main", "done")]] * 50


async def test_M7_the_others_come_between_any_two_tries_for_held_keys(
    holdfast: Harness, other: Connection[Any]
) -> None:
    for n in range(5):
        hold(other, f"held {n}")
    worker = holdfast.worker(queues=["default"])
    link = worker._links["settle"]
    follow = link.follow
    waiting: list[Ending] = []
    tries: list[bool] = []

    async def watched(plan: Any, **options: Any) -> Any:
        tries.append(any(worker.roster.holds(ending.attempt) for ending in waiting))
        try:
            return await follow(plan, **options)
        except Exception:
            # Meanwhile another attempt has ended.
            if len(tries) <= 5:
                gates[len(tries)].set()
                waiting[:] = await until(lambda: [e for e in worker.pending.endings if e.attempt.kind == "plain"])
            raise

    refs = [await plain.enqueue(n) for n in range(1, 6)]
    async with running(worker):
        await until(lambda: len(gates) == 5, "for the others to run")
        link.follow = watched  # type: ignore[method-assign]
        keyed_refs = [await parent.enqueue([f"held {n}"]) for n in range(5)]
        for ref in refs:
            await ref.result(timeout=60)
        await until(lambda: len(tries) > 5)
        assert not any(tries), "a key was tried while others waited"
        other.execute(b"ROLLBACK")
        for ref in keyed_refs:
            await ref.result(timeout=60)


async def test_M7_who_wants_a_free_key_is_not_held_up_for_ever_by_one_who_wants_a_held_one_too(
    holdfast: Harness, other: Connection[Any]
) -> None:
    hold(other, "a")
    both = await parent.enqueue(["a", "b"])
    async with running(holdfast.worker(queues=["default"])) as _:
        await until(lambda: row(holdfast.url, both.id)["state"] == "running")
        for _ in range(3):
            await (await parent.enqueue(["b"])).result(timeout=60)
        assert row(holdfast.url, both.id)["state"] == "running"
        other.execute(b"ROLLBACK")
        await both.result(timeout=60)
    assert children(holdfast) == ["a", "b"]


@pytest.mark.direct("it needs notifications")
async def test_M6_a_notification_that_fails_takes_nothing_back(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    """As if the server's queue of notifications were full."""
    sql(
        holdfast.url,
        "INSERT INTO holdfast.worker (id, name, host, pid, version, queues, steps, slots, idle)"
        " VALUES (gen_random_uuid(), 'w', 'h', 1, '', '{small}', '{}', 1, true)",
    )
    worker = holdfast.worker(queues=["default"])
    async with running(worker) as (task,):
        await until(worker.listener.listening.is_set)
        sql(
            holdfast.url,
            "CREATE OR REPLACE FUNCTION holdfast.channel() RETURNS text LANGUAGE plpgsql AS $$ BEGIN"
            " RAISE 'too many notifications in the NOTIFY queue' USING ERRCODE = '54000'; END $$",
        )
        refs = [await holdfast.app.enqueue(parent.bind(keys)) for keys in ([], ["a"], ["b"])]
        worker.claimer.wake()
        for ref in refs:
            await until(lambda ref=ref: sql(holdfast.url, "SELECT 1 FROM holdfast.archive WHERE id = $1", ref.id))  # type: ignore[misc]
        await until(lambda: not worker.roster.held)
        assert not task.done()
    assert children(holdfast) == ["a", "b"]
    assert "recording is interrupted" not in caplog.text


@pytest.mark.parametrize("what", [refused, refused_in_a_transaction], ids=["plain", "transactional"])
async def test_M7_a_refused_enqueue_is_told_once(
    holdfast: Harness, what: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast.task")
    await holdfast.app.enqueue(child.bind(), key="taken")
    ref = await what.enqueue()
    async with running(holdfast.worker(queues=["default"])):
        await until(lambda: row(holdfast.url, ref.id)["state"] == "parked")
    assert [record.outcome for record in caplog.records if record.name == "holdfast.task"] == ["retried", "failed"]  # type: ignore[attr-defined]
