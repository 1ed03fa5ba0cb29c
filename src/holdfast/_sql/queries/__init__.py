"""Every statement as a typed value: `Queries(schema).claim(…)` is a `Query[list[Claimed]]`, not yet sent.

One module for each file of statements: nothing else names a statement.
"""

from functools import cache

from holdfast._sql.queries.enqueue import EnqueueQueries
from holdfast._sql.queries.figures import FigureQueries
from holdfast._sql.queries.health import HealthQueries
from holdfast._sql.queries.insights import InsightQueries
from holdfast._sql.queries.leases import LeaseQueries
from holdfast._sql.queries.lifecycle import LifecycleQueries
from holdfast._sql.queries.looks import LookQueries
from holdfast._sql.queries.maintenance import MaintenanceQueries
from holdfast._sql.queries.migrate import MigrateQueries
from holdfast._sql.queries.roles import RoleQueries
from holdfast._sql.queries.schedules import ScheduleQueries
from holdfast._sql.queries.verbs import VerbQueries
from holdfast._sql.queries.workers import WorkerQueries


class Queries(
    EnqueueQueries,
    LifecycleQueries,
    LeaseQueries,
    WorkerQueries,
    VerbQueries,
    MaintenanceQueries,
    ScheduleQueries,
    InsightQueries,
    LookQueries,
    HealthQueries,
    FigureQueries,
    MigrateQueries,
    RoleQueries,
):
    """The statements of one schema, as functions that give queries."""


@cache
def queries(schema: str) -> Queries:
    """The queries of a schema, made once."""
    return Queries(schema)
