"""Threads for `def` steps. They are daemons: one that never ends must not keep the process from ending."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from holdfast._db.driver import forks


class Threads:
    """As many threads as are needed at once; idle ones are used again."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0  # fewer than none: so many pieces of work wait for a thread
        self._count = 0

    def run(self, function: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Runs a function in a thread, with a copy of the caller's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        before = forks.count

        def work() -> None:
            result = error = None
            try:
                result = context.run(function)
            except BaseException as raised:
                error = raised
            if forks.count != before:
                forks.end_child("a thread of the worker forked")
            _tell(loop, future, result, error)

        with self._lock:
            if self._idle > 0 or not self._add():
                self._idle -= 1
        self._work.put(work)
        return future

    def _add(self) -> bool:
        """One thread more, if the system gives one: else the work waits for one of those there are."""
        name = f"holdfast-step-{self._count + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except (RuntimeError, MemoryError):
            if not self._count:
                raise
            return False
        self._count += 1
        return True

    def close(self) -> None:
        """Lets the threads end when they are done."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._idle += 1


def _tell(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", result: Any, error: BaseException | None
) -> None:
    def settle() -> None:
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(_Raised(error))

    # A closed loop means: the worker has given this thread up and does not wait for it.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


class _Raised(Exception):
    """Carries any exception through a future: StopIteration, SystemExit and their like are not allowed there."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


async def outcome_of(future: "asyncio.Future[Any]") -> Any:
    """What the function returned; what it raised is raised here as it was."""
    try:
        return await asyncio.shield(future)
    except _Raised as carried:
        raise carried.error from None


def take_note(future: "asyncio.Future[Any]") -> None:
    """Takes note of what a call raised that was given up, or asyncio would log it."""
    if not future.cancelled():
        future.exception()
