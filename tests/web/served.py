"""A dashboard that is really served, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import App
from holdfast.web.serving import Serving, bound, served


@contextmanager
def dashboard_of(url: str, serving: Serving) -> Iterator[str]:
    """Its address, as long as the body of the `with`."""
    listening = bound(serving, insist=True)
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def serve() -> None:
        async with App(url) as app, served(app, serving, listening):
            await stopping.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="dashboard of a test")
    thread.start()
    try:
        yield serving.address(listening.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(60)
        assert not thread.is_alive(), "the dashboard does not stop"
        loop.close()
