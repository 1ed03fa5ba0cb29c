"""Moving time: the database's clock is the only one that decides, and in a test's own database it can be set."""

from datetime import datetime, timedelta

from holdfast._model.time.duration import Duration, seconds
from holdfast._sql.query import quote
from holdfast.testing.session import Session


class Clock:
    """The database's clock of one test. Real time until it is moved; then it stands still where it was put."""

    def __init__(self, session: Session, schema: str) -> None:
        self._session = session
        self._schema = quote(schema)
        self.moved = False

    def now(self) -> datetime:
        """What the database says it is."""
        found: datetime = self._session.sql(f"SELECT {self._schema}.now()")[0][0]
        return found

    def advance(self, by: Duration) -> None:
        """Moves time on; it stands still afterwards. `advance(0)` only stops it."""
        self.set(self.now() + timedelta(seconds=seconds(by, "by")))

    def at(self, when: datetime | Duration) -> datetime:
        """The instant meant by a time, local unless it has a zone, or by how long from now."""
        if isinstance(when, datetime):
            return when if when.tzinfo else when.astimezone()
        return self.now() + timedelta(seconds=seconds(when, "until"))

    def set(self, to: datetime) -> None:
        """Moves time to an instant, back as well; it stands still afterwards."""
        self._replace(f"'{self.at(to).isoformat()}'::timestamptz")
        self.moved = True

    def resume(self) -> None:
        """Real time again."""
        self._replace("pg_catalog.statement_timestamp()")
        self.moved = False

    def _replace(self, expression: str) -> None:
        self._session.sql(
            f"CREATE OR REPLACE FUNCTION {self._schema}.now() RETURNS timestamptz"
            f" LANGUAGE sql STABLE PARALLEL SAFE AS $$ SELECT {expression} $$"
        )
        self._session.sql(f"SELECT {self._schema}.ensure_partitions(1)")
