"""Asynchronous things for blocking callers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from holdfast._db.background_loop import blocking


def test_a_feed_ends_although_it_was_interrupted_before_anybody_had_something_to_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[str] = []

    async def feed() -> AsyncGenerator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append("closed")

    schedule = asyncio.run_coroutine_threadsafe
    interrupted: list[bool] = []

    def interrupting(work: Any, loop: Any) -> Any:
        future = schedule(work, loop)
        if work.__name__ == "following" and not interrupted and told:
            interrupted.append(True)
            raise KeyboardInterrupt
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupting)
    told: list[int] = []

    with pytest.raises(KeyboardInterrupt):
        for each in blocking(feed()):
            told.append(each)
    assert (told, interrupted, closed) == ([1], [True], ["closed"])
