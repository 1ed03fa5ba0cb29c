"""A pool that ends with its event loop: the driver's workers pass over a cancellation, and the loop would never end."""

import asyncio
import logging
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool


class EndingPool(AsyncConnectionPool[AsyncConnection[Any]]):
    """The driver's pool, whose workers end when they are cancelled, whatever they were doing."""

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
