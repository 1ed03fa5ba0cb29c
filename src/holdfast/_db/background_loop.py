"""An event loop in a thread of its own, for blocking callers of asynchronous code."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import TimeoutError as WaitedInVain
from typing import Any, TypeVar

T = TypeVar("T")

CLOSE_SECONDS = 5.0


class BackgroundLoop:
    """The thread is started at once, and ends with `close` or with the process."""

    def __init__(self, name: str) -> None:
        self.pid = os.getpid()  # threads do not come along into a forked child
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def wait_for(self, work: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """The result of a coroutine, run on that loop. After `timeout` seconds it is cancelled: a TimeoutError."""
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
        """Cancels what still runs, and ends the thread."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join(CLOSE_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._started.set()
        await self._end.wait()


def blocking(feed: AsyncGenerator[T]) -> Generator[T, None, None]:
    """The items of an asynchronous generator, run on a loop of its own; closing this generator ends it."""
    aside = BackgroundLoop("holdfast-feed")
    at_work: set[asyncio.Task[Any]] = set()

    async def following() -> T:
        if (this := asyncio.current_task()) is not None:
            at_work.add(this)
            this.add_done_callback(at_work.discard)
        return await anext(feed)

    async def ending() -> None:
        if at_work:  # interrupted, and not yet over
            for each in at_work:
                if not each.cancelling():  # Ctrl-C came before its future could be cancelled
                    each.cancel()
            await asyncio.wait(at_work)
        await feed.aclose()

    try:
        while True:
            try:
                yield aside.wait_for(following(), None)
            except StopAsyncIteration:
                return
    finally:
        aside.wait_for(ending(), CLOSE_SECONDS)
        aside.close()
