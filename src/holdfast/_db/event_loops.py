"""Objects that belong to an event loop: made at their first use there, and abandoned when the loop has ended.

A loop may end without closing them: `asyncio.run(main())` several times in one process, or a test framework with a
loop for each test. Nothing can be awaited on it any more, so the next loop closes what it has left open.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something with connections of one event loop."""

    pid: int

    async def close(self) -> None: ...
    def abandon(self) -> None:
        """Closes its connections without awaiting anything: its loop runs no more."""


T = TypeVar("T", bound=Closable)


class PerLoop(Generic[T]):
    """One for each event loop that is in use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._kept: dict[asyncio.AbstractEventLoop, T] = {}
        self._remains: list[T] = []

    def here(self) -> T:
        """The one of the running loop."""
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        if kept is None or kept.pid != os.getpid():
            self.abandon_ended()
            kept = self._kept[loop] = self._make()
        return kept

    async def close(self) -> None:
        """Closes the one of the running loop; a later use makes another."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None and kept.pid == os.getpid():
            await kept.close()

    def abandon_ended(self) -> None:
        """Closes those of loops that have ended."""
        for loop in [*self._kept]:
            if loop.is_closed() and (kept := self._kept.pop(loop, None)) is not None and kept.pid == os.getpid():
                kept.abandon()
                if asyncio.all_tasks(loop):
                    # It was closed in the middle of its tasks, and these can never end: let go, each would complain.
                    self._remains.append(kept)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """The loops that have one."""
        return [*self._kept]

    def clear(self) -> None:
        """Forgets all of them: an open one goes on until it is no longer in use."""
        self._kept.clear()
