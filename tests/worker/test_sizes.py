"""X4, Q1, Q11: the longest names, keys, headers, args and results go all the way; what is longer is refused."""

import json
from typing import Any

import psycopg
import pytest

from holdfast import App, Context, DeclarationError, EncodeError, EnqueueRefused, TaskParked, Tasks, named
from holdfast._db.driver.connection import connect_sync

PATIENCE = 60.0
LONGEST_KEY = "".join(chr(0x10000 + 7919 * i % 0x8000) for i in range(512))
"""512 characters of four bytes each, which no compression makes short: an entry of an index has 2704 bytes at most."""
QUEUE = "q" * 63


def sql(url: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


async def test_Q2_the_longest_key_goes_through_every_door(holdfast_url: str) -> None:
    assert len(LONGEST_KEY.encode()) == 2048
    app = App(holdfast_url)

    @app.task(queue=QUEUE)
    async def child() -> None: ...

    @app.task(queue=QUEUE)
    async def parent(ctx: Context, key: str) -> None:
        ctx.enqueue(child.bind(), key=key)

    async with app:
        first = await app.enqueue(child.bind(), key=LONGEST_KEY, unique_for="1h")
        assert (await app.enqueue(child.bind(), key=LONGEST_KEY)).id == first.id
        options = json.dumps({"queue": QUEUE, "key": LONGEST_KEY})
        assert sql(holdfast_url, "SELECT holdfast.enqueue('child', '{}', $1::text::jsonb)", options) == [(first.id,)]
        await app.cancel(first.id)
        assert (await app.enqueue(child.bind(), key=LONGEST_KEY)).enqueued == "ended", "unique_for holds it"
        async with app.worker(queues=[QUEUE], poll="100ms"):
            good = await app.enqueue(parent.bind("c" + LONGEST_KEY[1:]))
            await good.result(timeout=PATIENCE)
            bad = await app.enqueue(parent.bind("c" + LONGEST_KEY))
            with pytest.raises(TaskParked, match="key= must be a text of 1 to 512 characters"):
                await bad.result(timeout=PATIENCE)
        kept = "SELECT count(*) FROM holdfast.tasks WHERE kind = 'child' AND length(key) = 512 AND key LIKE 'c%'"
        assert sql(holdfast_url, kept) == [(1,)]
        with pytest.raises(EnqueueRefused, match="1 to 512 characters"):
            await app.enqueue(child.bind(), key=LONGEST_KEY + "x")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="1 to 512 characters"):
            options = json.dumps({"key": LONGEST_KEY + "x"})
            sql(holdfast_url, "SELECT holdfast.enqueue('child', '{}', $1::text::jsonb)", options)


async def test_Q11_the_largest_args_headers_and_results(holdfast_url: str) -> None:
    app = App(holdfast_url)

    @app.task
    async def answer(text: str, size: int) -> str:
        return "x" * size

    most = 1024 * 1024
    empty = len('{"text":"","size":1000000}')
    text = "\U0001f600" * ((most - empty) // 4)
    text += "x" * (most - empty - len(text.encode()))
    headers = {"h": "x" * (64 * 1024 - len('{"h":""}'))}
    async with app, app.worker(poll="100ms"):
        ref = await app.enqueue(answer.bind(text, 1_000_000), headers=headers)
        assert len(await ref.result(timeout=PATIENCE)) == 1_000_000
        largest = await app.enqueue(answer.bind("", most - 2))  # and two quotes
        assert len(await largest.result(timeout=PATIENCE)) == most - 2
        too_large = await app.enqueue(answer.bind("", most - 1))
        with pytest.raises(TaskParked, match="the limit is 1,048,576"):
            await too_large.result(timeout=PATIENCE)
        with pytest.raises(EncodeError, match="answer: args takes 1,048,577 bytes as JSON and the limit is 1,048,576"):
            await app.enqueue(answer.bind(text + "x", 1_000_000))
        with pytest.raises(EnqueueRefused, match="headers takes 65,537 bytes as JSON and the limit is 65,536"):
            await app.enqueue(answer.bind("", 0), headers={"h": headers["h"] + "x"})


async def test_Q11_the_longest_error_is_cut(holdfast_url: str) -> None:
    app = App(holdfast_url)

    @app.task
    async def fails() -> None:
        raise RuntimeError("\U0001f600" * 3_000_000)

    async with app, app.worker(poll="100ms"):
        ref = await app.enqueue(fails.bind())
        with pytest.raises(TaskParked):
            await ref.result(timeout=PATIENCE)
    ((size,),) = sql(holdfast_url, "SELECT octet_length(error::text) FROM holdfast.task WHERE id = $1", ref.id)
    assert size < 1024 * 1024


async def test_X4_the_longest_names_and_thousands_of_them(holdfast_url: str) -> None:
    """Every step is known to the worker by kind and name, and that list goes with every claim."""
    tasks = Tasks()

    async def work() -> str:
        return "done"

    names = ["k" * 59 + f"{i:04}" for i in range(3000)]
    for name in names:
        tasks.task(name=name, queue=QUEUE)(work)
    with pytest.raises(DeclarationError, match="at most 63 characters"):
        tasks.task(name="k" * 64)(work)
    app = App(holdfast_url, include=[tasks])
    async with app, app.worker(queues=[QUEUE], poll="100ms", name="w" * 10_000):
        refs = [await app.enqueue(named(name, {}), queue=QUEUE) for name in (names[0], names[-1])]
        assert [await ref.result(timeout=PATIENCE) for ref in refs] == ["done", "done"]
    assert sql(holdfast_url, "SELECT count(*) FROM holdfast.kind") == [(3000,)]
