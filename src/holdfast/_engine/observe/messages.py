"""Messages to a worker: the answers to its heartbeats, and notifications, which are hints and prove nothing."""

import asyncio
from contextlib import suppress
from typing import assert_never

from holdfast._db.driver.notifications import RECONNECTED, Word, understood
from holdfast._db.driver.session import Link
from holdfast._engine.claim.claimer import Claimer
from holdfast._engine.lease.heartbeat import HeartbeatReport
from holdfast._engine.lease.registration import Registration
from holdfast._engine.maintain.scheduler import Scheduler
from holdfast._engine.observe.notifications import Notifications
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.dispatcher import Dispatcher
from holdfast._engine.shared import Shared


class Messages:
    """Passes each message on to the stage that acts on it."""

    def __init__(
        self,
        shared: Shared,
        link: Link,
        claimer: Claimer,
        dispatcher: Dispatcher,
        notifications: Notifications,
        registration: Registration,
        scheduler: Scheduler,
    ) -> None:
        self._link = link
        self._queries = shared.queries
        self._roster = shared.roster
        self._queues = shared.settings.queues
        self._life = shared.life
        self._claimer = claimer
        self._dispatcher = dispatcher
        self._notifications = notifications
        self._registration = registration
        self._scheduler = scheduler

    def answered(self, report: HeartbeatReport) -> None:
        """The answer to a beat."""
        for attempt in report.lost:
            # One that has ended is the settler's business: its record may just be under way.
            # One that moved by itself is let go on purpose.
            is_ours = self._roster.holds(attempt) and attempt.moved is None
            if is_ours and (attempt.handle is not None or attempt in self._roster.ready):
                self._dispatcher.lose(attempt)
        for attempt in report.cancelled:
            self._dispatcher.cancel(attempt)
        if report.stop_requested:
            self._life.stop_for_good()

    def notification(self, payload: str) -> None:
        """A hint: anything that is not understood is passed over."""
        notification = understood(payload)
        if notification is None:
            return
        match notification.word:
            case Word.QUEUE:
                queue, _, id = notification.about.partition(" ")
                if payload == RECONNECTED or queue in self._queues:
                    self._claimer.wake(id)
            case Word.CANCEL:
                for each in notification.ids:
                    attempt = self._roster.find(each)
                    if attempt is not None:
                        self._checking = asyncio.get_running_loop().create_task(self._check_cancelled(attempt))
            case Word.WAIT:
                self._notifications.hear(notification.ids)
            case Word.PAUSE:
                self._claimer.start_over()
            case Word.SCHEDULE:
                self._scheduler.wake()
            case Word.STOP:
                self._checking = asyncio.get_running_loop().create_task(self._check_stop())
            case Word.ENDED | Word.FAILED | Word.PING:
                pass  # for others
            case _:
                assert_never(notification.word)

    async def _check_cancelled(self, attempt: Attempt) -> None:
        """Any session may notify; only the row says that a task was cancelled. The heartbeat reads it as well."""
        with suppress(Exception):
            fences = await self._link.run(self._queries.fences(attempt.queue, [attempt.id]))
            if attempt.id in fences and fences[attempt.id].cancelled:
                self._dispatcher.cancel(attempt)

    async def _check_stop(self) -> None:
        if await self._registration.asked_to_stop(self._roster.stuck):
            self._life.stop_for_good()
