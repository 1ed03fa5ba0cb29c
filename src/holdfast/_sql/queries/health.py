"""How the database is: the statements of `health.sql`."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast._sql.queries.base import Base, first_list
from holdfast._sql.query import Query, Row


class HealthQueries(Base):
    """How the database is."""

    def table_health(self) -> Query[list[Row]]:
        return self._query("table_health", list)

    def index_health(self) -> Query[list[Row]]:
        return self._query("index_health", list)

    def transactions(self, limit: int) -> Query[list[Row]]:
        return self._query("transactions", list, limit=limit)

    def history_health(self) -> Query[list[Row]]:
        return self._query("history_health", list)

    def partitions(self, limit: int) -> Query[list[Row]]:
        return self._query("partitions", list, limit=limit)

    def server_health(self, settings: Sequence[str]) -> Query[Row]:
        return self._query("server_health", lambda rows: rows[0], settings=list(settings))

    def due_steps(self, queues: Sequence[str], limit: int) -> Query[list[Row]]:
        return self._query("due_steps", list, queues=list(queues), limit=limit)

    def expired_leases(self, grace: timedelta, limit: int) -> Query[list[Row]]:
        return self._query("expired_leases", list, grace=grace, limit=limit)

    def parked_lately(self, limit: int) -> Query[tuple[int, int]]:
        return self._query("parked_lately", lambda rows: (rows[0][0], rows[0][1]), limit=limit)

    def late_schedules(self, grace: timedelta, limit: int) -> Query[list[Row]]:
        return self._query("late_schedules", list, grace=grace, limit=limit)

    def scheduled_zones(self, limit: int) -> Query[list[str]]:
        return self._query("scheduled_zones", first_list, limit=limit)

    def zone_offsets(self, zone: str, instants: Sequence[datetime]) -> Query[list[int]]:
        return self._query("zone_offsets", first_list, zone=zone, instants=list(instants))

    def lacking_rights(self, role: str, rights: Sequence[str]) -> Query[list[str]]:
        return self._query("lacking_rights", first_list, role=role, rights=list(rights))
