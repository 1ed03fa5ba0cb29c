"""Async code from blocking code, wherever that runs."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def blocking(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine to its end on a loop of its own; in another thread, if a loop runs in this one."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1, "holdfast-testing") as thread:
        return thread.submit(asyncio.run, work).result()
