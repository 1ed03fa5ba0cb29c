"""X3: through a pooler in transaction mode, where the next transaction may be on another connection of the server's."""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from holdfast import App, ConfigError, Context, Done, Retry, embedded
from holdfast._db.driver.connection import connect, connect_sync
from holdfast._db.driver.facts import PREPARE_AFTER, detect_pooler, detect_pooler_sync
from holdfast._db.driver.pipeline import PipelinedConnection
from holdfast._db.driver.session import Link
from holdfast._db.migrate import migrate
from holdfast._db.pool import Pool
from holdfast._db.transactions import Transactions
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Statement
from holdfast.embedded import Server
from holdfast.testing.server import new_folder
from pgbouncer import MISSING, PROGRAM, pgbouncer
from worker.support import running, sql, until

pytestmark = pytest.mark.direct("it brings its own")

queries = Queries("holdfast")


@pytest_asyncio.fixture
async def app(pooled_url: str) -> AsyncIterator[App]:
    made = App(pooled_url)
    yield made
    await made.close()
    made.sync.close()


def new_task(id: UUID | None = None) -> Request:
    return Request(id or uuid7(), "default", "greeter", "main", b"{}")


# --- finding out


async def test_X3_a_pooler_is_found_out_on_every_connection(direct_url: str, pooled_url: str) -> None:
    for url, pooled in ((direct_url, False), (pooled_url, True)):
        threshold = None if pooled else PREPARE_AFTER
        async with await connect(url) as connection:
            assert connection.prepare_threshold is None, "nothing is prepared before that is known"
            assert await detect_pooler(connection) is pooled and connection.prepare_threshold == threshold
        with connect_sync(url) as blocking:
            assert detect_pooler_sync(blocking) is pooled and blocking.prepare_threshold == threshold


@pytest.mark.parametrize(("told", "pooled"), [("none", False), ("transaction", True)])
def test_X3_what_is_configured_counts(
    direct_url: str, pooled_url: str, monkeypatch: pytest.MonkeyPatch, told: str, pooled: bool
) -> None:
    monkeypatch.setenv("HOLDFAST_POOLER", told)
    for url in (direct_url, pooled_url):
        with connect_sync(url) as connection:
            assert detect_pooler_sync(connection) is pooled


# --- prepared statements


def exchanged(clients: list[psycopg.Connection[Any]], third: psycopg.Connection[Any]) -> list[str]:
    """What two clients hear that ask each its own question, when they no longer are on their own connections."""
    questions = [f"SELECT 'answer {n}'" for n in range(2)]
    for client in clients:
        client.execute("BEGIN")
        client.execute("SELECT pg_backend_pid()")
    for client, question in zip(clients, questions, strict=True):
        for _ in range(PREPARE_AFTER + 2):
            client.execute(question.encode())
    for client in clients:
        client.execute("COMMIT")
    # With one of the two connections taken, both clients are on the other.
    third.execute("BEGIN")
    third.execute("SELECT 1")
    heard = [str(client.execute(q.encode()).fetchall()[0][0]) for client, q in zip(clients, questions, strict=True)]
    third.execute("COMMIT")
    return heard


@pytest.fixture
def narrow(holdfast_server: str, direct_url: str) -> Iterator[str]:
    """A pooler that has two connections to the server."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    with pgbouncer(holdfast_server, size=2) as made:
        yield made.url(direct_url)


def test_X3_statements_of_two_clients_are_never_exchanged(narrow: str) -> None:
    clients = [connect_sync(narrow) for _ in range(3)]
    for client in clients:
        detect_pooler_sync(client)
    assert exchanged(clients[:2], clients[2]) == ["answer 0", "answer 1"]
    for client in clients:
        client.close()


def test_X3_the_naive_way_executes_another_clients_statement(narrow: str) -> None:
    """Why errors cannot tell that there is a pooler: there is none, and what is executed is wrong."""
    clients = [psycopg.connect(narrow, autocommit=True) for _ in range(3)]
    assert sorted(exchanged(clients[:2], clients[2])) != ["answer 0", "answer 1"]
    for client in clients:
        client.close()


@pytest.fixture
def single(holdfast_server: str, direct_url: str) -> Iterator[str]:
    """A pooler that has one connection to the server."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    with pgbouncer(holdfast_server, size=1) as made:
        yield made.url(direct_url)


