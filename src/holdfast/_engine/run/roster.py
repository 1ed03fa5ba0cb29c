"""What a worker holds: attempts that wait for a slot, have one, or have ended and are not yet recorded."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from holdfast._engine.run.attempt import Attempt, now

PROBATION = 60.0
"""Seconds after which a task whose worker was lost before is no longer taken for the culprit."""


@dataclass(slots=True)
class Lane:
    """What a roster holds of one queue, counted as the roster counts all; `limit`: so many of its steps at once."""

    limit: int | None = None
    busy: int = 0
    waiting: int = 0
    continuing: int = 0
    quick: int = 0

    @property
    def taken(self) -> int:
        """Slots in use or spoken for."""
        return self.busy + self.waiting + self.continuing

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.busy >= self.limit


class Roster:
    """What a worker holds: claimed and not started, running, and ended but not yet recorded.

    `held` has all of them by id; the beat's thread reads it. `ready` has those that wait for a slot, the highest
    priority first. `lingering` has attempts given up whose thread goes on. `continuing` counts moves under way whose
    next step will need a slot here. `quick` counts attempts that began and ended in the current window of time: the
    pace is measured by it. `lanes` counts the same for each queue; there are none for a single queue without a limit
    of its own.
    """

    def __init__(self, slots: int, queues: Mapping[str, int | None] | None = None) -> None:
        self.slots = slots
        self.busy = 0
        self.continuing = 0
        self.finished = 0
        self.quick = 0
        self._window = 0
        self.lost = 0
        self.held: dict[bytes, Attempt] = {}
        self.ready: deque[Attempt] = deque()
        self.lingering: dict[bytes, Attempt] = {}
        several = queues is not None and (len(queues) > 1 or any(queues.values()))
        self.lanes = {name: Lane(limit) for name, limit in queues.items()} if several and queues else {}
        self._suspects: dict[bytes, Attempt] = {}
        self._rested = 0.0
        self._rests_since: float | None = now()

    @property
    def stuck(self) -> int:
        """Slots held by threads that cannot be stopped."""
        return len(self.lingering)

    @property
    def taken(self) -> int:
        """Slots in use or spoken for."""
        return self.busy + len(self.ready) + self.continuing

    @property
    def rested(self) -> float:
        """Seconds so far in which there was nothing to do here."""
        return self._rested + (0.0 if self._rests_since is None else now() - self._rests_since)

    def find(self, id: UUID) -> Attempt | None:
        """The attempt at a task that is held here."""
        return self.held.get(id.bytes)

    def holds(self, attempt: Attempt) -> bool:
        """Whether this very attempt is still held: not given up, not followed by a later one."""
        return self.held.get(attempt.raw_id) is attempt

    # --- waiting for a slot

    def put(self, attempts: list[Attempt]) -> None:
        """New attempts, the most urgent first, wait for a slot behind those of the same priority."""
        self._end_rest()
        for attempt in attempts:
            self.held[attempt.raw_id] = attempt
            if attempt.crashes:
                self._suspects[attempt.raw_id] = attempt
        in_order = not self.ready or not attempts or self.ready[-1].priority >= attempts[0].priority
        self.ready.extend(attempts)
        self._count_waiting(attempts, 1)
        if not in_order:
            self.ready = deque(sorted(self.ready, key=lambda a: -a.priority))

    def put_first(self, attempt: Attempt) -> None:
        """A task that moved on goes before those not begun, unless they are more urgent."""
        self._end_rest()
        self.held[attempt.raw_id] = attempt
        if self.ready and self.ready[0].priority > attempt.priority:
            self.put([attempt])
        else:
            self.ready.appendleft(attempt)
            self._count_waiting([attempt], 1)

    def take_unstarted(self, claimed_before: float) -> list[Attempt]:
        """Takes out those that wait for a slot and were claimed before a time."""
        taken = [attempt for attempt in self.ready if attempt.held_since < claimed_before]
        if taken:
            self.ready = deque(attempt for attempt in self.ready if attempt.held_since >= claimed_before)
            self._count_waiting(taken, -1)
        return taken

    def withdraw(self, attempt: Attempt) -> bool:
        """Takes out one that waits for a slot; False if it does not wait."""
        if attempt not in self.ready:
            return False
        self.ready.remove(attempt)
        self._count_waiting([attempt], -1)
        return True

    def _count_waiting(self, attempts: Sequence[Attempt], change: int) -> None:
        if self.lanes:
            for attempt in attempts:
                self.lanes[attempt.queue].waiting += change

    def _end_rest(self) -> None:
        if self._rests_since is not None:
            self._rested, self._rests_since = self.rested, None

    # --- slots

    def begin(self) -> Attempt | None:
        """Gives a slot to the first that waits for one and whose queue may have one more."""
        if not self.ready or self.busy >= self.slots:
            return None
        if not self.lanes:
            self.busy += 1
            attempt = self.ready.popleft()
            attempt.window = self._window
            return attempt
        found = next((each for each in self.ready if not self.lanes[each.queue].is_full), None)
        if found is not None:
            self.withdraw(found)
            self.busy += 1
            self.lanes[found.queue].busy += 1
            found.window = self._window
        return found

    def end(self, attempt: Attempt) -> None:
        """Its slot is free."""
        self.busy -= 1
        is_quick = attempt.window == self._window
        self.quick += is_quick
        if not self.busy and not self.ready:
            self._rests_since = now()
        if self.lanes:
            self.lanes[attempt.queue].busy -= 1
            self.lanes[attempt.queue].quick += is_quick

    def begin_window(self) -> None:
        """A new window of time begins: attempts that began before it are no longer quick."""
        self._window += 1
        self.quick = 0
        for lane in self.lanes.values():
            lane.quick = 0

    def expect(self, attempt: Attempt, change: int = 1) -> None:
        """The next step of its task will need a slot here, or (-1) has come, or will not come."""
        self.continuing += change
        if self.lanes:
            self.lanes[attempt.queue].continuing += change

    # --- the end

    def forget(self, attempt: Attempt) -> None:
        """This attempt is over; a later one of the same task is another matter."""
        id = attempt.raw_id
        if self.held.get(id) is attempt:
            del self.held[id]
        if attempt.crashes and self._suspects.get(id) is attempt:
            del self._suspects[id]

    def forget_all(self, attempts: list[Attempt]) -> bool:
        """The same for many; tells whether a suspect was among them."""
        held = self.held
        for attempt in attempts:
            id = attempt.raw_id
            if held.get(id) is attempt:
                del held[id]
        if not self._suspects:
            return False
        suspects = [attempt for attempt in attempts if attempt.crashes]
        for suspect in suspects:
            self.forget(suspect)
        return bool(suspects)

    def on_probation(self) -> bool:
        """Whether a task is held here that may be what killed its last worker: it has not yet shown that it is not."""
        since = now() - PROBATION
        return any(suspect.held_since > since for suspect in self._suspects.values())
