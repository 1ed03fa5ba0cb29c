"""Chores on the history: days are made ahead and dropped whole; queues that keep less are deleted from in slices.

No chore may hold up other sessions. A day is detached concurrently, then dropped. A chore waits for the sessions that
read the day, but not long, and the next pass tries again. Several workers may do this at once: each statement bears
being overtaken.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from holdfast._db.driver.session import Link
from holdfast._db.errors import gave_way, is_deadlock
from holdfast._model.read.formats import size
from holdfast._model.safe_log import Log
from holdfast._sql import figures, history, schedules
from holdfast._sql.queries import Queries

log = Log("holdfast.worker")

LOCK_TIMEOUT = "200ms"
DETACH_WITHIN = 2.0
"""Seconds that a detachment may wait for those who use the table; they and all others go on meanwhile."""
PARTITIONS = 20
"""Partitions that a pass drops at most."""
SLICE = 256
"""Blocks of a partition, 2 MB, that one statement deletes from."""
SLICES = 50
"""Slices of a pass."""
ROWS = 1000
"""Rows that a statement deletes from a small table."""
PIECES = 50
"""Pieces of the log that a pass counts at most."""


@dataclass(slots=True)
class ChoreResult:
    """What a chore did, in words, and whether there is more to be done soon."""

    what: list[str] = field(default_factory=list)
    more: bool = False


async def make_partitions(link: Link, queries: Queries) -> ChoreResult:
    """Partitions for the coming days."""
    await link.transact([queries.ensure_partitions()], lock_timeout=LOCK_TIMEOUT)
    return ChoreResult()


async def drop_old_days(link: Link, queries: Queries) -> ChoreResult:
    """Days that are older than the longest retention."""
    if not await link.run(history.owned(queries)):
        return await _drop_for_others(link, queries)
    try:
        await link.transact(history.mark(queries), lock_timeout=LOCK_TIMEOUT)
        found = await link.run(history.to_drop(queries, PARTITIONS + 1))
    except Exception as error:
        if not is_deadlock(error):
            raise
        log.debug("another worker is dropping old history: %s", error)
        return ChoreResult(more=True)
    dropped: dict[date, int] = defaultdict(int)
    for partition in found[:PARTITIONS]:
        try:
            if partition.attached:
                await link.outside(history.detach(queries, partition), within=DETACH_WITHIN)
            size = await link.follow(history.drop(queries, partition), lock_timeout=LOCK_TIMEOUT)
        except Exception as error:
            if not gave_way(error):
                raise
            log.debug("%s is in use, and dropped later: %s", partition.name, error)
        else:
            if size is not None:
                dropped[partition.day] += size
    return ChoreResult(_told(dropped), more=bool(dropped) and len(found) > PARTITIONS)


async def _drop_for_others(link: Link, queries: Queries) -> ChoreResult:
    """The same for a role that does not own the tables, by a function: others wait while it waits, so not for long."""
    dropped: dict[date, int] = defaultdict(int)
    for _ in range(PARTITIONS):
        try:
            (answer,) = await link.transact([history.drop_oldest(queries)], lock_timeout=LOCK_TIMEOUT)
            found = await answer.read()
        except Exception as error:
            if not gave_way(error):
                raise
            log.debug("old history is in use, and dropped later: %s", error)
            break
        if found is None:
            break
        day, taken = found
        dropped[day] += taken
    else:
        return ChoreResult(_told(dropped), more=True)
    return ChoreResult(_told(dropped))


def _told(dropped: Mapping[date, int]) -> list[str]:
    return [f"dropped the history of {day} ({size(taken)})" for day, taken in sorted(dropped.items())]


async def sweep_queues(link: Link, queries: Queries) -> ChoreResult:
    """Rows of queues with a shorter retention, from the days that others still keep."""
    deleted: dict[str, int] = defaultdict(int)
    swept = None
    for _ in range(SLICES):
        swept = await link.follow(history.sweep(queries, SLICE), lock_timeout=LOCK_TIMEOUT)
        if swept is None:
            break
        deleted[swept.name] += swept.rows
    what = [f"deleted {rows:,} rows from {name}" for name, rows in deleted.items() if rows]
    return ChoreResult(what, more=swept is not None)


async def forget_workers(link: Link, queries: Queries) -> ChoreResult:
    """Workers that stopped longer ago than history is kept."""
    count = await link.run(history.forget_workers(queries, ROWS))
    return ChoreResult([f"forgot {count:,} stopped workers"] if count else [], more=count >= ROWS)


async def forget_changes(link: Link, queries: Queries) -> ChoreResult:
    """What people did long ago."""
    count = await link.run(history.forget_changes(queries, ROWS))
    return ChoreResult([f"forgot {count:,} old changes"] if count else [], more=count >= ROWS)


async def sweep_progress(link: Link, queries: Queries) -> ChoreResult:
    """Progress that workers left behind when they died."""
    count = await link.run(queries.sweep_progress(ROWS))
    return ChoreResult(more=count >= ROWS)


async def sweep_keys(link: Link, queries: Queries) -> ChoreResult:
    """Keys that hold no longer."""
    count = await link.run(queries.sweep_keys(ROWS))
    return ChoreResult([f"swept {count:,} keys that hold no longer"] if count else [], more=count >= ROWS)


async def forget_occurrences(link: Link, queries: Queries) -> ChoreResult:
    """Occurrences of schedules whose tasks are no longer in the history."""
    count = await link.run(schedules.sweep(queries, ROWS))
    return ChoreResult([f"forgot {count:,} old occurrences"] if count else [], more=count >= ROWS)


async def count_figures(link: Link, queries: Queries) -> ChoreResult:
    """Minutes that have ended."""
    made = 0
    for _ in range(PIECES):
        rolled = await link.follow(figures.roll_up(queries), lock_timeout=LOCK_TIMEOUT)
        made += rolled.figures
        if not rolled.more:
            break
    else:
        return ChoreResult(more=True)
    if made:
        await link.run(figures.summarize(queries))
    return ChoreResult()


async def forget_figures(link: Link, queries: Queries) -> ChoreResult:
    """Figures that are no longer kept."""
    count = await link.run(figures.forget(queries, ROWS))
    return ChoreResult(more=count >= ROWS)
