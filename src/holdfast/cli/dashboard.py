"""The dashboard beside a command that does something else: in a thread of its own, until the command ends."""

import asyncio
import threading
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from holdfast.web.serving import Serving

MISSING = "a dashboard comes with: pip install 'holdfast[web]'"


class Beside:
    """A dashboard for whoever has started the command. `address` is where, if it could be started; else `trouble`."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self.address: str | None = None
        self.trouble = ""
        self._schema = schema
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            from holdfast.web.serving import Serving, bound

            serving = Serving()
            listening = bound(serving, insist=False)
        except ImportError:
            self.trouble = MISSING
            return
        except ConfigError as error:
            self.trouble = str(error)
            return
        self.address = serving.address(listening.getsockname()[1])
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(serving, listening)), name="holdfast dashboard", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends it, and waits for that."""
        if self._thread is None:
            return
        self._started.wait()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _serve(self, serving: "Serving", listening: "socket.socket") -> None:
        from holdfast.app import App
        from holdfast.web.serving import served

        self._loop = asyncio.get_running_loop()
        self._started.set()
        async with App(self.url, schema=self._schema) as app, served(app, serving, listening):
            await self._stopping.wait()
