"""A blocking connection on which nothing waits for ever."""

from collections.abc import Generator
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import PQGen

from holdfast._db.driver.connection import CALL_TIMEOUT
from holdfast._db.driver.forks import not_for_children

T = TypeVar("T")

CANCEL_SECONDS = 5.0


class LimitedConnection(Connection[Any]):
    """Gives up, and is closed, when the server has not answered a statement for so long: a socket may be stalled."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        not_for_children(self)

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """What the driver waits for, with a limit."""
        try:
            return super().wait(_within(gen, CALL_TIMEOUT), *args, **options)
        except TimeoutError as error:
            with suppress(Exception):
                self.cancel_safe(timeout=CANCEL_SECONDS)
            self.close()
            raise OperationalError(f"no answer for {CALL_TIMEOUT:g} seconds, and the connection was closed") from error


def _within(gen: PQGen[T], seconds: float) -> Generator[Any, Any, T]:
    """The same, passed on step by step: the driver also wakes it when nothing has come."""
    until = monotonic() + seconds
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready and monotonic() > until:
                raise TimeoutError
            wanted = gen.send(ready)
    except StopIteration as ended:
        result: T = ended.value
        return result
