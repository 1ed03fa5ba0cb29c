"""Wake-ups: after an enqueue, this worker's claimer and an idle worker elsewhere are told to claim."""

from collections.abc import Collection, Iterable

from holdfast._db.driver.session import Link
from holdfast._db.errors import tell_no_hint
from holdfast._engine.claim.bell import Bell
from holdfast._sql.queries import Queries


class WakeUps:
    """Wakes the workers that may execute what was enqueued."""

    def __init__(self, link: Link, queries: Queries, queues: Collection[str], bell: Bell) -> None:
        self._link = link
        self._queries = queries
        self._queues = queues
        self._bell = bell

    async def enqueued(self, queues: Iterable[str]) -> None:
        """Tasks were enqueued into these queues. A wake-up is a hint: nothing depends on it."""
        for queue in sorted(queues):
            if queue in self._queues:
                self._bell.ring()
            try:
                await self._link.run(self._queries.notify_if_idle(queue))
            except Exception as error:
                tell_no_hint(error)
