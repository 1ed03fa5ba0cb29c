"""The bell of the claimer: other stages ring it when there may be something to claim.

It is made before the claimer, because the stages that ring it are made before the claimer, too.
"""

import asyncio
from collections.abc import Callable

from holdfast._engine.claim.budget import ClaimBudget
from holdfast._engine.run.roster import Roster


class Bell:
    """Wakes a claimer that rests, or sends the claim that it has ready."""

    def __init__(self, roster: Roster, budget: ClaimBudget) -> None:
        self._roster = roster
        self._budget = budget
        self._wake = asyncio.Event()
        """The rest is over: the bell was rung, or an answer has arrived."""
        self._send: Callable[[str], bool] | None = None
        self._resume_at = 0
        self.rung = False
        """There may be something to claim."""
        self.full = False
        """The claimer rests for want of slots."""
        self.held_back: set[str] = set()
        """Queues that were not asked because their own limit was reached."""

    # --- for the other stages

    def ring(self, id: str = "") -> None:
        """Something may have become due: a certain task, or anything."""
        if self._send is None or not self._send(id):
            self.rouse()

    def slot_freed(self, queue: str) -> None:
        """A slot is free: a reason to claim only if the want of slots was why the claimer rests."""
        roster = self._roster
        wanted = self.full and (roster.taken <= self._resume_at or roster.taken < roster.slots)
        if wanted or (queue in self.held_back and not self._budget.is_full(queue)):
            self.rouse()

    def rouse(self) -> None:
        """Wakes the claimer for a claim of all queues."""
        self.rung = True
        self._wake.set()

    # --- for the claimer

    def arm(self, send: Callable[[str], bool]) -> None:
        """A claim is ready: the next ring sends it. `send` is False if it cannot be sent."""
        self._send = send

    def disarm(self) -> None:
        """No claim is ready any more."""
        self._send = None

    def wake(self) -> None:
        """Wakes the claimer to take in an answer."""
        self._wake.set()

    def begin_round(self) -> None:
        self._wake.clear()

    def rest_for_slots(self) -> None:
        """All slots are taken: only enough free ones end the rest early."""
        self.full, self._resume_at = True, self._budget.enough()

    async def rest(self, seconds: float) -> None:
        """Until the bell wakes the claimer, or so many seconds have passed."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
