"""A worker: claims tasks, executes their steps, records how they ended, renews its leases, reaps lost ones.

    claimer ──► dispatcher ──► executor ──► settler ──► consequences
                    ▲                          └── kept moves go back to the dispatcher

The roster has what this worker holds. The heartbeat, in a thread of its own, renews the leases. Messages pass on the
answers to heartbeats, and notifications. The reaper takes tasks from lost workers, the scheduler plans, and maintenance
keeps the tables small. `events.py` has what the stages say to each other.

Each loop has its own connection. Passing trouble with the database never ends a worker; an error that will not
pass, or the death of any loop, ends it at once: a half-dead worker would keep tasks without executing them.
"""

import asyncio
import math
from contextlib import suppress
from datetime import timedelta
from functools import partial

from holdfast._db.driver.forks import end_children_in
from holdfast._db.driver.notifications import PING_EVERY, Listener
from holdfast._db.driver.session import Link
from holdfast._db.errors import explaining, is_passing
from holdfast._db.transactions import Transactions
from holdfast._engine.claim.bell import Bell
from holdfast._engine.claim.budget import ClaimBudget
from holdfast._engine.claim.claimer import Claimer
from holdfast._engine.claim.steps import KnownSteps
from holdfast._engine.claim.wakeups import WakeUps
from holdfast._engine.lease.contact import Contact
from holdfast._engine.lease.heartbeat import TICK, Heartbeat
from holdfast._engine.lease.reaper import Reaper
from holdfast._engine.lease.registration import Registration
from holdfast._engine.maintain.maintenance import Maintenance
from holdfast._engine.maintain.scheduler import SINCE, Scheduler
from holdfast._engine.observe.failure_hooks import FailureHooks
from holdfast._engine.observe.health import Health
from holdfast._engine.observe.messages import Messages
from holdfast._engine.observe.notifications import Notifications
from holdfast._engine.observe.progress import ProgressLog
from holdfast._engine.run.attempt import now
from holdfast._engine.run.dispatcher import Dispatcher, Executors
from holdfast._engine.run.executor import Executor
from holdfast._engine.run.own_move import Moves
from holdfast._engine.run.resources import Resources
from holdfast._engine.run.roster import Roster
from holdfast._engine.run.start_mark import StartMark
from holdfast._engine.run.transactional import TransactionalSteps
from holdfast._engine.settings import WorkerSettings
from holdfast._engine.settle.consequences import Consequences
from holdfast._engine.settle.continuation import Keeper
from holdfast._engine.settle.partitions import Partitions
from holdfast._engine.settle.pending import Pending
from holdfast._engine.settle.recorder import LOCK_TIMEOUT, Recorder
from holdfast._engine.settle.settlement import Settlement
from holdfast._engine.settle.settler import Settler
from holdfast._engine.shared import Shared
from holdfast._model.declare.tasks import Tasks
from holdfast._model.safe_log import Log
from holdfast._sql.queries import Queries
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
        self._vanished: BaseException | None = None
        queries = queries_of(schema)
        self._links = _links(url, direct_url, queries)
        self.shared = Shared(
            tasks,
            settings,
            queries,
            KnownSteps.of(tasks, settings.only),
            Roster(settings.concurrency, settings.serves),
            Contact(settings.lease, self._links.values()),
        )
        self.roster, self.contact, self.life = self.shared.roster, self.shared.contact, self.shared.life
        self.health = Health(self.shared)
        self.budget = ClaimBudget(self.roster, settings.queues)
        self.bell = Bell(self.roster, self.budget)
        self.registration = Registration(self.shared, self._links["reap"], self._links.get("direct"), version)
        self._build_running(url)
        self._build_claiming()
        self._build_upkeep()
        # Beats pass by a pooler that is full or stuck; notifications come through no other way.
        self._build_hearing(direct_url or url)

    # --- the stages

    def _build_running(self, url: str) -> None:
        """The dispatcher executes attempts, the settler records their endings, and then follow the consequences."""
        shared, link = self.shared, self._links["settle"]
        tasks, queries = shared.tasks, shared.queries
        self.hooks = FailureHooks(tasks)
        self.notifications = Notifications(self._links["reap"], queries)
        counting = () if self.health.count is None else (self.health.count,)
        self.consequences = Consequences(self.bell, self.hooks, self.notifications, counting)
        self.pending = Pending()
        settlement = Settlement(
            queries,
            tasks,
            timedelta(seconds=shared.settings.lease),
            Keeper(shared, link),
            Partitions(link, queries),
            WakeUps(link, queries, shared.settings.queues, self.bell),
        )
        self.progress = ProgressLog(queries, self.roster)
        self._resources = Resources(tasks)
        self._transactions = Transactions(url, shared.settings.concurrency)
        executor = Executor(tasks, self._resources.opened, Moves(queries, tasks), self.progress.changed)
        transactional = TransactionalSteps(self._transactions, executor, settlement)
        executors = Executors(executor, transactional, StartMark(link, queries), tasks._tracing)
        self.dispatcher = Dispatcher(shared, self.bell, self.pending, self.consequences, executors)
        recorder = Recorder(shared, link, settlement, self.pending, self.dispatcher, self.consequences)
        self.settler = Settler(shared, link, self.pending, recorder)

    def _build_claiming(self) -> None:
        """The claimer hands what it claims to the dispatcher."""
        self.claimer = Claimer(
            self.shared, self._links["claim"], self.budget, self.bell, self.dispatcher, self.registration
        )

    def _build_upkeep(self) -> None:
        """The reaper takes tasks from lost workers, maintenance keeps the tables small, the scheduler plans."""
        shared, links = self.shared, self._links
        queries, settings = shared.queries, shared.settings
        self.reaper = Reaper(shared, links["reap"], self.consequences)
        self.maintenance = Maintenance(
            links["maintain"],
            queries,
            glance=links["reap"],
            retention=settings.retention,
            by=self.registration.name,
            pulse=shared.pulse,
        )
        self.scheduler = Scheduler(
            links["schedule"],
            queries,
            list(shared.tasks._schedules.values()),
            on_enqueued=WakeUps(links["schedule"], queries, settings.queues, self.bell),
            pulse=shared.pulse,
        )

    def _build_hearing(self, direct_url: str) -> None:
        """The heartbeat renews the leases; its answers and the notifications are passed on to the other stages."""
        shared, pulse = self.shared, self.shared.pulse
        self.messages = Messages(
            shared,
            self._links["reap"],
            self.claimer,
            self.dispatcher,
            self.notifications,
            self.registration,
            self.scheduler,
        )
        self.heartbeat = Heartbeat(shared, direct_url, self.messages, self.progress)
        self.listener = Listener(
            direct_url,
            shared.queries.schema,
            self.messages.notification,
            well=partial(pulse.succeeded, "listen"),
            useless=partial(pulse.forget, "listen"),
        )

    # --- life

    @property
    def started(self) -> asyncio.Event:
        """Set as soon as it works."""
        return self.life.started

    @property
    def state(self) -> str:
        """How it stands: starting, running or stopping."""
        return self.life.state

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self.life.stop_requested.is_set()

    @property
    def retired(self) -> bool:
        """Whether a fresh process is to take its place."""
        return self.life.retired

    def stop(self) -> None:
        """Asks the worker to stop; asked a second time, it stops at once."""
        self.life.stop()

    def retire(self, why: str) -> None:
        """Stops gracefully, to be replaced by a fresh process: see `retired`."""
        self.life.retire(why)

    def vanish(self, cause: BaseException) -> None:
        """Ends the worker as kill -9 would: nothing is recorded or released any more. For tests."""
        self._vanished = cause
        self.life.stop_requested.set()

    async def run(self, *, until_idle: bool = False) -> None:
        """Works until stopped; with `until_idle`, until nothing that this worker knows is due."""
        with explaining(self.shared.queries.schema):
            async with self.health:
                await self._run(until_idle)

    async def _run(self, until_idle: bool) -> None:
        end_children_in(asyncio.get_running_loop())
        await self._resources.open()
        self.consequences.begin()
        loops: list[asyncio.Task[None]] = []
        try:
            await self.registration.first_contact(self._declare_schedules)
            if self.stopping:
                return
            claiming, *_ = loops = self._start_loops(until_idle)
            self.started.set()
            await self._until_stop_or_death(loops)
            if self._vanished is not None:
                raise self._vanished
            await self._wind_down(claiming)
        finally:
            self.life.flag.stopping = True
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._close()

    def _start_loops(self, until_idle: bool) -> list[asyncio.Task[None]]:
        """Starts the heartbeat and all loops, that of the claimer first."""
        self.shared.pulse.expect("listen", PING_EVERY)
        self.heartbeat.start()
        loops = {
            "claim": self.claimer.run(),
            "settle": self.settler.run(),
            "reap": self.reaper.run(),
            "maintain": self.maintenance.run(),
            "listen": self.listener.run(),
            "tick": self._tick(),
            "learn": self._learn(),
        }
        if self._plans:
            loops["schedule"] = self.scheduler.run()
        if until_idle:
            loops["idle"] = self._stop_when_idle()
        return [asyncio.create_task(loop, name=f"holdfast {name}") for name, loop in loops.items()]

    async def _close(self) -> None:
        await self.dispatcher.abandon()
        await self.heartbeat.stop()
        await self.hooks.close()
        await self.dispatcher.executor.close()
        with suppress(Exception):
            await self._transactions.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH):
                await self._resources.close()
        for link in self._links.values():
            with suppress(Exception):
                await link.close()

    async def _until_stop_or_death(self, loops: list[asyncio.Task[None]]) -> None:
        stop = asyncio.create_task(self.life.stop_requested.wait())
        try:
            done, _ = await asyncio.wait([stop, *loops], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        for ended in done - {stop}:
            why = asyncio.CancelledError() if ended.cancelled() else ended.exception()
            if isinstance(why, Exception):
                raise why
            if why is not None or not self.stopping:
                how = "" if why is None else f" with {type(why).__name__}, by code that is not the worker's"
                raise HoldfastError(f"the loop {ended.get_name()!r} ended{how}: the worker cannot go on") from why

    async def _tick(self) -> None:
        """Shows the heartbeat that this event loop lives, and checks that the heartbeat does."""
        while True:
            if self.heartbeat.died_of is not None:
                raise HoldfastError("the beat has died: the worker cannot go on") from self.heartbeat.died_of
            self.heartbeat.tick()
            overdue = self.contact.overdue
            if self.contact.judge(overdue=overdue):
                self.bell.rouse()
            if self.settler.rests:
                self.shared.pulse.succeeded("settle")
            self.dispatcher.release_unstarted(math.inf if overdue else now() - UNSTARTED)
            if overdue:
                self.dispatcher.lose_contact()
            await asyncio.sleep(min(TICK, self.shared.settings.beat / 4))

    async def _learn(self) -> None:
        """Takes up steps and schedules that are declared after the start: by a module loaded later, or at a prompt."""
        tasks = self.shared.tasks
        # What the stages were made with: more may have been declared by now.
        known = (self.shared.known.number, self.scheduler.declared)
        failed: tuple[int, int] | None = None
        while True:
            await asyncio.sleep(TICK)
            there = (len(tasks._steps), len(tasks._schedules))
            if there == known:
                continue
            try:
                self.shared.known.learn(tasks, self.shared.settings.only)
                await self.registration.declare_again()
                if self._plans:
                    await self.scheduler.learn(list(tasks._schedules.values()))
            except Exception as error:  # the database is away, or a module is just being loaded by another thread
                if failed != there and not is_passing(error):
                    log.warning("what was declared later cannot be taken up yet: %s", error)
                failed = there
            else:
                known = there
                self.claimer.start_over()

    async def _stop_when_idle(self) -> None:
        while True:
            planned = self.scheduler.resting or not self._plans
            if planned and self.claimer.empty and not self.roster.held and not self.settler.waiting:
                due = [
                    await self._links["reap"].run(self.shared.queries.due(q, self.shared.known.steps))
                    for q in self.shared.settings.queues
                ]
                if not any(due) and not self.roster.held and self.claimer.empty:  # else a claim is on its way
                    self.stop()
                    return
            await asyncio.sleep(0.005)

    async def _declare_schedules(self) -> None:
        if self._plans:
            await self.scheduler.declare()

    @property
    def _plans(self) -> bool:
        """Whether this worker plans schedules; the tables may be those of an earlier version."""
        return self.shared.settings.schedules and self.registration.schema_version >= SINCE

    # --- stopping

    async def _wind_down(self, claiming: "asyncio.Task[None]") -> None:
        """No more claims, finish what runs within the grace time, give the rest back uncharged."""
        until = now() + self.shared.settings.grace
        self.life.flag.stopping = True
        self.bell.ring()
        telling = asyncio.create_task(self.registration.stopping())
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await claiming
        self.dispatcher.release_unstarted()
        await self.dispatcher.until_done(self.shared.settings.grace, unless=self.life.stop_at_once)
        self.dispatcher.interrupt_all()
        await self.dispatcher.until_done(LAST_WORDS)
        self.dispatcher.release_all()
        recorded = False
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH):
                await self.settler.settled()
                await self.notifications.all_sent()
                await telling
                recorded = True
        await self.hooks.until_done(max(LAST_WORDS, until - now()), unless=self.life.stop_at_once)
        if recorded:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH):
                    await self.registration.stopped()
        telling.cancel()
        if self.settler.waiting:
            log.warning("%s outcomes could not be recorded: their leases will run out", self.settler.waiting)


def _links(url: str, direct_url: str | None, queries: Queries) -> dict[str, Link]:
    """The connections of a worker's loop, by what they are for."""

    def link(name: str, *, by_index: bool = False, lock_timeout: str | None = None) -> Link:
        return Link(url, queries, f"holdfast {name}", by_index=by_index, lock_timeout=lock_timeout)

    links = {
        "settle": link("settle", by_index=True, lock_timeout=LOCK_TIMEOUT),
        **{name: link(name, by_index=True) for name in ("claim", "reap")},
        **{name: link(name) for name in ("maintain", "schedule")},
    }
    if direct_url is not None:
        links["direct"] = Link(direct_url, queries, "holdfast check")
    return links
