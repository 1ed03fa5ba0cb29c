"""Bounded looks at tasks by any filter: the statements of `looks.sql`."""

from collections.abc import Sequence
from uuid import UUID

from holdfast._model.read.filter import Filter
from holdfast._sql.filter_sql import filtered
from holdfast._sql.queries.base import Base
from holdfast._sql.query import Query, Row


class LookQueries(Base):
    """Bounded looks at tasks by any filter. `most`: how many tasks are looked at."""

    def look(self, filter: Filter, *, limit: int, most: int, below: UUID | None) -> Query[list[Row]]:
        return filtered(self._query("look", list, limit=limit, most=most, below=below), filter, self.schema)

    def look_count(self, filter: Filter, *, limit: int, most: int) -> Query[list[Row]]:
        return filtered(self._query("look_count", list, limit=limit, most=most), filter, self.schema)

    def look_at_few(
        self, filter: Filter, *, limit: int, most: int, below: UUID | None, spread: int, states: Sequence[str]
    ) -> Query[list[Row]]:
        query = self._query(
            "look_at_few", list, limit=limit, most=most, below=below, spread=spread, states=list(states)
        )
        return filtered(query, filter, self.schema)

    def count_few(
        self, filter: Filter, *, most: int, least: int, states: Sequence[str], is_plain: bool
    ) -> Query[list[Row]]:
        query = self._query("count_few", list, most=most, least=least, states=list(states), is_plain=is_plain)
        return filtered(query, filter, self.schema)

    def parked_groups(self, filter: Filter, *, limit: int, most: int) -> Query[list[Row]]:
        return filtered(self._query("parked_groups", list, limit=limit, most=most), filter, self.schema)
