"""What steps need, opened once per worker and closed after the last step."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any

from holdfast._model.declare.tasks import Tasks
from holdfast._model.json.error_json import message_of
from holdfast._model.safe_log import Log
from holdfast.errors import ConfigError

log = Log("holdfast.worker")


class Resources:
    """The opened resources of a worker, by the class they provide."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._stack = AsyncExitStack()
        self.opened: dict[type, object] = {}

    async def open(self) -> None:
        """Opens all declared resources, in the order of their declaration."""
        for resource in self._tasks._resources:
            make: Any = resource.make
            try:
                if resource.is_async:
                    opened = await self._stack.enter_async_context(asynccontextmanager(make)())
                else:
                    opened = self._stack.enter_context(contextmanager(make)())
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                await self.close()
                raise ConfigError(
                    f"the resource {make.__qualname__} cannot be opened: {type(error).__name__}: {message_of(error)}"
                ) from error
            self.opened[resource.provides] = opened

    async def close(self) -> None:
        """Closes them in the reverse order; one that fails is told, and does not matter any more."""
        try:
            await self._stack.aclose()
        except asyncio.CancelledError:
            raise
        except BaseException:
            log.exception("a resource could not be closed")
