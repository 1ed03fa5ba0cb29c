"""Maintenance: small chores that keep the tables small, done by every worker now and then.

Each chore does a bounded piece of work and bears being done by several workers at once. What fails is logged, tried
again at the next pass, and keeps neither the other chores nor the worker from going on.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TypeAlias

from holdfast._db.driver.session import Link
from holdfast._db.errors import explained, is_passing, is_unknown
from holdfast._engine.loops import Loop, Pulse, Words
from holdfast._engine.maintain.chores import (
    LOCK_TIMEOUT,
    ChoreResult,
    count_figures,
    drop_old_days,
    forget_changes,
    forget_figures,
    forget_occurrences,
    forget_workers,
    make_partitions,
    sweep_keys,
    sweep_progress,
    sweep_queues,
)
from holdfast._engine.run.attempt import now
from holdfast._model.safe_log import Log
from holdfast._model.time.duration import in_short
from holdfast._sql import figures, history
from holdfast._sql.queries import Queries
from holdfast.errors import DatabaseUnreachable

log = Log("holdfast.worker")

WORDS = Words(log, "maintenance is interrupted")

Chore: TypeAlias = Callable[[Link, Queries], Awaitable[ChoreResult]]

COUNTING: dict[str, Chore] = {"counting figures": count_figures}
"""What is done more often than the rest."""

CHORES: dict[str, Chore] = {
    **COUNTING,
    "making partitions": make_partitions,
    "dropping old history": drop_old_days,
    "deleting what queues no longer keep": sweep_queues,
    "sweeping keys": sweep_keys,
    "forgetting stopped workers": forget_workers,
    "forgetting old changes": forget_changes,
    "sweeping progress left behind": sweep_progress,
    "forgetting old occurrences": forget_occurrences,
    "forgetting old figures": forget_figures,
}
"""All chores, in their order, by what they do."""

FIRST = 10.0
EVERY = 600.0
SOON = 5.0
"""Seconds, more or less, until the first pass, between passes, and until the next when one has left something."""
COUNT = 20.0
"""Seconds, more or less, between two questions whether figures are to be counted; one worker of all counts them."""


class Maintenance:
    """Does the chores of one schema, with a connection that is closed in between.

    `retention`, in seconds, is this worker's setting: it counts if the database has none yet. `glance` is a
    connection that is open anyway, to ask whether there is something to do.
    """

    def __init__(
        self,
        link: Link,
        queries: Queries,
        *,
        glance: Link | None = None,
        retention: float | None = None,
        by: str = "",
        pulse: Pulse | None = None,
    ) -> None:
        self._link = link
        self._glance = glance or link
        self._queries = queries
        self._retention = None if retention is None else timedelta(seconds=retention)
        self._by = by
        self._failing: set[str] = set()
        self.first = FIRST
        self.every = EVERY
        self.soon = SOON
        self.count = COUNT
        self._all_at = self._count_at = math.inf
        self._loop = Loop("maintain", pulse or Pulse(), EVERY, WORDS, is_well=self._is_well)

    async def run(self) -> None:
        """Does the chores for ever. Workers that were started together do not do them together."""
        self._all_at, self._count_at = _soon(self.first), _soon(self.count)
        await self._loop.run(self._round)

    async def _round(self) -> float:
        await asyncio.sleep(max(0.0, min(self._all_at, self._count_at) - now()))
        if now() >= self._all_at:
            done = await self._pass(CHORES)
            self._all_at = _soon(self.soon if done.more else self.every)
        elif await self._is_to_count():
            await self._pass(COUNTING)
        self._count_at = _soon(self.count)
        return 0.0

    def _is_well(self) -> bool:
        return not self._failing

    async def _is_to_count(self) -> bool:
        """Whether there is a minute to count. If one cannot be counted yet, notes which sessions it waits for."""
        # If it cannot be asked, trying it tells why.
        with suppress(Exception):
            minute = await self._glance.run(figures.look(self._queries, timedelta(seconds=self.count / 2)))
            if minute is None:
                return False
            if minute.is_to_note and not minute.is_to_count:
                await self._glance.run(figures.note_open(self._queries))
            return minute.is_to_count
        return True

    async def _pass(self, chores: Mapping[str, Chore]) -> ChoreResult:
        done, failures = await self.once(chores)
        for each in done.what:
            log.info("%s", each)
        for chore, error in failures.items():
            self._tell(chore, error)
        self._failing = self._failing - chores.keys() | failures.keys()
        return done

    async def once(self, chores: Mapping[str, Chore] = CHORES) -> tuple[ChoreResult, dict[str, Exception]]:
        """One pass: what was done, and what failed."""
        whole, failures = ChoreResult(), dict[str, Exception]()
        try:
            await self._propose()
            for name, chore in chores.items():
                try:
                    done = await chore(self._link, self._queries)
                except Exception as error:
                    failures[name] = error
                    if isinstance(error, DatabaseUnreachable) or is_unknown(error):
                        break  # an outage is told once, not once per chore
                else:
                    whole.what += done.what
                    whole.more |= done.more
        except Exception as error:
            # Nothing is deleted before it is known for how long it is kept.
            failures["saying the retention"] = error
        finally:
            await self._link.close()
        return whole, failures

    async def _propose(self) -> None:
        if self._retention is None:
            return
        plan = history.propose(self._queries, self._retention, self._by)
        holds = await self._link.follow(plan, lock_timeout=LOCK_TIMEOUT)
        if holds != self._retention:
            log.warning(
                "the retention in the database is %s: this worker's setting of %s changes nothing. "
                "To change it: holdfast set --retention %s",
                in_short(holds),
                in_short(self._retention),
                in_short(self._retention),
            )
        self._retention = None

    def _tell(self, chore: str, error: Exception) -> None:
        known = chore in self._failing
        if is_passing(error):
            log.log(logging.DEBUG if known else logging.WARNING, "%s is interrupted: %s", chore, error)
        elif not known:
            said = explained(error, self._queries.schema) or error
            log.error("%s fails: %s", chore, said, exc_info=None if said is not error else error)


def _soon(pause: float) -> float:
    return now() + pause * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
