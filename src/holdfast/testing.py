"""A pytest plugin for people who test their tasks, and for Holdfast's own tests. It needs `holdfast[embedded]`.

    async def test_greeting(holdfast: Harness) -> None:
        ref = await holdfast.app.enqueue(ReadName("name.txt"))
        await holdfast.drain()
        assert (await ref.info()).state == "done"

Every test gets a database of its own, copied from a migrated template on an embedded server that lives for the
test session; nothing is faked. Time is moved with `holdfast.clock.advance("1h")`: the database's clock is the
only clock that decides. Point the fixture `holdfast_tasks` at your own App or Tasks:

    @pytest.fixture
    def holdfast_tasks() -> App:
        return my_app
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast import embedded
from holdfast._db.config import setting
from holdfast._db.connection import connect_sync, with_database
from holdfast._db.migrate import migrate
from holdfast._engine.worker import Worker
from holdfast._model.call import step_of_class
from holdfast._model.context import Context, Offers
from holdfast._model.duration import Duration, seconds
from holdfast._model.function import Function
from holdfast._model.kind import Kind
from holdfast._model.names import uuid7
from holdfast._model.outcome import Outcome
from holdfast._model.tasks import Tasks
from holdfast._sql.query import quote
from holdfast.app import App

URL_VARIABLE = "HOLDFAST_TEST_URL"
"""A server to test on instead of the embedded one; its role must be allowed to create databases."""


_FOLDER, _OWNER = "holdfast-test-", "owner"


class SimulatedCrash(BaseException):
    """The worker vanished between a step's effect and the record of it."""


class Clock:
    """The database's clock of one test. Real time until it is moved; then it stands still where it was put."""

    def __init__(self, url: str, schema: str) -> None:
        self._url = url
        self._schema = schema

    def now(self) -> datetime:
        """What the database says it is."""
        with connect_sync(self._url) as connection:
            row = connection.execute(f"SELECT {quote(self._schema)}.now()".encode()).fetchone()
        return row[0] if row else datetime.now(UTC)

    def advance(self, by: Duration) -> None:
        """Moves time on; it stands still afterwards."""
        self.set(self.now() + timedelta(seconds=seconds(by, "by")))

    def set(self, to: datetime) -> None:
        """Moves time to an instant, back as well; it stands still afterwards."""
        moment = (to if to.tzinfo else to.astimezone()).isoformat()
        self._replace(f"'{moment}'::timestamptz")

    def resume(self) -> None:
        """Real time again."""
        self._replace("pg_catalog.statement_timestamp()")

    def _replace(self, expression: str) -> None:
        text = f"""
            CREATE OR REPLACE FUNCTION {quote(self._schema)}.now() RETURNS timestamptz
            LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT {expression} $$;
            SELECT {quote(self._schema)}.ensure_partitions(1)
        """
        with connect_sync(self._url) as connection:
            connection.execute(text.encode())


