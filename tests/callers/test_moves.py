"""`ctx.move` on the connections of callers: in a transaction it commits with that; without one it is refused (T22)."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import psycopg
import pytest
from sqlalchemy.ext import asyncio as sa_async

from holdfast import Context, Done, Tasks
from holdfast.testing import Harness

from .support import asyncpg, asyncpg_options, django_database, engine, sqlalchemy_url

tasks = Tasks()
trip = tasks.kind("trip", result=str)
place: dict[str, str] = {}


@pytest.fixture
def holdfast_tasks(holdfast_url: str) -> Tasks:
    place["url"] = holdfast_url
    return tasks


@tasks.task
async def postcard() -> None: ...


@trip.step
@dataclass
class Leave:
    how: str
    begin: bool

    async def run(self, ctx: Context) -> Done[str]:
        ctx.enqueue(postcard.bind())
        ctx.enqueue(postcard.bind(), key="one")
        async with AWAITED[self.how](self.begin) as conn:
            return await ctx.move(Done("there"), conn=conn)


@trip.step
@dataclass
class Drive:
    how: str
    begin: bool

    def run(self, ctx: Context) -> Done[str]:
        ctx.enqueue(postcard.bind())
        ctx.enqueue(postcard.bind(), key="one")
        with BLOCKING[self.how](self.begin) as conn:
            return ctx.move_sync(Done("there"), conn=conn)


# Each is in autocommit; `begin` says whether its owner has begun a transaction on it all the same.


@asynccontextmanager
async def psycopg_async(begin: bool) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(place["url"], autocommit=True) as conn:
        if begin:
            async with conn.transaction():
                yield conn
        else:
            yield conn


@asynccontextmanager
async def asyncpg_connection(begin: bool) -> AsyncIterator[Any]:
    conn: Any = await asyncpg.connect(**asyncpg_options(place["url"]))
    try:
        if begin:
            async with conn.transaction():
                yield conn
        else:
            yield conn
    finally:
        await conn.close()


def sqlalchemy_async(driver: str) -> Callable[[bool], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(begin: bool) -> AsyncIterator[Any]:
        level = {} if begin else {"isolation_level": "AUTOCOMMIT"}
        made = sa_async.create_async_engine(sqlalchemy_url(place["url"], driver), **level)
        try:
            async with made.begin() as conn:
                yield conn
        finally:
            await made.dispose()

    return opened


@contextmanager
def psycopg_blocking(begin: bool) -> Iterator[Any]:
    with psycopg.connect(place["url"], autocommit=True) as conn:
        if begin:
            with conn.transaction():
                yield conn
        else:
            yield conn


@contextmanager
def psycopg2_blocking(begin: bool) -> Iterator[Any]:
    conn = import_module("psycopg2").connect(place["url"])
    conn.autocommit = not begin
    try:
        yield conn
        conn.commit()
    finally:
        conn.close()


def sqlalchemy_blocking(driver: str) -> Callable[[bool], AbstractContextManager[Any]]:
    @contextmanager
    def opened(begin: bool) -> Iterator[Any]:
        level = {} if begin else {"isolation_level": "AUTOCOMMIT"}
        with engine(place["url"], driver, **level) as made, made.begin() as conn:
            yield conn

    return opened


@contextmanager
def django_connection(begin: bool) -> Iterator[Any]:
    with django_database(place["url"]) as connections:
        if begin:
            with import_module("django.db.transaction").atomic():
                yield connections["default"]
        else:
            yield connections["default"]


AWAITED = {
    "psycopg async": psycopg_async,
    "asyncpg": asyncpg_connection,
    "sqlalchemy psycopg async": sqlalchemy_async("psycopg"),
    "sqlalchemy asyncpg": sqlalchemy_async("asyncpg"),
}
BLOCKING = {
    "psycopg": psycopg_blocking,
    "psycopg2": psycopg2_blocking,
    "sqlalchemy psycopg": sqlalchemy_blocking("psycopg"),
    "sqlalchemy psycopg2": sqlalchemy_blocking("psycopg2"),
    "django": django_connection,
}
every = pytest.mark.parametrize("how", [*AWAITED, *BLOCKING])


def step(how: str, begin: bool) -> Any:
    if "psycopg2" in how:
        pytest.importorskip("psycopg2")
    return (Leave if how in AWAITED else Drive)(how, begin)


def written(holdfast: Harness) -> int:
    count: int = holdfast.sql("SELECT count(*) FROM holdfast.tasks WHERE kind = 'postcard'")[0][0]
    return count


@every
async def test_T22_in_a_transaction_move_and_children_come_together(holdfast: Harness, how: str) -> None:
    ref = await trip.enqueue(step(how, begin=True))
    await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.result, info.attempt) == ("done", "there", 1), info.error
    assert written(holdfast) == 2


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=pytest.mark.direct("asyncpg needs a transaction behind a pooler"))
        if "asyncpg" in how
        else how
        for how in (*AWAITED, *BLOCKING)
    ],
)
async def test_T22_without_a_transaction_a_move_is_refused_and_nothing_written(holdfast: Harness, how: str) -> None:
    ref = await trip.enqueue(step(how, begin=False))
    await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None and "ctx.move: this connection is not in a transaction" in info.error["message"]
    assert written(holdfast) == 0
