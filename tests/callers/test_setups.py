"""T7 with connections set up in ways that must not matter, and with sessions in the middle of their own work."""

import re
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.adapt import Loader
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from sqlalchemy import event, exc, orm
from sqlalchemy.ext.asyncio import AsyncSession

from holdfast import Entry, KeyTaken, Tasks
from holdfast._db.callers import run_on, run_on_sync
from holdfast._db.driver.parameters import Portable
from holdfast._sql.queries import queries
from holdfast._sql.query import Query, Statement
from holdfast.testing import Harness

from .support import Caller, async_engine, asyncpg, asyncpg_options, django_database, engine

tasks = Tasks()


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


@tasks.task
async def store(value: str) -> str:
    return value


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "customer_order"

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    item: orm.Mapped[str] = orm.mapped_column(unique=True)


def values(holdfast: Harness) -> list[Any]:
    return [value for (value,) in holdfast.sql("SELECT args ->> 'value' FROM holdfast.task ORDER BY id")]


def orders(holdfast: Harness) -> list[Any]:
    return [item for (item,) in holdfast.sql("SELECT item FROM customer_order ORDER BY id")]


# psycopg --------------------------------------------------------------------------------------------


class AsText(Loader):
    def load(self, data: Any) -> str:
        return bytes(data).decode()


def with_texts_for_ids(conn: psycopg.Connection[Any]) -> None:
    conn.adapters.register_loader("uuid", AsText)


def with_dicts(conn: psycopg.Connection[Any]) -> None:
    conn.row_factory = dict_row


def with_client_cursors(conn: psycopg.Connection[Any]) -> None:
    conn.cursor_factory = psycopg.ClientCursor


def with_raw_cursors(conn: psycopg.Connection[Any]) -> None:
    conn.cursor_factory = psycopg.RawCursor


def with_prepared_statements(conn: psycopg.Connection[Any]) -> None:
    conn.prepare_threshold = 0


@pytest.mark.parametrize(
    "set_up", [with_texts_for_ids, with_dicts, with_client_cursors, with_raw_cursors, with_prepared_statements]
)
def test_T7_psycopg_however_it_is_set_up(holdfast: Harness, set_up: Callable[[psycopg.Connection[Any]], None]) -> None:
    with psycopg.connect(holdfast.url) as conn:
        set_up(conn)
        app = holdfast.app.sync
        one = app.enqueue(store.bind("one"), key="k", delay="5m", conn=conn)
        same = app.enqueue(store.bind("x"), key="k", conn=conn)
        entries = [Entry(store.bind("two"), headers={"a": "b"}), Entry(store.bind("three"))]
        many = app.enqueue_many(entries, conn=conn)
        assert (same.id, same.created) == (one.id, False)
        assert all(isinstance(ref.id, UUID) and ref.created for ref in [one, *many])
    assert values(holdfast) == ["one", "two", "three"]


async def test_T7_in_autocommit_it_exists_at_once(holdfast: Harness) -> None:
    with psycopg.connect(holdfast.url, autocommit=True) as conn:
        holdfast.app.sync.enqueue(store.bind("psycopg"), conn=conn)
        assert values(holdfast) == ["psycopg"]
    other: Any = await asyncpg.connect(**asyncpg_options(holdfast.url))
    await holdfast.app.enqueue(store.bind("asyncpg"), conn=other)
    await other.close()
    with engine(holdfast.url, "psycopg", isolation_level="AUTOCOMMIT") as made, made.connect() as third:
        holdfast.app.sync.enqueue(store.bind("sqlalchemy"), conn=third)
        assert values(holdfast) == ["psycopg", "asyncpg", "sqlalchemy"]


async def test_T7_on_a_connection_of_a_psycopg_pool(holdfast: Harness) -> None:
    async with AsyncConnectionPool(holdfast.url, min_size=1, open=False) as pool:
        async with pool.connection() as conn:
            await holdfast.app.enqueue(store.bind("kept"), conn=conn)
        with pytest.raises(ZeroDivisionError):
            async with pool.connection() as conn:
                await holdfast.app.enqueue(store.bind("dropped"), conn=conn)
                raise ZeroDivisionError
    assert values(holdfast) == ["kept"]