class Harness:
    """An app on a database of its own, with what a test needs to run its tasks and to move time.

    `app` is that app, `url` its database, and `clock` moves its time.
    """

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url
        self.clock = Clock(url, app.schema)
        self._crashes: Callable[[Any, Outcome], bool] | None = None

    async def drain(
        self, *, until: datetime | None = None, queues: list[str] | None = None, concurrency: int = 10
    ) -> None:
        """Runs everything that is due in all queues; with `until`, moves time on to each next task up to then."""
        await self._drain_due(queues, concurrency)
        while until is not None and (due := self._next_due(queues)) is not None and due <= until:
            self.clock.set(due)
            await self._drain_due(queues, concurrency)
        if until is not None and until > self.clock.now():
            self.clock.set(until)

    async def run_all(self) -> None:
        """Runs everything, however far in the future it is, until nothing but parked tasks is left."""
        while True:
            await self._drain_due(None, 10)
            due = self._next_due(None)
            if due is None:
                return
            self.clock.set(max(due, self.clock.now()))

    def enqueued(self, what: object) -> int:
        """How many unfinished tasks there are of a function, a kind, a step class, a step value or a `kind.Step`."""
        condition, values = _condition(what)
        rows = self.sql(f"SELECT count(*) FROM {quote(self.app.schema)}.task WHERE {condition}", *values)
        return int(rows[0][0])

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs SQL with numbered parameters (`$1`) on the test's database."""
        with connect_sync(self.url) as connection:
            cursor = connection.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def crash(self, when: Callable[[Any, Outcome], bool] = lambda attempt, outcome: True) -> Iterator[None]:
        """Workers of `drain()` vanish after a step took effect and before that is recorded, as by kill -9.

        `when` chooses the attempts. Leases run out as in life: move the clock, then drain again.
        """
        self._crashes = when
        try:
            yield
        finally:
            self._crashes = None

    def worker(self, **settings: Any) -> Worker:
        """A worker on this database that is not running yet."""
        chosen = {"queues": self._queues() or ["default"], "poll": 0.05, **settings}
        return self.app.make_worker(**chosen)

    async def _drain_due(self, queues: list[str] | None, concurrency: int) -> None:
        self._reap()
        names = queues or self._queues()
        if not names:
            return
        await self._drain_queues(names, concurrency)
        # Steps may have enqueued into other queues.
        if queues is None and self._crashes is None and set(self._queues()) - set(names):
            await self._drain_due(queues, concurrency)

    async def _drain_queues(self, names: list[str], concurrency: int) -> None:
        worker = self.worker(queues=names, concurrency=concurrency)
        if self._crashes is not None:
            _make_crash(worker, self._crashes)
        try:
            await worker.run(until_idle=True)
        except SimulatedCrash:
            # The crashed worker never says so, and its neighbours' leases run out as well.
            return

    def _reap(self) -> None:
        # A lone fresh worker would wait a lease length before it reaps; tests move the clock instead.
        queries = self.app._queries
        for queue in self._queues():
            for query in (queries.reap(queue, 1000), queries.reap_cancelled(queue, 1000)):
                with connect_sync(self.url) as connection:
                    connection.execute(query.statement.text.encode(), query.parameters)

    def _queues(self) -> list[str]:
        rows = self.sql(f"SELECT DISTINCT queue FROM {quote(self.app.schema)}.task ORDER BY queue")
        return [row[0] for row in rows]

    def _next_due(self, queues: list[str] | None) -> datetime | None:
        schema = quote(self.app.schema)
        rows = self.sql(
            f"SELECT min(run_at) FROM {schema}.task WHERE state = 'ready' AND run_at > {schema}.now()"
            " AND ($1::text[] IS NULL OR queue = ANY ($1::text[])) AND kind || '.' || step = ANY ($2::text[])",
            queues, [f"{kind}.{step}" for kind, step in self.app._steps],
        )  # fmt: skip
        due: datetime | None = rows[0][0]
        return due


def context(*resources: object, attempt: int = 1, **fields: Any) -> Context:
    """A `Context` for calling a step's code directly: `await Poll("u").run(context(client))`."""
    made: dict[str, Any] = {
        "id": uuid7(), "kind": "test", "step": "main", "queue": "default", "attempt": attempt, "errors": 0,
        "crashes": 0, "moves": 0, "key": None, "headers": {}, "deadline": None, "signals": _Signals(),
        "offers": Offers({type(each): each for each in resources}),
    }  # fmt: skip
    unknown = fields.keys() - (made.keys() - {"offers", "signals"}) - {"cancelled", "stopping"}
    if unknown:
        raise TypeError(f"context() has no field {sorted(unknown)[0]!r}")
    signals = _Signals(fields.pop("cancelled", False), fields.pop("stopping", False))
    return Context(**{**made, "signals": signals, **fields})


class _Signals:
    transaction = None
    moved = None

    def __init__(self, cancelled: bool = False, stopping: bool = False) -> None:
        self.cancelled = cancelled
        self.stopping = stopping


