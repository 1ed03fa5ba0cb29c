"""What others say to a worker: the answers to its beats, and notifications, which are hints and prove nothing."""

import asyncio
from contextlib import suppress
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.claim.claimer import Claimer
from holdfast._engine.lease.heartbeat import BeatReport
from holdfast._engine.lease.registration import Presence
from holdfast._engine.maintain.scheduler import Scheduler
from holdfast._engine.observe.notifications import News
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.dispatcher import Dispatch
from holdfast._engine.shared import Shared


class Hearing:
    """Passes on what others say to whom it concerns."""

    def __init__(
        self,
        shared: Shared,
        link: Link,
        claimer: Claimer,
        dispatch: Dispatch,
        news: News,
        presence: Presence,
        scheduler: Scheduler,
    ) -> None:
        self._link = link
        self._queries = shared.queries
        self._roster = shared.roster
        self._queues = shared.settings.queues
        self._life = shared.life
        self._claimer = claimer
        self._dispatch = dispatch
        self._news = news
        self._presence = presence
        self._scheduler = scheduler

    def answered(self, report: BeatReport) -> None:
        """The answer to a beat."""
        for attempt in report.lost:
            # One that has ended is the settler's business: its record may just be under way.
            # One that moved by itself is let go on purpose.
            is_ours = self._roster.holds(attempt) and attempt.moved is None
            if is_ours and (attempt.handle is not None or attempt in self._roster.ready):
                self._dispatch.lose(attempt)
        for attempt in report.cancelled:
            self._dispatch.cancel(attempt)
        if report.stop_requested:
            self._life.stop_for_good()

    def notification(self, payload: str) -> None:
        """A hint: anything that is not understood is passed over."""
        word, _, rest = payload.partition(" ")
        if word == "queue":
            queue, _, id = rest.partition(" ")
            if queue == "*" or queue in self._queues:
                self._claimer.wake(id)
        elif word == "cancel":
            with suppress(ValueError):
                attempt = self._roster.find(UUID(rest))
                if attempt is not None:
                    self._looking = asyncio.get_running_loop().create_task(self._look_whether_cancelled(attempt))
        elif word == "wait":
            self._news.hear(rest)
        elif word == "pause":
            self._claimer.look_anew()
        elif word == "schedule":
            self._scheduler.wake()
        elif word == "stop":
            self._looking = asyncio.get_running_loop().create_task(self._look_whether_to_stop())

    async def _look_whether_cancelled(self, attempt: Attempt) -> None:
        """Anybody may notify; only the row says that a task was cancelled. If it cannot be read, the beat will tell."""
        with suppress(Exception):
            fences = await self._link.run(self._queries.fences(attempt.queue, [attempt.id]))
            if attempt.id in fences and fences[attempt.id].cancelled:
                self._dispatch.cancel(attempt)

    async def _look_whether_to_stop(self) -> None:
        if await self._presence.asked_to_stop(self._roster.stuck):
            self._life.stop_for_good()
