"""How many tasks of which queue a worker claims: limits of queues hold, and no queue keeps the others waiting.

While several queues have work, none holds more than an equal share of what the worker may hold; what one does not use
goes to the others in the next round. A queue is *lively* if its last claim may have left something behind. The quiet
ones are asked first, then the lively ones, the one that holds least first. So a queue in which something
becomes due gets the next slot that is free, however much waits elsewhere. With a single queue none of this matters.
"""

from collections.abc import Sequence

from holdfast._engine.claim.pace import WINDOW_SECONDS, Allowance
from holdfast._engine.run.attempt import now
from holdfast._engine.run.roster import Roster

LARGEST_CLAIM = 1000


class ClaimBudget:
    """Which queue is asked next, and for how many tasks."""

    def __init__(self, roster: Roster, queues: Sequence[str]) -> None:
        self._roster = roster
        self._queues = list(queues)  # the queue that was served least recently comes first
        self._all = Allowance(roster.slots)
        self._own = {name: Allowance(lane.limit) for name, lane in roster.lanes.items() if lane.limit is not None}
        # Not known yet, and the first queue asked must not take all slots.
        self._lively = set(queues)
        self._unasked: set[str] = set()
        self._served = False
        self._rested = roster.rested
        self._since = now()
        self._starved = 0.0

    def measure(self) -> None:
        """Takes in how many short steps were executed in this window of time."""
        rested, self._rested = self._rested, self._roster.rested
        if self._served:
            # A claim takes longer than a thousand short steps, and to wait for it is not to be slow. But when there was
            # nothing to claim the pace falls, as it is not known what comes next.
            self._starved += self._rested - rested
        moment = now()
        elapsed = max(0.0, moment - self._since - self._starved)
        over = moment - self._since >= WINDOW_SECONDS
        self._all.pace.measure(self._roster.quick, elapsed, over=over)
        for name, own in self._own.items():
            own.pace.measure(self._roster.lanes[name].quick, elapsed, over=over)
        if over:
            self._since, self._starved = moment, 0.0
            self._roster.begin_window()

    def rest(self) -> None:
        """There is nothing to claim."""
        self._served = False

    def room(self) -> int:
        """How many tasks to claim of all queues together."""
        roster = self._roster
        waiting = bool(roster.ready) and roster.busy >= roster.slots
        return self._all.room(roster.taken, waiting=waiting, ahead=self._ahead())

    def enough(self) -> int:
        """How few must be held before a worker that is full claims again."""
        most = self._all.most(ahead=self._ahead())
        return most - max(1, most // 2)

    def round(self) -> list[str]:
        """All queues, in the order in which to ask them."""
        if len(self._queues) == 1:
            return self._queues
        self._unasked = set(self._queues)
        lanes = self._roster.lanes
        return sorted(self._queues, key=lambda name: (name in self._lively, lanes[name].taken))

    def is_full(self, queue: str) -> bool:
        """Whether a queue's own limit is reached."""
        own = self._own.get(queue)
        if own is None:
            return False
        lane = self._roster.lanes[queue]
        return own.room(lane.taken, waiting=lane.waiting > 0, ahead=self._ahead()) <= 0

    def share(self, queue: str) -> int:
        """How many tasks of a queue to claim now."""
        most = self._all.most(ahead=self._ahead())
        share = most - self._roster.taken
        lane = self._roster.lanes.get(queue)
        if lane is not None:
            self._unasked.discard(queue)
            rivals = len({queue} | self._lively | self._unasked)
            share = min(share, -(-most // rivals) - lane.taken)
        if queue in self._own and lane is not None:
            share = min(share, self._own[queue].most(ahead=self._ahead()) - lane.taken)
        return min(share, LARGEST_CLAIM)

    def learn(self, queue: str, *, served: bool, more: bool) -> None:
        """Takes in what came of asking a queue, or that it is held back: then it is no rival of other queues."""
        self._served = served
        if len(self._queues) > 1:
            self._unasked.discard(queue)
            if served:
                self._queues.remove(queue)
                self._queues.append(queue)
            (self._lively.add if more else self._lively.discard)(queue)

    def _ahead(self) -> bool:
        # What waits here would die with a suspect: it is not claimed ahead.
        return not self._roster.on_probation()
