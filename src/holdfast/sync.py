"""`app.sync`: the same app for blocking code, on connections of its own or on the caller's."""

import asyncio
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar, overload
from uuid import UUID

from typing_extensions import TypeVar as TypeVarWithDefault
from typing_extensions import Unpack

from holdfast import insights, verbs
from holdfast._db.background_loop import BackgroundLoop, blocking
from holdfast._db.callers import can_copy, run_on_sync
from holdfast._db.config.resolve import Database
from holdfast._db.failures import FailureFeed
from holdfast._db.results import ResultWatch
from holdfast._db.sync_pool import SyncPool
from holdfast._model.declare.function import Function
from holdfast._model.declare.kind import Kind
from holdfast._model.declare.options import EnqueueOptions
from holdfast._model.enqueue.call import Call, Entry, StepValue, reference
from holdfast._model.enqueue.ids import as_uuid
from holdfast._model.enqueue.ref import Failure, HowEnqueued, Ref, TaskInfo
from holdfast._model.enqueue.request import Request, durability, request_of, requests_of, shared_durability
from holdfast._model.garbage import no_collecting
from holdfast._model.run.tracing import Tracing
from holdfast._model.time.duration import Duration, seconds
from holdfast._model.time.schedule import Schedule
from holdfast._sql import history, plans
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast._sql.repair import Tally, in_batches
from holdfast.errors import ConfigError, DatabaseUnreachable, WrongState
from holdfast.sync_schedules import SyncSchedules
from holdfast.verbs import ManyOptions, RetryManyOptions

R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVarWithDefault("R_co", covariant=True, default=Any)


class SyncRef(Generic[R_co]):
    """A reference to one task, for blocking code. `created` and `enqueued` are those of `Ref`."""

    def __init__(self, app: "SyncApp", ref: Ref[Any]) -> None:
        self._app = app
        self._ref = ref
        self.id: UUID = ref.id
        self.kind: str = ref.kind
        self.created: bool = ref.created
        self.enqueued: HowEnqueued = ref.enqueued

    def result(self, timeout: Duration | None = None) -> R_co:
        """Waits for the task and gives its result; raises a NoResult if it is parked, cancelled, expired or late."""
        answer: R_co = self._app.result(self._ref, timeout)
        return answer

    def info(self) -> TaskInfo:
        """How the task stands now."""
        return self._app.info(self.id)

    def cancel(self, reason: str = "") -> bool:
        """Cancels the task; False if it had already ended."""
        return self._app.cancel(self.id, reason)

    def __repr__(self) -> str:
        return f"<SyncRef {self.kind} {self.id}>"


