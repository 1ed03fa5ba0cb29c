"""The heartbeat: renews leases from a thread of its own, with an event loop and a connection of its own.

So neither a blocked event loop, nor a busy interpreter, nor an empty pool can stop it. It renews only what has
been held for longer than an interval: short tasks are never renewed. Its answers go to the worker's loop:
which attempts are lost, which are cancelled, whether the worker was asked to stop. Between two heartbeats it writes
the progress of steps.

The other way round it watches the worker's loop: a live heartbeat over a dead loop would keep tasks for ever. While
a step blocks the loop, its lease is renewed, as it works. If anything else stands in the way, nothing is renewed after
a lease length, so that other workers take the tasks over.
"""

import asyncio
import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.events import OnHeartbeat
from holdfast._engine.lease import watchdog
from holdfast._engine.loops import Loop, Words
from holdfast._engine.observe.progress import ProgressLog
from holdfast._engine.run.attempt import Attempt, fields, now
from holdfast._engine.shared import Shared
from holdfast._model.safe_log import Log

log = Log("holdfast.worker")

WORDS = Words(
    log,
    "the beat is interrupted",
    recovered="the beat goes on",
    permanent="the beat met an error that may not pass by itself",
)

WEDGED_END = 300.0
EXIT_WEDGED = 70
STARVED = 1.0
TICK = 0.5
"""Seconds from one sign of life of the worker's loop to the next, at most."""


_clock = time.monotonic


def new_loop() -> asyncio.AbstractEventLoop:
    """An event loop that goes on when a step, or a library for tests, replaces `time.monotonic`."""
    loop = asyncio.new_event_loop()
    with suppress(AttributeError):  # uvloop has a clock of its own
        setattr(loop, "time", _clock)  # noqa: B010
    return loop


@dataclass(slots=True)
class HeartbeatReport:
    """The answer to a heartbeat."""

    lost: list[Attempt] = field(default_factory=list)
    cancelled: list[Attempt] = field(default_factory=list)
    stop_requested: bool = False