def test_T7_psycopg2_with_rows_as_dicts(holdfast: Harness) -> None:
    psycopg2, extras = pytest.importorskip("psycopg2"), pytest.importorskip("psycopg2.extras")
    conn = psycopg2.connect(holdfast.url, cursor_factory=extras.RealDictCursor)
    first = holdfast.app.sync.enqueue(store.bind("one"), key="k", conn=conn)
    assert holdfast.app.sync.enqueue(store.bind("two"), key="k", conn=conn).id == first.id
    conn.commit()
    conn.close()
    assert values(holdfast) == ["one"]


# SQLAlchemy -----------------------------------------------------------------------------------------


def test_T7_a_session_with_unflushed_objects_commits_them_with_the_task(holdfast: Harness) -> None:
    with engine(holdfast.url, "psycopg") as made:
        Base.metadata.create_all(made)
        with orm.Session(made) as session:
            session.add(Order(item="book"))
            ref = holdfast.app.sync.enqueue(store.bind("book"), conn=session)
            assert list(session.new) != []  # not flushed behind the caller's back
            assert (orders(holdfast), values(holdfast)) == ([], [])
            session.commit()
        assert (orders(holdfast), values(holdfast)) == (["book"], ["book"])
        assert ref.info().state == "ready"

        with pytest.raises(ZeroDivisionError), orm.Session(made) as session, session.begin():
            session.add(Order(item="lamp"))
            session.flush()
            holdfast.app.sync.enqueue(store.bind("lamp"), conn=session)
            raise ZeroDivisionError
        assert (orders(holdfast), values(holdfast)) == (["book"], ["book"])

        with pytest.raises(exc.IntegrityError), orm.Session(made) as session:
            session.add(Order(item="book"))
            holdfast.app.sync.enqueue(store.bind("a second book"), conn=session)
            session.commit()  # the order is refused, and so there is no task either
        assert (orders(holdfast), values(holdfast)) == (["book"], ["book"])


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_T7_an_async_session_with_unflushed_objects(holdfast: Harness, driver: str) -> None:
    async with async_engine(holdfast.url, driver) as made:
        async with made.begin() as conn:
            await conn.run_sync(Base.metadata.create_all)
        async with AsyncSession(made) as session:
            session.add(Order(item="book"))
            await holdfast.app.enqueue(store.bind("book"), conn=session)
            async with session.begin_nested() as nested:
                session.add(Order(item="lamp"))
                await holdfast.app.enqueue(store.bind("lamp"), conn=session)
                await nested.rollback()
            await session.commit()
        assert (orders(holdfast), values(holdfast)) == (["book"], ["book"])

        async with AsyncSession(made) as session, session.begin():
            # Blocking code inside an asynchronous session.
            await session.run_sync(lambda inner: holdfast.app.sync.enqueue(store.bind("inside"), conn=inner))
            assert values(holdfast) == ["book"]
        assert values(holdfast) == ["book", "inside"]


def test_T7_a_refused_key_leaves_the_session_usable(holdfast: Harness) -> None:
    with engine(holdfast.url, "psycopg") as made, orm.Session(made) as session:
        Base.metadata.create_all(made)
        session.add(Order(item="book"))
        holdfast.app.sync.enqueue(store.bind("one"), key="k", conn=session)
        with pytest.raises(KeyTaken):
            holdfast.app.sync.enqueue(store.bind("two"), key="k", on_conflict="raise", conn=session)
        session.commit()
    assert (orders(holdfast), values(holdfast)) == (["book"], ["one"])


def test_T7_a_session_of_ones_own_class_and_one_that_streams(holdfast: Harness) -> None:
    class OurSession(orm.Session):
        pass

    with engine(holdfast.url, "psycopg", execution_options={"stream_results": True}) as made:
        with OurSession(made) as session, session.begin():
            holdfast.app.sync.enqueue(store.bind("one"), conn=session)
        with made.begin() as conn:
            holdfast.app.sync.enqueue_many([store.bind("two")], conn=conn)
    assert values(holdfast) == ["one", "two"]


