"""Every statement as a typed value: `Queries(schema).claim(…)` is a `Query[list[Claimed]]`, not yet sent.

One module for each file of statements; those that only read, and those of schedules, have modules of their own above
this one and go through `read`.
"""

from datetime import timedelta
from functools import cache

from holdfast._sql.queries.base import nothing
from holdfast._sql.queries.enqueue import EnqueueQueries
from holdfast._sql.queries.leases import LeaseQueries
from holdfast._sql.queries.lifecycle import LifecycleQueries
from holdfast._sql.queries.verbs import VerbQueries
from holdfast._sql.queries.workers import WorkerQueries
from holdfast._sql.query import Query, Row


class Queries(EnqueueQueries, LifecycleQueries, LeaseQueries, WorkerQueries, VerbQueries):
    """The statements of one schema, as functions that give queries."""

    def only_look(self, within: timedelta) -> Query[None]:
        return self._query("only_look", nothing, within=within)

    def read(self, name: str, /, **values: object) -> Query[list[Row]]:
        """A statement of `insights.sql` or `maintenance.sql`, with its rows as they are."""
        return self._query(name, list, **values)


@cache
def queries(schema: str) -> Queries:
    """The queries of a schema, made once."""
    return Queries(schema)
