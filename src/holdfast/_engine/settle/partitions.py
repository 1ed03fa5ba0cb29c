"""Partitions that are missing when an ending is to be written: a day has begun, and maintenance has not made them."""

from holdfast._db.driver.session import Link
from holdfast._sql.queries import Queries

TABLE_TIMEOUT = "10s"
"""How long to wait for a session that changes a table: no other session is in the way."""


class Partitions:
    """Makes the partitions of the coming days."""

    def __init__(self, link: Link, queries: Queries) -> None:
        self._link = link
        self._queries = queries

    async def make(self) -> None:
        await self._link.transact([self._queries.ensure_partitions()], lock_timeout=TABLE_TIMEOUT)