async def test_X3_nobody_reads_an_answer_that_was_for_a_client_that_is_gone(single: str) -> None:
    """With two transactions on their way, ended between the two answers: PgBouncer 1.18 gives the connection on."""
    connection = await connect(single)
    await detect_pooler(connection)
    pipeline, answered = PipelinedConnection(connection), asyncio.Event()

    def end(results: list[Any], error: BaseException | None) -> None:
        pipeline.close()
        answered.set()

    pipeline.send([queries.schema_version()], end)
    pipeline.send(
        [Query(Statement("slow", "", "SELECT 'not mine', pg_sleep(0.5)::text", ()), (), list)], lambda *_: None
    )
    await answered.wait()
    async with await connect(single) as other:
        for n in range(3):
            assert await (await other.execute("SELECT $1::text", [f"mine {n}"])).fetchall() == [(f"mine {n}",)]


async def test_Q10_an_enqueue_is_durable_whatever_another_client_has_set(single: str, direct_url: str) -> None:
    sql(
        direct_url,
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "NEW.headers = jsonb_build_object('commit', current_setting('synchronous_commit')); RETURN NEW; END $$;"
        "CREATE TRIGGER tell BEFORE INSERT ON holdfast.task FOR EACH ROW EXECUTE FUNCTION tell()",
    )
    app = App(single)

    @app.task
    async def plain(n: int) -> None: ...

    sql(single, "SET synchronous_commit = on")
    await plain.enqueue(1)
    await asyncio.to_thread(app.sync.enqueue, plain.bind(2))
    for left, durable in (("off", True), ("on", False)):
        sql(single, f"SET synchronous_commit = {left}; DELETE FROM holdfast.task")
        await asyncio.gather(*(app.enqueue(plain.bind(n), durable=durable) for n in range(2)))
        await app.enqueue(plain.bind(2), durable=durable, key="k")
        await app.enqueue_many([plain.bind(3)], durable=durable)
        await asyncio.to_thread(app.sync.enqueue, plain.bind(4), durable=durable)
        told = sql(direct_url, "SELECT headers ->> 'commit' FROM holdfast.task")
        assert told == [("on" if durable else "off",)] * 5
    await app.close()
    app.sync.close()


async def test_X3_nothing_is_prepared_by_anything_of_ours(app: App, direct_url: str, pooled_url: str) -> None:
    link, pool = Link(pooled_url, queries, "test"), Pool(pooled_url, queries)
    transactions = Transactions(pooled_url, 1)
    for _ in range(PREPARE_AFTER + 3):
        await link.run(queries.schema_version())
        await link.transact([queries.schema_version(), queries.server()])
        await pool.enqueue(new_task(), durable=True)
        await asyncio.gather(*(pool.enqueue(new_task(), durable=True) for _ in range(3)))
        await pool.run(queries.schema_version(), then=queries.notify("default"))
        await asyncio.to_thread(lambda: app.sync._connections.run(queries.schema_version()))
        for made in (await transactions.for_loop(), await transactions.for_thread()):
            await made.begin()
            await made.run(queries.schema_version())
            await made.commit()
    for closing in (link, pool, transactions):
        await closing.close()
    assert await on_all(pooled_url, b"SELECT name FROM pg_prepared_statements") == [[]] * HELD


HELD = 5


async def on_all(url: str, text: bytes) -> list[list[Any]]:
    """What the pooler's connections answer, held at the same time."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(await connect(url)) for _ in range(HELD)]
        for client in clients:
            await client.execute(b"BEGIN")
        return [await (await client.execute(text)).fetchall() for client in clients]


# --- the server behind it


@pytest.fixture
def own() -> Iterator[tuple[Server, str]]:
    """A server that may be stopped, and the URL of its migrated database through a pooler."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    folder = new_folder("holdfast-own-")
    server = embedded.start(folder, durable=False)
    asyncio.run(migrate(server.url()))
    try:
        with pgbouncer(server.url()) as made:
            yield server, made.url(server.url())
    finally:
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


