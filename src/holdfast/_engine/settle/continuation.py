"""Whether a task that moves to its next step goes on here, or is given up to any worker.

Going on here saves a claim. A worker lets go when it is stopping, when it leaves the next step to others, when more
urgent tasks wait, and when the queue or the kind is paused; it reads these now and then, while tasks move.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_passing
from holdfast._engine.run.attempt import now
from holdfast._engine.settle.ending import Ending
from holdfast._engine.shared import Shared
from holdfast._model.run.outcome import Advanced
from holdfast._model.safe_log import Log
from holdfast._sql.query import Query
from holdfast._sql.rows import Obstacles

Run: TypeAlias = Callable[[Query[Any]], Awaitable[Any]]

log = Log("holdfast.worker")

READ_SECONDS = 0.2
_NONE = Obstacles(None, False, [])
_UNKNOWN = Obstacles(None, True, [])


class Keeper:
    """Decides for one worker which moves it keeps. `roster.continuing` counts them until they are recorded."""

    def __init__(self, shared: Shared, link: Link) -> None:
        self._link = link
        self._queries = shared.queries
        self._roster = shared.roster
        self._known = shared.known
        self._flag = shared.life.flag
        self._seen: dict[str, tuple[float, Obstacles]] = {}

    async def read_obstacles(self, endings: list[Ending], run: Run | None = None) -> None:
        """Reads what speaks against keeping these moves, unless it did so a moment ago. Without an answer none is kept.

        With `run`, in the transaction of a step: it would not outlive an error, which is raised then.
        """
        lowest: dict[str, int] = {}
        for ending in endings:
            if isinstance(ending.outcome, Advanced):
                queue = ending.attempt.queue
                lowest[queue] = min(ending.attempt.priority, lowest.get(queue, 9))
        for queue, priority in lowest.items():
            if now() - self._seen.get(queue, (0.0, _NONE))[0] > READ_SECONDS:
                try:
                    query = self._queries.obstacles(queue, priority, self._known.steps)
                    obstacles = await (run or self._link.run)(query)
                except Exception as error:
                    if run is not None:
                        raise
                    # No reason to fail: any worker may go on with a task that is not kept.
                    level = logging.DEBUG if is_passing(error) else logging.WARNING
                    log.log(level, "moves in queue %r are not kept: %s", queue, error)
                    self._seen[queue] = (-math.inf, _UNKNOWN)
                else:
                    self._seen[queue] = (now(), obstacles)

    def decide(self, ending: Ending, *, now_due: bool) -> None:
        """Keeps a move if it is due now and nothing speaks against it."""
        self.forget(ending)
        attempt = ending.attempt
        obstacles = self._seen.get(attempt.queue, (0.0, _NONE))[1]
        yields = obstacles.higher is not None and obstacles.higher > attempt.priority
        paused = obstacles.queue_paused or attempt.kind in obstacles.paused_kinds
        if now_due and not yields and not paused and self._is_ours(ending) and not self._flag.stopping:
            ending.kept = True
            self._roster.expect(attempt)

    def _is_ours(self, ending: Ending) -> bool:
        outcome, left_out = ending.outcome, self._known.left_out
        return (
            not left_out
            or not isinstance(outcome, Advanced)
            or (ending.attempt.definition.kind, outcome.step) not in left_out
        )

    def forget(self, ending: Ending) -> None:
        """This move is not kept after all, or has been recorded."""
        if ending.kept:
            ending.kept = False
            self._roster.expect(ending.attempt, -1)