def test_T7_sqlalchemy_sees_the_statement(holdfast: Harness) -> None:
    seen: list[str] = []
    with engine(holdfast.url, "psycopg") as made, made.begin() as conn:
        event.listen(made, "before_cursor_execute", lambda *given: seen.append(given[2]))
        holdfast.app.sync.enqueue(store.bind("one"), conn=conn)
    assert any(text.startswith("INSERT INTO") for text in seen)


# Django ---------------------------------------------------------------------------------------------


def test_T7_django_without_a_transaction_and_with_one(holdfast: Harness) -> None:
    transaction, connection = import_module("django.db.transaction"), import_module("django.db").connection
    with django_database(holdfast.url):
        holdfast.app.sync.enqueue(store.bind("at once"), conn=connection)
        assert values(holdfast) == ["at once"]
        with transaction.atomic():
            holdfast.app.sync.enqueue(store.bind("with the others"), conn=connection)
            assert values(holdfast) == ["at once"]
        assert values(holdfast) == ["at once", "with the others"]
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            holdfast.app.sync.enqueue(store.bind("never"), conn=connection)
            raise ZeroDivisionError
        broken = import_module("django.db.transaction").TransactionManagementError
        with transaction.atomic():
            transaction.set_rollback(True)
            with pytest.raises(broken):  # Django's own rules are kept
                holdfast.app.sync.enqueue(store.bind("too late"), conn=connection)
    assert values(holdfast) == ["at once", "with the others"]


# What travels ---------------------------------------------------------------------------------------


async def test_T7_ids_given_as_a_literal_arrive_and_come_back_as_ids(holdfast: Harness, caller: Caller) -> None:
    ids = [uuid4(), uuid4()]
    for id in ids:
        await caller.execute(f"INSERT INTO holdfast.task (id, kind, step) VALUES ('{id}', 'store', 'main')")
    query = queries("holdfast").fences("default", [*ids, uuid4()])
    found = run_on_sync(caller.conn, query) if caller.blocking else await run_on(caller.conn, query)
    assert set(found) == set(ids)
    assert {fence.id for fence in found.values()} == set(ids)


async def test_T7_a_percent_sign_in_a_statement_is_itself(caller: Caller) -> None:
    statement = Statement("probe", "", "SELECT 'a%sb' LIKE $1::text || '%', $2::integer + 1", ("text", "number"))
    query: Query[Any] = Query(statement, ("a%s", 4), list)
    found = run_on_sync(caller.conn, query) if caller.blocking else await run_on(caller.conn, query)
    assert found == [(True, 5)]


@pytest.mark.parametrize("name", ["declared", "enqueue", "enqueue_many", "enqueue_keyed", "fences", "notify"])
def test_T7_every_parameter_is_a_text_that_the_server_casts(name: str) -> None:
    statement = queries("holdfast")._statements[name]
    made = Portable(Query(statement, ("{}",) * len(statement.parameters), list))
    assert re.findall(r"\$\d+(?!\d|::text\b)", made.numbered) == []
    assert made.numbered.count("$") == made.named.count("%(p") == statement.text.count("$") > 0


@pytest.mark.parametrize("style", ["postgres", "sql_standard"])
@pytest.mark.parametrize(
    "length",
    [timedelta(0), timedelta(days=-1, seconds=1), timedelta(days=36500, microseconds=1), timedelta(microseconds=-1)],
    ids=str,
)
def test_T7_lengths_of_time_are_sent_exactly(holdfast: Harness, length: timedelta, style: str) -> None:
    query = queries("holdfast").beat("default", uuid4(), [], length)
    text = Portable(query).values[query.statement.parameters.index("lease")]
    holdfast.sql(f"ALTER DATABASE {asyncpg_options(holdfast.url)['database']} SET IntervalStyle = '{style}'")
    [(found,)] = holdfast.sql("SELECT (extract(epoch FROM $1::text::interval) * 1000000)::bigint", text)
    assert found == length // timedelta(microseconds=1)


def test_T7_what_cannot_be_sent_as_text_is_told() -> None:
    odd: Any = re
    with pytest.raises(TypeError, match="module"):
        _ = Portable(queries("holdfast").fences(odd, [])).values
    assert Portable(queries("holdfast").declared("k")).values_by_name == {"p1": "k"}
