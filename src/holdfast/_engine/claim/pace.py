"""How much a worker may hold: its slots, plus what its measured pace will start within a moment.

The pace counts only steps that began and ended within one window of time. So it is never faster than the slots allow:
ten steps that take a second each and end together say nothing about the next ten.
"""

AHEAD_SECONDS = 0.05
SHORT_SECONDS = 0.02
"""A step that takes longer than this is not claimed ahead: to claim it when a slot is free costs a few per cent."""
WINDOW_SECONDS = 0.2
MOST_AHEAD = 2000
EVIDENCE = 20
"""No more than so many times what was counted is claimed ahead: a few short steps tell little."""
_INSTANT = 0.0001


class StepPace:
    """How many short steps a second this worker executes."""

    def __init__(self) -> None:
        self._before = 0.0
        self._counted_before = 0
        self._counted = 0
        self.per_second = 0.0

    def measure(self, counted: int, elapsed: float, *, over: bool) -> None:
        """Takes in how many steps began and ended in the window so far, in so many seconds; `over`: it ends here."""
        rate = counted / max(elapsed, _INSTANT)
        weight = min(1.0, elapsed / WINDOW_SECONDS)
        # Faster than before is believed at once, slower by and by: a window that has just begun is empty.
        self.per_second = max(rate, self._before + (rate - self._before) * weight)
        self._counted = max(counted, int(self._counted_before * (1 - weight)))
        if over:
            self._before, self._counted_before = self.per_second, self._counted

    def ahead(self, slots: int) -> int:
        """How many to claim beyond the free slots."""
        if self.per_second * SHORT_SECONDS < slots:
            return 0
        return int(min(self.per_second * AHEAD_SECONDS, self._counted * EVIDENCE, MOST_AHEAD))


class Allowance:
    """How many attempts may be held here, of all queues or of one that has a limit."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.pace = StepPace()

    def most(self, *, ahead: bool) -> int:
        """How many may be held, or be about to."""
        return self._slots + self.pace.ahead(self._slots) if ahead else self._slots

    def room(self, taken: int, *, waiting: bool, ahead: bool) -> int:
        """How many to claim. Small claims cost as much as large ones: with work at hand, half of all or nothing."""
        most = self.most(ahead=ahead)
        return 0 if waiting and most - taken < most // 2 else most - taken
