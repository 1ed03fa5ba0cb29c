"""Recording how attempts ended, in batches.

Outcomes are collected while the previous flush is in flight, so batches grow with the load and an idle
worker waits for nobody. A flush is one transaction: one statement per queue and kind of outcome, each fenced.
What can go wrong with a flush, and what is done about it:

- a row does not come back: its fence is read; intact means it was locked or its task was cancelled, so it
  goes into the next flush; anything else means the lease was lost: a warning, nothing is overwritten;
- a row is locked by somebody for long: all others are written, passing over it;
- a value is refused by the server: the batch is halved until the culprit is found, which is parked with
  an error that is safe to write;
- the answer is lost with the connection: the rows and the log are read back, and only what is not there is sent again.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

from holdfast._db.connection import (
    Link,
    LockNotAvailable,
    is_contended,
    is_data_error,
    is_missing_partition,
    is_passing,
    is_unknown,
    pause_after,
)
from holdfast._engine.attempt import Attempt, Roster, now
from holdfast._engine.ending import Ending, Times, affordable, by_queue, intact, moved_on
from holdfast._engine.execution import fields
from holdfast._engine.keep import Keeper
from holdfast._engine.telling import tell
from holdfast._engine.writing import Group, groups, write
from holdfast._model.codec import simple_error
from holdfast._model.conclude import outcome_of_error
from holdfast._model.outcome import (
    Advanced,
    Cancelled,
    Failed,
    Finished,
    Outcome,
    Retried,
)
from holdfast._model.tasks import Tasks
from holdfast._sql import plans
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import EnqueueRefused

log = logging.getLogger("holdfast.worker")

LOCK_TIMEOUT = "500ms"
KEY_TIMEOUT = "50ms"
POSTPONED_SECONDS = 0.5


class Settler:
    """Records the outcomes of one worker."""

    def __init__(
        self,
        link: Link,
        queries: Queries,
        tasks: Tasks,
        roster: Roster,
        *,
        lease: float,
        known: list[str],
        keeps: Callable[[], bool],
        recorded: Callable[[Ending, float | None], None],
        enqueued: Callable[[str], None],
    ) -> None:
        self._link = link
        self._queries = queries
        self._tasks = tasks
        self._roster = roster
        self._lease = timedelta(seconds=lease)
        self.keeper = Keeper(link, queries, roster, known=known, allowed=keeps)
        self._recorded = recorded
        self._enqueued = enqueued
        self._pending: list[Ending] = []
        self._unsure: list[Ending] = []
        self._postponed: list[Ending] = []
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    def add(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt has ended: record it with the next flush."""
        self._pending.append(Ending(attempt, outcome))
        self._settled.clear()
        self._wake.set()

    def find_out(self, ending: Ending) -> None:
        """An outcome may have been written by somebody else's transaction: look, and record `otherwise` if not."""
        self._unsure.append(ending)
        self._settled.clear()
        self._wake.set()

    def tell_recorded(self, ending: Ending, claimed_at: float | None) -> None:
        """An outcome was recorded: forget the attempt, and go on."""
        # `kept` stays: whoever is told goes on with it.
        if ending.kept:
            self._roster.continuing -= 1
        self._roster.forget(ending.attempt)
        self._recorded(ending, claimed_at)

    async def run(self) -> None:
        """Flushes for ever; survives every passing error."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._pending or self._unsure:
                    await self._flush_some()
                    if failures:
                        log.info("outcomes are recorded again after %s failed tries", failures)
                    failures = 0
                if not self._postponed:
                    self._settled.set()
            except Exception as error:
                if not is_passing(error):
                    raise
                failures += 1
                log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "recording is interrupted, %s outcomes wait: %s",
                    self.waiting,
                    error,
                )
                await asyncio.sleep(pause_after(failures, longest=5.0))
                self._wake.set()

    async def make_partitions(self) -> None:
        """A day has begun that nobody has made partitions for."""
        await self._link.run(self._queries.ensure_partitions())

    async def settled(self) -> None:
        """Waits until everything that has ended is recorded."""
        await self._settled.wait()

    @property
    def waiting(self) -> int:
        return len(self._pending) + len(self._unsure) + len(self._postponed)

    async def _flush_some(self) -> None:
        if self._unsure:
            await self._read_back()
        count = affordable(self._pending)
        batch, self._pending = self._pending[:count], self._pending[count:]
        try:
            if any(ending.attempt.children for ending in batch):
                together, alone = await self._part(batch)
                await self._flush(together)
                for ending in alone:
                    await self._flush_keyed(ending)
            else:
                await self._flush(batch)
        except BaseException as error:
            # Whatever was not told to be recorded is kept: sent again, or first read back if it may have been.
            waiting = set(map(id, [*self._pending, *self._postponed]))
            left = [e for e in batch if self._roster.holds(e.attempt) and id(e) not in waiting]
            if is_unknown(error) or isinstance(error, asyncio.CancelledError):
                self._unsure += left
            else:
                self._pending = left + self._pending
            raise

    async def _flush(self, batch: list[Ending]) -> None:
        """Writes a batch; when it cannot be written whole, in parts."""
        if not batch:
            return
        await self.keeper.look(batch)
        sorted_out = groups(batch, self.keeper)
        writes = [write(self._queries, self._tasks, self._lease, group) for group in sorted_out]
        for ending in batch:
            ending.sent = now()
        try:
            answers: list[Times] = await self._link.transact(writes, lock_timeout=LOCK_TIMEOUT)
        except LockNotAvailable:
            await self._flush_unlocked(sorted_out, writes)
            return
        except Exception as error:
            if is_missing_partition(error):
                await self._link.run(self._queries.ensure_partitions())
                await self._flush(batch)
                return
            if not is_data_error(error):
                raise
            await self._flush_halves(batch, error)
            return
        missing: list[Ending] = []
        for group, answer in zip(sorted_out, answers, strict=True):
            missing += self._take_in(group[-1], answer)
        await self.tell_enqueued(batch)
        if missing:
            await self._look_after(missing)

    async def _flush_unlocked(self, sorted_out: list[Group], writes: list[Query[Times]]) -> None:
        """Somebody has locked a row: each statement by itself, passing over what is locked."""
        missing: list[Ending] = []
        for group, query in zip(sorted_out, writes, strict=True):
            try:
                (answer,) = await self._link.transact([self._queries.skip_locked(query)])
            except Exception as error:
                if is_missing_partition(error):
                    await self.make_partitions()
                    self._pending += group[-1]
                elif is_data_error(error):
                    await self._flush_halves(group[-1], error)
                else:
                    raise
            else:
                missing += self._take_in(group[-1], answer)
                await self.tell_enqueued(group[-1])
        if missing:
            await self._look_after(missing)

    # --- what steps enqueued

    async def _part(self, batch: list[Ending]) -> tuple[list[Ending], list[Ending]]:
        """Makes ready what steps enqueued, and parts a batch: those to be written together, and those each alone.

        A key may be held by somebody's open transaction: only the one that wants it shall wait.
        """
        together: list[Ending] = []
        alone: list[Ending] = []
        for ending in batch:
            requests = ending.attempt.children
            if requests and isinstance(ending.outcome, (Advanced, Finished)):
                try:
                    plan = plans.new_tasks(self._queries, requests)
                    ending.children = await plans.drive(plan, self._link.run)
                except EnqueueRefused as error:
                    ending.outcome = self.refusal(ending, error)
            keyed = any(child.key is not None for child in ending.children)
            (alone if keyed else together).append(ending)
        return together, alone

    async def _flush_keyed(self, ending: Ending) -> None:
        await self.keeper.look([ending])
        (group,) = groups([ending], self.keeper)
        query = write(self._queries, self._tasks, self._lease, group, with_children=False)
        rules: list[plans.OnConflict] = [request.on_conflict for request in ending.attempt.children]
        plan = plans.settle_with_children(self._queries, query, list(zip(ending.children, rules, strict=True)))
        ending.sent = now()
        try:
            answer: Times = await self._link.follow(plan, lock_timeout=KEY_TIMEOUT)
        except EnqueueRefused as error:
            ending.outcome = self.refusal(ending, error)
            await self._flush([ending])
            return
        except Exception as error:
            if is_missing_partition(error):
                await self._link.run(self._queries.ensure_partitions())
            elif is_data_error(error):
                await self._flush_halves([ending], error)
                return
            elif not is_contended(error):
                raise
            self._postpone(ending)
            return
        missing = self._take_in([ending], answer)
        await self.tell_enqueued([ending])
        if missing:
            await self._look_after(missing)

    def refusal(self, ending: Ending, error: EnqueueRefused) -> Outcome:
        """The step enqueued what cannot be: that is its error, and nothing else becomes real."""
        self.keeper.forget(ending)
        ending.children = ()
        attempt = ending.attempt
        outcome = outcome_of_error(attempt.definition, error, attempt.errors)
        if isinstance(outcome, (Retried, Failed)):
            tell(attempt, outcome)
        return outcome

    def _postpone(self, ending: Ending) -> None:
        """Somebody else has the row or a key: leave it a moment, and go on with the others."""
        self.keeper.forget(ending)
        self._postponed.append(ending)

        def resume() -> None:
            self._postponed.remove(ending)
            self._pending.append(ending)
            self._wake.set()

        asyncio.get_running_loop().call_later(POSTPONED_SECONDS, resume)

    async def tell_enqueued(self, endings: list[Ending]) -> None:
        """Wakes those who may execute what steps enqueued."""
        for queue in sorted({child.queue for ending in endings for child in ending.children}):
            self._enqueued(queue)
            await self._link.run(self._queries.notify_if_idle(queue))

    def _take_in(self, endings: list[Ending], answer: Times) -> list[Ending]:
        """Tells of the endings that were recorded, and gives those that were not."""
        missing: list[Ending] = []
        complete = len(answer) == len(endings)
        for ending in endings:
            if complete and not ending.kept:
                self.tell_recorded(ending, None)
            elif ending.attempt.id in answer:
                self.tell_recorded(ending, answer[ending.attempt.id])
            else:
                missing.append(ending)
        return missing

    async def _flush_halves(self, batch: list[Ending], error: Exception) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._flush(batch[:middle])
            await self._flush(batch[middle:])
            return
        ending = batch[0]
        code = getattr(error, "sqlstate", None) or ""
        log.error(
            "the outcome of %r is refused by the database (%s): it is parked",
            ending.attempt,
            code,
            extra=fields(ending.attempt),
        )
        safe = simple_error("RefusedByDatabase", f"the outcome of this attempt could not be stored: SQLSTATE {code}")
        if ending.outcome == Failed(safe, charged=False):
            self._tell_lost(ending)  # nothing can be written about it: the lease runs out, and others live on
            return
        self.keeper.forget(ending)
        await self._flush([Ending(ending.attempt, Failed(safe, charged=False))])

    async def _look_after(self, missing: list[Ending]) -> None:
        """Rows that did not come back from a write whose answer we have."""
        again: list[Ending] = []
        for queue, endings in by_queue(missing):
            fences = await self._link.run(self._queries.fences(queue, [e.attempt.id for e in endings]))
            for ending in endings:
                fence = fences.get(ending.attempt.id)
                if fence is not None and intact(ending, fence):
                    self.keeper.forget(ending)
                    if fence.cancelled and not isinstance(ending.outcome, Finished):
                        ending.outcome, ending.children = Cancelled(""), ()
                    again.append(ending)
                elif fence is not None and moved_on(ending, fence):
                    # An earlier send, whose answer was lost, came through after all.
                    self.tell_recorded(ending, fence.claimed_at)
                else:
                    self._tell_lost(ending)
        self._pending += again
        if again and not any(isinstance(e.outcome, Cancelled) for e in again):
            # Locked by somebody: leave them a moment.
            await asyncio.sleep(0.1)

    async def _read_back(self) -> None:
        """After a lost answer: find out what was recorded, and send only the rest again."""
        for queue, endings in by_queue(self._unsure):
            ids = [e.attempt.id for e in endings]
            fences = await self._link.run(self._queries.fences(queue, ids))
            logged = {(r.id, r.attempt): r.outcome for r in await self._link.run(self._queries.recorded(ids))}
            for ending in endings:
                attempt, fence = ending.attempt, fences.get(ending.attempt.id)
                self._unsure.remove(ending)
                if fence is not None and intact(ending, fence):
                    self.keeper.forget(ending)
                    if ending.otherwise is not None:
                        ending = Ending(attempt, ending.otherwise)
                    self._pending.append(ending)
                elif fence is not None and moved_on(ending, fence):
                    self.tell_recorded(ending, fence.claimed_at)
                elif logged.get((attempt.id, attempt.number), "lost") == "lost":
                    self._tell_lost(ending)
                else:
                    self.keeper.forget(ending)
                    self.tell_recorded(ending, None)

    def _tell_lost(self, ending: Ending) -> None:
        self.keeper.forget(ending)
        self._roster.forget(ending.attempt)
        log.warning(
            "the lease of %s.%s was lost before the end of attempt %s was recorded: its outcome (%s) is dropped",
            ending.attempt.kind,
            ending.attempt.step,
            ending.attempt.number,
            type(ending.outcome).__name__.lower(),
            extra=fields(ending.attempt),
        )