class SyncApp:
    """An App's methods for blocking code."""

    def __init__(
        self,
        queries: Queries,
        database: Callable[[], Database],
        durable: Callable[[], bool],
        tracing: Callable[[], Tracing | None] = lambda: None,
        notice: Callable[[str], None] = lambda _: None,
        schedules: dict[str, Schedule] | None = None,
    ) -> None:
        self._queries = queries
        self._database = database
        self._durable = durable
        self._tracing = tracing
        self._notice = notice
        self._schedules = {} if schedules is None else schedules
        self._pool: SyncPool | None = None
        self._watch: tuple[BackgroundLoop, ResultWatch[TaskInfo]] | None = None
        self._beginning = threading.Lock()

    @overload
    def enqueue(self, what: Call[R], /, *, conn: object = None, **options: Unpack[EnqueueOptions]) -> SyncRef[R]: ...
    @overload
    def enqueue(
        self, what: StepValue, /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncRef[Any]: ...
    def enqueue(
        self, what: object, /, *more: object, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> SyncRef[Any]:
        """As `App.enqueue`, blocking."""
        request, tracing = request_of(what, options, more), self._tracing()
        if tracing is None:
            return self._ref(request, self._enqueue(request, conn))
        with tracing.enqueuing([request]) as (request,):
            return self._ref(request, self._enqueue(request, conn))

    @overload
    def enqueue_many(
        self, what: Iterable[Call[R]] | Iterable[Entry[R]], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncRef[R]]: ...
    @overload
    def enqueue_many(
        self, what: Iterable[StepValue], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncRef[Any]]: ...
    def enqueue_many(
        self, what: Iterable[Any], /, *, conn: object = None, **options: Unpack[EnqueueOptions]
    ) -> list[SyncRef[Any]]:
        """As `App.enqueue_many`, blocking."""
        requests, tracing = requests_of(what, options), self._tracing()
        if tracing is None:
            return self._enqueue_many(requests, conn)
        with tracing.enqueuing(requests) as carrying:
            return self._enqueue_many(carrying, conn)

    def _enqueue_many(self, requests: Sequence[Request], conn: object) -> list[SyncRef[Any]]:
        durable = shared_durability(requests, self._durable(), conn)
        if conn is None:
            answers = self._write_many(requests, durable=durable)
        else:
            plan = plans.enqueue_many(self._queries, requests, copy=can_copy(conn))
            answers, queues = plans.drive_sync(plan, partial(run_on_sync, conn))
            for queue in queues:
                self._notice(run_on_sync(conn, self._queries.notify(queue)))
        with no_collecting():
            return [self._ref(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _write_many(self, requests: Sequence[Request], *, durable: bool) -> list[plans.Enqueued]:
        many = plans.Many(self._queries, requests)
        try:
            return self._connections.together(many.plan(), many.wake, durable=durable)[0]
        except DatabaseUnreachable:
            made = self._connections.again(many.again(), many.ended(), many.wake_all(), durable=durable)
            if made is None and many.keyed:
                raise
            return many.as_asked() if made is None else made[0]

    def _enqueue(self, request: Request, conn: object) -> plans.Enqueued:
        durable = durability(request.durable, self._durable(), conn)
        run: Callable[[Query[Any]], Any] = self._run if conn is None else partial(run_on_sync, conn)
        (request,) = plans.drive_sync(plans.new_tasks(self._queries, [request]), run)
        plan = plans.enqueue(self._queries, request)
        if conn is not None:
            answer = plans.drive_sync(plan, run)
            self._notice(run(self._queries.notify(request.queue)))
            return answer
        wake = self._queries.notify_if_idle(request.queue)
        try:
            return plans.drive_sync(plan, partial(self._connections.run, then=wake, durable=durable))
        except DatabaseUnreachable:
            again = plans.enqueue(self._queries, request, again=True)
            return self._connections.again(
                again, self._queries.archived([request.id]), [wake], durable=durable
            ) or plans.Enqueued(request.id, request.kind)

    @overload
    def ref(self, id: UUID | str, of: Function[..., R] | Kind[R], /) -> SyncRef[R]: ...
    @overload
    def ref(self, id: UUID | str, /) -> SyncRef[Any]: ...
    def ref(self, id: UUID | str, of: Any = None, /) -> SyncRef[Any]:
        """As `App.ref`."""
        return SyncRef(self, reference(as_uuid(id), of))

    def info(self, id: UUID | str, /) -> TaskInfo:
        """As `App.info`, blocking."""
        info = self._run(insights.task(self._queries, as_uuid(id)))
        if info is None:
            raise insights.not_found(id)
        return info

    def result(self, ref: Ref[Any], timeout: Duration | None = None, /) -> Any:
        """As `App.result`, blocking."""
        _refuse_on_a_loop()
        limit = None if timeout is None else seconds(timeout, "timeout")
        background, watch = self._watching
        try:
            return insights.result_of(background.wait_for(watch.ended(ref.id), limit), ref)
        except TimeoutError:
            pass
        last: list[TaskInfo | None] = []
        with suppress(DatabaseUnreachable):
            last = [self._run(insights.task(self._queries, ref.id))]
        return insights.result_or_too_late(ref, limit, last)

    def cancel(self, id: UUID | str, reason: str = "", /, *, by: str | None = None) -> bool:
        """As `App.cancel`, blocking."""
        try:
            self._run(verbs.cancel(self._queries, id, by=by, why=reason or None))
        except WrongState:
            return False
        return True

    def retry(
        self,
        id: UUID | str,
        /,
        *,
        args: dict[str, Any] | None = None,
        step: str | None = None,
        by: str | None = None,
        why: str | None = None,
        expected_attempt: int | None = None,
        force: bool = False,
    ) -> None:
        """As `App.retry`, blocking."""
        query = verbs.retry(
            self._queries, id, args=args, step=step, force=force, expected_attempt=expected_attempt, by=by, why=why
        )
        self._run(query)

    def discard(self, id: UUID | str, /, *, by: str | None = None, why: str | None = None) -> None:
        """As `App.discard`, blocking."""
        self._run(verbs.discard(self._queries, id, by=by, why=why))

    def again(self, id: UUID | str, /, *, by: str | None = None, why: str | None = None) -> UUID:
        """As `App.again`, blocking."""
        return self._run(verbs.again(self._queries, id, by=by, why=why))

    def retry_many(self, filter: str, /, **options: Unpack[RetryManyOptions]) -> Tally:
        """As `App.retry_many`, blocking."""
        return plans.drive_sync(in_batches(self._queries, verbs.many("retry", filter, **options)), self._run)

    def cancel_many(self, filter: str, /, **options: Unpack[ManyOptions]) -> Tally:
        """As `App.cancel_many`, blocking."""
        return plans.drive_sync(in_batches(self._queries, verbs.many("cancel", filter, **options)), self._run)

    def discard_many(self, filter: str, /, **options: Unpack[ManyOptions]) -> Tally:
        """As `App.discard_many`, blocking."""
        return plans.drive_sync(in_batches(self._queries, verbs.many("discard", filter, **options)), self._run)

    def stop_workers(
        self, worker: UUID | str | None = None, /, *, by: str | None = None, why: str | None = None
    ) -> int:
        """As `App.stop_workers`, blocking."""
        return self._run(verbs.stop_workers(self._queries, worker, by=by, why=why))

    def pause(self, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None) -> str:
        """As `App.pause`, blocking."""
        return self._run(verbs.pause(self._queries, name, what=what, by=by, why=why))

    def resume(self, name: str, *, what: str | None = None, by: str | None = None, why: str | None = None) -> str:
        """As `App.resume`, blocking."""
        return self._run(verbs.resume(self._queries, name, what=what, by=by, why=why))

    def set_queue(
        self, name: str, *, retention: Duration | None = None, by: str | None = None, why: str | None = None
    ) -> None:
        """As `App.set_queue`, blocking."""
        self._run(verbs.set_queue(self._queries, name, retention=retention, by=by, why=why))

    def set_default(
        self,
        *,
        retention: Duration | None = None,
        figures: Duration | None = None,
        by: str | None = None,
        why: str | None = None,
    ) -> None:
        """As `App.set_default`, blocking."""
        self._run(verbs.set_default(self._queries, retention=retention, figures=figures, by=by, why=why))

    def retention(self, queue: str | None = None, /) -> timedelta:
        """As `App.retention`, blocking."""
        return self._run(history.retention(self._queries, queue))

    def explain(self, id: UUID | str, /) -> str:
        """As `App.explain`, blocking."""
        return self._run(insights.explain(self._queries, as_uuid(id)))

    def failures(self, since: datetime | Duration | None = None) -> Generator[Failure, None, None]:
        """As `App.failures`, blocking: `for failure in app.sync.failures(since="1h")`. Never ends."""
        _refuse_on_a_loop()
        return blocking(FailureFeed(self._database().listen_url, self._queries, self._run_aside, since).follow())

    @property
    def schedules(self) -> SyncSchedules:
        """As `App.schedules`, blocking."""
        return SyncSchedules(self)

    def ask(self, query: Query[T]) -> T:
        """Runs a query of `holdfast.insights`."""
        return self._run(query)

    def _together(self, plan: plans.Plan[T], wake: Callable[[T], set[str]]) -> T:
        """Follows a plan in one transaction and wakes workers of the queues that it names."""
        notify = self._queries.notify_if_idle
        return self._connections.together(plan, lambda answer: [*map(notify, sorted(wake(answer)))], durable=True)

    def close(self) -> None:
        """Closes the connections."""
        watching, self._watch = self._watch, None
        if watching is not None:
            watching[0].close()
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @property
    def _connections(self) -> SyncPool:
        _refuse_on_a_loop()
        if self._pool is None or self._pool.pid != os.getpid():
            self._pool = SyncPool(self._database().url, self._queries)
        return self._pool

    @property
    def _watching(self) -> tuple[BackgroundLoop, ResultWatch[TaskInfo]]:
        """A watch for all threads, and the loop it is on."""
        with self._beginning:
            if self._watch is None or self._watch[0].pid != os.getpid():
                ended = partial(insights.ended, self._queries)
                watch = ResultWatch(self._database().listen_url, self._queries, self._run_aside, ended)
                self._watch = BackgroundLoop("holdfast-watch"), watch
            return self._watch

    async def _run_aside(self, query: Query[T]) -> T:
        return await asyncio.to_thread(self._run, query)

    def _run(self, query: Query[T]) -> T:
        return self._connections.run(query)

    def _ref(self, request: Request, answer: plans.Enqueued) -> SyncRef[Any]:
        return SyncRef(self, Ref(answer.id, answer.kind, enqueued=answer.how, decode_result=request.decode_result))


def _refuse_on_a_loop() -> None:
    """To block here is to stop the loop, and with it the worker that may be in it: a wait is then for ever."""
    if asyncio._get_running_loop() is not None:
        raise ConfigError(
            "app.sync would block the event loop that runs on this thread, and with it all that goes on there: "
            "await the same method of the app itself, as in await app.enqueue(…), or call this one with "
            "await asyncio.to_thread(…)"
        )
