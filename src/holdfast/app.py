"""`App`: tasks with a database. Callers enqueue and ask through it; workers run what it declares."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self, TypeVar, cast, overload
from uuid import UUID

from typing_extensions import Unpack

from holdfast import insights
from holdfast._db.callers import can_copy, run_on
from holdfast._db.config.resolve import Database, check_schema, resolve, setting, worker_options
from holdfast._db.event_loops import PerLoop
from holdfast._db.failures import FailureFeed
from holdfast._db.other_database import OtherDatabases
from holdfast._db.pool import Pool
from holdfast._db.results import ResultWatch
from holdfast._engine.settings import WorkerOptions, WorkerSettings
from holdfast._engine.worker import Worker
from holdfast._model.declare.function import Function
from holdfast._model.declare.kind import Kind
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.call import Call, Entry, StepValue, reference
from holdfast._model.enqueue.ids import as_uuid
from holdfast._model.enqueue.ref import Failure, Ref, TaskInfo
from holdfast._model.enqueue.request import Request, durability, request_of, requests_of, shared_durability
from holdfast._model.garbage import no_collecting
from holdfast._model.safe_log import Log
from holdfast._model.time.duration import Duration, seconds
from holdfast._sql import plans
from holdfast._sql.queries import Queries, queries
from holdfast._sql.query import Query
from holdfast.errors import DatabaseUnreachable, DeclarationError
from holdfast.operations import Operations
from holdfast.schedules import Schedules
from holdfast.sync import SyncApp

log = Log("holdfast.worker")

R = TypeVar("R")
T = TypeVar("T")

LAST_ANSWER_TIMEOUT = 2.0
"""Seconds to ask for the state of a task whose result did not come in time."""


class App(Operations, Tasks):
    """Tasks with a database. Making one opens and imports nothing.

    `url` is a PostgreSQL URL; without it, HOLDFAST_URL, pyproject.toml, DATABASE_URL or a running embedded server say
    it, at first use. `direct_url` is the same database without the pooler, if `url` goes through one: for notifications
    and beats. `schema` holds the tables. `modules` are imported when a worker or a command needs the tasks;
    `include` takes in what other `Tasks` declare. `durable=False`: enqueues do not wait until they are on disk, unless
    told to.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        direct_url: str | None = None,
        schema: str | None = None,
        modules: Sequence[str] = (),
        include: Sequence[Tasks] = (),
        durable: bool | None = None,
    ) -> None:
        super().__init__()
        if isinstance(modules, str):
            raise DeclarationError(f"App(modules={modules!r}): give a list of names, App(modules=[{modules!r}])")
        if isinstance(include, Tasks):
            raise DeclarationError("App(include=tasks): give a list of them, App(include=[tasks])")
        self._url = url
        self._direct_url = direct_url
        self._modules = tuple(modules)
        self._loaded = False
        self._database: Database | None = None
        self._pools = PerLoop(self._make_pool)
        self._watches = PerLoop(self._make_watch)
        self._other_databases = OtherDatabases(lambda: self.database)
        self._sync: SyncApp | None = None
        self._schema = None if schema is None else check_schema(schema)
        self._durable = None if durable is None else bool(setting("durable", durable).value)
        # Its enqueue is overloaded, which a protocol cannot say.
        self._owner = cast(Any, self)
        for tasks in include:
            self._include(tasks)

    @property
    def database(self) -> Database:
        """The database this app uses, and where its URL came from; resolved at first use."""
        if self._database is None:
            self._database = resolve(self._url, self._direct_url)
        return self._database

    @property
    def schema(self) -> str:
        """The schema that holds the tables: as given, else as configured; resolved at first use."""
        if self._schema is None:
            self._schema = str(setting("schema").value)
        return self._schema

    @property
    def durable(self) -> bool:
        """Whether enqueues wait until they are on disk, unless told otherwise: as given, else as configured."""
        if self._durable is None:
            self._durable = bool(setting("durable").value)
        return self._durable

    def use(self, url: str | None = None, *, schema: str | None = None) -> Self:
        """Uses another database or schema from now on: for the command line and for tests."""
        if url is not None:
            self._url, self._direct_url, self._database = url, None, None
        if schema is not None:
            self._schema = check_schema(schema)
        self._pools.clear()
        self._watches.clear()
        self._sync = None
        return self

    @contextmanager
    def _elsewhere(self, url: str) -> Iterator[None]:
        """Uses another database for a while, with connections of its own: for tests."""
        kept = self._url, self._database, self._pools, self._watches, self._sync
        self._pools, self._watches = PerLoop(self._make_pool), PerLoop(self._make_watch)
        self._url, self._database, self._sync = url, Database(url, "this test"), None
        try:
            yield
        finally:
            self._url, self._database, self._pools, self._watches, self._sync = kept

    @property
    def sync(self) -> SyncApp:
        """The same app for blocking code."""
        if self._sync is None:
            self._sync = SyncApp(
                self._queries,
                lambda: self.database,
                lambda: self.durable,
                lambda: self._tracing,
                self._other_databases.notice,
                self._schedules,
            )
        return self._sync

    @property
    def schedules(self) -> Schedules:
        """The schedules of the database, at run time; `app.schedule(…)` declares one in the code."""
        return Schedules(self)

    def load(self) -> Self:
        """Imports `modules=`, so that everything is declared. Workers and the command line do this."""
        if not self._loaded:
            self._loaded = True
            for module in self._modules:
                try:
                    importlib.import_module(module)
                except ModuleNotFoundError as error:
                    if error.name is not None and module.startswith(error.name):
                        raise DeclarationError(
                            f"App(modules=[…]): there is no module {error.name!r}. Check its spelling; it is "
                            "looked for in the folders of sys.path, as in any import"
                        ) from None
                    raise
        return self

    # --- enqueue

    @overload
    async def enqueue(self, what: Call[R], /, *, conn: object = None, **options: Unpack[EnqueueOptions]) -> Ref[R]: ...
    @overload
    async def enqueue(
        self, what: StepValue, /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> Ref[Any]: ...
    async def enqueue(
        self, what: object, /, *more: object, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> Ref[Any]:
        """Enqueues a task: a step value, or a function with its arguments (`send.bind(42)`).

        With `conn`, in that connection's transaction: the task exists exactly if it commits.
        """
        request = request_of(what, options, more)
        if self._tracing is None:
            return self._ref(request, await self._enqueue(request, conn))
        with self._tracing.enqueuing([request]) as (request,):
            return self._ref(request, await self._enqueue(request, conn))

    @overload
    async def enqueue_many(
        self, what: Iterable[Call[R]] | Iterable[Entry[R]], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Ref[R]]: ...
    @overload
    async def enqueue_many(
        self, what: Iterable[StepValue], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Ref[Any]]: ...
    async def enqueue_many(
        self, what: Iterable[Any], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[Ref[Any]]:
        """Enqueues many tasks at once, all or none; `Entry(what, …)` gives one of them options of its own."""
        requests = requests_of(what, options)
        if self._tracing is None:
            return await self._enqueue_many(requests, conn)
        with self._tracing.enqueuing(requests) as carrying:
            return await self._enqueue_many(carrying, conn)

    async def _enqueue_many(self, requests: Sequence[Request], conn: object) -> list[Ref[Any]]:
        durable = shared_durability(requests, self.durable, conn)
        if conn is None:
            answers = await self._write_many(requests, durable=durable)
        else:
            plan = plans.enqueue_many(self._queries, requests, copy=can_copy(conn))
            answers, queues = await plans.drive(plan, partial(run_on, conn))
            for queue in queues:
                self._other_databases.notice(await run_on(conn, self._queries.notify(queue)))
        with no_collecting():
            return [self._ref(request, answer) for request, answer in zip(requests, answers, strict=True)]

    async def _write_many(self, requests: Sequence[Request], *, durable: bool) -> list[plans.Enqueued]:
        many = plans.Many(self._queries, requests)
        try:
            return (await self._pool.together(many.plan(), many.wake, durable=durable))[0]
        except DatabaseUnreachable:
            # As for one task: all exist or none, and it is not known which.
            made = await self._pool.again(many.again(), many.ended(), many.wake_all(), durable=durable)
            if made is None and many.keyed:
                raise  # they exist, but which of them were left out for another with the same key is not known
            return many.as_asked() if made is None else made[0]

    async def _enqueue(self, request: Request, conn: object) -> plans.Enqueued:
        durable = durability(request.durable, self.durable, conn)
        if conn is not None:
            run: Callable[[Query[Any]], Any] = partial(run_on, conn)
            (request,) = await plans.drive(plans.new_tasks(self._queries, [request]), run)
            answer = await plans.drive(plans.enqueue(self._queries, request), run)
            self._other_databases.notice(await run(self._queries.notify(request.queue)))
            return answer
        if not request.complete:
            (request,) = await plans.drive(plans.new_tasks(self._queries, [request]), self._run)
        try:
            if not request.keyed and await self._pool.enqueue(request, durable=durable):
                return plans.Enqueued(request.id, request.kind)
            plan, wake = plans.enqueue(self._queries, request), self._queries.notify_if_idle(request.queue)
            return await plans.drive(plan, partial(self._pool.run, then=wake, durable=durable))
        except DatabaseUnreachable:
            queries = self._queries
            # The answer was lost, or the connection had been broken before. Asked again, but never done twice.
            return await self._pool.again(
                plans.enqueue(queries, request, again=True),
                queries.archived([request.id]),
                [queries.notify_if_idle(request.queue)],
                durable=durable,
            ) or plans.Enqueued(request.id, request.kind)

    # --- ask and act

    @overload
    def ref(self, id: UUID | str, of: Function[..., R] | Kind[R], /) -> Ref[R]: ...
    @overload
    def ref(self, id: UUID | str, /) -> Ref[Any]: ...
    def ref(self, id: UUID | str, of: Any = None, /) -> Ref[Any]:
        """A reference to a task by its id; `of` says what its result is."""
        return reference(as_uuid(id), of, self)

    async def info(self, id: UUID | str, /) -> TaskInfo:
        """How a task stands, live or archived."""
        info = await self._run(insights.task(self._queries, as_uuid(id)))
        if info is None:
            raise insights.not_found(id)
        return info

    async def result(self, ref: Ref[Any], timeout: Duration | None = None, /) -> Any:
        """Waits for a task and gives its result. `ref.result()` is the way to ask for it."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        try:
            async with asyncio.timeout(limit):
                return insights.result_of(await self._watch.ended(ref.id), ref)
        except TimeoutError:
            pass
        last: list[TaskInfo | None] = []
        with suppress(TimeoutError, DatabaseUnreachable):
            async with asyncio.timeout(LAST_ANSWER_TIMEOUT):
                last = [await self._run(insights.task(self._queries, ref.id))]
        return insights.result_or_too_late(ref, limit, last)

    async def failures(self, since: datetime | Duration | None = None) -> AsyncIterator[Failure]:
        """Every failure that parks a task, as it happens: `async for failure in app.failures(since="1h")`. Never ends.

        `since` is a time, or how long ago; without it the feed begins when it is first asked. It reads the log of
        attempts, so a task that was retried meanwhile is told of as well, and each failure once. Restarts of the
        database are waited out.
        """
        async with aclosing(FailureFeed(self.database.listen_url, self._queries, self._run, since).follow()) as feed:
            async for failure in feed:
                yield failure

    # --- work

    @asynccontextmanager
    async def worker(self, **options: Unpack[WorkerOptions]) -> AsyncIterator[None]:
        """Runs a worker beside the body of the `async with`; leaving it stops the worker gracefully."""
        made = self.make_worker(**options)
        running = asyncio.create_task(made.run(), name="holdfast worker")
        starting = asyncio.create_task(made.started.wait())
        try:
            await asyncio.wait([running, starting], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            running.add_done_callback(_log_early_end)
            yield
            running.remove_done_callback(_log_early_end)
        finally:
            starting.cancel()
            made.stop()
            await running

    def make_worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker that is not running yet: for the command line and for tests."""
        settings = WorkerSettings.of(**worker_options(options))
        database = self.database
        return Worker(
            self.load(),
            database.url,
            settings,
            direct_url=database.direct_url,
            schema=self.schema,
            version=package_version(),
        )

    @overload
    def lifespan(self, asgi: object, /) -> AbstractAsyncContextManager[None]: ...
    @overload
    def lifespan(
        self, /, **options: Unpack[WorkerOptions]
    ) -> Callable[[object], AbstractAsyncContextManager[None]]: ...
    def lifespan(self, asgi: object = None, /, **options: Unpack[WorkerOptions]) -> Any:
        """A worker for as long as an ASGI application lives: `FastAPI(lifespan=app.lifespan)`.

        The options are those of the worker: `FastAPI(lifespan=app.lifespan(queues="mail,default"))`.
        """

        @asynccontextmanager
        async def living(asgi: object) -> AsyncIterator[None]:
            async with self, self.worker(**options):
                yield

        return living if asgi is None else living(asgi)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections of this event loop. Those of a loop that has ended are closed at the next use."""
        await self._watches.close()
        await self._pools.close()

    # --- inside

    @property
    def _queries(self) -> Queries:
        return queries(self.schema)

    @property
    def _pool(self) -> Pool:
        return self._pools.here()

    @property
    def _watch(self) -> ResultWatch[TaskInfo]:
        return self._watches.here()

    def _make_pool(self) -> Pool:
        self._watches.abandon_ended()
        return Pool(self.database.url, self._queries)

    def _make_watch(self) -> ResultWatch[TaskInfo]:
        return ResultWatch(self.database.listen_url, self._queries, self._run, partial(insights.ended, self._queries))

    async def _run(self, query: Query[T]) -> T:
        return await self._pool.run(query)

    async def _together(self, plan: plans.Plan[T], wake: Callable[[T], set[str]]) -> T:
        """Follows a plan in one transaction and wakes workers of the queues that it names."""
        notify = self._queries.notify_if_idle
        return await self._pool.together(plan, lambda answer: [*map(notify, sorted(wake(answer)))], durable=True)

    def _ref(self, request: Request, answer: plans.Enqueued) -> Ref[Any]:
        return Ref(
            answer.id,
            answer.kind,
            queue=request.queue or None,
            enqueued=answer.how,
            tracker=self,
            decode_result=request.decode_result,
        )


def _log_early_end(running: "asyncio.Task[None]") -> None:
    """Logs that a worker beside other code has ended by itself: now, not only when that code ends."""
    if not running.cancelled() and running.exception() is not None:
        log.critical("the worker has ended by itself; nothing is executed here any more", exc_info=running.exception())


def package_version() -> str:
    """The installed version of Holdfast."""
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"
