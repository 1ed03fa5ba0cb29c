"""An event loop in a thread of its own, for blocking callers of what is asynchronous."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as WaitedInVain
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_SECONDS = 5.0


class Background:
    """The thread is started at once, and ends with `close` or with the process."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()  # threads do not come along into a forked child
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def wait_for(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """What a coroutine gives on that loop. After `timeout` seconds it is cancelled: a TimeoutError."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout)
        except WaitedInVain:
            if future.done():
                raise  # its own
            raise TimeoutError from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancels what is still there, and ends the thread."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(CLOSE_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._started.set()
        await self._end.wait()
