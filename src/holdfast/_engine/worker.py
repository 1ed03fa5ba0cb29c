"""A worker: claims tasks, executes their steps, records how they ended, renews its leases, reaps lost ones.

    claimer ──► dispatch ──► execution ──► settler ──► aftermath ──► (kept moves go back to dispatch)
                  ▲ roster: what this worker holds. The beat (its own thread) renews it, and hearing passes on what
                    others say about it; the reaper takes from lost workers; maintenance keeps the tables small

Each loop has its own connection. Passing trouble with the database never ends a worker; an error that will not
pass, or the death of any loop, ends it at once: a half-dead worker would keep tasks that nobody executes.
"""

import asyncio
import math
from contextlib import suppress
from functools import partial

from holdfast._db.driver.forks import end_children_in
from holdfast._db.driver.notifications import PING_EVERY, Listener
from holdfast._db.driver.session import Link
from holdfast._db.errors import explaining, is_passing
from holdfast._db.transactions import Transactions
from holdfast._engine.claim.claimer import Claimer
from holdfast._engine.claim.steps import Known
from holdfast._engine.lease.heartbeat import TICK, Beat
from holdfast._engine.lease.reaper import Reaper
from holdfast._engine.lease.registration import Presence
from holdfast._engine.loops import Pulse
from holdfast._engine.maintain.maintenance import Maintenance
from holdfast._engine.maintain.scheduler import SINCE, Scheduler
from holdfast._engine.observe.failure_hooks import Hooks
from holdfast._engine.observe.health import Watch
from holdfast._engine.observe.messages import Hearing
from holdfast._engine.observe.notifications import News
from holdfast._engine.observe.progress import ProgressLog
from holdfast._engine.observe.task_log import is_heard
from holdfast._engine.run.attempt import StopFlag, now
from holdfast._engine.run.dispatcher import Dispatch
from holdfast._engine.run.executor import Execution
from holdfast._engine.run.own_move import Moves
from holdfast._engine.run.resources import Resources
from holdfast._engine.run.roster import Roster
from holdfast._engine.run.transactional import TransactionalSteps
from holdfast._engine.settings import WorkerSettings
from holdfast._engine.settle.consequences import Aftermath
from holdfast._engine.settle.recorder import LOCK_TIMEOUT
from holdfast._engine.settle.settler import Settler
from holdfast._model.declare.tasks import Tasks
from holdfast._model.safe_log import Log
from holdfast._sql.queries import queries as queries_of
from holdfast.errors import HoldfastError

log = Log("holdfast.worker")

LAST_FLUSH = 10.0
"""Seconds a stopping worker tries to record its last outcomes: it must end even when the database is away."""
UNSTARTED = 1.0
"""Seconds that a claimed attempt waits for a slot: after that the pace was misjudged, and others may be free."""
LAST_WORDS = 5.0
"""Seconds that interrupted steps have to clean up."""


