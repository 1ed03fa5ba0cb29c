"""Where a claim begins to look: past what was claimed before, and past what cannot be claimed."""

import time
from datetime import UTC, datetime, timedelta

from holdfast._sql.records import Claimed

MARK_SECONDS = 1.0

_BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
_ROUNDING = timedelta(milliseconds=1)


class Marks:
    """Where the claimable tasks of one queue begin, per priority: what lies before was claimed, or is unclaimable.

    A mark hides late commits and tasks put back, so a full scan follows at least once a second while one is set.
    """

    def __init__(self) -> None:
        self._marks = [_BEGINNING] * 10
        self._scanned = 0.0
        self.set = False

    def current(self) -> list[datetime]:
        """The marks for the next claim: none if a full scan is due."""
        if self.set and time.monotonic() - self._scanned >= MARK_SECONDS:
            self.drop()
        if not self.set:
            self._scanned = time.monotonic()
        return self._marks

    def learn(self, rows: list[Claimed]) -> None:
        """After a full batch: what was claimed before it lies behind."""
        marks = list(self._marks)
        earliest = {row.priority: row.run_at for row in reversed(rows)}
        for priority, run_at in earliest.items():
            marks[priority] = datetime.fromtimestamp(run_at, UTC) - _ROUNDING
        self._marks, self.set = marks, True

    def skip_to(self, moment: datetime) -> None:
        """Many unclaimable tasks lie in front: pass over them until the next full scan."""
        self._marks, self.set = [moment] * 10, True

    def drop(self) -> None:
        self._marks, self.set = [_BEGINNING] * 10, False

    def until_scan(self) -> float:
        """Seconds that a worker may trust an empty answer."""
        return max(0.0, self._scanned + MARK_SECONDS - time.monotonic()) if self.set else float("inf")
