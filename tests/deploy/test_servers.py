"""Servers as people have them: settings that they come with, or that a database or role was given."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from importlib import resources
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from holdfast import App, Context
from holdfast._db.driver.connection import connect_sync, run_sync, with_database
from holdfast._db.driver.parameters import as_text
from holdfast._db.driver.session import Link
from holdfast._db.migrate import migrate, script
from holdfast._db.pool import Pool
from holdfast._db.sync_pool import SyncPool
from holdfast._db.transactions import Transactions
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Statement, statements
from holdfast.errors import SchemaError
from pgbouncer import Pooler
from worker.support import running, sql, until

pytestmark = pytest.mark.direct("it brings its own")

queries = Queries("holdfast")
DATABASE = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {} = {}', current_database()); END $$"


# --- the server's compiler

jit: Query[str] = Query(Statement("jit", "", "SELECT current_setting('jit')", ()), (), lambda rows: str(rows[0][0]))


def ask_jit() -> Plan[str]:
    answer: str = yield jit
    return answer


@pytest_asyncio.fixture(params=["direct", "pooled"])
async def compiling(request: pytest.FixtureRequest, direct_url: str) -> AsyncIterator[str]:
    """A database whose sessions compile what is expensive, as by default everywhere; directly and through a pooler."""
    sql(direct_url, DATABASE.format("jit", "on"))
    if request.param == "pooled":
        pooler: Pooler = request.getfixturevalue("pooler")
        yield pooler.url(direct_url)
    else:
        yield direct_url


async def test_X8_nothing_of_ours_is_compiled_by_the_server(compiling: str) -> None:
    async with AsyncExitStack() as stack:
        link = Link(compiling, queries, "test", by_index=True)
        stack.push_async_callback(link.close)
        assert await link.run(jit) == "off"
        answers = await link.transact([jit, jit])
        assert [await each.read() for each in answers] == ["off", "off"]
        assert await link.follow(ask_jit(), lock_timeout="1s") == "off"

        pool = Pool(compiling, queries)
        stack.push_async_callback(pool.close)
        assert await pool.run(jit) == "off"
        assert await pool.run(jit, queries.schema_version(), durable=True) == "off"
        assert await pool.together(ask_jit(), lambda _: [], durable=True) == "off"
        async with pool.reading(timedelta(seconds=5)) as look:
            assert await look(jit) == "off"

        blocking = SyncPool(compiling, queries)
        stack.callback(blocking.close)
        assert blocking.run(jit) == "off"
        assert blocking.run(jit, durable=True) == "off"
        assert blocking.together(ask_jit(), lambda _: [], durable=True) == "off"


async def test_X8_what_steps_ask_in_their_transactions_is_compiled_as_the_server_likes(compiling: str) -> None:
    transactions = Transactions(compiling, 1)
    for _ in range(2):
        step = await transactions.for_loop()
        await step.begin()
        assert await step.run(jit) == "on"
        await step.commit()
    await transactions.close()


def test_X8_functions_that_look_up_by_index_alone_are_not_compiled(direct_url: str) -> None:
    """PostgreSQL 14 to 17 take a plan without an index for so expensive there that each call would be compiled."""
    found = sql(
        direct_url,
        "SELECT proname, 'jit=off' = ANY (proconfig) FROM pg_proc WHERE 'enable_seqscan=off' = ANY (proconfig)"
        " AND pronamespace = 'holdfast'::regnamespace",
    )
    assert found and all(off for _, off in found), found


# --- values

SPANS = [
    timedelta(0),
    timedelta(microseconds=1),
    timedelta(seconds=2147, microseconds=483_648),  # 2^31 microseconds, too many for PostgreSQL 14
    timedelta(hours=1),
    timedelta(days=400, microseconds=999_999),
    -timedelta(days=400, microseconds=1),
]


@pytest.mark.parametrize("style", ["postgres", "sql_standard"])
def test_X8_every_span_arrives_as_it_is(direct_url: str, style: str) -> None:
    one: Query[float] = Query(
        Statement("span", "", "SELECT (extract(epoch FROM $1::interval) * 1000000)::bigint", ("span",)),
        (),
        lambda rows: rows[0][0],
    )
    many = one.statement.with_text("SELECT (extract(epoch FROM ($1::interval[])[1]) * 1000000)::bigint")
    with connect_sync(direct_url) as connection:
        connection.execute(f"SET intervalstyle = {style}".encode())
        for span in SPANS:
            for statement, value in ((one.statement, span), (one.statement, as_text(span)), (many, [span])):
                found = run_sync(connection, Query(statement, (value,), one.read))
                assert found == span // timedelta(microseconds=1), (span, value)


@pytest.mark.parametrize("span", SPANS)
def test_X8_no_span_has_a_part_that_postgresql_14_cannot_read(span: timedelta) -> None:
    parts = str(as_text(span)).split()[::2]
    assert all(abs(int(part)) < 2**31 for part in parts)


# --- settings of a database that change how texts are read

OLD_WAYS = {"standard_conforming_strings": "off", "array_nulls": "off", "escape_string_warning": "off"}


@pytest_asyncio.fixture(params=["direct", "pooled"])
async def old_fashioned(request: pytest.FixtureRequest, direct_url: str) -> AsyncIterator[tuple[App, str]]:
    for name, value in OLD_WAYS.items():
        sql(direct_url, DATABASE.format(name, value))
    url = request.getfixturevalue("pooler").url(direct_url) if request.param == "pooled" else direct_url
    app = App(url)
    yield app, url
    await app.close()
    app.sync.close()


async def test_X8_backslashes_and_nulls_are_read_as_everywhere(old_fashioned: tuple[App, str], direct_url: str) -> None:
    app, url = old_fashioned

    @app.task
    async def plain(text: str) -> str:
        return text

    @app.task(transactional=True)
    async def parent(ctx: Context) -> None:
        assert ctx.tx is not None
        ctx.enqueue(plain.bind("back\\slash"), key="child", delay="1h")
        ctx.enqueue(plain.bind("no key"))

    kept = [plain.bind("NULL"), plain.bind('\\"1.0"')]
    await app.enqueue_many([*kept, plain.bind("later")], delay="1h")
    await app.enqueue(kept[0], key="NULL")
    await app.enqueue_many(kept, unique=True)
    assert [ref.enqueued for ref in await app.enqueue_many(kept, unique=True)] == ["existing"] * 2
    with psycopg.connect(url) as conn:
        app.sync.enqueue_many([*kept, plain.bind("conn")], conn=conn)
        app.sync.enqueue(kept[0], conn=conn, key="k", delay="1h")
    sql(url, """SELECT holdfast.enqueue('plain', '{"text": "by SQL"}', '{"deadline": "1 hour", "unique": true}')""")
    await app.enqueue(parent.bind())
    async with running(app.make_worker(poll=0.05)):
        due = "SELECT 1 FROM holdfast.task WHERE run_at <= holdfast.now()"
        await until(lambda: not sql(direct_url, due), "for all")
    assert not sql(direct_url, "SELECT kind, error FROM holdfast.archive WHERE outcome <> 'done'")
    assert sql(direct_url, "SELECT args ->> 'text' FROM holdfast.task WHERE key = 'child'") == [("back\\slash",)]
    assert sql(direct_url, "SELECT count(*) FROM holdfast.task WHERE key = 'NULL'") == [(0,)]


def test_X8_the_key_of_args_does_not_depend_on_the_session(direct_url: str) -> None:
    ask = """SELECT holdfast.unique_key('k', 'main', jsonb_build_object('a', '1.50\\"2.0', 'b', 1.50))"""
    with connect_sync(direct_url) as connection:
        found = connection.execute(ask.replace("\\", "").encode()).fetchone()
    with connect_sync(direct_url) as connection:
        connection.execute("SET standard_conforming_strings = off")
        assert connection.execute(ask.replace("\\", "").encode()).fetchone() == found


def literals(text: str) -> Iterator[str]:
    """The ordinary literals of an SQL text: those whose backslashes a setting may give another meaning."""
    text = re.sub(r"--[^\n]*", "", text)
    for found in re.finditer(r"(E?)'((?:[^']|'')*)'", text):
        if not found[1]:
            yield found[2]


def test_X8_no_literal_of_ours_has_a_backslash() -> None:
    texts = [each.text for each in statements("holdfast").values()]
    texts += [file.read_text() for file in resources.files("holdfast._sql").joinpath("migrations").iterdir()]
    assert not [each for text in texts for each in literals(text) if "\\" in each]


# --- encodings


@pytest.fixture(params=["SQL_ASCII", "LATIN1"])
def odd_url(request: pytest.FixtureRequest, holdfast_server: str) -> Iterator[tuple[str, str]]:
    """A database that is not in UTF-8."""
    name = f"holdfast_odd_{uuid4().hex[:12]}"
    sql(holdfast_server, f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
    yield with_database(holdfast_server, name), request.param
    sql(holdfast_server, f"DROP DATABASE {name} WITH (FORCE)")


async def test_X8_a_database_that_is_not_in_utf8_is_refused(odd_url: tuple[str, str]) -> None:
    url, encoding = odd_url
    with pytest.raises(SchemaError, match=f"in {encoding}, .*ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"):
        await migrate(url)
    sql(url, script("holdfast"))  # somebody did it by other means
    app = App(url)
    with pytest.raises(SchemaError, match=f"in {encoding}, .*ENCODING 'UTF8'"):
        await app.make_worker().run()
    await app.close()
    assert await migrate(url, to=0), "what is there can be taken back"
