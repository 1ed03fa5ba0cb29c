"""Where a claim begins its search: past what was claimed before, and past what cannot be claimed."""

import time
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from holdfast._sql.queries.lifecycle import NO_ID
from holdfast._sql.rows import Claimed

MARK_SECONDS = 1.0
LATE_SECONDS = 5.0
"""Seconds after which hardly any transaction commits a task that was due at once."""

_BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
_EXACT = 2.0**31
"""Up to here, seconds since 1970 tell microseconds apart."""
_ROUNDING = timedelta(milliseconds=1)


class LowWaterMarks:
    """Where the claimable tasks of one queue begin, per priority: those before a mark were claimed or are unclaimable.

    A position in the order of claims: a time, and an id among those of that time, for all tasks of a bulk enqueue are
    due at one. A mark hides late commits and tasks put back: a full scan follows once a second while one is set.
    """

    def __init__(self) -> None:
        self._marks = [_BEGINNING] * 10
        self._ids = [NO_ID] * 10
        self._scanned = 0.0
        self.set = False

    def current(self) -> list[datetime]:
        """The marks for the next claim: none if a full scan is due."""
        if self.set and time.monotonic() - self._scanned >= MARK_SECONDS:
            self.drop()
        if not self.set:
            self._scanned = time.monotonic()
        return self._marks

    @property
    def ids(self) -> list[UUID]:
        """The ids that belong to the current marks."""
        return self._ids

    def learn(self, rows: list[Claimed]) -> None:
        """After a full batch, in the order of claims: what was claimed lies behind.

        The batch itself, too, if it is a backlog. Among tasks of this moment it does not: one that was enqueued before
        the last of them may be committed after it, and is not to wait for the next full scan.
        """
        marks, ids = list(self._marks), list(self._ids)
        in_order = [row for row in rows if not row.crashes]  # suspects are taken from elsewhere
        for priority, group in groupby(in_order, attrgetter("priority")):
            batch = [*group]
            first, row = batch[0], batch[-1]
            if row.claimed_at - row.run_at < LATE_SECONDS:
                row = first
            exact = abs(row.run_at) < _EXACT
            marks[priority] = datetime.fromtimestamp(row.run_at, UTC) - (timedelta(0) if exact else _ROUNDING)
            ids[priority] = row.id if exact else NO_ID
        self._marks, self._ids, self.set = marks, ids, True

    def skip_to(self, moment: datetime) -> None:
        """Many unclaimable tasks lie in front: pass over them until the next full scan."""
        self._marks, self._ids, self.set = [moment] * 10, [NO_ID] * 10, True

    def drop(self) -> None:
        self._marks, self._ids, self.set = [_BEGINNING] * 10, [NO_ID] * 10, False

    def until_scan(self) -> float:
        """Seconds that a worker may trust an empty answer."""
        return max(0.0, self._scanned + MARK_SECONDS - time.monotonic()) if self.set else float("inf")
