"""Figures: the log of attempts is counted by the minute, by any worker, once and for all.

An attempt has the time when the statement that recorded it began, and is seen when its transaction commits: perhaps
much later, if that was somebody's own. So a minute is complete once every transaction that was open when it ended has
ended too. Until then it is counted for the time being, and later again, as a whole, in place of what was there.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast._model.read.figures import OUTCOMES, By, Figure, Figures, Point, Spread, arranged
from holdfast._sql.plans import Plan
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, Row

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

GRACE = timedelta(seconds=10)
"""A minute is not looked at before: the clock of the next server may be a little behind."""
PATIENCE = timedelta(minutes=3)
"""So long the end of open transactions is waited for before a minute is counted for the time being."""
AT_ONCE = timedelta(minutes=10)
"""The most that is counted in one transaction."""
LIVE = timedelta(hours=1)
"""The most that is counted by those who read, if no worker has done it."""
MINUTES_KEPT = timedelta(days=3)
"""For so long there are figures by the minute; those by the hour are kept longer."""


class Place(NamedTuple):
    """How far figures have come, and whether all transactions that were open at `seen_at` have ended."""

    settled: datetime
    until: datetime
    seen_at: datetime
    now: datetime
    ended: bool

    @property
    def start(self) -> datetime:
        """Where counting goes on."""
        return self.settled if self.ended else self.until

    @property
    def end(self) -> datetime:
        """Where it has to stop for now."""
        if self.ended:
            return _minute(self.seen_at - GRACE)
        return self.until if self.now - self.until < PATIENCE else _minute(self.now - GRACE)

    @property
    def is_ahead(self) -> bool:
        """Whether the clock was set back since."""
        return self.until > _minute(self.now)

    @property
    def is_to_count(self) -> bool:
        return self.is_ahead or self.start < self.end

    @property
    def is_to_note(self) -> bool:
        """Whether a minute is over that can be counted once those have ended whose transactions are open now."""
        return self.ended and self.settled < _minute(self.now - GRACE)


class Rolled(NamedTuple):
    """What came of a piece of counting: how many figures, and whether there is more to do."""

    figures: int
    more: bool


def look(queries: Queries, rest: timedelta) -> Query[Place | None]:
    """How far figures have come; nothing if somebody is at it, or has looked within this time."""
    return queries.lock_figures(rest).into(lambda rows: Place(*rows[0]) if rows else None)


def note_open(queries: Queries) -> Query[None]:
    """Notes which transactions are open."""
    return queries.note_open()


def roll_up(queries: Queries) -> Plan[Rolled]:
    """Counts a piece of what can be counted now; for one transaction of READ COMMITTED."""
    place: Place | None = yield look(queries, timedelta())
    if place is None:
        return Rolled(0, False)
    if place.is_ahead:
        place = yield from _turned_back(queries, place)
    start = place.start
    if place.now - start > timedelta(days=1):
        # Days of which there is nothing are passed over at once.
        day: datetime | None = yield queries.day_with_attempts(start)
        start = max(start, day or _minute(place.now - timedelta(days=1)))
    rolled: Rolled = yield from _count(queries, place, start)
    if place.ended and not rolled.more:
        yield note_open(queries)
    return rolled


def _count(queries: Queries, place: Place, start: datetime) -> Plan[Rolled]:
    """Counts minutes, and if they are complete, the hours they belong to."""
    until = min(place.end, start + AT_ONCE)
    if until <= start:
        return Rolled(0, False)
    yield queries.forget_minutes(start, until)
    made: int = yield queries.count_minutes(start, until)
    first = _hour(min(start, place.settled))
    if place.ended and first < _hour(until):
        yield queries.forget_hours(first, _hour(until))
        yield queries.count_hours(first, _hour(until))
    settled = until if place.ended else place.settled
    yield queries.place_figures(settled, max(until, place.until))
    return Rolled(made, until < place.end)


def _turned_back(queries: Queries, place: Place) -> Plan[Place]:
    """The clock was set back: what was counted of the time to come is counted when that comes again."""
    now = _minute(place.now)
    settled = min(place.settled, now)
    yield queries.forget_minutes(now, place.until)
    yield queries.forget_hours(_hour(now), max(place.until, place.settled))
    yield queries.place_figures(settled, now)
    return place._replace(settled=settled, until=now, seen_at=min(place.seen_at, place.now))


def summarize(queries: Queries) -> Query[None]:
    """Lets the indexes of the log know what is new."""
    return queries.summarize_log()


def forget(queries: Queries, limit: int) -> Query[int]:
    """Deletes figures that are no longer kept, and counts them."""
    return queries.forget_figures(limit)


def handy(since: timedelta) -> timedelta:
    """A step that makes about 60 of a time span; beyond half a day whole hours, because there are fewer of them."""
    return since / 60 if since <= 12 * HOUR else -(-since // (60 * HOUR)) * HOUR


def read(
    queries: Queries,
    since: timedelta,
    step: timedelta,
    *,
    queue: str | None = None,
    kind: str | None = None,
    at_step: str | None = None,
    by: By | None = None,
) -> Query[Figures]:
    """Figures from `since` ago until now, in steps of whole minutes, or of hours where minutes are no longer kept."""
    span = max(MINUTE, -(-step // MINUTE) * MINUTE)
    if since + span > MINUTES_KEPT:
        span = -(-span // HOUR) * HOUR
    query = queries.figures(
        since=since,
        span=span,
        live=LIVE,
        hourly=not span % HOUR,
        queue=queue,
        kind=kind,
        step=at_step,
        by=by,
    )

    def arrange(rows: Sequence[Row]) -> Figures:
        start, now, missing, *_ = rows[0]
        return arranged(start, now, span, [_counted(row) for row in rows if row[3] is not None], missing)

    return query.into(arrange)


def _counted(row: Row) -> tuple[str, Point]:
    name, at, outcomes, wait, run, wait_seconds, run_seconds = row[3:]
    counts = {outcome: count for outcome, count in zip(OUTCOMES, outcomes, strict=True) if count}
    return name, Point(at, Figure(counts, Spread(tuple(wait), wait_seconds), Spread(tuple(run), run_seconds)))


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _hour(at: datetime) -> datetime:
    """In UTC, as in the database, whatever the zone of the connection."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
