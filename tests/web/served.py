"""What runs beside a test in a thread of its own: dashboards that are really served, and workers."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from holdfast import App, Tasks
from holdfast.web.serving import Serving, bound, served

ENDS = 60.0
"""Seconds within which it must end."""


@contextmanager
def beside(doing: Callable[[], AbstractAsyncContextManager[Any]]) -> Iterator[None]:
    """Does something in another thread, as long as the body of the `with`."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    ready = threading.Event()

    async def do() -> None:
        try:
            async with doing():
                ready.set()
                await stopping.wait()
        finally:
            ready.set()

    thread = threading.Thread(target=lambda: loop.run_until_complete(do()), name="beside a test", daemon=True)
    thread.start()
    try:
        assert ready.wait(ENDS), "it does not start"
        yield
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(ENDS)
        assert not thread.is_alive(), "it does not stop"
        loop.close()


@contextmanager
def dashboard_of(url: str, serving: Serving) -> Iterator[str]:
    """Serves the dashboard of a database. Gives its address."""
    listening = bound(serving, insist=True)

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        async with App(url) as app, served(app, serving, listening):
            yield

    with beside(serve):
        yield serving.address(listening.getsockname()[1])


@contextmanager
def application(make: Callable[[App], Any], url: str) -> Iterator[str]:
    """Serves an application that has a dashboard somewhere in it. Gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    @asynccontextmanager
    async def serve() -> AsyncIterator[None]:
        async with App(url) as app:
            options: dict[str, Any] = {"log_config": None, "access_log": False, "timeout_graceful_shutdown": 1}
            server = uvicorn.Server(uvicorn.Config(make(app), lifespan="off", **options))
            running = asyncio.create_task(server.serve([listening]))
            yield
            server.should_exit = True
            await running

    with beside(serve):
        yield f"http://localhost:{listening.getsockname()[1]}"


@contextmanager
def worker_of(url: str, tasks: Tasks, queue: str) -> Iterator[None]:
    """A real worker."""

    @asynccontextmanager
    async def work() -> AsyncIterator[None]:
        async with App(url, include=[tasks]) as app, app.worker(queues=[queue], schedules=False):
            yield

    with beside(work):
        yield
