"""What belongs to an event loop: made at its first use there, and given up when the loop has ended.

A loop may end without a word: `asyncio.run(main())` several times in one process, or a test framework with a loop for
each test. Nothing can be awaited on it any more, so what it has left open is abandoned, by whoever comes next.
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
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        found = self._kept.get(loop)
        if found is None or found.pid != os.getpid():
            self.abandon_ended()
            found = self._kept[loop] = self._make()
        return found

    async def close(self) -> None:
        """Closes that of the running loop; a later use makes another."""
        kept = self._kept.pop(asyncio.get_running_loop(), None)
        if kept is not None and kept.pid == os.getpid():
            await kept.close()

    def abandon_ended(self) -> None:
        """Closes what ended loops have left."""
        for loop in [*self._kept]:
            if loop.is_closed() and (kept := self._kept.pop(loop, None)) is not None and kept.pid == os.getpid():
                kept.abandon()
                if asyncio.all_tasks(loop):
                    # It was closed in the middle of its tasks, and these can never end: let go, each would complain.
                    self._remains.append(kept)

    @property
    def loops(self) -> list[asyncio.AbstractEventLoop]:
        """Those in use."""
        return [*self._kept]

    def clear(self) -> None:
        """Forgets all: whatever is open goes on until it is no longer in use."""
        self._kept.clear()
