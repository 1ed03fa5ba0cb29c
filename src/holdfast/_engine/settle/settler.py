"""Recording how attempts ended: what waits to be written, and when.

Outcomes are collected while the previous flush is in flight, so batches grow with the load and an idle
worker writes at once. Those whose steps enqueued under keys, which another session may hold, come after all others.
If an answer is lost with the connection, the rows and the log are read back, and only what is not there is sent again.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_unknown
from holdfast._engine.loops import Loop, Words
from holdfast._engine.observe.task_log import tell_error, tell_raised_after_move
from holdfast._engine.run.attempt import now
from holdfast._engine.settle import lost_answers
from holdfast._engine.settle.ending import LARGEST_FLUSH, Ending, affordable, with_details
from holdfast._engine.settle.keyed_queue import KeyedQueue
from holdfast._engine.settle.lost_answers import Fate
from holdfast._engine.settle.pending import Pending
from holdfast._engine.settle.recorder import Recorder
from holdfast._engine.shared import Shared
from holdfast._model.safe_log import Log

log = Log("holdfast.worker")

GATHER_SECONDS = 0.01
"""How long a flush waits at most for more outcomes, while steps that wait for nothing begin and end."""
TURN_SECONDS = 0.1
"""How long those with keys are written before the others come again."""


class Settler:
    """Records the outcomes of one worker."""

    def __init__(self, shared: Shared, link: Link, pending: Pending, recorder: Recorder) -> None:
        self._link = link
        self._queries = shared.queries
        self._roster = shared.roster
        self._pending = pending
        self._keyed = KeyedQueue(resume=pending.wake.set)
        words = Words(log, self._interrupted, recovered="outcomes are recorded again")
        self._loop = Loop("settle", shared.pulse, shared.settings.poll, words)
        self.recorder = recorder
        self.keeper = recorder.keeper

    async def run(self) -> None:
        """Flushes for ever."""
        await self._loop.run(self._round)

    async def _round(self) -> float:
        """Waits until there is something to write, and writes it."""
        while not (self._pending.endings or self._pending.doubtful or self._keyed.ready):
            if not self._keyed:
                self._pending.all_recorded.set()
            await self._pending.wake.wait()
            self._pending.wake.clear()
        await self._flush_some()
        return 0.0

    def _interrupted(self) -> str:
        return f"recording is interrupted, {self.waiting} outcomes wait"

    async def settled(self) -> None:
        """Waits until everything that has ended is recorded."""
        await self._pending.all_recorded.wait()

    @property
    def rests(self) -> bool:
        """Whether everything that has ended is recorded: nothing waits, and nothing is on its way."""
        return self._pending.all_recorded.is_set()

    @property
    def waiting(self) -> int:
        return len(self._pending.endings) + len(self._pending.doubtful) + len(self._keyed)

    async def _flush_some(self) -> None:
        """First all those without keys, for no other session can hold them up; then some of those with keys."""
        if self._pending.doubtful:
            await self._read_back()
        if self._pending.endings:
            await self._gather()
            batch = self._pending.endings[:LARGEST_FLUSH]
            if more := with_details(batch):
                batch = batch[: affordable(batch)]
                more = with_details(batch)
            self._pending.endings = self._pending.endings[len(batch) :]
            await self._keeping(batch, self._flush(batch, more))
        until = now() + TURN_SECONDS
        while now() < until and (ending := self._keyed.next()) is not None:
            if not await self._keeping([ending], self.recorder.write_alone(ending)):
                self._keyed.postpone(ending)
                return  # it has waited for another session: now the others

    async def _gather(self) -> None:
        """Lets short steps go on while outcomes come in by the hundred: one flush of them costs less than two."""
        until, before = now() + GATHER_SECONDS, 0
        while self._roster.ready and before < len(self._pending.endings) < LARGEST_FLUSH and now() < until:
            before = len(self._pending.endings)
            await asyncio.sleep(0)

    async def _keeping(self, batch: list[Ending], write: Coroutine[Any, Any, bool]) -> bool:
        """Keeps what was not reported as recorded: it is sent again, or first read back if it may be recorded."""
        try:
            return await write
        except BaseException as error:
            waiting = set(map(id, [*self._pending.endings, *self._keyed]))
            left = [e for e in batch if self._roster.holds(e.attempt) and id(e) not in waiting]
            if is_unknown(error) or isinstance(error, asyncio.CancelledError):
                self._pending.doubtful += left
            else:
                self._pending.endings = left + self._pending.endings
            raise

    async def _flush(self, batch: list[Ending], more: list[Ending]) -> bool:
        """Writes those without keys, and puts the others aside."""
        if any(ending.attempt.children for ending in more):
            plain: list[Ending] = []
            for ending in batch:
                if await self.recorder.enqueues_under_keys(ending):
                    self._keyed.add(ending)
                else:
                    plain.append(ending)
            batch, more = plain, with_details(plain)
        await self.recorder.write_together(batch, more)
        return True

    async def _read_back(self) -> None:
        """After a lost answer: find out what was recorded, and send only the rest again."""
        unsure = list(self._pending.doubtful)
        answers = await lost_answers.read_fates(self._link, self._queries, unsure)
        del self._pending.doubtful[: len(unsure)]  # others may have come meanwhile
        for checked in answers:
            ending = checked.ending
            match checked.fate:
                case Fate.AWAITED | Fate.CANCELLED:
                    self.keeper.forget(ending)
                    if ending.otherwise is not None:
                        ending = Ending(ending.attempt, ending.otherwise)
                        tell_error(ending.attempt, ending.outcome)
                    self._pending.endings.append(ending)
                case Fate.RECORDED:
                    if checked.claimed_at is None:
                        self.keeper.forget(ending)
                    if ending.attempt.moved is not None and ending.attempt.raised is not None:
                        tell_raised_after_move(ending.attempt)
                    self.recorder.recorded(ending, checked.claimed_at)
                case Fate.LOST:
                    self.recorder.tell_lost(ending)
