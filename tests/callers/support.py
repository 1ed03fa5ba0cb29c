"""Connections as callers have them: one `Caller` for each library, all with the same few verbs.

A caller is in a transaction of its own. Blocking libraries are called directly: nothing else goes on in a test.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

from holdfast import App

asyncpg: Any = import_module("asyncpg")  # without types, as Django is


@dataclass
class Caller:
    """A connection in a transaction, and how its owner uses it."""

    app: App
    conn: Any
    execute: Callable[[str], Awaitable[list[tuple[Any, ...]]]]
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]
    undone: Callable[[], AbstractAsyncContextManager[Any]]
    """A savepoint that is rolled back at its end."""
    blocking: bool

    async def enqueue(self, what: Any, **options: Any) -> Any:
        if self.blocking:
            return self.app.sync.enqueue(what, conn=self.conn, **options)
        return await self.app.enqueue(what, conn=self.conn, **options)

    async def enqueue_many(self, what: Any, **options: Any) -> list[Any]:
        if self.blocking:
            return list(self.app.sync.enqueue_many(what, conn=self.conn, **options))
        return list(await self.app.enqueue_many(what, conn=self.conn, **options))


Opener = Callable[[App, str], AbstractAsyncContextManager[Caller]]
OPENERS: dict[str, Opener] = {}
VARIANTS = {
    "asyncpg pool",
    "django connections[…]",
    "sqlalchemy async scoped session",
    "sqlalchemy asyncpg async connection",
    "sqlalchemy psycopg async connection",
    "sqlalchemy psycopg connection",
    "sqlalchemy psycopg2 connection",
    "sqlalchemy scoped session",
}
"""Those by which statements travel as by another one, so that not every test needs them."""


def opener(name: str) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        OPENERS[name] = asynccontextmanager(function)
        return function

    return add


def asyncpg_options(url: str) -> dict[str, Any]:
    given = conninfo_to_dict(url)
    options = {"host": given["host"], "port": int(given["port"] or 5432), "user": given["user"]}
    return {**options, "password": given.get("password"), "database": given["dbname"]}


def sqlalchemy_url(url: str, driver: str) -> sqlalchemy.URL:
    given = asyncpg_options(url)
    where = {"host": given["host"], "port": given["port"], "database": given["database"]}
    return sqlalchemy.URL.create(f"postgresql+{driver}", given["user"], given["password"], **where)


# Drivers --------------------------------------------------------------------------------------------


@opener("psycopg async")
async def psycopg_async(app: App, url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as conn:

        async def execute(text: str) -> list[Any]:
            cursor = await conn.execute(text.encode())
            return await cursor.fetchall() if cursor.description else []

        undone = lambda: conn.transaction(force_rollback=True)  # noqa: E731
        yield Caller(app, conn, execute, conn.commit, conn.rollback, undone, False)


@opener("psycopg")
async def psycopg_blocking(app: App, url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as conn:
        yield dbapi_caller(app, conn, conn)


@opener("psycopg2")
async def psycopg2_blocking(app: App, url: str) -> AsyncIterator[Caller]:
    psycopg2 = pytest.importorskip("psycopg2")
    conn = psycopg2.connect(url)
    try:
        yield dbapi_caller(app, conn, conn)
    finally:
        conn.close()


def dbapi_caller(app: App, given: Any, conn: Any) -> Caller:
    async def execute(text: str) -> list[Any]:
        cursor = conn.cursor()
        cursor.execute(text)
        return cursor.fetchall() if cursor.description else []

    async def commit() -> None:
        conn.commit()

    async def rollback() -> None:
        conn.rollback()

    return Caller(app, given, execute, commit, rollback, by_savepoint(execute), True)


def by_savepoint(execute: Callable[[str], Awaitable[Any]]) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def undone() -> AsyncIterator[None]:
        await execute("SAVEPOINT here")
        yield
        await execute("ROLLBACK TO SAVEPOINT here")

    return undone


@opener("asyncpg")
async def asyncpg_plain(app: App, url: str) -> AsyncIterator[Caller]:
    conn: Any = await asyncpg.connect(**asyncpg_options(url))
    try:
        yield await asyncpg_caller(app, conn)
    finally:
        await conn.close()


@opener("asyncpg pool")
async def asyncpg_pool(app: App, url: str) -> AsyncIterator[Caller]:
    async with (
        asyncpg.create_pool(min_size=1, max_size=1, **asyncpg_options(url)) as pool,
        pool.acquire() as conn,
    ):
        yield await asyncpg_caller(app, conn)


@opener("asyncpg with codecs")
async def asyncpg_with_codecs(app: App, url: str) -> AsyncIterator[Caller]:
    """Set up as many programs do it: JSON as Python objects, ids as texts."""
    import json

    conn: Any = await asyncpg.connect(**asyncpg_options(url))
    await conn.set_type_codec("jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    await conn.set_type_codec("uuid", encoder=str, decoder=str, schema="pg_catalog")
    await conn.set_type_codec("interval", encoder=repr, decoder=repr, schema="pg_catalog")
    try:
        yield await asyncpg_caller(app, conn)
    finally:
        await conn.close()


async def asyncpg_caller(app: App, conn: Any) -> Caller:
    transaction = conn.transaction()
    await transaction.start()

    async def execute(text: str) -> list[Any]:
        return [tuple(record) for record in await conn.fetch(text)]

    @asynccontextmanager
    async def undone() -> AsyncIterator[None]:
        inner = conn.transaction()
        await inner.start()
        yield
        await inner.rollback()

    return Caller(app, conn, execute, transaction.commit, transaction.rollback, undone, False)


# SQLAlchemy -----------------------------------------------------------------------------------------


@contextmanager
def engine(url: str, driver: str, **options: Any) -> Iterator[sqlalchemy.Engine]:
    if driver == "psycopg2":
        pytest.importorskip("psycopg2")
    made = sqlalchemy.create_engine(sqlalchemy_url(url, driver), **options)
    try:
        yield made
    finally:
        made.dispose()


@asynccontextmanager
async def async_engine(url: str, driver: str) -> AsyncIterator[sa_async.AsyncEngine]:
    made = sa_async.create_async_engine(sqlalchemy_url(url, driver))
    try:
        yield made
    finally:
        await made.dispose()


def sqlalchemy_caller(app: App, conn: Any) -> Caller:
    async def execute(text: str) -> list[Any]:
        result = conn.execute(sqlalchemy.text(text))
        return [tuple(row) for row in result] if result.returns_rows else []

    async def commit() -> None:
        conn.commit()

    async def rollback() -> None:
        conn.rollback()

    @asynccontextmanager
    async def undone() -> AsyncIterator[None]:
        inner = conn.begin_nested()
        yield
        inner.rollback()

    return Caller(app, conn, execute, commit, rollback, undone, True)


def sqlalchemy_async_caller(app: App, conn: Any) -> Caller:
    async def execute(text: str) -> list[Any]:
        result = await conn.execute(sqlalchemy.text(text))
        return [tuple(row) for row in result] if result.returns_rows else []

    @asynccontextmanager
    async def undone() -> AsyncIterator[None]:
        inner = await conn.begin_nested()
        yield
        await inner.rollback()

    return Caller(app, conn, execute, conn.commit, conn.rollback, undone, False)


def add_sqlalchemy(driver: str) -> None:
    @opener(f"sqlalchemy {driver} connection")
    async def connection(app: App, url: str) -> AsyncIterator[Caller]:
        with engine(url, driver) as made, made.connect() as conn:
            yield sqlalchemy_caller(app, conn)

    @opener(f"sqlalchemy {driver} session")
    async def session(app: App, url: str) -> AsyncIterator[Caller]:
        with engine(url, driver) as made, orm.Session(made) as conn:
            yield sqlalchemy_caller(app, conn)


def add_sqlalchemy_async(driver: str) -> None:
    @opener(f"sqlalchemy {driver} async connection")
    async def connection(app: App, url: str) -> AsyncIterator[Caller]:
        async with async_engine(url, driver) as made, made.connect() as conn:
            yield sqlalchemy_async_caller(app, conn)

    @opener(f"sqlalchemy {driver} async session")
    async def session(app: App, url: str) -> AsyncIterator[Caller]:
        async with async_engine(url, driver) as made, sa_async.AsyncSession(made) as conn:
            yield sqlalchemy_async_caller(app, conn)


add_sqlalchemy("psycopg")
add_sqlalchemy("psycopg2")
add_sqlalchemy_async("psycopg")
add_sqlalchemy_async("asyncpg")


@opener("sqlalchemy scoped session")
async def scoped_session(app: App, url: str) -> AsyncIterator[Caller]:
    with engine(url, "psycopg") as made:
        conn = orm.scoped_session(orm.sessionmaker(made))
        yield sqlalchemy_caller(app, conn)
        conn.remove()


@opener("sqlalchemy async scoped session")
async def async_scoped_session(app: App, url: str) -> AsyncIterator[Caller]:
    async with async_engine(url, "asyncpg") as made:
        conn = sa_async.async_scoped_session(sa_async.async_sessionmaker(made), scopefunc=lambda: 1)
        yield sqlalchemy_async_caller(app, conn)
        await conn.remove()


# Django ---------------------------------------------------------------------------------------------


@contextmanager
def django_database(url: str) -> Iterator[Any]:
    """Django's `connections` with a `default` on a database."""
    settings = import_module("django.conf").settings
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        import_module("django").setup()
    connections = import_module("django.db").connections
    given = asyncpg_options(url)
    connections.settings["default"] = connections.configure_settings(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": given["host"],
                "PORT": given["port"],
                "USER": given["user"],
                "PASSWORD": given["password"] or "",
                "NAME": given["database"],
            }
        }
    )["default"]
    if hasattr(connections._connections, "default"):
        del connections["default"]
    try:
        yield connections
    finally:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
            connections["default"].close()
        del connections["default"]


