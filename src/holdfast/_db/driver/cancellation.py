"""The driver passes over some cancellations. Here it obeys: a task that was cancelled ends."""

import asyncio
import logging
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error
from psycopg.abc import PQGen

from holdfast._db.driver.forks import not_for_children
from holdfast._db.stale_connections import SoundAsyncPool

T = TypeVar("T")


class ObeyingConnection(AsyncConnection[Any]):
    """The driver's connection. Cancelled in a statement, the driver asks the server to give it up and waits for that.

    If the connection breaks meanwhile, it raises that error instead: a loop that goes on after errors would go on.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        not_for_children(self)

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        """What the driver waits for; or the cancellation, if there was one."""
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            return await super().wait(gen, *args, **options)
        except Error as error:
            if task is not None and task.cancelling() > before:
                raise asyncio.CancelledError from error
            raise


class ObeyingPool(SoundAsyncPool):
    """The driver's pool, whose workers end when they are cancelled, whatever they were doing: else the event loop never
    ends."""

    def __init__(self, conninfo: str, **options: Any) -> None:
        super().__init__(conninfo, connection_class=ObeyingConnection, **options)

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]


class _UntilCancelled:
    """A queue that has nothing more for a task that was cancelled, though the task took no notice."""

    def __init__(self, queue: "asyncio.Queue[Any]") -> None:
        self._queue = queue

    async def get(self) -> Any:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()


def _is_news(record: logging.LogRecord) -> bool:
    """That a connection was given up with its loop is nothing to tell."""
    given = record.args if isinstance(record.args, tuple) else ()
    return not any(isinstance(each, asyncio.CancelledError) for each in given)


logging.getLogger("psycopg.pool").addFilter(_is_news)
