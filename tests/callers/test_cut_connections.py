"""Connections that are cut while callers have them: between two calls, in the middle of one, or by a restart."""

import asyncio
import random
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from faults.proxy import Proxy
from holdfast import App, DatabaseUnreachable, embedded
from holdfast._db import pool, sync_pool
from holdfast._db.driver.connection import with_database
from holdfast._db.migrate import migrate
from holdfast._sql.query import statements
from holdfast.embedded import Server
from holdfast.testing.server import new_folder
from worker.support import sql, until

CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'holdfast%'
"""
VOLATILE = """
    SELECT proname::text FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace AND provolatile = 'v'
    AND proname <> 'now'
"""
WHOLE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server that may be restarted."""
    folder = new_folder("holdfast-cut-")
    server = embedded.start(folder, durable=False)
    asyncio.run(migrate(server.url()))
    sql(server.url(), "CREATE DATABASE pattern TEMPLATE postgres")
    try:
        yield server
    finally:
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def direct(own_server: Server) -> Iterator[str]:
    """A migrated database on that server, whose commits outlive an immediate stop."""
    name = f"cut_{uuid4().hex[:12]}"
    sql(own_server.url(), f"CREATE DATABASE {name} TEMPLATE pattern")
    sql(own_server.url(), f"ALTER DATABASE {name} SET synchronous_commit = on")
    yield with_database(own_server.url(), name)
    embedded.start(own_server.folder, durable=False)
    sql(own_server.url(), f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def proxy(own_server: Server) -> Iterator[Proxy]:
    made = Proxy(own_server.sockets / f".s.PGSQL.{own_server.port}", random.Random(0))
    made.start()
    yield made
    made.stop()


@pytest_asyncio.fixture
async def app(direct: str, proxy: Proxy) -> AsyncIterator[App]:
    made = App(proxy.url(direct))
    add = made.task(name="add")(_add)
    made.add = add  # type: ignore[attr-defined]
    yield made
    await made.close()
    made.sync.close()


def _add(a: int, b: int = 0) -> int:
    return a + b


Verb = Callable[[Any, Any], Any]
"""Is given an app, or its twin for blocking code, and the id of a parked task."""

VERBS: dict[str, Verb] = {
    "enqueue": lambda app, task: app.enqueue(app.add.bind(1)),
    "enqueue with a key": lambda app, task: app.enqueue(app.add.bind(1), key=uuid4().hex),
    "enqueue_many": lambda app, task: app.enqueue_many([app.add.bind(n) for n in range(3)]),
    "enqueue_many by COPY": lambda app, task: app.enqueue_many([app.add.bind(n) for n in range(300)]),
    "enqueue_many with keys": lambda app, task: app.enqueue_many([app.add.bind(uuid4().int % 2**40)], unique=True),
    "info": lambda app, task: app.info(task),
    "explain": lambda app, task: app.explain(task),
    "retry": lambda app, task: app.retry(task),
    "pause": lambda app, task: app.pause("default"),
    "cancel_many": lambda app, task: app.cancel_many("kind:nobody"),
    "retention": lambda app, task: app.retention(),
}
EVERY_VERB = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)


class Blocking:
    """The same app for blocking code, its calls in threads: so that both are tested alike."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        if name == "add":
            return self._app.add  # type: ignore[attr-defined]
        method = getattr(self._app.sync, name)
        return lambda *given, **options: asyncio.to_thread(lambda: method(*given, **options))


@pytest.fixture(params=["async", "blocking"])
def caller(request: pytest.FixtureRequest, app: App) -> Any:
    return app if request.param == "async" else Blocking(app)


async def fill(caller: Any, direct: str) -> Any:
    """The id of a parked task, with several connections in the pool."""
    ref = await caller.enqueue(caller.add.bind(1))
    sql(direct, "UPDATE holdfast.task SET state = 'parked', error = '{}' WHERE id = $1", ref.id)
    await asyncio.gather(*[caller.info(ref.id) for _ in range(40)])
    assert sql(direct, WHOLE)[0][0] > 2
    return ref.id


async def ended(direct: str, *, but: int = 0) -> None:
    await until(lambda: sql(direct, WHOLE)[0][0] <= but, "for the server to have closed its side")


@EVERY_VERB
async def test_W5_connections_that_the_server_has_ended_are_not_used(caller: Any, direct: str, verb: Verb) -> None:
    id = await fill(caller, direct)
    sql(direct, CUT)
    await ended(direct)
    await verb(caller, id)


@EVERY_VERB
async def test_W5_connections_that_the_network_has_cut_are_not_used(
    caller: Any, direct: str, proxy: Proxy, verb: Verb
) -> None:
    id = await fill(caller, direct)
    proxy.cut()
    await ended(direct)
    await verb(caller, id)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_many", "info", "explain", "retry"])
async def test_W5_callers_wait_for_a_server_that_restarts(
    caller: Any, own_server: Server, direct: str, name: str
) -> None:
    id = await fill(caller, direct)
    await asyncio.to_thread(own_server.stop, "immediate")
    called = asyncio.ensure_future(VERBS[name](caller, id))
    await asyncio.sleep(0.2)
    assert not called.done()
    await asyncio.to_thread(own_server.restart)
    await called


async def test_A3_results_are_waited_for_on_connections_that_were_cut(caller: Any, direct: str, app: App) -> None:
    await fill(caller, direct)
    ref = await caller.enqueue(caller.add.bind(20, 22))
    sql(direct, CUT)
    async with app.worker():
        assert await _awaited(ref.result, 60) == 42


async def _awaited(function: Callable[..., Any], *given: Any) -> Any:
    if asyncio.iscoroutinefunction(function):
        return await function(*given)
    return await asyncio.to_thread(function, *given)


class _Breaking:
    """A network that breaks under one statement: before the server gets it, or after it has done it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def at(self, words: bytes, *, executed: bool) -> None:
        self._proxy.break_at, self._proxy.break_after = words, executed

    @property
    def broke(self) -> bool:
        return not self._proxy.break_at


