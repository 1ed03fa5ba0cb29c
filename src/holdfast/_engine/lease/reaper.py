"""Reaping: tasks whose lease ran out are taken from their lost worker, by every worker, for ever.

With it goes what else time undoes: tasks that were not started before their deadline.

A worker reaps only after a lease length of continuous contact with the server, in which its own heartbeats were
accepted and nothing was lacking: after an outage, with a full disk, or when the clock has stepped, the others get that
time to come back and renew, so no task is charged for it.
"""

import asyncio
import math
import random
import time
from datetime import datetime
from typing import TypeVar

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_missing_partition
from holdfast._engine.events import OnReaped
from holdfast._engine.loops import Loop, Words
from holdfast._engine.run.attempt import now
from holdfast._engine.shared import Shared
from holdfast._model.safe_log import Log
from holdfast._sql.query import Query
from holdfast._sql.rows import Overdue

T = TypeVar("T")

log = Log("holdfast.worker")

WORDS = Words(log, "reaping is interrupted")

BATCH = 1000


class Reaper:
    """Takes expired leases back, and archives expired tasks."""

    def __init__(self, shared: Shared, link: Link, on_reaped: OnReaped) -> None:
        settings = shared.settings
        self._link = link
        self._queries = shared.queries
        self._queues = list(settings.queues)
        self._lease = settings.lease
        self._interval = settings.reap
        self._contact = shared.contact
        self._loop = Loop("reap", shared.pulse, settings.reap, WORDS, longest=0.0)
        self._on_reaped = on_reaped
        self._heard = now()
        self._ahead = math.inf

    async def run(self) -> None:
        """Reaps for ever."""
        self._heard = now()
        await self._loop.run(self._round)

    async def _round(self) -> float:
        await asyncio.sleep(self._interval * random.uniform(0.7, 1.3))  # noqa: S311
        if (await self.reap_if_allowed()).deadlines:
            await self.expire()
        return 0.0

    async def reap_if_allowed(self) -> Overdue:
        """Reads what is overdue, and reaps unless this worker was out of contact: then all workers may have been."""
        asked = now()
        overdue = await self._link.run(self._queries.overdue(self._queues))
        silent, stepped = await self._was_silent(), await self._has_stepped(overdue.now, asked)
        if overdue.leases and not silent and not stepped:
            since, well = self._link.contact_since, self._contact.all_well_since
            if since is not None and well is not None and time.monotonic() - max(since, well) >= self._lease:
                await self.reap(overdue.now)
        return overdue

    async def reap(self, expired_by: datetime | None = None) -> None:
        """Takes back every lease in this worker's queues that had run out at a moment just read, or has run out.

        The statements may be held up on their way for longer than a lease, as all heartbeats are: then they must not
        take leases that ran out meanwhile.
        """
        for queue in self._queues:
            full = True
            while full:
                reaped = await self._record(self._queries.reap(queue, BATCH, expired_by))
                silent = await self._was_silent()
                cancelled = await self._record(self._queries.reap_cancelled(queue, BATCH, expired_by))
                full = len(reaped) >= BATCH or len(cancelled) >= BATCH
                for task in reaped:
                    log.warning(
                        "%s.%s lost its worker in attempt %s (crash %s): it is %s",
                        task.kind,
                        task.step,
                        task.attempt,
                        task.crashes,
                        task.state,
                        extra={"task_id": str(task.id), "kind": task.kind, "step": task.step, "queue": queue},
                    )
                if reaped:
                    self._on_reaped.reaped(queue, reaped)
                if cancelled:
                    self._on_reaped.archived(cancelled)
                if silent:
                    return
        await self._link.run(self._queries.bury())

    async def expire(self) -> None:
        """Archives what was not started before its deadline in this worker's queues."""
        for queue in self._queues:
            full = True
            while full:
                expired = await self._record(self._queries.expire(queue, BATCH))
                full = len(expired) >= BATCH
                if expired:
                    log.warning("%s tasks of queue %s expired: not started before their deadline", len(expired), queue)
                    self._on_reaped.archived(expired)

    async def _was_silent(self) -> bool:
        """Whether this process was stopped, or slept with the machine. So may others have: contact begins anew."""
        before, self._heard = self._heard, now()
        silent = self._heard - before > 1.3 * self._interval + self._lease / 3
        if silent:
            await self._link.close()
        return silent

    async def _has_stepped(self, clock: datetime, asked: float) -> bool:
        """Whether the server's clock has run ahead of ours: leases seem to be over that no worker could renew so soon.

        It was read at some moment since we asked: what a slow answer explains is no step.
        """
        most, self._ahead = self._ahead, clock.timestamp() - asked
        stepped = clock.timestamp() - now() - most > self._lease / 3
        if stepped:
            await self._link.close()
        return stepped

    async def _record(self, query: Query[T]) -> T:
        """Runs a statement that writes to the log or the archive; makes the partitions of the day if need be."""
        try:
            return await self._link.run(query)
        except Exception as error:
            if not is_missing_partition(error):
                raise
        await self._link.run(self._queries.ensure_partitions())
        return await self._link.run(query)
