"""A test's own connection to its database."""

import threading
from typing import Any, TypeVar

from holdfast._db.driver.connection import DriverError, connect_sync, run_sync
from holdfast._sql.query import Query

T = TypeVar("T")


class Session:
    """One blocking connection, opened at first use, and again if somebody has ended it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._lock = threading.RLock()

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs SQL with numbered parameters (`$1`)."""

        def run(connection: Any) -> list[tuple[Any, ...]]:
            cursor = connection.execute(text.encode(), values or None)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
            return rows

        found: list[tuple[Any, ...]] = self._with_connection(run)
        return found

    def ask(self, query: Query[T]) -> T:
        """Runs a query of Holdfast's own."""
        answer: T = self._with_connection(lambda connection: run_sync(connection, query))
        return answer

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _with_connection(self, run: Any) -> Any:
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = connect_sync(self._url, "holdfast test")
                return run(self._connection)
            try:
                return run(self._connection)
            except DriverError:
                if not self._connection.closed:
                    raise
                self._connection = None
            return self._with_connection(run)
