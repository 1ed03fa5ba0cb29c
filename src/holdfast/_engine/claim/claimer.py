"""Claiming: how much, from which queue, and when to look again.

A worker claims for its free slots, plus, if its steps are short, what its measured pace will start within a twentieth
of a second; longer steps get no claim-ahead, so nothing sits claimed here while another worker is free. How this is
divided among several queues: see `budget`.

Notifications only shorten the sleep. The order before sleeping is: the idle flag is committed, LISTEN is
active, one last claim; so whoever enqueues after that claim sees the flag and notifies.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.claim.budget import LARGEST_CLAIM, Shares
from holdfast._engine.claim.low_water import MARK_SECONDS, Marks
from holdfast._engine.claim.prefetch import Ahead, Ready, raw
from holdfast._engine.claim.steps import Known
from holdfast._engine.loops import Loop, Pulse, Words
from holdfast._engine.run.attempt import Attempt, attempts_of, now
from holdfast._engine.run.roster import Roster
from holdfast._model.declare.tasks import Tasks
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.safe_log import Log
from holdfast._sql.queries import Queries
from holdfast._sql.queries.lifecycle import NO_ID
from holdfast._sql.query import Query
from holdfast._sql.rows import Claimed

log = Log("holdfast.worker")

WORDS = Words(log, "claiming is interrupted", recovered="claiming goes on")

MANY_UNCLAIMABLE = 100
MANY_AHEAD = 100
"""More than so many beyond its free slots: a worker with that pace is busy, and does not send its claim ahead."""
SHORTEST_SLEEP = 0.02
PROMPT = 0.05
"""Seconds that an answer about what is due next may take, to be sure that nothing became due on its way."""
ASK_DUE_EVERY = 30.0
"""Seconds after which the time of the next task is asked for again, though nothing was heard meanwhile."""


class Claimer:
    """Claims tasks for a worker and hands them to its roster."""

    def __init__(
        self,
        link: Link,
        queries: Queries,
        tasks: Tasks,
        roster: Roster,
        *,
        pulse: Pulse,
        known: Known,
        queues: list[str],
        lease: float,
        poll: float,
        claimed: Callable[[list[Attempt]], None],
        identify: Callable[[UUID], Awaitable[None]],
    ) -> None:
        self._link = link
        self._queries = queries
        self._tasks = tasks
        self._roster = roster
        self._queues = queues
        self._lease = timedelta(seconds=lease)
        self._poll = poll
        self._loop = Loop("claim", pulse, poll, WORDS, rest=self._sleep)
        self._claimed = claimed
        self._identify = identify
        self._known = known
        self._marks = {queue: Marks() for queue in queues}
        self._shares = Shares(roster, queues)
        self._told = False
        """There may be something to claim."""
        self._wake = asyncio.Event()
        """A rest is over: for that, or because an answer has arrived."""
        self._server: str | None = None
        self._ahead = Ahead(link, hand_over=self._hand_over, wake=self._wake.set)
        self._answer_lost = False
        self._resume_at = 0
        self._idle = False
        self._idle_written = 0.0
        self._due_at = 0.0
        self._ask_due_at = 0.0
        self._looked_at = 0.0
        """When anything that is due was last asked for in all queues, not only a certain task."""
        self._asked = False
        """Whether this round has asked for anything."""
        self._suspects_due = False
        self._left_suspects = False
        self._probed: dict[str, float] = dict.fromkeys(queues, 0.0)
        self.worker_id = uuid7()
        self.full = False
        """It rests for want of slots."""
        self.held_back: set[str] = set()
        """Queues not asked because their own limit was reached."""
        self.healthy = True
        self.stopping = False
        self.empty = False

    def wake(self, id: str = "") -> None:
        """Something may have become due: a certain task, or anything."""
        if self._ahead.ready is None or not self._send_ahead(*self._ahead.ready, id):
            self._tell()

    def look_anew(self) -> None:
        """Something was paused or resumed: what was passed over may be claimable now."""
        for queue, marks in self._marks.items():
            marks.drop()
            self._probed[queue] = 0.0
        self._tell()

    def freed(self, queue: str) -> None:
        """A slot is free: a reason to look again only if the want of slots was why we rest."""
        roster = self._roster
        wanted = self.full and (roster.taken <= self._resume_at or roster.taken < roster.slots)
        if wanted or (queue in self.held_back and not self._shares.is_full(queue)):
            self._tell()

    def _tell(self) -> None:
        self._told = True
        self._wake.set()

    async def run(self) -> None:
        """Claims until the worker stops."""
        await self._loop.run(self._next_round)

    async def _next_round(self) -> float | None:
        if self.stopping and not self._ahead.to_be_received:
            return None
        try:
            await self._round()
        except Exception:
            self._answer_lost, self._idle = True, False
            raise
        return 0.0

    async def _round(self) -> None:
        self._wake.clear()
        if self._ahead.to_be_received:
            self._shares.measure()
            await self._rest_unless(await self._learn(*await self._ahead.receive()))
            return
        if self._told:
            self._ask_due_at = 0.0
        self._told = self._asked = False
        self._shares.measure()
        if not self.healthy or self._shares.room() <= 0:
            await self._wait_for_slot()
            return
        await self._introduce()
        more = False
        self.held_back.clear()
        began = time.monotonic()
        for queue in self._shares.round():
            more = await self._claim(queue) or more
        if self._asked:
            self._looked_at = began
        if more and not self._asked:
            await self._wait_for_slot()  # what is free here is kept for other queues
        else:
            await self._rest_unless(more)

    async def _wait_for_slot(self) -> None:
        self.full, self._resume_at = True, self._shares.enough()
        await self._sleep(self._poll)
        self.full = False

    async def _rest_unless(self, more: bool) -> None:
        if more:
            await self._show_idle(False)
        elif not self._told:
            await self._rest()

    async def _introduce(self) -> None:
        """A fresh identity for a server not met before, and the claims whose answer was lost are given back."""
        if self._answer_lost:
            await self._return_strays()
        if self._link.server is None:
            await self._link.run(self._queries.server())
        if self._link.server != self._server:
            if self._server is not None:
                self.worker_id = uuid7()
            await self._identify(self.worker_id)
            self._server = self._link.server
            self._idle = False

    async def _return_strays(self) -> None:
        for queue in self._queues:
            strays = await self._link.run(self._queries.strays(queue, self.worker_id))
            lost = [(id, n) for id, n in strays if self._roster.find(id) is None]
            if lost:
                log.info("%s claims whose answer was lost are released", len(lost))
                outcomes = {str(id): {"attempt": n, "outcome": "released"} for id, n in lost}
                await self._link.run(
                    self._queries.stay(queue, self.worker_id, [id for id, _ in lost], json.dumps(outcomes).encode())
                )
        self._answer_lost = False

    async def _claim(self, queue: str) -> bool:
        """One claim; tells whether there may be more."""
        if self.stopping:
            return False
        if self._shares.is_full(queue):
            return self._hold_back(queue)
        limit = self._shares.share(queue)
        if limit <= 0:
            return True  # for want of slots, not of tasks: whoever frees one must wake us
        suspects = 0 if self._roster.on_probation() else 1
        sent, self._left_suspects, self._asked = now(), False, True
        ahead = limit > self._roster.slots - self._roster.taken
        rows = await self._link.run(self._query(queue, limit, suspects=suspects, ahead=ahead))
        if rows:
            self._hand_over(queue, rows, sent, ahead)
        return await self._learn(queue, rows, limit)

    def _query(
        self, queue: str, limit: int, *, suspects: int, ahead: bool = False, id: UUID | None = None
    ) -> Query[list[Claimed]]:
        marks = self._marks[queue]
        begin_at = marks.current()
        return self._queries.claim(
            queue,
            self.worker_id,
            limit=limit,
            lease=self._lease,
            known=self._known.steps,
            crash_limits=self._known.crash_limits_ahead if ahead else self._known.crash_limits,
            marks=begin_at if marks.set else None,
            mark_ids=marks.ids if marks.set else None,
            suspects=suspects,
            id=id,
        )

    async def _learn(self, queue: str, rows: list[Claimed], limit: int) -> bool:
        """What a claim tells of the queue, after its tasks were handed over."""
        full = len(rows) >= limit
        self._shares.learn(queue, served=bool(rows), more=full)
        if full:
            self._marks[queue].learn(rows)
            return not self._shares.is_full(queue) or self._hold_back(queue)
        if rows:
            await asyncio.sleep(0)  # their first lines come before anything else that we might ask
        await self._look_for_unclaimable(queue)
        return False

    # --- the claim of a worker that rests

    async def _make_ready(self) -> None:
        """The claim that follows this rest, if it is known already: of one queue, for the slots that are free.

        And another in case that we are told of a task: to claim that takes less time than to look for it.
        """
        queue, *others = self._queues
        limit = min(self._roster.slots - self._roster.taken, LARGEST_CLAIM)
        if others or self._roster.lanes or limit <= 0 or self._marks[queue].set or self._roster.on_probation():
            return
        if self._shares.share(queue) > limit + MANY_AHEAD:
            return  # by its pace it takes more at once, and how many is not known before
        # Suspects can wait, and to look for them takes a fifth of a claim.
        one = self._query(queue, 1, suspects=0, id=NO_ID)
        await self._ahead.make_ready(queue, limit, any=self._query(queue, limit, suspects=0), one=one)

    def _send_ahead(self, any: Ready, one: Ready, id: str) -> bool:
        """Sends a claim before the claimer is awake, unless what can be held has changed meanwhile."""
        self._ahead.ready = None
        if self.stopping or not self.healthy or self._roster.slots - self._roster.taken < any.limit:
            return False
        moment = time.monotonic()
        # Whatever else is due is found by a claim of any task, once in each poll interval and when it is due.
        raw_id = raw(id) if moment < min(self._due_at, self._looked_at + self._poll) else b""
        if not raw_id:
            self._looked_at = moment
        self._ahead.send(one if raw_id else any, raw_id)
        self._left_suspects = True
        self.empty = False
        self._ask_due_at = 0.0
        return True

    def _hold_back(self, queue: str) -> bool:
        """Its own limit is reached: until one of its slots is free, there is nothing to ask for."""
        self.held_back.add(queue)
        self._shares.learn(queue, served=False, more=False)
        return False

    def _hand_over(self, queue: str, rows: list[Claimed], sent: float, ahead: bool = False) -> None:
        """`ahead`: there may be no slot for some of them yet."""
        attempts = attempts_of(rows, queue, self.worker_id, self._tasks._steps, sent)
        if ahead:
            for each in attempts:
                # An attempt more than its moves and errors explain may have been lost without a crash being counted.
                each.unmarked = each.definition.max_crashes == 0 or each.number - each.moves - each.errors > 1
        self._claimed(attempts)

    async def _look_for_unclaimable(self, queue: str) -> None:
        """Many tasks that are paused or unknown here would be walked over by every claim: mark where they end."""
        marks = self._marks[queue]
        if marks.set or time.monotonic() - self._probed[queue] < MARK_SECONDS:
            return
        count, moment = await self._link.run(self._queries.unclaimable(queue, self._known.steps))
        # Asked again soon only if there is something to pass over.
        self._probed[queue] = time.monotonic() + (0 if count >= MANY_UNCLAIMABLE else 10)
        if count >= MANY_UNCLAIMABLE:
            marks.skip_to(moment)

    async def _rest(self) -> None:
        """Nothing to claim: make sure to be woken, then sleep until something is due."""
        if not self._idle:
            await self._show_idle(True)
            return  # the last claim follows
        soonest = await self._until_due()
        if self._left_suspects and self._suspects_due:
            self._left_suspects = False
            return  # a claim with suspects follows
        trusted = min(marks.until_scan() for marks in self._marks.values())
        self.empty = True
        try:
            await self._make_ready()
            self._shares.rest()
            poll = self._looked_at + self._poll - time.monotonic()
            await self._sleep(min(max(soonest, SHORTEST_SLEEP), max(poll, SHORTEST_SLEEP), trusted))
        finally:
            self._ahead.ready = None
        self.empty = False

    async def _until_due(self) -> float:
        """Seconds until the next task is due. Whoever changes that wakes us, so it is not asked for at every turn."""
        if time.monotonic() >= min(self._due_at, self._ask_due_at):
            asked = time.monotonic()
            # What became due since the last claim counts, too: that claim has not seen it.
            since_claim = asked - self._looked_at + PROMPT
            delay, self._suspects_due = await self._link.run(self._queries.next_due(self._queues, since_claim))
            moment = time.monotonic()
            if moment - asked > PROMPT:
                delay = 0.0
            self._due_at = float("inf") if delay is None else moment + delay
            self._ask_due_at = moment + ASK_DUE_EVERY
        return self._due_at - time.monotonic()

    async def _show_idle(self, idle: bool) -> None:
        # The flag means "may be idle": cleared lazily, at most once a second.
        if idle != self._idle and (idle or time.monotonic() - self._idle_written > 1):
            await self._link.run(self._queries.idle(self.worker_id, idle))
            self._idle, self._idle_written = idle, time.monotonic()

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