def add_django(name: str, conn_of: Callable[[Any], Any]) -> None:
    @opener(name)
    async def atomic(app: App, url: str) -> AsyncIterator[Caller]:
        transaction = import_module("django.db.transaction")
        with pytest.MonkeyPatch.context() as patch, django_database(url) as connections:
            # Here it is the test that is asynchronous, not the caller.
            patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
            conn = connections["default"]
            outer = transaction.atomic()
            outer.__enter__()

            async def execute(text: str) -> list[Any]:
                with conn.cursor() as cursor:
                    cursor.execute(text)
                    return list(cursor.fetchall()) if cursor.description else []

            async def commit() -> None:
                outer.__exit__(None, None, None)

            async def rollback() -> None:
                transaction.set_rollback(True)
                outer.__exit__(None, None, None)

            @asynccontextmanager
            async def undone() -> AsyncIterator[None]:
                with transaction.atomic():
                    yield
                    transaction.set_rollback(True)

            yield Caller(app, conn_of(connections), execute, commit, rollback, undone, True)


def django_proxy(connections: Any) -> Any:
    """`django.db.connection`, which stands for the default connection of the thread."""
    return import_module("django.db").connection


add_django("django connection", django_proxy)
add_django("django connections[…]", lambda connections: connections["default"])