def _async_fixture(function: Any) -> Any:
    """pytest-asyncio in its strict mode, which is its default, looks after its own fixtures only."""
    try:
        from pytest_asyncio import fixture
    except ImportError:
        return pytest.fixture(function)  # for other plugins that run async tests
    return fixture(function)


# Fixtures -------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def holdfast_server() -> Iterator[str]:
    """The URL of a server for tests: of the environment, or an embedded one without fsync."""
    given = os.environ.get(URL_VARIABLE)
    if given:
        yield given
        return
    _clear_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    (folder / _OWNER).write_text(str(os.getpid()))
    server = embedded.start(folder, durable=False)
    try:
        yield server.url()
    finally:
        server.stop("immediate")
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def holdfast_template(holdfast_server: str) -> Iterator[str]:
    """The name of a migrated database that each test's own is copied from."""
    name = f"holdfast_template_{uuid4().hex[:12]}"
    _execute(holdfast_server, f"CREATE DATABASE {name}")
    asyncio.run(migrate(with_database(holdfast_server, name), setting("schema").value))
    yield name
    _execute(holdfast_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def holdfast_url(holdfast_server: str, holdfast_template: str) -> Iterator[str]:
    """The URL of a migrated database for one test."""
    name = f"holdfast_test_{uuid4().hex[:12]}"
    _execute(holdfast_server, f"CREATE DATABASE {name} TEMPLATE {holdfast_template}")
    yield with_database(holdfast_server, name)
    _execute(holdfast_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def holdfast_tasks() -> Tasks:
    """What is tested: override it with your own App or Tasks. By default an empty one, to declare tasks in a test."""
    return Tasks()


@_async_fixture
async def holdfast(holdfast_url: str, holdfast_tasks: Tasks) -> AsyncIterator[Harness]:
    """An app on a database of its own."""
    app = holdfast_tasks if isinstance(holdfast_tasks, App) else App(include=[holdfast_tasks])
    with _on_database(app, holdfast_url):
        async with app:
            yield Harness(app, holdfast_url)
        app.sync.close()


def _clear_abandoned() -> None:
    """Ends the servers of test runs that were killed before they could do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob(_FOLDER + "*"):
        try:
            os.kill(int((folder / _OWNER).read_text()), 0)
        except ProcessLookupError:
            with suppress(Exception):
                embedded.reset(folder)
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # somebody else's


@contextmanager
def _on_database(app: App, url: str) -> Iterator[None]:
    """Lets an app use another database for a while."""
    before, app._url, app._database = app._url, url, None
    try:
        yield
    finally:
        app._url, app._database = before, None


def _execute(url: str, text: str) -> None:
    with connect_sync(url) as connection:
        connection.execute(text.encode())


def _condition(what: object) -> tuple[str, list[object]]:
    if isinstance(what, (Function, Kind)):
        return "kind = $1", [what.name]
    if isinstance(what, str):
        kind, _, step = what.partition(".")
        return ("kind = $1 AND step = $2", [kind, step]) if step else ("kind = $1", [kind])
    found = step_of_class(what if isinstance(what, type) else type(what))
    if found is None:
        raise TypeError(f"enqueued() takes a function, a kind, a step class, a step value or a name, not {what!r}")
    if isinstance(what, type):
        return "kind = $1 AND step = $2", [found.kind, found.name]
    return "kind = $1 AND step = $2 AND args = $3::jsonb", [found.kind, found.name, found.encode(what).decode()]


def _make_crash(worker: Worker, when: Callable[[Any, Outcome], bool]) -> None:
    """Replaces the worker's way to its settler by a trap door."""
    add = worker.settler.add

    def add_or_vanish(attempt: Any, outcome: Outcome) -> None:
        if when(attempt, outcome):
            worker.vanish(SimulatedCrash(f"the worker vanished before {attempt!r} was recorded"))
        else:
            add(attempt, outcome)

    worker.settler.add = add_or_vanish  # type: ignore[method-assign]


__all__ = ["Clock", "Harness", "SimulatedCrash", "context"]
