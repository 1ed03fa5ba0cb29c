"""Notifications: a hint that something happened, never the truth. The connection is pinged and replaced when silent.

Behind a pooler in transaction mode nothing would be heard: then nobody listens, and polling does it all.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg import AsyncConnection

from holdfast._db.connection import connect
from holdfast._db.pooler import meet
from holdfast._db.trouble import READ_ONLY, pause_after
from holdfast._sql.query import quote

log = logging.getLogger("holdfast.listen")

_PING = "SELECT pg_catalog.current_setting('transaction_read_only') FROM pg_catalog.pg_notify($1, 'ping')"
"""Also asks whether this is still the server that is written to: on another, nobody notifies."""
PING_EVERY = 10.0
PING_WITHIN = 5.0
REST = 600.0
"""Seconds until another look whether the pooler is still there."""


_told: set[str] = set()
"""The URLs of which it was told that they go through a pooler: once is enough for a process."""


def _nothing() -> None: ...


class _Pooled(Exception):
    """There is a pooler in between."""


class Listener:
    """Listens on a channel for as long as it is run, over as many connections as it takes."""

    def __init__(self, url: str, channel: str, heard: Callable[[str], None]) -> None:
        self._url = url
        self._channel = channel
        self._heard = heard
        self._connection: AsyncConnection[Any] | None = None
        self.listening = asyncio.Event()
        self.well: Callable[[], None] = _nothing
        self.useless: Callable[[], None] = _nothing

    async def run(self) -> None:
        """Never returns; ends by cancellation."""
        failures = 0
        while True:
            try:
                await self._listen()
            except _Pooled:
                log.log(
                    logging.DEBUG if self._url in _told else logging.INFO,
                    "no notifications through a pooler: polling finds everything, a little later. "
                    "For notifications, set HOLDFAST_DIRECT_URL to a URL of this database without the pooler",
                )
                _told.add(self._url)
                self.useless()
                await asyncio.sleep(REST)
                continue
            except Exception as error:
                failures = 1 if self.listening.is_set() else failures + 1
                # Once per outage, not once per try: an outage must not flood the log.
                log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "notifications are interrupted, polling goes on: %s",
                    error,
                )
            finally:
                self.listening.clear()
            await asyncio.sleep(pause_after(failures, longest=30.0))

    def abandon(self) -> None:
        """Closes the connection when the loop has ended, and `run` cannot."""
        if self._connection is not None:
            self._connection.pgconn.finish()

    async def _listen(self) -> None:
        connection = self._connection = await connect(self._url, "holdfast listen")
        try:
            async with asyncio.timeout(PING_WITHIN):
                if await meet(connection):
                    raise _Pooled
                await connection.execute(b"LISTEN " + quote(self._channel).encode())
            self.listening.set()
            self.well()
            # Whatever was notified while nobody listened is found by looking.
            self._heard("queue *")
            pinged = False
            while True:
                heard = False
                wait = PING_WITHIN if pinged else PING_EVERY
                async for note in connection.notifies(timeout=wait, stop_after=1):
                    heard = True
                    if note.payload != "ping":
                        self._heard(note.payload)
                if heard:
                    pinged = False  # whatever came shows that the connection lives
                    self.well()
                elif pinged:
                    raise ConnectionError("the listening connection does not answer")
                else:
                    async with asyncio.timeout(PING_WITHIN):
                        cursor = await connection.execute(_PING, [self._channel])
                        if await cursor.fetchone() == ("on",):
                            raise ConnectionError(READ_ONLY)
                    pinged = True
        finally:
            with suppress(Exception):
                await connection.close()
