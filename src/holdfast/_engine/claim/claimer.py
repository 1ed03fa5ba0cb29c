"""Claiming: how much, from which queue, and when to claim again.

A worker claims for its free slots, plus, if its steps are short, what its measured pace will start within a twentieth
of a second; longer steps get no claim-ahead, so nothing sits claimed here while another worker is free. How this is
divided among several queues: see `budget`.

Notifications only shorten the sleep. The order before sleeping is: the idle flag is committed, LISTEN is
active, one last claim; so a caller who enqueues after that claim sees the flag and notifies.
"""

import asyncio
import json
import time
from datetime import timedelta
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.claim.bell import Bell
from holdfast._engine.claim.budget import LARGEST_CLAIM, ClaimBudget
from holdfast._engine.claim.low_water import MARK_SECONDS, LowWaterMarks
from holdfast._engine.claim.prefetch import Prefetch, raw
from holdfast._engine.events import OnClaimed
from holdfast._engine.lease.registration import Registration
from holdfast._engine.loops import Loop, Words
from holdfast._engine.run.attempt import attempts_of, now
from holdfast._engine.shared import Shared
from holdfast._model.safe_log import Log
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
        shared: Shared,
        link: Link,
        budget: ClaimBudget,
        bell: Bell,
        claimed: OnClaimed,
        registration: Registration,
    ) -> None:
        settings = shared.settings
        self._link = link
        self._queries = shared.queries
        self._tasks = shared.tasks
        self._roster = shared.roster
        self._contact = shared.contact
        self._flag = shared.life.flag
        self._identity = shared.identity
        self._queues = queues = list(settings.queues)
        self._lease = timedelta(seconds=settings.lease)
        self._poll = settings.poll
        self._loop = Loop("claim", shared.pulse, settings.poll, WORDS, rest=bell.rest)
        self._bell = bell
        self._claimed = claimed.claimed
        self._identify = registration.introduce
        self._known = shared.known
        self._marks = {queue: LowWaterMarks() for queue in queues}
        self._budget = budget
        self._server: str | None = None
        self._prefetch = Prefetch(link, hand_over=self._hand_over, wake=bell.wake)
        self._answer_lost = False
        self._idle = False
        self._idle_written = 0.0
        self._due_at = 0.0
        self._ask_due_at = 0.0
        self._all_asked_at = 0.0
        """When anything that is due was last asked for in all queues, not only a certain task."""
        self._asked = False
        """Whether this round has asked for anything."""
        self._suspects_due = False
        self._left_suspects = False
        self._probed: dict[str, float] = dict.fromkeys(queues, 0.0)
        self.empty = False
        """It rests, because there is nothing to claim."""

    @property
    def worker_id(self) -> UUID:
        return self._identity.worker_id

    def wake(self, id: str = "") -> None:
        """Something may have become due: a certain task, or anything."""
        self._bell.ring(id)

    def start_over(self) -> None:
        """Something was paused or resumed: what was passed over may be claimable now."""
        for queue, marks in self._marks.items():
            marks.drop()
            self._probed[queue] = 0.0
        self._bell.rouse()

    async def run(self) -> None:
        """Claims until the worker stops."""
        await self._loop.run(self._next_round)

    async def _next_round(self) -> float | None:
        if self._flag.stopping and not self._prefetch.to_be_received:
            return None
        try:
            await self._round()
        except Exception:
            self._answer_lost, self._idle = True, False
            raise
        return 0.0

    async def _round(self) -> None:
        self._bell.begin_round()
        if self._prefetch.to_be_received:
            self._budget.measure()
            await self._rest_unless(await self._learn(*await self._prefetch.receive()))
            return
        if self._bell.rung:
            self._ask_due_at = 0.0
        self._bell.rung = self._asked = False
        self._budget.measure()
        if not self._contact.healthy or self._budget.room() <= 0:
            await self._wait_for_slot()
            return
        await self._introduce()
        more = False
        self._bell.held_back.clear()
        began = time.monotonic()
        for queue in self._budget.round():
            more = await self._claim(queue) or more
        if self._asked:
            self._all_asked_at = began
        if more and not self._asked:
            await self._wait_for_slot()  # what is free here is kept for other queues
        else:
            await self._rest_unless(more)

    async def _wait_for_slot(self) -> None:
        self._bell.rest_for_slots()
        await self._bell.rest(self._poll)
        self._bell.full = False

    async def _rest_unless(self, more: bool) -> None:
        if more:
            await self._show_idle(False)
        elif not self._bell.rung:
            await self._rest()

    async def _introduce(self) -> None:
        """A fresh identity for a server not met before, and the claims whose answer was lost are given back."""
        if self._answer_lost:
            await self._return_strays()
        if self._link.server is None:
            await self._link.run(self._queries.server())
        if self._link.server != self._server:
            if self._server is not None:
                self._identity.renew()
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
        if self._flag.stopping:
            return False
        if self._budget.is_full(queue):
            return self._hold_back(queue)
        limit = self._budget.share(queue)
        if limit <= 0:
            return True  # for want of slots, not of tasks: the dispatcher rings when one is free
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
        self._budget.learn(queue, served=bool(rows), more=full)
        if full:
            self._marks[queue].learn(rows)
            return not self._budget.is_full(queue) or self._hold_back(queue)
        if rows:
            await asyncio.sleep(0)  # their first lines come before anything else that we might ask
        await self._mark_unclaimable(queue)
        return False

    # --- the claim of a worker that rests

    async def _make_ready(self) -> None:
        """The claim that follows this rest, if it is known already: of one queue, for the slots that are free.

        And another for a notification with an id: to claim one task by its id takes less time than to search for it.
        """
        queue, *others = self._queues
        limit = min(self._roster.slots - self._roster.taken, LARGEST_CLAIM)
        if others or self._roster.lanes or limit <= 0 or self._marks[queue].set or self._roster.on_probation():
            return
        if self._budget.share(queue) > limit + MANY_AHEAD:
            return  # by its pace it takes more at once, and how many is not known before
        # Suspects can wait, and to search for them takes a fifth of a claim.
        one = self._query(queue, 1, suspects=0, id=NO_ID)
        await self._prefetch.make_ready(queue, limit, any=self._query(queue, limit, suspects=0), one=one)
        if self._prefetch.ready is not None:
            self._bell.arm(self._send_ahead)

    def _send_ahead(self, id: str) -> bool:
        """Sends a claim before the claimer is awake, unless what can be held has changed meanwhile."""
        assert self._prefetch.ready is not None  # noqa: S101 - else the bell is not armed
        any, one = self._prefetch.ready
        self._take_back()
        if self._flag.stopping or not self._contact.healthy or self._roster.slots - self._roster.taken < any.limit:
            return False
        moment = time.monotonic()
        # Whatever else is due is found by a claim of any task, once in each poll interval and when it is due.
        raw_id = raw(id) if moment < min(self._due_at, self._all_asked_at + self._poll) else b""
        if not raw_id:
            self._all_asked_at = moment
        self._prefetch.send(one if raw_id else any, raw_id)
        self._left_suspects = True
        self.empty = False
        self._ask_due_at = 0.0
        return True

    def _hold_back(self, queue: str) -> bool:
        """Its own limit is reached: until one of its slots is free, there is nothing to ask for."""
        self._bell.held_back.add(queue)
        self._budget.learn(queue, served=False, more=False)
        return False

    def _hand_over(self, queue: str, rows: list[Claimed], sent: float, ahead: bool = False) -> None:
        """`ahead`: there may be no slot for some of them yet."""
        attempts = attempts_of(rows, queue, self.worker_id, self._tasks._steps, sent)
        if ahead:
            for each in attempts:
                # An attempt more than its moves and errors explain may have been lost without a crash being counted.
                each.unmarked = each.definition.max_crashes == 0 or each.number - each.moves - each.errors > 1
        self._claimed(attempts)

    async def _mark_unclaimable(self, queue: str) -> None:
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
            self._budget.rest()
            poll = self._all_asked_at + self._poll - time.monotonic()
            await self._bell.rest(min(max(soonest, SHORTEST_SLEEP), max(poll, SHORTEST_SLEEP), trusted))
        finally:
            self._take_back()
        self.empty = False

    async def _until_due(self) -> float:
        """Seconds until the next task is due. A change of that rings the bell, so it is not asked for at every turn."""
        if time.monotonic() >= min(self._due_at, self._ask_due_at):
            asked = time.monotonic()
            # What became due since the last claim counts, too: that claim has not seen it.
            since_claim = asked - self._all_asked_at + PROMPT
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

    def _take_back(self) -> None:
        """No claim is ready any more."""
        self._prefetch.ready = None
        self._bell.disarm()
