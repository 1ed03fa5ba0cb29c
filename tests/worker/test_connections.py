"""Servers that come and go, and databases that cannot be used at all."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from psycopg.pq import TransactionStatus

from holdfast import App, ConfigError, Context, DatabaseUnreachable, SchemaError, TaskNotFound, embedded, insights
from holdfast._db.driver import notifications
from holdfast._db.driver.connection import connect, conninfo, with_database
from holdfast._db.driver.notifications import Listener
from holdfast._db.errors import is_passing, unreachable
from holdfast._db.migrate import migrate
from holdfast._db.pool import SIZE
from holdfast._db.transactions import Transactions
from holdfast._engine import worker as engine
from holdfast.embedded import Server
from holdfast.testing.blocking import blocking
from holdfast.testing.server import new_folder

from .support import attempts, running, sql, until


@pytest.fixture
def app(own_url: str) -> App:
    return App(own_url)


def worker_of(app: App, **settings: Any) -> engine.Worker:
    chosen: dict[str, Any] = {"lease": 1.5, "poll": 0.1, "reap": 0.2, **settings}
    return app.make_worker(**chosen)


async def test_L5_M3_database_away_for_longer_than_a_lease(app: App, own_server: Server, own_url: str) -> None:
    begun: list[int] = []
    cancelled: list[int] = []
    gate = asyncio.Event()

    @app.task
    async def long(ctx: Context) -> int:
        begun.append(ctx.attempt)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelled.append(ctx.attempt)
            raise
        return ctx.attempt

    ref = await long.enqueue()
    worker = worker_of(app)
    async with running(worker) as workers:
        await until(lambda: begun, "for the step")
        former = worker.claimer.worker_id
        await app.close()
        await asyncio.to_thread(own_server.stop, "immediate")
        await until(lambda: not worker.contact.healthy, "for a failing beat")  # it claims nothing any more
        assert cancelled == []
        await until(lambda: cancelled == [1], "for the handler to be told")
        await asyncio.to_thread(own_server.restart)
        gate.set()
        assert await ref.result(timeout=60) == 2
        assert not workers[0].done()
        assert worker.claimer.worker_id != former  # a new server, a new identity
    assert attempts(own_url, ref.id) == [(1, "main", "released"), (2, "main", "done")]
    info = await ref.info()
    assert (info.errors, info.crashes) == (0, 0)
    await app.close()


async def test_L5_an_outage_shorter_than_a_lease_is_not_noticed_by_the_step(
    app: App, own_server: Server, own_url: str
) -> None:
    begun = asyncio.Event()
    gate = asyncio.Event()

    @app.task
    async def long() -> str:
        begun.set()
        await gate.wait()
        return "undisturbed"

    ref = await long.enqueue()
    async with running(worker_of(app, lease=60, beat=0.3)) as workers:
        await asyncio.wait_for(begun.wait(), 60)
        await app.close()
        await asyncio.to_thread(own_server.restart, "immediate")
        gate.set()
        assert await ref.result(timeout=60) == "undisturbed"
        assert not workers[0].done()
    assert attempts(own_url, ref.id) == [(1, "main", "done")]
    await app.close()


async def test_W5_a_dead_first_host_of_several(own_server: Server, own_url: str) -> None:
    url = own_url.replace("host=", "host=/nowhere,").replace("port=5432", f"port={own_server.port},{own_server.port}")
    app = App(url)

    @app.task
    async def plain(n: int) -> int:
        return n

    async with running(worker_of(app)):
        assert await (await plain.enqueue(3)).result(timeout=60) == 3
    await app.close()


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[Server]:
    """A server that lets nobody write, as a standby does."""
    server = embedded.start(tmp_path / "standby", durable=False)
    sql(server.url(), "ALTER SYSTEM SET default_transaction_read_only = on")
    sql(server.url(), "SELECT pg_reload_conf()")
    yield server
    embedded.reset(server.folder)


async def test_W5_a_first_host_that_is_read_only_is_passed_over(
    standby: Server, own_server: Server, own_url: str
) -> None:
    name = own_url.partition("dbname=")[2].split()[0]
    sql(with_database(standby.url(), "template1"), "SELECT 1")
    url = (
        f"user=postgres dbname={name} host={standby.sockets},{own_server.sockets} port={standby.port},{own_server.port}"
    )
    assert "read-write" in conninfo(url, "test")
    assert "read-write" not in conninfo(own_url, "test")
    app = App(url.replace(f"dbname={name}", "dbname=postgres"))  # a database that both have

    @app.task
    async def plain(n: int) -> int:
        return n

    async with running(worker_of(app)):
        assert await (await plain.enqueue(3)).result(timeout=60) == 3
    await app.close()


class Replaced(NamedTuple):
    """A primary that can be replaced by another server, and the URL that names both."""

    old: Server
    new: str
    url: str

    def stands_down(self) -> None:
        """It goes on running, and lets nobody write any more."""
        sql(self.old.url(), "ALTER SYSTEM SET default_transaction_read_only = on")
        sql(self.old.url(), "SELECT pg_reload_conf()")


@pytest.fixture
def replaced(own_server: Server) -> Iterator[Replaced]:
    folder = new_folder("holdfast-replaced-")
    old = embedded.start(folder, durable=False)
    try:
        blocking(migrate(old.url()))
        url = f"user=postgres dbname=postgres host={old.sockets},{own_server.sockets} port={old.port},{own_server.port}"
        yield Replaced(old, own_server.url(), url)
    finally:
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


async def test_W5_F10_callers_leave_a_primary_that_has_been_replaced(replaced: Replaced) -> None:
    """It still answers: without care, the connections in their pools would be refused for an hour."""
    app = App(replaced.url)

    @app.task
    async def plain(n: int) -> int:
        return n

    def ids(url: str) -> set[UUID]:
        return {id for (id,) in sql(url, "SELECT id FROM holdfast.task")}

    first = [await asyncio.gather(*(plain.enqueue(n) for n in range(20))), await asyncio.to_thread(_sync, app, plain)]
    assert len(ids(replaced.old.url())) == 21, first
    await asyncio.gather(*(app.info(first[0][0].id) for _ in range(5)))  # so there are several connections
    replaced.stands_down()
    await asyncio.to_thread(until_read_only, replaced.old)  # until then it takes what it is given, and may
    refs = [*await asyncio.gather(*(plain.enqueue(n) for n in range(20))), await app.enqueue(plain.bind(1), key="one")]
    refs.append(await asyncio.to_thread(_sync, app, plain))
    assert {ref.id for ref in refs} <= ids(replaced.new)
    with suppress(DatabaseUnreachable):
        await app.enqueue_many([plain.bind(1)])  # all or nothing, and nobody asks again for it
    (last,) = await app.enqueue_many([plain.bind(2)])
    assert last.id in ids(replaced.new)
    await app.close()


async def test_W5_F10_a_connection_that_was_refused_once_is_not_used_again(replaced: Replaced) -> None:
    app = App(replaced.url)

    @app.task
    async def plain(n: int) -> int:
        return n

    await app.enqueue_many([plain.bind(0)])
    replaced.stands_down()
    await asyncio.to_thread(until_read_only, replaced.old)
    refs: list[Any] = []
    for _ in range(SIZE + 2):
        with suppress(DatabaseUnreachable):
            refs += await app.enqueue_many([plain.bind(1)])
    assert refs and sql(replaced.new, "SELECT id FROM holdfast.task WHERE id = $1", refs[-1].id)
    await app.close()


async def test_A3_F10_who_only_reads_leaves_a_primary_that_has_been_replaced(replaced: Replaced) -> None:
    """It still answers, and what it tells was true once: a result would be waited for in vain."""
    app, new = App(replaced.url), App(replaced.new)

    @new.task
    async def plain(n: int) -> int:
        return n

    ref = await new.enqueue(plain.bind(3))
    reads: list[Callable[[UUID], Awaitable[Any]]] = [
        app.info,
        lambda task: asyncio.to_thread(app.sync.info, task),
        partial(_look_for, app),
    ]
    for _ in range(2):  # so there are several connections
        for answer in await asyncio.gather(*(read(ref.id) for read in reads * 3), return_exceptions=True):
            assert isinstance(answer, TaskNotFound)  # by the old one
    waiting = asyncio.create_task(app.ref(ref.id).result(timeout=60))
    replaced.stands_down()
    await asyncio.to_thread(until_read_only, replaced.old)
    for info in await asyncio.gather(*(read(ref.id) for read in reads * 3)):
        assert info.state == "ready"
    async with running(worker_of(new)):
        assert await waiting == 3
    await app.close()
    await new.close()


async def _look_for(app: App, id: UUID) -> Any:
    """As a page of the web site does."""
    async with app._pool.reading(timedelta(seconds=10)) as run:
        found = await run(insights.task(app._queries, id))
    if found is None:
        raise insights.not_found(id)
    return found


async def test_F10_a_server_that_only_reads_and_is_asked_for_by_its_name_answers(replaced: Replaced) -> None:
    app = App(replaced.old.url())

    @app.task
    async def plain() -> None: ...

    ref = await plain.enqueue()
    assert (await asyncio.to_thread(app.sync.info, ref.id)).state == "ready"
    replaced.stands_down()
    await asyncio.to_thread(until_read_only, replaced.old)
    for _ in range(2):
        assert (await app.info(ref.id)).state == "ready"
        assert (await asyncio.to_thread(app.sync.info, ref.id)).state == "ready"
        assert (await _look_for(app, ref.id)).state == "ready"
    await app.close()


def _sync(app: App, function: Any) -> Any:
    return app.sync.enqueue(function.bind(0))


async def test_W5_F10_a_server_that_lets_nobody_write_is_named_as_such(replaced: Replaced) -> None:
    replaced.stands_down()
    await asyncio.to_thread(until_read_only, replaced.old)
    app = App(replaced.old.url())

    @app.task
    async def plain() -> None: ...

    with pytest.raises(DatabaseUnreachable, match="read-only"):
        await plain.enqueue()
    with pytest.raises(DatabaseUnreachable, match="read-only"):
        await asyncio.to_thread(app.sync.enqueue, plain.bind())
    await app.close()


def until_read_only(server: Server) -> None:
    while sql(server.url(), "SHOW default_transaction_read_only") != [("on",)]:
        pass


@pytest.mark.parametrize("is_async", [True, False])
async def test_T17_F10_steps_get_no_transaction_on_a_primary_that_has_been_replaced(
    replaced: Replaced, is_async: bool
) -> None:
    transactions = Transactions(replaced.url, 1)

    async def begin() -> Any:
        made = await (transactions.for_loop() if is_async else transactions.for_thread())
        await made.begin()
        return made

    try:
        await (await begin()).roll_back()
        replaced.stands_down()
        await asyncio.to_thread(until_read_only, replaced.old)
        with pytest.raises(DatabaseUnreachable, match="read-only"):
            await begin()
        made = await begin()
        try:
            conn = made.tx or made.tx_sync
            answer = conn.execute("CREATE TABLE written (n int)")
            await answer if is_async else answer
        finally:
            await made.roll_back()
    finally:
        await transactions.close()


async def test_W3_F10_a_listener_leaves_a_primary_that_has_been_replaced(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PING_EVERY", 0.1)
    heard: list[str] = []
    listener = Listener(replaced.url, "holdfast", heard.append)
    listening = asyncio.create_task(listener.run())
    try:
        await asyncio.wait_for(listener.listening.wait(), 60)
        replaced.stands_down()
        await until(lambda: heard.count("queue *") > 1, "for another connection")
        await until(listener.listening.is_set, "to listen")
        sql(replaced.new, "SELECT pg_notify('holdfast', 'queue there')")
        await until(lambda: "queue there" in heard, "for a notification of the new server")
    finally:
        listening.cancel()
        await asyncio.wait([listening])


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ('could not translate host name "db" to address: Temporary failure in name resolution', True),
        ("connection refused", True),
        ("the database system is starting up", True),
        ('FATAL:  password authentication failed for user "x"', False),
        ('FATAL:  database "nope" does not exist', False),
    ],
)
def test_W5_W6_which_connection_errors_pass(text: str, passes: bool) -> None:
    assert is_passing(unreachable(Exception(text))) is passes


async def test_W6_no_schema(own_server: Server) -> None:
    sql(own_server.url(), "CREATE DATABASE bare TEMPLATE template0")
    app = App(own_server.url("bare"))
    try:
        with pytest.raises(SchemaError, match="holdfast migrate"):
            await worker_of(app).run()
        with pytest.raises(SchemaError, match="holdfast migrate"):
            await app.stop_workers()
    finally:
        await app.close()
        sql(own_server.url(), "DROP DATABASE bare WITH (FORCE)")


async def test_W6_newer_schema(app: App, own_url: str) -> None:
    sql(own_url, "INSERT INTO holdfast.migration (version, name, objects) VALUES (99, 'later', '{}')")
    with pytest.raises(SchemaError, match="99"):
        await worker_of(app).run()


async def test_W6_wrong_database_and_wrong_url(own_server: Server) -> None:
    with pytest.raises(DatabaseUnreachable, match="does not exist"):
        await worker_of(App(own_server.url("nowhere"))).run()
    with pytest.raises(ConfigError, match="not a PostgreSQL URL"):
        await worker_of(App("mysql:/what")).run()


async def test_W6_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast._engine.lease.registration.FIRST_CONTACT", 0.1)
    with pytest.raises(DatabaseUnreachable, match="Is the server running") as caught:
        await worker_of(App("postgresql://ann:secret@127.0.0.1:1/x")).run()
    assert "secret" not in str(caught.value)


async def test_M20_a_cancellation_is_not_lost_with_the_connection(own_url: str) -> None:
    """The driver, cancelled in a statement, waits for its end; if the connection breaks then, it tells only that."""
    connection = await connect(own_url)
    asking = asyncio.ensure_future(connection.execute("SELECT pg_sleep(600)"))
    await until(lambda: connection.info.transaction_status is TransactionStatus.ACTIVE, "for the statement")
    sql(own_url, "SELECT pg_terminate_backend($1, 10000)", connection.info.backend_pid)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert connection.broken
