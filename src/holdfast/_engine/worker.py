"""A worker: claims tasks, executes their steps, records how they ended, renews its leases, reaps lost ones.

    claimer ──► roster ──► execution ──► settler ──► (kept moves go back to the roster)
                  ▲ beat (its own thread) renews what the roster holds; reaper takes from lost workers;
                    maintenance keeps the tables small

Each loop has its own connection. Passing trouble with the database never ends a worker; an error that will not
pass, or the death of any loop, ends it at once: a half-dead worker would keep tasks that nobody executes.
"""

import asyncio
import logging
import math
from contextlib import suppress
from uuid import UUID

from holdfast._db.link import Link
from holdfast._db.listen import Listener
from holdfast._db.transactions import Transactions
from holdfast._db.trouble import explaining
from holdfast._engine.attempt import Attempt, Interruption, Roster, StopFlag, now
from holdfast._engine.claim import Claimer
from holdfast._engine.ending import Ending, Recorded, Unsure, continued
from holdfast._engine.execution import Execution, fields
from holdfast._engine.hooks import Hooks
from holdfast._engine.known import Known
from holdfast._engine.lease import Beat, BeatReport
from holdfast._engine.maintenance import Maintenance
from holdfast._engine.moving import Moves
from holdfast._engine.news import News
from holdfast._engine.presence import Presence
from holdfast._engine.progress import ProgressLog
from holdfast._engine.reap import Reaper
from holdfast._engine.resources import Resources
from holdfast._engine.scheduler import SINCE, Scheduler
from holdfast._engine.settings import WorkerSettings
from holdfast._engine.settle import Settler
from holdfast._engine.telling import is_heard, tell_error, tell_recorded
from holdfast._engine.transactional import TransactionalSteps
from holdfast._model.outcome import Cancelled, Failed, Finished, Released
from holdfast._model.tasks import Tasks
from holdfast._sql.queries import queries as queries_of
from holdfast._sql.records import Reaped
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.worker")

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
        self._tells = False
        self.stop_after = math.inf
        self.retired = False
        self.started = asyncio.Event()
        self.roster = Roster(settings.concurrency, settings.serves)

        def link(name: str) -> Link:
            return Link(url, self._queries, f"holdfast {name}")

        self._links = {name: link(name) for name in ("claim", "settle", "reap", "maintain", "schedule")}
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
        self.claimer = Claimer(
            self._links["claim"],
            self._queries,
            tasks,
            self.roster,
            known=known,
            queues=list(settings.queues),
            lease=settings.lease,
            poll=settings.poll,
            claimed=self._on_claimed,
            identify=self.presence.introduce,
        )
        self.settler = Settler(
            self._links["settle"],
            self._queries,
            tasks,
            self.roster,
            lease=settings.lease,
            known=known,
            keeps=lambda: not self._flag.stopping,
            recorded=self._on_recorded,
            enqueued=self._on_enqueued,
        )
        self.reaper = Reaper(
            self._links["reap"],
            self._queries,
            queues=list(settings.queues),
            lease=settings.lease,
            interval=settings.reap,
            reaped=self._on_reaped,
            ended=self._on_reaped_end,
        )
        self.maintenance = Maintenance(
            self._links["maintain"],
            self._queries,
            retention=settings.retention,
            by=self.presence.name,
        )
        self.scheduler = Scheduler(
            self._links["schedule"], self._queries, list(tasks._schedules.values()), enqueued=self._on_planned
        )
        self.hooks = Hooks(tasks)
        self.progress = ProgressLog(self._queries, self.roster)
        self.news = News(self._links["reap"], self._queries)
        self.listener = Listener(self._direct_url, schema, self._heard)

    # --- life

    async def run(self, *, until_idle: bool = False) -> None:
        """Works until stopped; with `until_idle`, until nothing that this worker knows is due."""
        with explaining(self._queries.schema):
            await self._run(until_idle)

    async def _run(self, until_idle: bool) -> None:
        resources = Resources()
        opened = await resources.open(self._tasks)
        moves = Moves(self._queries, self._tasks)
        self.execution = Execution(self._tasks, opened, self._slot_freed, moves, self.progress.changed)
        transactions = Transactions(self._url, self._settings.concurrency)
        self.transactional = TransactionalSteps(
            transactions, self._queries, self._tasks, self.execution, self.settler.recorder, lease=self._settings.lease
        )
        self.beat = Beat(
            self._direct_url,
            self._queries,
            self.roster,
            worker_id=lambda: self.claimer.worker_id,
            lease=self._settings.lease,
            interval=self._settings.beat,
            report=self._on_beat,
            progress=self.progress,
        )
        self.beat.blocked_after = self._settings.blocked
        self._tells = is_heard()
        loops: list[asyncio.Task[None]] = []
        try:
            await self.presence.first_contact(self._stop)
            if self._stop.is_set():
                return
            if self._plans:
                await self.scheduler.declare()
            self.beat.start()
            claiming = asyncio.create_task(self.claimer.run(), name="holdfast claim")
            loops = [
                claiming,
                asyncio.create_task(self.settler.run(), name="holdfast settle"),
                asyncio.create_task(self.reaper.run(), name="holdfast reap"),
                asyncio.create_task(self.maintenance.run(), name="holdfast maintain"),
                asyncio.create_task(self.listener.run(), name="holdfast listen"),
                asyncio.create_task(self._tick(), name="holdfast tick"),
            ]
            if self._plans:
                loops.append(asyncio.create_task(self.scheduler.run(), name="holdfast schedule"))
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
            await self._abandon()
            await self.beat.stop()
            await self.hooks.close()
            await self.execution.close()
            with suppress(Exception):
                await transactions.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH):
                    await resources.close()
            for link in self._links.values():
                with suppress(Exception):
                    await link.close()

    async def _abandon(self) -> None:
        """Nothing of ours may go on after the worker: what still runs here is interrupted and its leases run out."""
        handles = [a.handle for a in self.roster.held.values() if a.handle is not None]
        for attempt in self.roster.held.values():
            self.execution.interrupt(attempt, Interruption.LOST)
        if handles:
            await asyncio.wait(handles, timeout=1)

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
            ended.result()
            if not self._stop.is_set():
                raise HoldfastError(f"the loop {ended.get_name()!r} ended: the worker cannot go on")

    async def _tick(self) -> None:
        """Shows the beat that this loop lives, and sees that the beat does."""
        while True:
            self.beat.tick()
            overdue = self.beat.overdue
            healthy = not self.beat.failing and not overdue
            if healthy and not self.claimer.healthy:
                self.claimer.wake()
            self.claimer.healthy = healthy
            self._release_unstarted(math.inf if overdue else now() - UNSTARTED)
            if overdue:
                # Somebody may have taken over what we hold: stop working on it; the fence decides later.
                for attempt in list(self.roster.held.values()):
                    if attempt.handle is not None and attempt.interruption is None:
                        log.warning(
                            "no beat was accepted for a lease length: %r is interrupted", attempt, extra=fields(attempt)
                        )
                        self.execution.interrupt(attempt, Interruption.CONTACT)
            await asyncio.sleep(min(0.5, self._settings.beat / 4))

    async def _stop_when_idle(self) -> None:
        while True:
            planned = self.scheduler.resting or not self._plans
            if planned and self.claimer.empty and not self.roster.held and not self.settler.waiting:
                due = [
                    await self._links["reap"].run(self._queries.due(q, self._known.steps))
                    for q in self._settings.queues
                ]
                if not any(due) and not self.roster.held:
                    self.stop()
                    return
            await asyncio.sleep(0.005)

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
        self._release_unstarted()
        await self._wait_until_done(self._settings.grace)
        for attempt in list(self.roster.held.values()):
            if attempt.handle is not None:
                self.execution.interrupt(attempt, Interruption.STOP)
        await self._wait_until_done(LAST_WORDS, at_once=True)
        for attempt in list(self.roster.held.values()):
            if attempt.handle is not None:
                # It does not end: its outcome will be dropped.
                attempt.interruption = Interruption.LOST
                self.settler.add(attempt, Released())
        recorded = False
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH):
                await self.settler.settled()
                await self.news.told()
                await telling
                recorded = True
        await self._finish_hooks(max(LAST_WORDS, until - now()))
        if recorded:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH):
                    await self.presence.stopped()
        telling.cancel()
        if self.settler.waiting:
            log.warning("%s outcomes could not be recorded: their leases will run out", self.settler.waiting)

    async def _finish_hooks(self, limit: float) -> None:
        """Lets hooks come to their end in what is left of the grace time; a second stop ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self.hooks.busy and not self._stop_now.is_set():  # noqa: ASYNC110 - one of two things
                    await asyncio.sleep(0.01)

    def _release_unstarted(self, claimed_before: float = math.inf) -> None:
        for attempt in self.roster.take_unstarted(claimed_before):
            self.settler.add(attempt, Released())

    async def _wait_until_done(self, limit: float, *, at_once: bool = False) -> None:
        """Waits until no step is being executed, for a limited time; a second stop ends the wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while any(a.handle is not None for a in self.roster.held.values()):
                    if self._stop_now.is_set() and not at_once:
                        return
                    await asyncio.sleep(0.01)
                    self._release_unstarted()

    # --- executing

    def _on_claimed(self, attempts: list[Attempt]) -> None:
        """New attempts wait for a slot, unless this very process still executes an earlier one of the same task."""
        roster = self.roster
        if roster.lingering or any(a.id.int in roster.held for a in attempts):
            attempts = [a for a in attempts if not self._still_executing(a)]
        roster.put(attempts)
        self._dispatch()

    def _still_executing(self, attempt: Attempt) -> bool:
        former = self.roster.find(attempt.id)
        if former is not None and former.handle is None and former not in self.roster.ready:
            former = None  # it has ended, and that we could claim its task says that this is recorded
        elif former is not None and former.moved is not None and attempt.moves > former.moves:
            former = None  # it has moved by itself, and is only returning
        if former is not None:
            self._lose(former)
        lingering = self.roster.lingering.get(attempt.id)
        if former is None and lingering is None:
            return False
        delay = self._settings.poll
        if lingering is not None:
            # Longer each time: each claim leaves an entry in the log.
            lingering.refusals += 1
            delay = min(60.0, delay * 2**lingering.refusals)
        self.roster.held[attempt.id.int] = attempt
        self.settler.add(attempt, Released(delay=delay))
        return True

    def _dispatch(self) -> None:
        """Starts attempts while there are slots; a stopping worker gives them back instead."""
        if self._flag.stopping:
            self._release_unstarted()
            return
        begin, create_task = self.roster.begin, asyncio.get_running_loop().create_task
        while (attempt := begin()) is not None:
            attempt.stop_flag = self._flag
            attempt.handle = create_task(self._attend(attempt))

    async def _attend(self, attempt: Attempt) -> None:
        """One attempt, from its start to the settler."""
        if attempt.definition.transactional:
            outcome = await self.transactional.execute(attempt)
        else:
            outcome = await self.execution.execute(attempt)
        attempt.handle = None
        roster = self.roster
        roster.finished += 1
        if roster.finished >= self.stop_after:
            self.retire(f"it has made {roster.finished} attempts")
        if outcome is None:
            roster.forget(attempt)
        elif isinstance(outcome, (Recorded, Unsure)):
            self._settled_elsewhere(outcome)
        elif roster.holds(attempt):
            self.settler.add(attempt, outcome)
            tell_error(attempt, outcome)
        if attempt.lingering:
            roster.lingering[attempt.id] = attempt
            log.warning(
                "%s.%s goes on in its thread after its attempt %s ended: it keeps its slot until it ends",
                attempt.kind,
                attempt.step,
                attempt.number,
                extra=fields(attempt),
            )
            return
        self._slot_freed(attempt)

    def _settled_elsewhere(self, outcome: Recorded | Unsure) -> None:
        if isinstance(outcome, Recorded):
            self.settler.recorder.tell_recorded(outcome.ending, outcome.claimed_at)
        else:
            self.settler.find_out(outcome.ending)

    def _slot_freed(self, attempt: Attempt) -> None:
        self.roster.end(attempt)
        if self.roster.lingering:
            self.roster.lingering.pop(attempt.id, None)
        self._dispatch()
        self.claimer.freed(attempt.queue)

    def _on_reaped(self, queue: str, reaped: list[Reaped]) -> None:
        """Tasks of a lost worker may be ours now."""
        for task in reaped:
            self.hooks.reaped(queue, task)
            if task.state == "parked":
                self.news.parked(task.id)
        self.claimer.wake()

    def _on_reaped_end(self, ids: set[UUID]) -> None:
        self.news.ended(ids)

    def _on_recorded(self, ending: Ending, claimed_at: float | None) -> None:
        """What follows a recorded outcome."""
        if self._tells:
            tell_recorded(ending)
        if ending.attempt.crashes:
            self.claimer.wake()  # the next suspect may come
        if ending.kept and claimed_at is not None:
            attempt = continued(ending, self._tasks, claimed_at)
            self.roster.put_first(attempt)
            self._dispatch()
        elif isinstance(ending.outcome, Failed):
            self.hooks.parked(ending.attempt, ending.outcome)
            self.news.parked(ending.attempt.id)
        elif isinstance(ending.outcome, (Finished, Cancelled)):
            if self.news.awaited:
                self.news.ended([ending.attempt.id])
        else:
            # Something may be due sooner than we meant to look.
            self.claimer.wake()

    @property
    def _plans(self) -> bool:
        """Whether it looks after schedules; the tables may be those of a version before."""
        return self._settings.schedules and self.presence.schema_version >= SINCE

    def _on_enqueued(self, queue: str) -> None:
        """A step enqueued something that may be for us."""
        if queue in self._settings.queues:
            self.claimer.wake()

    async def _on_planned(self, queue: str) -> None:
        """The scheduler enqueued something."""
        self._on_enqueued(queue)
        await self._links["schedule"].run(self._queries.notify_if_idle(queue))

    # --- what others say

    def _on_beat(self, report: BeatReport) -> None:
        for attempt in report.lost:
            # One that has ended is the settler's business: its record may just be under way.
            # One that moved by itself is let go on purpose.
            is_ours = self.roster.holds(attempt) and attempt.moved is None
            if is_ours and (attempt.handle is not None or attempt in self.roster.ready):
                self._lose(attempt)
        for attempt in report.cancelled:
            self._cancel(attempt)
        if report.stop_requested:
            self.retired = False  # it was meant to stop for good
            if not self._stop.is_set():
                log.info("asked to stop")
                self.stop()

    def _lose(self, attempt: Attempt) -> None:
        log.warning(
            "the lease of %s.%s is lost: attempt %s is interrupted and its outcome dropped",
            attempt.kind,
            attempt.step,
            attempt.number,
            extra=fields(attempt),
        )
        self.roster.forget(attempt)
        self.roster.withdraw(attempt)
        self.execution.interrupt(attempt, Interruption.LOST)

    def _cancel(self, attempt: Attempt) -> None:
        if not self.roster.holds(attempt):
            return
        if attempt.handle is not None:
            self.execution.interrupt(attempt, Interruption.CANCEL)
        elif self.roster.withdraw(attempt):
            self.settler.add(attempt, Cancelled(""))

    def _heard(self, payload: str) -> None:
        """A notification: a hint, so anything that is not understood is passed over."""
        word, _, rest = payload.partition(" ")
        if word == "queue" and (rest == "*" or rest in self._settings.queues):
            self.claimer.wake()
        elif word == "cancel":
            with suppress(ValueError):
                attempt = self.roster.find(UUID(rest))
                if attempt is not None:
                    self._looking = asyncio.get_running_loop().create_task(self._look_whether_cancelled(attempt))
        elif word == "wait":
            self.news.hear(rest)
        elif word == "pause":
            self.claimer.look_anew()
        elif word == "schedule":
            self.scheduler.wake()
        elif word == "stop":
            self._looking = asyncio.get_running_loop().create_task(self._look_whether_to_stop())

    async def _look_whether_cancelled(self, attempt: Attempt) -> None:
        """Anybody may notify; only the row says that a task was cancelled. If it cannot be read, the beat will tell."""
        with suppress(Exception):
            fences = await self._links["reap"].run(self._queries.fences(attempt.queue, [attempt.id]))
            if attempt.id in fences and fences[attempt.id].cancelled:
                self._cancel(attempt)

    async def _look_whether_to_stop(self) -> None:
        if await self.presence.asked_to_stop(self.roster.stuck):
            self._on_beat(BeatReport(stop_requested=True))
