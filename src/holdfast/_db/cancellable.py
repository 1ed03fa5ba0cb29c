"""What the workers of the driver's pool do for us can be cancelled: they take no notice, and a loop would never end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from psycopg import AsyncConnection


@contextmanager
def cancellable() -> Iterator[None]:
    """A cancellation in here ends the pool's worker as well."""
    try:
        yield
    except asyncio.CancelledError:
        # Once more, when the worker has passed over the first and waits for its next task.
        if (worker := asyncio.current_task()) is not None:
            asyncio.get_running_loop().call_soon(worker.cancel)
        raise


class CancellableConnection(AsyncConnection[Any]):
    """A connection whose opening can be cancelled."""

    @classmethod
    async def connect(cls, *args: Any, **options: Any) -> Self:
        with cancellable():
            return await super().connect(*args, **options)
