"""The harness: an app on a test's database, with what a test needs to run its tasks, to move time and to look."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar, Unpack

import msgspec

from holdfast import insights
from holdfast._engine.settings import WorkerOptions
from holdfast._engine.worker import Worker
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.filter import EVERYTHING, FINISHED, UNFINISHED
from holdfast._model.run.context import Context
from holdfast._model.time.duration import Duration
from holdfast._sql.query import quote
from holdfast.app import App
from holdfast.testing.assertions import Expected, What, line, listing
from holdfast.testing.blocking import blocking
from holdfast.testing.clock import Clock
from holdfast.testing.crash import Crash, SimulatedCrash, draining
from holdfast.testing.drain import Drained, Watch
from holdfast.testing.inline import Inline
from holdfast.testing.session import Session

T = TypeVar("T")

MOST = 10_000
"""Tasks that an assertion looks at."""


class Harness:
    """An app on a database of its own, with what a test needs to run its tasks and to move time.

    `app` is that app, `url` its database, and `clock` moves its time.
    """

    def __init__(self, app: App, url: str) -> None:
        self.app = app
        self.url = url
        self._session = Session(url)
        self._schema = quote(app.schema)
        self.clock = Clock(self._session, app.schema)

    # --- running

    async def drain(
        self,
        *,
        until: datetime | Duration | None = None,
        queues: list[str] | None = None,
        concurrency: int = 10,
        raises: bool = False,
    ) -> Drained:
        """Runs everything that is due in all queues; with `until`, moves time on to each next task up to then.

        `until` is a time, or how long from now.

        Schedules are looked after, too: what they have due is enqueued and run.

        A step that fails does not fail the test: its task is parked or retried, as in life, and the answer tells.
        With `raises`, what the steps of parked tasks raised is raised here.
        """
        watch = Watch()
        end = None if until is None else self.clock.at(until)
        crashed = await self._drain_due(watch, queues, concurrency)
        while not crashed and end is not None and (due := self._next(queues)) is not None and due <= end:
            self.clock.set(due)
            crashed = await self._drain_due(watch, queues, concurrency)
        if not crashed and end is not None and end > self.clock.now():
            self.clock.set(end)
        return _told(Drained(tuple(watch.attempts), crashed), raises)

    async def run_all(self, *, raises: bool = False, limit: int = 1000) -> Drained:
        """Runs everything, however far in the future it is, until nothing but parked tasks is left.

        Of schedules, which go on for ever, only what is due is enqueued.

        For each next task time is moved on. After `limit` times it gives up: a task may renew itself for ever.
        """
        watch = Watch()
        for _ in range(limit):
            crashed = await self._drain_due(watch, None, 10)
            due = None if crashed else self._next_due(None)
            if due is None:
                return _told(Drained(tuple(watch.attempts), crashed), raises)
            self.clock.set(max(due, self.clock.now()))
        raise AssertionError(
            f"run_all() moved time on {limit} times, to {self.clock.now():%Y-%m-%d}, and there is still something to "
            "run: does a task renew itself for ever? Use drain(until=…), or a higher limit=.\n" + self._listed()
        )

    def drain_sync(
        self,
        *,
        until: datetime | Duration | None = None,
        queues: list[str] | None = None,
        concurrency: int = 10,
        raises: bool = False,
    ) -> Drained:
        """As `drain`, for a `def` test."""
        return blocking(
            self._then_close(self.drain, until=until, queues=queues, concurrency=concurrency, raises=raises)
        )

    def run_all_sync(self, *, raises: bool = False, limit: int = 1000) -> Drained:
        """As `run_all`, for a `def` test."""
        return blocking(self._then_close(self.run_all, raises=raises, limit=limit))

    @contextmanager
    def inline(self) -> Iterator[None]:
        """What is enqueued in this block runs at once: `enqueue` comes back when everything that was due has run.

        An error of a step is raised where the task was enqueued, at the first attempt; what is recorded is as always.
        A task with a delay is not due. One that is enqueued with `conn=` is not there before that is committed: it
        runs with the next enqueue or drain.
        """
        with Inline(self.app, self.drain, self.drain_sync):
            yield

    def worker(self, **settings: Unpack[WorkerOptions]) -> Worker:
        """A worker on this database that is not running yet."""
        chosen: Any = {"queues": self._queues() or ["default"], "poll": 0.05, **settings}
        return self.app.make_worker(**chosen)

    # --- crashing

    @contextmanager
    def crash_after(self, what: object = None, *, when: Callable[[Context], bool] | None = None) -> Iterator[None]:
        """Workers of `drain()` vanish after a step took effect and before that is recorded, as by kill -9.

        `what` is a function, a kind, a step class or a name, by default everything; `when` chooses among its attempts.
        After the block the leases of the lost workers have run out: the next drain takes their tasks over.
        """
        with self._crashing(Crash(_chosen(what, when, "crash_after"), before=False)):
            yield

    @contextmanager
    def crash_before(self, what: object = None, *, when: Callable[[Context], bool] | None = None) -> Iterator[None]:
        """As `crash_after`, but they vanish when the step is claimed and has not begun."""
        with self._crashing(Crash(_chosen(what, when, "crash_before"), before=True)):
            yield

    # --- looking

    def enqueued(self, what: object) -> int:
        """How many unfinished tasks there are of a function, a kind, a step class, a step value or a `kind.Step`."""
        wanted = What.of(what, taker="enqueued")
        args = None if wanted.args is None else msgspec.json.encode(wanted.args).decode()
        rows = self.sql(
            f"SELECT count(*) FROM {self._schema}.task WHERE kind = $1 AND ($2::text IS NULL OR step = $2)"
            " AND ($3::jsonb IS NULL OR args = $3::jsonb)",
            wanted.kind, wanted.step, args,
        )  # fmt: skip
        return int(rows[0][0])

    def assert_enqueued(
        self,
        what: object,
        *,
        times: int | None = None,
        queue: str | None = None,
        key: str | None = None,
        priority: int | None = None,
        args: dict[str, Any] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        within: Duration | None = None,
    ) -> list[TaskInfo]:
        """Fails, and lists what there is, unless such a task is unfinished: at least one, or exactly `times`.

        `what` is a function, a kind, a step class or a name; with a step value or `function.bind(…)` the args must be
        the same too. `args` are some of the fields. `delay` counts from the enqueue and is exact, but from now, and
        give or take 10 seconds, for a task that has moved or is retrying; `within` says how near it must be.
        """
        what = What.of(what, taker="assert_enqueued")
        expected = Expected(what, queue, key, priority, args, delay, at, within)
        found = self._matching(expected)
        if len(found) == times if times is not None else found:
            return found
        how = f"enqueued {len(found)} times, not {times}" if times is not None else "not enqueued"
        raise AssertionError(f"{expected}: {how}. {self._listed(expected)}")

    def assert_not_enqueued(
        self,
        what: object,
        *,
        queue: str | None = None,
        key: str | None = None,
        priority: int | None = None,
        args: dict[str, Any] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        within: Duration | None = None,
    ) -> None:
        """Fails if such a task is unfinished; what it may look for is as in `assert_enqueued`."""
        what = What.of(what, taker="assert_not_enqueued")
        expected = Expected(what, queue, key, priority, args, delay, at, within)
        found = self._matching(expected)
        if found:
            now = self.clock.now()
            raise AssertionError("\n".join([f"{expected} is enqueued:", *(f"  {line(task, now)}" for task in found)]))

    def assert_no_failures(self) -> None:
        """Fails if a task is parked, and tells the errors."""
        parked = self._tasks("parked")
        if parked:
            now = self.clock.now()
            told = [f"  {line(task, now)}\n{(task.error or {}).get('traceback', '')}" for task in parked]
            raise AssertionError("\n".join([f"{len(parked)} parked:", *told]))

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs SQL with numbered parameters (`$1`) on the test's database."""
        return self._session.sql(text, *values)

    # --- inside

    async def close(self) -> None:
        """Closes the app's connections of this event loop."""
        await self.app.close()

    async def _drain_due(self, watch: Watch, queues: list[str] | None, concurrency: int) -> bool:
        """Runs what is due, also in queues that come up meanwhile; True if the worker crashed."""
        await self._plan()
        drained: set[str] = set()
        names = queues or self._queues()
        while not drained.issuperset(names):
            drained.update(names)
            if await self._drain_queues(watch, sorted(drained), concurrency):
                return True
            names = queues or self._queues()
        return False

    async def _drain_queues(self, watch: Watch, names: list[str], concurrency: int) -> bool:
        worker = self.worker(queues=names, concurrency=concurrency, schedules=False)
        watch.over(worker)
        token = draining.set(worker)
        try:
            # A lone fresh worker would wait a lease length before it reaps; tests move the clock instead.
            await worker.reaper.reap()
            await worker.reaper.expire()
            await worker.run(until_idle=True)
        except SimulatedCrash:
            return True
        finally:
            draining.reset(token)
        return False

    async def _plan(self) -> None:
        """Enqueues what schedules have due."""
        if self.app._schedules or self.sql(f"SELECT name FROM {self._schema}.schedule LIMIT 1"):
            scheduler = self.worker().scheduler
            await scheduler.declare()
            await scheduler.catch_up()
            await scheduler.close()

    @contextmanager
    def _crashing(self, crash: Crash) -> Iterator[None]:
        middleware = self.app._middleware
        middleware.insert(0, crash)
        try:
            yield
        finally:
            middleware.remove(crash)
            if crash.lost:
                self.sql(
                    f"UPDATE {self._schema}.task SET lease_expires_at = {self._schema}.now() - interval '1 s'"
                    " WHERE state = 'running' AND worker_id = ANY ($1::uuid[])",
                    crash.lost,
                )

    async def _then_close(self, work: Callable[..., Any], **options: Any) -> Drained:
        try:
            drained: Drained = await work(**options)
            return drained
        finally:
            await self.app.close()

    def _queues(self) -> list[str]:
        rows = self.sql(f"SELECT DISTINCT queue FROM {self._schema}.task ORDER BY queue")
        return [row[0] for row in rows]

    def _next(self, queues: list[str] | None) -> datetime | None:
        return min(filter(None, (self._next_due(queues), self._next_plan())), default=None)

    def _next_due(self, queues: list[str] | None) -> datetime | None:
        rows = self.sql(
            f"SELECT min(run_at) FROM {self._schema}.task WHERE state = 'ready' AND run_at > {self._schema}.now()"
            " AND ($1::text[] IS NULL OR queue = ANY ($1::text[])) AND kind || '.' || step = ANY ($2::text[])",
            queues, [f"{kind}.{step}" for kind, step in self.app._steps],
        )  # fmt: skip
        due: datetime | None = rows[0][0]
        return due

    def _next_plan(self) -> datetime | None:
        planned = self.sql(
            f"SELECT min(next_at) FROM {self._schema}.schedule"
            f" WHERE paused_at IS NULL AND next_at > {self._schema}.now()"
        )
        at: datetime | None = planned[0][0]
        return at

    def _tasks(self, *states: str, limit: int = MOST) -> list[TaskInfo]:
        filter = EVERYTHING.with_term("state", *states)
        return self._session.ask(insights.tasks(self.app._queries, filter, limit=limit))[::-1]

    def _matching(self, expected: Expected) -> list[TaskInfo]:
        now = self.clock.now()
        there = [task for task in self._tasks(*UNFINISHED) if expected.what.is_at(task.kind, task.step)]
        return [task for task in there if not expected.differences(task, now)]

    def _listed(self, expected: Expected | None = None) -> str:
        now = self.clock.now()
        unfinished, finished = self._tasks(*UNFINISHED), self._tasks(*FINISHED)
        wanted = expected or Expected(What(""))
        parts = ["Enqueued is:", listing(unfinished, wanted, now)] if unfinished else ["Nothing is enqueued."]
        if finished:
            parts += ["Finished is:", listing(finished, wanted, now)]
        return "\n".join(parts)


def _chosen(what: object, when: Callable[[Context], bool] | None, taker: str) -> Callable[[Context], bool]:
    wanted = None if what is None else What.of(what, taker=taker)
    if wanted is not None and wanted.args is not None:
        raise TypeError(f"{taker}() takes a function, a kind, a step class or a name, without args; see when=")

    def chosen(ctx: Context) -> bool:
        return (wanted is None or wanted.is_at(ctx.kind, ctx.step)) and (when is None or when(ctx))

    return chosen


def _told(drained: Drained, raises: bool) -> Drained:
    if raises:
        drained.raise_failures()
    return drained
