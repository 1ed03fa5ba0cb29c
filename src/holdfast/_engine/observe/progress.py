"""What running steps have told of themselves, on its way to the database.

Steps tell from the loop or from threads; the beat's thread writes what has changed, at most once a second and all in
one statement, never to the rows of tasks. What is told more often than that is passed over. A row is deleted when
its attempt is over; until then, readers know it by the number of the attempt.
"""

import logging

import msgspec

from holdfast._db.driver.session import Link
from holdfast._engine.run.attempt import Attempt, now
from holdfast._engine.run.roster import Roster
from holdfast._model.safe_log import Log
from holdfast._sql.queries import Queries

log = Log("holdfast.worker")

WRITE_EVERY = 1.0
"""Seconds between writes."""
LOCK_TIMEOUT = "200ms"
"""Nothing is worth keeping the beat waiting for."""


class ProgressLog:
    """The progress of what one worker executes."""

    def __init__(self, queries: Queries, roster: Roster) -> None:
        self._queries = queries
        self._roster = roster
        self._changed: dict[bytes, Attempt] = {}
        self._written: dict[bytes, Attempt] = {}
        self._wrote_at = 0.0
        self._failing = False

    def changed(self, attempt: Attempt) -> None:
        """An attempt has told something; from any thread."""
        self._changed[attempt.raw_id] = attempt

    @property
    def is_due(self) -> bool:
        """Whether there is something to write, and the last write was a while ago."""
        return bool(self._changed or self._written) and now() - self._wrote_at >= WRITE_EVERY

    async def write(self, link: Link) -> None:
        """Writes what has changed, and deletes what is over. What cannot be written now is written with the next."""
        self._wrote_at = now()
        told: list[Attempt] = []
        while self._changed:
            _, attempt = self._changed.popitem()  # others may put something in meanwhile
            if self._roster.holds(attempt):
                told.append(attempt)
        self._written |= {attempt.raw_id: attempt for attempt in told}
        over = [attempt for attempt in self._written.values() if not self._roster.holds(attempt)]
        if not told and not over:
            return
        queries = [self._queries.hurriedly()]
        if told:
            queries.append(self._queries.progress(_encode([_values(attempt) for attempt in told])))
        if over:
            queries.append(self._queries.forget_progress(_encode({str(a.id): a.number for a in over})))
        try:
            await link.transact(queries, lock_timeout=LOCK_TIMEOUT)
        except Exception as error:
            log.log(logging.DEBUG if self._failing else logging.WARNING, "progress could not be written: %s", error)
            self._failing = True
            for attempt in told:
                self._changed.setdefault(attempt.raw_id, attempt)
            return
        self._failing = False
        for attempt in over:
            del self._written[attempt.raw_id]


def _values(attempt: Attempt) -> dict[str, object]:
    told = attempt.told
    assert told is not None  # noqa: S101 - it has told something
    return {
        "task_id": attempt.id,
        "queue": attempt.queue,
        "attempt": attempt.number,
        "fraction": told.fraction,
        "note": told.note,
        "report": told.report or None,
    }


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)