@pytest.fixture
def breaking(proxy: Proxy) -> _Breaking:
    return _Breaking(proxy)


COMMIT = b"COMMIT\0"
"""Not the beginning of a transaction that is READ COMMITTED."""

EXECUTED = pytest.mark.parametrize("executed", [True, False], ids=["executed", "never sent"])


@EXECUTED
@pytest.mark.parametrize(("name", "words"), [("explain", b"explain"), ("retention", b"retention")])
async def test_W5_what_only_reads_is_asked_again_if_its_connection_breaks(
    caller: Any, direct: str, breaking: _Breaking, executed: bool, name: str, words: bytes
) -> None:
    id = await fill(caller, direct)
    breaking.at(words, executed=executed)
    await VERBS[name](caller, id)
    assert breaking.broke


@EXECUTED
async def test_W5_a_verb_that_may_have_been_done_is_not_done_again(
    caller: Any, direct: str, breaking: _Breaking, executed: bool
) -> None:
    await fill(caller, direct)
    breaking.at(b".pause(", executed=executed)
    with pytest.raises(DatabaseUnreachable):
        await caller.pause("default")
    assert breaking.broke


@EXECUTED
@pytest.mark.parametrize("words", [COMMIT, b"INSERT INTO"])
@pytest.mark.parametrize("keys", [False, True], ids=["without keys", "with keys"])
async def test_E4_many_tasks_are_enqueued_once_whatever_is_lost(
    caller: Any, direct: str, breaking: _Breaking, executed: bool, words: bytes, keys: bool
) -> None:
    await fill(caller, direct)
    held = await caller.enqueue(caller.add.bind(7), unique=True)
    before = sql(direct, "SELECT count(*) FROM holdfast.task")[0][0]
    breaking.at(b"insert_keyed" if keys and words != COMMIT else words, executed=executed)
    refs = await caller.enqueue_many([caller.add.bind(n) for n in range(10)], unique=keys)
    assert breaking.broke
    stored = {id for (id,) in sql(direct, "SELECT id FROM holdfast.task")}
    assert {ref.id for ref in refs} <= stored
    assert len(stored) == before + (9 if keys else 10)
    assert (held.id in {ref.id for ref in refs}) == keys


@pytest.mark.parametrize(
    ("words", "executed"),
    [(COMMIT, True), (COMMIT, False), (b"COPY", False)],
    ids=["commit executed", "commit never sent", "copy never sent"],
)
async def test_E4_a_copy_is_written_once_whatever_is_lost(
    caller: Any, direct: str, breaking: _Breaking, executed: bool, words: bytes
) -> None:
    await fill(caller, direct)
    breaking.at(words, executed=executed)
    refs = await caller.enqueue_many([caller.add.bind(n) for n in range(300)])
    assert breaking.broke
    stored = {id for (id,) in sql(direct, "SELECT id FROM holdfast.task")}
    assert len(stored) == 301
    assert {ref.id for ref in refs} <= stored


async def test_E4_tasks_that_have_run_before_their_answer_was_lost_are_not_enqueued_again(
    caller: Any, direct: str, app: App, breaking: _Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are archived by then: only there their ids are found."""
    await fill(caller, direct)
    pools: list[Any] = [pool.Pool, sync_pool.SyncPool]
    for cls in pools:
        monkeypatch.setattr(cls, "again", _after_all_has_ended(cls.again, direct))
    async with app.worker():
        breaking.at(COMMIT, executed=True)
        refs = await caller.enqueue_many([caller.add.bind(n) for n in range(5)])
        assert breaking.broke
        assert [await _awaited(ref.result, 60) for ref in refs] == list(range(5))
    assert sql(direct, "SELECT count(*) FROM holdfast.archive") == [(5,)]
    assert sql(direct, "SELECT count(*) FROM holdfast.task") == [(1,)]


def _after_all_has_ended(again: Any, direct: str) -> Any:
    def all_ended() -> bool:
        return sql(direct, "SELECT count(*) FROM holdfast.archive") == [(5,)]

    def waiting_sync(*given: Any, **options: Any) -> Any:
        asyncio.run(until(all_ended, "for the tasks to end"))
        return again(*given, **options)

    async def waiting(*given: Any, **options: Any) -> Any:
        await until(all_ended, "for the tasks to end")
        return await again(*given, **options)

    return waiting if asyncio.iscoroutinefunction(again) else waiting_sync


async def test_W5_statements_that_are_asked_again_change_nothing(direct: str) -> None:
    """Neither by themselves nor by a function that they call."""
    volatile = {name for (name,) in sql(direct, VOLATILE)}
    writes = re.compile(r"\b(INSERT|UPDATE|DELETE|COPY|pg_notify|set_config|nextval)\b")
    for statement in statements("holdfast").values():
        if statement.reads and statement.name != "only_look":
            assert not writes.search(statement.text), statement.name
            called = set(re.findall(r'"holdfast"\.(\w+)\(', statement.text))
            assert not called & volatile, statement.name
