"""Pages that are open look again by themselves: a stream of server-sent events, one per page.

The server reads what the page shows, and sends the part that shows it when it has changed; the page's script puts it in
place without losing what somebody typed, opened or selected. Whoever pauses, or hides the tab, closes the stream.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b

from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.web.view.problems import Problem, problem_of

EVERY = 2.0
"""Seconds between two looks; more if a look takes long."""
SHARE = 0.1
"""The part of the time that a stream may spend asking the database."""
AT_MOST = 300.0
"""Seconds of a stream: the browser opens another, and whoever may no longer look is not let in."""
STREAMS = 200
"""Streams at the same time."""


class Streams:
    """The open streams of a site."""

    def __init__(self) -> None:
        self._open = 0
        self._closing = asyncio.Event()
        self._looks: set[asyncio.Task[str]] = set()

    def close(self) -> None:
        """Ends all streams: a server that stops need not wait for them."""
        self._closing.set()

    async def ended(self) -> None:
        """Waits for what is being asked."""
        await asyncio.gather(*self._looks, return_exceptions=True)

    async def _asked(self, look: Callable[[], Awaitable[str]]) -> str:
        """One look. Whoever goes away does not break it off: that would cost a connection to the database each time."""
        task: asyncio.Task[str] = asyncio.ensure_future(look())
        self._looks.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: "asyncio.Task[str]") -> None:
        self._looks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody else asks, if the stream is gone

    def response(self, request: Request, look: Callable[[], Awaitable[str]]) -> StreamingResponse:
        """An answer that goes on: what `look` shows, whenever that is something else."""
        if self._open >= STREAMS:
            raise Problem(503, "Too many pages are open", "Close some, or reload by hand.")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(request, look), media_type="text/event-stream", headers=headers)

    async def _events(self, request: Request, look: Callable[[], Awaitable[str]]) -> AsyncIterator[str]:
        self._open += 1
        try:
            yield "retry: 3000\n\n"
            shown: bytes | None = None
            end = time.monotonic() + AT_MOST
            while time.monotonic() < end and not self._closing.is_set() and not await request.is_disconnected():
                began = time.monotonic()
                try:
                    text = await self._asked(look)
                except Exception as error:
                    yield event("trouble", problem_of(error).message)
                else:
                    mark = blake2b(text.encode("utf-8", "replace")).digest()
                    yield event("look", text) if mark != shown else ": nothing new\n\n"
                    shown = mark
                with suppress(TimeoutError):
                    pause = max(EVERY, (time.monotonic() - began) / SHARE)
                    await asyncio.wait_for(self._closing.wait(), pause)
        finally:
            self._open -= 1


def event(name: str, text: str) -> str:
    """One event. A line end of any kind in the text is a line end of the stream, never the end of the event."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