def restart(server: Server) -> None:
    server.stop("fast")
    embedded.start(server.folder, durable=False)
    sql(server.url(), "SELECT 1")


async def test_M1_M3_another_server_behind_the_pooler_is_noticed_before_anything_is_done(
    own: tuple[Server, str],
) -> None:
    server, url = own
    link = Link(url, queries, "test")
    first = await link.run(queries.server())
    contact = link.contact_since
    await link.close()  # at times the pooler ends it with the server, and then there is nothing to be noticed
    restart(server)
    task = new_task()
    sql(url, "SELECT 1")  # the pooler has noticed
    used = await connect(url)
    for send in (
        lambda: link.run(queries.enqueue(task)),
        lambda: link.transact([queries.enqueue(task)], lock_timeout="1s"),
        lambda: link.follow(follow(task), lock_timeout="1s"),
    ):
        link._connection, link.server, link._pooled, link.contact_since = used, first, True, contact
        with pytest.raises(ConnectionError, match="another server than before"):
            await send()
        assert link.contact_since is None
        used = await connect(url)
    assert sql(url, "SELECT count(*) FROM holdfast.task") == [(0,)], "nothing was executed there"
    assert await link.run(queries.server()) != first
    assert link.server != first and contact is not None and (link.contact_since or 0) > contact
    await link.close()
    await used.close()


def follow(task: Request) -> Any:
    yield queries.enqueue(task)


async def test_M3_a_worker_takes_a_new_identity_when_the_server_behind_the_pooler_changed(
    own: tuple[Server, str],
) -> None:
    server, url = own
    app = App(url)

    @app.task
    async def add_one(n: int) -> int:
        return n + 1

    worker = app.make_worker(poll=0.1)
    async with running(worker):
        assert await (await add_one.enqueue(1)).result(timeout=60) == 2
        before = worker.claimer.worker_id
        await asyncio.to_thread(restart, server)
        await until(lambda: worker.claimer.worker_id != before, "for a new identity")
        assert await (await add_one.enqueue(2)).result(timeout=60) == 3
    await app.close()


