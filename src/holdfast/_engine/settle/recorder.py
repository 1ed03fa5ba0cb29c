"""Writing how attempts ended: one transaction for a batch, with one fenced statement per queue and kind of outcome.

What can go wrong with a write, and what is done about it:

- a row does not come back: its fence is read; intact means it was locked or its task was cancelled, so it
  is written again; anything else means the lease was lost: a warning, nothing is overwritten;
- another session has locked a row for long: all other rows are written, passing over it;
- a value is refused by the server: the batch is halved until the culprit is found, which is parked with
  an error that is safe to write;
- a day has begun, and maintenance has not made its partitions: they are made.

An error of the connection is raised: the settler knows which endings were not reported as recorded.
"""

import asyncio

from holdfast._db.driver.connection import LockNotAvailable
from holdfast._db.driver.session import Answer, Link
from holdfast._db.errors import is_contended, is_data_error, is_missing_partition
from holdfast._engine.events import OnFinished, OnRecorded
from holdfast._engine.observe.task_log import is_heard, tell_error
from holdfast._engine.run.attempt import fields, now
from holdfast._engine.settle import lost_answers
from holdfast._engine.settle.ending import Ending, Times, with_details
from holdfast._engine.settle.lost_answers import Fate
from holdfast._engine.settle.partitions import TABLE_TIMEOUT
from holdfast._engine.settle.pending import Pending
from holdfast._engine.settle.settlement import Settlement
from holdfast._engine.settle.statements import StatementGroup, groups
from holdfast._engine.shared import Shared
from holdfast._model.json.codec import simple_error
from holdfast._model.run.outcome import Advanced, Cancelled, Failed, Finished
from holdfast._model.run.outcome_of import outcome_of_error
from holdfast._model.safe_log import Log
from holdfast._sql import plans
from holdfast._sql.query import Query
from holdfast.errors import EnqueueRefused

log = Log("holdfast.worker")

LOCK_TIMEOUT = "500ms"
KEY_TIMEOUT = "50ms"


