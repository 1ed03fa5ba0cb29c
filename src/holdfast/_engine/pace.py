"""How much a worker may hold: its slots, plus what its measured pace will start within a fifth of a second."""

import time

AHEAD_SECONDS = 0.2
MOST_AHEAD = 2000
EVIDENCE = 20
"""No more than so many times what has ended of late is claimed ahead: a few short steps tell little."""
_INSTANT = 0.0001


class Pace:
    """How many steps a second this worker starts, measured from claim to claim."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._finished = 0
        self._seen = 0
        self.per_second = 0.0

    def measure(self, finished: int, starved: float = 0.0) -> None:
        """Takes in how many attempts have ended so far; `starved`: seconds since then that it waited for a claim.

        These do not count. A claim takes longer than a thousand short steps, and to wait for it is not to be slow.
        """
        elapsed = max(0.0, time.monotonic() - self._since - starved)
        ended = finished - self._finished
        if not ended and elapsed < 0.0005:
            self._since += starved
            return
        recent = ended / max(elapsed, _INSTANT)
        # Longer ones tell more, but one that stood still for a second need not be slow from now on.
        weight = min(0.8, elapsed / 0.05 + 0.3)
        self.per_second += (recent - self.per_second) * weight
        self._seen = max(ended, int(self._seen * (1 - weight)))
        self._since, self._finished = time.monotonic(), finished

    def ahead(self, slots: int) -> int:
        """How many to claim beyond the free slots."""
        # Fewer than the slots within that time means: a step takes longer than that.
        soon = self.per_second * AHEAD_SECONDS
        return 0 if soon < slots else int(min(soon, self._seen * EVIDENCE, MOST_AHEAD))


class Allowance:
    """How many attempts may be held here, of all queues or of one that has a limit."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.pace = Pace()

    def most(self, *, ahead: bool) -> int:
        """How many may be held, or be about to."""
        return self._slots + self.pace.ahead(self._slots) if ahead else self._slots

    def room(self, taken: int, *, waiting: bool, ahead: bool) -> int:
        """How many to claim. Small claims cost as much as large ones: with work at hand, half of all or nothing."""
        most = self.most(ahead=ahead)
        return 0 if waiting and most - taken < most // 2 else most - taken