class Heartbeat:
    """Renews the leases of one worker."""

    def __init__(
        self,
        shared: Shared,
        url: str,
        on_heartbeat: OnHeartbeat,
        progress: ProgressLog,
        *,
        wedged_after: float = WEDGED_END,
    ) -> None:
        settings = shared.settings
        self._url = url
        self._queries = shared.queries
        self._roster = shared.roster
        self._identity = shared.identity
        self._contact = shared.contact
        self._pulse = shared.pulse
        self._lease = settings.lease
        self._interval = settings.beat
        self._blocked_after = settings.blocked
        self._wedged_after = wedged_after
        self._on_heartbeat = on_heartbeat
        self._progress = progress
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="holdfast-beat", daemon=True)
        self._warned = False
        # Not the clock of leases: while the machine sleeps, the loop rightly stands still.
        self.ticked_at = time.monotonic()
        self.died_of: BaseException | None = None

    def start(self) -> None:
        """Begins to watch the event loop that this is called in, and to send heartbeats."""
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        self.ticked_at = time.monotonic()
        self._contact.begin()
        self._pulse.expect("loop", TICK)
        self._thread.start()

    async def stop(self) -> None:
        """Ends the thread, and waits for it a little."""
        self._end.set()
        until = now() + 2
        while self._thread.is_alive() and now() < until:  # noqa: ASYNC110 - a thread sets no asyncio.Event
            await asyncio.sleep(0.01)

    def tick(self) -> None:
        """The worker's loop is alive."""
        self.ticked_at = time.monotonic()
        self._pulse.succeeded("loop")

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(self._beats())
        except BaseException as error:  # told by the worker's loop, which ends: see `Worker._tick`
            self.died_of = error

    async def _beats(self) -> None:
        # A beat that hangs must be given up in time for another try within the lease.
        link = Link(self._url, self._queries, "holdfast beat", timeout=max(1.0, self._interval), by_index=True)
        loop = Loop(
            "beat", self._pulse, self._interval, WORDS, longest=self._interval / 3, rest=partial(self._pause, link)
        )
        await loop.run(partial(self._round, link))
        if not self._contact.failing:
            await self._progress.write(link)
        await link.close()

    async def _round(self, link: Link) -> float | None:
        if self._end.is_set():
            return None
        self._check_loop()
        try:
            sent, renews = now(), not self._is_dead()
            report = await self._beat(link, renews)
            self._contact.accepted(sent if renews else None)
            self._tell(report)
        except Exception:
            self._contact.failed()
            raise
        return self._interval * random.uniform(0.9, 1.0)  # noqa: S311

    async def _beat(self, link: Link, renews: bool) -> HeartbeatReport:
        report = HeartbeatReport()
        due = now() - self._interval
        held: dict[tuple[str, UUID], list[Attempt]] = {}
        for attempt in list(self._roster.held.values()):
            if renews and attempt.held_since <= due:
                held.setdefault((attempt.queue, attempt.worker_id), []).append(attempt)
        for (queue, worker_id), attempts in held.items():
            await self._renew(link, queue, worker_id, attempts, report)
        asked = await link.run(self._queries.seen(self._identity.worker_id, self._roster.stuck, self._pulse.loops))
        report.stop_requested = bool(asked)
        return report

    async def _renew(
        self, link: Link, queue: str, worker_id: UUID, attempts: list[Attempt], report: HeartbeatReport
    ) -> None:
        ids = [a.id for a in attempts]
        begun = [a.id for a in attempts if a.handle is not None]
        lease = timedelta(seconds=self._lease)
        beaten = {b.id: b for b in await link.run(self._queries.beat(queue, worker_id, ids, lease, begun=begun))}
        missing = [a for a in attempts if a.id not in beaten]
        if missing:
            # Lost, or just locked by our own settler or by a cancellation: the row tells.
            fences = await link.run(self._queries.fences(queue, [a.id for a in missing]))
            for attempt in missing:
                fence = fences.get(attempt.id)
                if fence is None or fence.worker_id != worker_id or fence.attempt < attempt.number:
                    report.lost.append(attempt)
        report.cancelled += [a for a in attempts if a.id in beaten and beaten[a.id].cancelled]

    def _tell(self, report: HeartbeatReport) -> None:
        if report.lost or report.cancelled or report.stop_requested:
            try:
                self._main.call_soon_threadsafe(self._on_heartbeat.answered, report)
            except RuntimeError:
                self._end.set()

    async def _pause(self, link: Link, seconds: float) -> None:
        until = now() + seconds
        while not self._end.is_set() and (left := until - now()) > 0:
            if self._progress.is_due and not self._contact.failing:
                await self._progress.write(link)
            before = time.monotonic()
            await asyncio.sleep(min(left, 0.1))
            if time.monotonic() - before > STARVED:
                self.tick()  # this whole process stood still, by Ctrl-Z perhaps: that is not the loop's fault
            self._check_loop()

    def _is_dead(self) -> bool:
        """Whether the loop has stood still for longer than a lease, and no step is why."""
        if time.monotonic() - self.ticked_at <= self._lease:
            return False
        seen = watchdog.snapshot(self._main, self._main_thread, self._roster)
        return not (seen.attempts or seen.is_idle or seen.is_debugged)

    def _check_loop(self) -> None:
        silent = time.monotonic() - self.ticked_at
        if silent <= self._blocked_after:
            if self._warned:
                log.info("the event loop moves again")
            self._warned = False
            return
        if self._warned and silent <= self._wedged_after:
            return
        seen = watchdog.snapshot(self._main, self._main_thread, self._roster)
        if seen.is_debugged:
            return
        if silent > self._wedged_after:
            log.critical(
                "the event loop has not moved for %.0f s: this process ends, so that others take its tasks over. %s",
                silent,
                seen.who,
            )
            os._exit(EXIT_WEDGED)
        if seen.is_idle:
            return  # the worker is ending, and does not tick any more
        self._warned = True
        if seen.attempts:
            log.warning(
                "the event loop is blocked for %.1f s by %s: nothing else happens in this worker meanwhile. "
                "Write def instead of async def, or call what blocks with asyncio.to_thread",
                silent,
                seen.who,
                extra=fields(seen.attempts[0]) if len(seen.attempts) == 1 else None,
            )
        else:
            log.error(
                "the event loop has stood still for %.1f s at %s, and no step is why: nothing happens in this worker "
                "meanwhile. It stops renewing leases after %.0f s, so that others take its tasks over, and ends after "
                "%.0f s. Restart it if you cannot wait; if the place is not in your code, report it as a bug",
                silent,
                seen.who,
                self._lease,
                self._wedged_after,
            )