async def test_M16_statements_run_read_committed_whatever_the_role_has(app: App, direct_url: str) -> None:
    name = sql(direct_url, "SELECT current_database()")[0][0]
    sql(direct_url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")

    @app.task(transactional=True)
    async def level(ctx: Context) -> str:
        row = await (await ctx.tx.execute("SHOW transaction_isolation")).fetchone()
        assert row is not None
        return str(row[0])

    async with running(app.make_worker(poll=0.1)):
        assert await (await level.enqueue()).result(timeout=60) == "read committed"


# --- sessions


async def test_X3_what_a_transactional_step_has_set_is_left_on_no_connection(app: App, pooled_url: str) -> None:
    @app.task(transactional=True)
    async def leaves_traces(ctx: Context) -> None:
        await ctx.tx.execute("SET search_path = tenant; SET lock_timeout = '7s'; CREATE TEMP TABLE mine (n int)")
        await ctx.tx.execute("SELECT pg_advisory_lock(1)")

    @app.task(transactional=True)
    def leaves_traces_in_a_thread(ctx: Context) -> None:
        ctx.tx_sync.execute("SET search_path = tenant; CREATE TEMP TABLE mine (n int)")

    async with running(app.make_worker(poll=0.1)):
        for _ in range(3):
            await (await leaves_traces.enqueue()).result(timeout=60)
            await (await leaves_traces_in_a_thread.enqueue()).result(timeout=60)
    look = (
        b"SELECT current_setting('search_path'), current_setting('lock_timeout'), to_regclass('pg_temp.mine')::text,"
        b" (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"
    )
    assert await on_all(pooled_url, look) == [[('"$user", public', "0", None, 0)]] * HELD


async def test_X3_what_is_deferred_to_the_commit_fails_the_step(app: App, direct_url: str) -> None:
    sql(direct_url, "CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")

    @app.task(transactional=True)
    async def twice(ctx: Context) -> None:
        await ctx.tx.execute("INSERT INTO once VALUES (1), (1)")

    ref = await twice.enqueue()
    async with running(app.make_worker(poll=0.1)):
        await until(lambda: sql(direct_url, "SELECT 1 FROM holdfast.task WHERE state = 'parked'"))
    error = (await ref.info()).error
    assert error is not None and "UniqueViolation" in error["type"]
    assert sql(direct_url, "SELECT * FROM once") == []


async def test_X3_transactional_steps_make_do_with_a_small_pool(narrow: str, direct_url: str) -> None:
    """Two connections for six steps at once that hold one each: nobody waits for a second one while holding one."""
    app = App(narrow, direct_url=direct_url)
    way = app.kind("way", result=int, transactional=True, retry=Retry(0))

    @way.step
    @dataclass
    class Begin:
        n: int

        async def run(self, ctx: Context) -> "End":
            await ctx.tx.execute("SELECT pg_sleep(0.01)")
            return End(self.n)

    @way.step
    @dataclass
    class End:
        n: int

        async def run(self) -> Done[int]:
            return Done(self.n)

    refs = await app.enqueue_many(Begin(n) for n in range(12))
    async with running(app.make_worker(poll=0.1, concurrency=6)):
        assert [await ref.result(timeout=60) for ref in refs] == list(range(12))
    assert sql(direct_url, "SELECT DISTINCT outcome FROM holdfast.attempt") == [("advanced",)]
    await app.close()


# --- notifications


async def test_X3_nobody_listens_through_a_pooler_and_that_is_told_once(
    app: App, direct_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "holdfast.listen")
    monkeypatch.setattr("holdfast._db.driver.notifications.REST", 0.01)

    @app.task
    async def add_one(n: int) -> int:
        return n + 1

    worker = app.make_worker(poll=0.1)
    async with running(worker):
        assert await (await add_one.enqueue(1)).result(timeout=60) == 2
        await until(lambda: len(caplog.records) >= 3, "for more tries")
        assert not worker.listener.listening.is_set()
    levels = [record.levelname for record in caplog.records]
    assert levels[0] == "INFO" and set(levels[1:]) == {"DEBUG"}
    assert "HOLDFAST_DIRECT_URL" in caplog.messages[0]
    assert sql(direct_url, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") == [(0,)]


async def test_X3_with_a_direct_url_notifications_and_beats_go_past_the_pooler(
    pooled_url: str, direct_url: str
) -> None:
    app = App(pooled_url, direct_url=direct_url)

    @app.task
    async def add_one(n: int) -> int:
        return n + 1

    worker = app.make_worker(poll=600)
    async with running(worker):
        await until(lambda: worker.claimer.empty and worker.listener.listening.is_set(), "for the worker to rest")
        assert await (await add_one.enqueue(1)).result(timeout=60) == 2
        names = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
        await until(lambda: {("holdfast beat",), ("holdfast listen",)} <= set(sql(direct_url, names)))
    await app.close()


def test_X3_a_direct_url_belongs_to_its_url(direct_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("host=pooler", direct_url="host=db")
    assert (app.database.direct_url, app.database.listen_url) == ("host=db", "host=db")
    assert app.use("host=other").database.direct_url is None
    assert app.database.listen_url == "host=other"
    monkeypatch.setenv("HOLDFAST_DIRECT_URL", "host=configured")
    assert App("host=pooler").database.direct_url == "host=configured"
    with app._elsewhere(direct_url):
        assert app.database.direct_url is None, "tests have a database of their own"


async def test_X3_a_direct_url_of_another_database_is_refused(pooled_url: str, holdfast_server: str) -> None:
    app = App(pooled_url, direct_url=holdfast_server)
    with pytest.raises(ConfigError, match=r"names another database than the URL.*holdfast config"):
        await app.make_worker().run()