class Recorder:
    """Writes the outcomes of one worker."""

    def __init__(
        self,
        shared: Shared,
        link: Link,
        settlement: Settlement,
        pending: Pending,
        on_recorded: OnRecorded,
        on_finished: OnFinished,
    ) -> None:
        self._link = link
        self._queries = shared.queries
        self._roster = shared.roster
        self._settlement = settlement
        self.keeper = settlement.keeper
        self._pending = pending
        self._on_recorded = on_recorded
        self._on_finished = on_finished

    async def write_together(self, batch: list[Ending], more: list[Ending]) -> None:
        """Writes a batch, in parts if it cannot be written whole; `more`: see `with_details`."""
        if not batch:
            return
        await self.keeper.read_obstacles(more)
        sorted_out = groups(batch, more, self.keeper)
        writes = [self._settlement.statement(group, together=True) for group in sorted_out]
        sent = now()
        for ending in batch if is_heard() else more:
            ending.sent = sent
        try:
            answers = await self._link.transact(writes, lock_timeout=LOCK_TIMEOUT)
        except LockNotAvailable:
            await self._pass_over_locked(sorted_out, writes)
            return
        except Exception as error:
            if is_missing_partition(error):
                await self._settlement.partitions.make()
                self._pending.again(batch)
            elif is_data_error(error):
                await self._halve(batch, error)
            else:
                raise
            return
        missing: list[Ending] = []
        for group, answer in zip(sorted_out, answers, strict=True):
            missing += await self._take_in_all(group, answer)
        await self._settlement.enqueued(more)
        if missing:
            await self._follow_up(missing)

    async def _pass_over_locked(self, sorted_out: list[StatementGroup], writes: list[Query[Times]]) -> None:
        """Another session has locked a row: each statement is run by itself, passing over locked rows."""
        missing: list[Ending] = []
        for group, query in zip(sorted_out, writes, strict=True):
            try:
                (answer,) = await self._link.transact([self._queries.skip_locked(query)], lock_timeout=TABLE_TIMEOUT)
            except Exception as error:
                if is_missing_partition(error):
                    await self._settlement.partitions.make()
                    self._pending.again(group.endings)
                elif is_data_error(error):
                    await self._halve(group.endings, error)
                else:
                    raise
            else:
                missing += await self._take_in_all(group, answer)
                await self._settlement.enqueued(group.more)
        if missing:
            await self._follow_up(missing)

    async def _halve(self, batch: list[Ending], error: Exception) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            for half in (batch[:middle], batch[middle:]):
                await self.write_together(half, with_details(half))
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
            self.tell_lost(ending)  # nothing can be written about it: the lease runs out, and others live on
            return
        self.keeper.forget(ending)
        refused = [Ending(ending.attempt, Failed(safe, charged=False))]
        await self.write_together(refused, refused)

    async def enqueues_under_keys(self, ending: Ending) -> bool:
        """Makes ready what a step enqueued, and says whether keys are among it."""
        requests = ending.attempt.children
        if requests and isinstance(ending.outcome, (Advanced, Finished)):
            try:
                plan = plans.new_tasks(self._queries, requests)
                ending.children = await plans.drive(plan, self._link.run)
            except EnqueueRefused as error:
                self._refuse(ending, error)
        return any(child.keyed for child in ending.children)

    async def write_alone(self, ending: Ending) -> bool:
        """Writes an ending with what its step enqueued under keys; False if another session holds a key or its row."""
        batch = [ending]
        await self.keeper.read_obstacles(batch)
        (group,) = groups(batch, batch, self.keeper)
        query = self._settlement.statement(group)
        plan = plans.settle_with_children(self._queries, query, ending.children)
        ending.sent = now()
        try:
            answer: Times = await self._link.follow(plan, lock_timeout=KEY_TIMEOUT)
        except EnqueueRefused as error:
            self._refuse(ending, error)
            self._pending.again(batch)
        except Exception as error:
            if is_contended(error):
                self.keeper.forget(ending)
                return False
            if is_missing_partition(error):
                await self._settlement.partitions.make()
                self._pending.again(batch)
            elif is_data_error(error):
                await self._halve(batch, error)
            else:
                raise
        else:
            missing = self._take_in(batch, answer)
            await self._settlement.enqueued(batch)
            if missing:
                await self._follow_up(missing)
        return True

    def _refuse(self, ending: Ending, error: EnqueueRefused) -> None:
        """The step enqueued what cannot be: that is its error, and nothing else becomes real."""
        self.keeper.forget(ending)
        attempt = ending.attempt
        ending.children, ending.outcome = (), outcome_of_error(attempt.definition, error, attempt.errors)
        tell_error(attempt, ending.outcome)

    async def _take_in_all(self, group: StatementGroup, answer: Answer[Times]) -> list[Ending]:
        """The same for what was written with others: as a rule all of them were recorded."""
        if group.statement == "keep" or answer.count != len(group.endings):
            return self._take_in(group.endings, await answer.read())  # what is only counted is all looked up
        if group.statement == "finish":
            self._tell_finished(group.endings)
        else:
            for ending in group.endings:
                self._on_recorded.recorded(ending, None)
        return []

    def _tell_finished(self, endings: list[Ending]) -> None:
        suspects = self._roster.forget_all([ending.attempt for ending in endings])
        self._on_finished.finished(endings, suspects)

    def _take_in(self, endings: list[Ending], answer: Times) -> list[Ending]:
        """Tells of the endings that were recorded, and gives those that were not."""
        missing: list[Ending] = []
        for ending in endings:
            if ending.attempt.id in answer:
                self._on_recorded.recorded(ending, answer[ending.attempt.id])
            else:
                missing.append(ending)
        return missing

    async def _follow_up(self, missing: list[Ending]) -> None:
        """Endings that a write did not report as recorded, though its answer has come."""
        again: list[Ending] = []
        for checked in await lost_answers.read_fates(self._link, self._queries, missing):
            ending = checked.ending
            match checked.fate:
                case Fate.AWAITED | Fate.CANCELLED:
                    self.keeper.forget(ending)
                    if checked.fate is Fate.CANCELLED and not isinstance(ending.outcome, Finished):
                        ending.outcome, ending.children = Cancelled(""), ()
                    again.append(ending)
                case Fate.RECORDED:
                    # Others of its statement were not; or an earlier send came through, whose answer was lost.
                    self._on_recorded.recorded(ending, checked.claimed_at)
                case Fate.LOST:
                    self.tell_lost(ending)
        self._pending.again(again)
        if again and not any(isinstance(e.outcome, Cancelled) for e in again):
            # Locked by another session: leave it a moment.
            await asyncio.sleep(0.1)

    # --- whom it concerns

    def recorded(self, ending: Ending, claimed_at: float | None) -> None:
        """It turned out that an ending is recorded."""
        self._on_recorded.recorded(ending, claimed_at)

    def tell_lost(self, ending: Ending) -> None:
        """An outcome cannot be recorded any more: forget the attempt."""
        self.keeper.forget(ending)
        self._roster.lost += 1
        self._roster.forget(ending.attempt)
        log.warning(
            "the lease of %s.%s was lost before the end of attempt %s was recorded: its outcome (%s) is dropped",
            ending.attempt.kind,
            ending.attempt.step,
            ending.attempt.number,
            type(ending.outcome).__name__.lower(),
            extra=fields(ending.attempt),
        )