class Worker:
    """One worker. `run()` lives until it is stopped, or until something happens that will not pass."""

    def __init__(
        self,
        tasks: Tasks,
        url: str,
        settings: WorkerSettings,
        *,
        direct_url: str | None = None,
        schema: str = "holdfast",
        version: str = "",
    ) -> None:
        self._tasks = tasks
        self._url = url
        # Beats pass by a pooler that is full or stuck; notifications come through no other way.
        self._direct_url = direct_url or url
        self._settings = settings
        self._queries = queries_of(schema)
        self._flag = StopFlag()
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._vanished: BaseException | None = None
        self.retired = False
        self.started = asyncio.Event()
        self.roster = Roster(settings.concurrency, settings.serves)

        def link(name: str, *, by_index: bool = False, lock_timeout: str | None = None) -> Link:
            return Link(url, self._queries, f"holdfast {name}", by_index=by_index, lock_timeout=lock_timeout)

        self._links = {
            "settle": link("settle", by_index=True, lock_timeout=LOCK_TIMEOUT),
            **{name: link(name, by_index=True) for name in ("claim", "reap")},
            **{name: link(name) for name in ("maintain", "schedule")},
        }
        if direct_url is not None:
            self._links["direct"] = Link(direct_url, self._queries, "holdfast check")
        known = Known.of(tasks, settings.only)
        self._known = known
        self.presence = Presence(
            self._links["reap"],
            self._queries,
            tasks,
            settings,
            known=known,
            direct=self._links.get("direct"),
            version=version,
            stop=self.stop,
        )
        self.pulse = Pulse()
        self.claimer = Claimer(
            self._links["claim"],
            self._queries,
            tasks,
            self.roster,
            pulse=self.pulse,
            known=known,
            queues=list(settings.queues),
            lease=settings.lease,
            poll=settings.poll,
            claimed=lambda attempts: self.dispatch.take(attempts),
            identify=self.presence.introduce,
        )
        self.settler = Settler(
            self._links["settle"],
            self._queries,
            tasks,
            self.roster,
            pulse=self.pulse,
            poll=settings.poll,
            lease=settings.lease,
            known=known,
            keeps=lambda: not self._flag.stopping,
            recorded=lambda ending, claimed_at: self.aftermath.recorded(ending, claimed_at),
            finished=lambda endings, suspects: self.aftermath.finished(endings, suspects),
            enqueued=lambda queue: self.aftermath.enqueued(queue),
        )
        self.dispatch = Dispatch(
            self.roster,
            self._flag,
            self.claimer,
            self.settler,
            lease=settings.lease,
            poll=settings.poll,
            retire=self.retire,
            out_of_contact=lambda: self.beat.overdue,
        )
        self.hooks = Hooks(tasks)
        self.news = News(self._links["reap"], self._queries)
        self.aftermath = Aftermath(
            self._links["schedule"],
            self._queries,
            tasks,
            queues=settings.queues,
            claimer=self.claimer,
            dispatch=self.dispatch,
            hooks=self.hooks,
            news=self.news,
        )
        self.reaper = Reaper(
            self._links["reap"],
            self._queries,
            pulse=self.pulse,
            queues=list(settings.queues),
            lease=settings.lease,
            interval=settings.reap,
            reaped=self.aftermath.reaped,
            ended=self.news.ended,
        )
        self.maintenance = Maintenance(
            self._links["maintain"],
            self._queries,
            glance=self._links["reap"],
            retention=settings.retention,
            by=self.presence.name,
            pulse=self.pulse,
        )
        self.scheduler = Scheduler(
            self._links["schedule"],
            self._queries,
            list(tasks._schedules.values()),
            enqueued=self.aftermath.planned,
            pulse=self.pulse,
        )
        self.progress = ProgressLog(self._queries, self.roster)
        self.hearing = Hearing(
            self._links["reap"],
            self._queries,
            self.roster,
            queues=settings.queues,
            claimer=self.claimer,
            dispatch=self.dispatch,
            news=self.news,
            presence=self.presence,
            scheduler=self.scheduler,
            stop=self._stop_for_good,
        )
        self.listener = Listener(
            self._direct_url,
            schema,
            self.hearing.notification,
            well=partial(self.pulse.succeeded, "listen"),
            useless=partial(self.pulse.forget, "listen"),
        )
        self.watch = Watch(self.roster, settings, self.pulse, state=lambda: self.state, away=lambda: self.beat.failing)
        self.aftermath.count = self.watch.count

    # --- life

    async def run(self, *, until_idle: bool = False) -> None:
        """Works until stopped; with `until_idle`, until nothing that this worker knows is due."""
        with explaining(self._queries.schema):
            async with self.watch:
                await self._run(until_idle)

    async def _run(self, until_idle: bool) -> None:
        end_children_in(asyncio.get_running_loop())
        resources = Resources()
        opened = await resources.open(self._tasks)
        moves = Moves(self._queries, self._tasks)
        execution = Execution(self._tasks, opened, self.dispatch.free, moves, self.progress.changed)
        transactions = Transactions(self._url, self._settings.concurrency)
        self.dispatch.execution, self.dispatch.tracing = execution, self._tasks._tracing
        self.dispatch.transactional = TransactionalSteps(
            transactions, self._queries, self._tasks, execution, self.settler.recorder, lease=self._settings.lease
        )
        self.beat = Beat(
            self._direct_url,
            self._queries,
            self.roster,
            worker_id=lambda: self.claimer.worker_id,
            lease=self._settings.lease,
            interval=self._settings.beat,
            report=self.hearing.beat,
            progress=self.progress,
            pulse=self.pulse,
            blocked_after=self._settings.blocked,
        )
        self.reaper.all_well_since = self._all_well_since
        self.aftermath.tells = is_heard()
        loops: list[asyncio.Task[None]] = []
        try:
            await self.presence.first_contact(self._stop, self._declare_schedules)
            if self._stop.is_set():
                return
            scheduler = self.scheduler if self._plans else None
            self.pulse.expect("listen", PING_EVERY)
            self.beat.start()
            claiming = asyncio.create_task(self.claimer.run(), name="holdfast claim")
            loops = [
                claiming,
                asyncio.create_task(self.settler.run(), name="holdfast settle"),
                asyncio.create_task(self.reaper.run(), name="holdfast reap"),
                asyncio.create_task(self.maintenance.run(), name="holdfast maintain"),
                asyncio.create_task(self.listener.run(), name="holdfast listen"),
                asyncio.create_task(self._tick(), name="holdfast tick"),
                asyncio.create_task(self._learn(), name="holdfast learn"),
            ]
            if scheduler is not None:
                loops.append(asyncio.create_task(scheduler.run(), name="holdfast schedule"))
            if until_idle:
                loops.append(asyncio.create_task(self._stop_when_idle(), name="holdfast idle"))
            self.started.set()
            await self._until_stop_or_death(loops)
            if self._vanished is not None:
                raise self._vanished
            await self._wind_down(claiming)
        finally:
            self._flag.stopping = True
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.dispatch.abandon()
            await self.beat.stop()
            await self.hooks.close()
            await execution.close()
            with suppress(Exception):
                await transactions.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH):
                    await resources.close()
            for link in self._links.values():
                with suppress(Exception):
                    await link.close()

    @property
    def state(self) -> str:
        """How it stands: starting, running or stopping."""
        return "stopping" if self.stopping else "running" if self.started.is_set() else "starting"

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Asks the worker to stop; asked a second time, it stops at once."""
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    def retire(self, why: str) -> None:
        """Stops gracefully, to be replaced by a fresh process: see `retired`."""
        if not self._stop.is_set():
            log.info("this process is replaced: %s", why)
            self.retired = self._flag.stopping = True  # nothing begins any more, from now on
            self.stop()

    def _stop_for_good(self) -> None:
        """Somebody asked this worker to stop: no other process takes its place."""
        self.retired = False
        if not self._stop.is_set():
            log.info("asked to stop")
            self.stop()

    def vanish(self, cause: BaseException) -> None:
        """Ends the worker as kill -9 would: nothing is recorded or released any more. For tests."""
        self._vanished = cause
        self._stop.set()

    async def _until_stop_or_death(self, loops: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self._stop.wait())
        try:
            done, _ = await asyncio.wait([stop, *loops], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        for ended in done - {stop}:
            why = asyncio.CancelledError() if ended.cancelled() else ended.exception()
            if isinstance(why, Exception):
                raise why
            if why is not None or not self._stop.is_set():
                how = "" if why is None else f" with {type(why).__name__}, by code that is not the worker's"
                raise HoldfastError(f"the loop {ended.get_name()!r} ended{how}: the worker cannot go on") from why

    async def _tick(self) -> None:
        """Shows the beat that this loop lives, and sees that the beat does."""
        while True:
            if self.beat.died_of is not None:
                raise HoldfastError("the beat has died: the worker cannot go on") from self.beat.died_of
            self.beat.tick()
            overdue = self.beat.overdue
            healthy = not self.beat.failing and not overdue
            if healthy and not self.claimer.healthy:
                self.claimer.wake()
            self.claimer.healthy = healthy
            if self.settler.rests:
                self.pulse.succeeded("settle")
            self.dispatch.release_unstarted(math.inf if overdue else now() - UNSTARTED)
            if overdue:
                self.dispatch.lose_contact()
            await asyncio.sleep(min(TICK, self._settings.beat / 4))

    async def _learn(self) -> None:
        """Takes up what is declared after the beginning: by a module that is loaded later, or at a prompt."""
        tasks, told = self._tasks, (self._known.number, len(self._tasks._schedules))
        failed: tuple[int, int] | None = None
        while True:
            await asyncio.sleep(TICK)
            there = (len(tasks._steps), len(tasks._schedules))
            if there == told:
                continue
            try:
                self._known.learn(tasks, self._settings.only)
                await self.presence.tell_anew()
                if self._plans:
                    await self.scheduler.learn(list(tasks._schedules.values()))
            except Exception as error:  # the database is away, or a module is just being loaded by another thread
                if failed != there and not is_passing(error):
                    log.warning("what was declared later cannot be taken up yet: %s", error)
                failed = there
            else:
                told = there
                self.claimer.look_anew()

    async def _stop_when_idle(self) -> None:
        while True:
            planned = self.scheduler.resting or not self._plans
            if planned and self.claimer.empty and not self.roster.held and not self.settler.waiting:
                due = [
                    await self._links["reap"].run(self._queries.due(q, self._known.steps))
                    for q in self._settings.queues
                ]
                if not any(due) and not self.roster.held and self.claimer.empty:  # else a claim is on its way
                    self.stop()
                    return
            await asyncio.sleep(0.005)

    def _all_well_since(self) -> float | None:
        """Since when beats are accepted, and the server has not lacked anything."""
        beating = self.beat.going_well_since
        return None if beating is None else max(beating, *(link.starved_at for link in self._links.values()))

    async def _declare_schedules(self) -> None:
        if self._plans:
            await self.scheduler.declare()

    @property
    def _plans(self) -> bool:
        """Whether it looks after schedules; the tables may be those of a version before."""
        return self._settings.schedules and self.presence.schema_version >= SINCE

    # --- stopping

    async def _wind_down(self, claiming: "asyncio.Task[None]") -> None:
        """No more claims, finish what runs within the grace time, give the rest back uncharged."""
        until = now() + self._settings.grace
        self._flag.stopping = True
        self.claimer.stopping = True
        self.claimer.wake()
        telling = asyncio.create_task(self.presence.stopping())
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await claiming
        self.dispatch.release_unstarted()
        await self.dispatch.until_done(self._settings.grace, unless=self._stop_now)
        self.dispatch.interrupt_all()
        await self.dispatch.until_done(LAST_WORDS)
        self.dispatch.release_all()
        recorded = False
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH):
                await self.settler.settled()
                await self.news.told()
                await telling
                recorded = True
        await self.hooks.until_done(max(LAST_WORDS, until - now()), unless=self._stop_now)
        if recorded:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH):
                    await self.presence.stopped()
        telling.cancel()
        if self.settler.waiting:
            log.warning("%s outcomes could not be recorded: their leases will run out", self.settler.waiting)
