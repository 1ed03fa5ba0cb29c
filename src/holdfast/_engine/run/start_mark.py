"""The mark that an attempt has started which was claimed before there was a slot for it."""

import asyncio

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_passing
from holdfast._engine.run.attempt import Attempt
from holdfast._sql.queries import Queries


class StartMark:
    """Writes the mark: from then on the loss of the worker counts as a crash of the task."""

    def __init__(self, link: Link, queries: Queries) -> None:
        self._link = link
        self._queries = queries

    async def write(self, attempt: Attempt) -> bool:
        """Whether the attempt may start. If not, it is given back, and the fence decides whether it is still ours."""
        query = self._queries.begin(attempt.queue, attempt.worker_id, attempt.id, attempt.number)
        try:
            return bool(await self._link.run(query))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, Exception) and not is_passing(error):
                raise
            return False
