"""The log of attempts, counted by the minute and the hour: the statements of `figures.sql`."""

from datetime import datetime, timedelta

from holdfast._model.read.figures import By
from holdfast._sql.queries.base import Base, nothing, value
from holdfast._sql.query import Query, Row


class FigureQueries(Base):
    """The log of attempts, counted by the minute and the hour."""

    def lock_figures(self, rest: timedelta) -> Query[list[Row]]:
        return self._query("lock_figures", list, rest=rest)

    def note_open(self) -> Query[None]:
        return self._query("note_open", nothing)

    def day_with_attempts(self, since: datetime) -> Query[datetime | None]:
        return self._query("day_with_attempts", value, since=since)

    def summarize_log(self) -> Query[None]:
        return self._query("summarize_log", nothing)

    def forget_minutes(self, since: datetime, until: datetime) -> Query[None]:
        return self._query("forget_minutes", nothing, since=since, until=until)

    def count_minutes(self, since: datetime, until: datetime) -> Query[int]:
        return self._query("count_minutes", value, since=since, until=until)

    def forget_hours(self, since: datetime, until: datetime) -> Query[None]:
        return self._query("forget_hours", nothing, since=since, until=until)

    def count_hours(self, since: datetime, until: datetime) -> Query[None]:
        return self._query("count_hours", nothing, since=since, until=until)

    def place_figures(self, settled: datetime, until: datetime) -> Query[None]:
        return self._query("place_figures", nothing, settled=settled, until=until)

    def figures_kept(self) -> Query[timedelta]:
        return self._query("figures_kept", value)

    def forget_figures(self, limit: int) -> Query[int]:
        return self._query("forget_figures", value, limit=limit)

    def figures(
        self,
        *,
        since: timedelta,
        span: timedelta,
        live: timedelta,
        hourly: bool,
        queue: str | None,
        kind: str | None,
        step: str | None,
        by: By | None,
    ) -> Query[list[Row]]:
        return self._query(
            "figures",
            list,
            since=since,
            span=span,
            live=live,
            hourly=hourly,
            queue=queue,
            kind=kind,
            step=step,
            by=by,
        )
