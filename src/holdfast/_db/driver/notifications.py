"""Notifications: a hint that something happened, never the truth. The connection is pinged and replaced when silent.

Through a pooler in transaction mode no notification would arrive: then the listener only waits, and workers poll.

A notification is a word and what it is about. `Word` has all of them. Some are sent by SQL: by the verbs in the
migrations, and by the statements of `enqueue.sql`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from psycopg import AsyncConnection

from holdfast._db.driver.connection import connect
from holdfast._db.driver.facts import detect_pooler
from holdfast._db.errors import READ_ONLY, pause_after
from holdfast._model.safe_log import Log
from holdfast._sql.query import quote

log = Log("holdfast.listen")


class Word(StrEnum):
    """What a notification says first."""

    QUEUE = "queue"
    """`queue NAME`: a task of this queue is due. `queue NAME ID`: and it is this one alone."""
    CANCEL = "cancel"
    """`cancel ID`: the cancellation of a running task was asked for."""
    WAIT = "wait"
    """`wait ID …`: a caller waits for these tasks to end."""
    ENDED = "ended"
    """`ended ID …`: these tasks have ended or are parked."""
    FAILED = "failed"
    """A task was parked."""
    PAUSE = "pause"
    """A queue or a kind was paused or resumed."""
    SCHEDULE = "schedule"
    """A schedule was made, changed or fired."""
    STOP = "stop"
    """Workers were asked to stop."""
    PING = "ping"
    """A listener asks its connection for an answer."""


class Notification(NamedTuple):
    """A notification as it was heard."""

    word: Word
    about: str

    @property
    def ids(self) -> list[UUID]:
        """The tasks that it names. Anybody may notify anything: what is no id is passed over."""
        found: list[UUID] = []
        for text in self.about.split():
            with suppress(ValueError):
                found.append(UUID(text))
        return found


RECONNECTED = f"{Word.QUEUE} *"
"""What a listener hears from itself when it has a new connection: something may have been missed."""
_IDS_AT_ONCE = 200
"""Ids in one notification, which holds less than 8,000 bytes."""
_WORDS = {str(word): word for word in Word}


def understood(payload: str) -> Notification | None:
    """A notification with a word that is known; None for any other."""
    text, _, about = payload.partition(" ")
    word = _WORDS.get(text)
    return None if word is None else Notification(word, about)


def about_tasks(word: Word, ids: Sequence[UUID]) -> list[str]:
    """What is to be notified about some tasks."""
    parts = [ids[first : first + _IDS_AT_ONCE] for first in range(0, len(ids), _IDS_AT_ONCE)]
    return [" ".join([word, *(id.hex for id in part)]) for part in parts]


_PING = "SELECT pg_catalog.current_setting('transaction_read_only') FROM pg_catalog.pg_notify($1, 'ping')"
"""Also asks whether this server can still be written to: on a standby no client notifies."""
PING_EVERY = 10.0
PING_WITHIN = 5.0
REST = 600.0
"""Seconds until the listener checks again whether the pooler is still there."""


_logged_urls: set[str] = set()
"""The URLs that the log has named as going through a pooler: once for each process."""


def _nothing() -> None: ...


class _Pooled(Exception):
    """There is a pooler in between."""


class Listener:
    """Listens on a channel for as long as it is run, over as many connections as it takes."""

    def __init__(
        self,
        url: str,
        channel: str,
        notified: Callable[[str], None],
        *,
        well: Callable[[], None] = _nothing,
        useless: Callable[[], None] = _nothing,
    ) -> None:
        self._url = url
        self._channel = channel
        self._notified = notified
        self._well = well
        self._useless = useless
        self._connection: AsyncConnection[Any] | None = None
        self.listening = asyncio.Event()

    async def run(self) -> None:
        """Never returns; ends by cancellation."""
        failures = 0
        while True:
            try:
                await self._listen()
            except _Pooled:
                log.log(
                    logging.DEBUG if self._url in _logged_urls else logging.INFO,
                    "no notifications through a pooler: polling finds everything, a little later. "
                    "For notifications, set HOLDFAST_DIRECT_URL to a URL of this database without the pooler",
                )
                _logged_urls.add(self._url)
                self._useless()
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
            reader = _NotificationReader(connection, self._pass_on)
            async with asyncio.timeout(PING_WITHIN):
                if await detect_pooler(connection):
                    raise _Pooled
                await connection.execute(b"LISTEN " + quote(self._channel).encode())
            self.listening.set()
            self._well()
            # Notifications may have been missed meanwhile: the user of this listener checks everything once.
            self._notified(RECONNECTED)
            while True:
                await reader.until_silent(PING_EVERY)
                pinged = time.monotonic()
                async with asyncio.timeout(PING_WITHIN):
                    cursor = await connection.execute(_PING, [self._channel])
                    if await cursor.fetchone() == ("on",):
                        raise ConnectionError(READ_ONLY)
                if reader.received_at < pinged:
                    await reader.wait(PING_WITHIN)
                if reader.received_at < pinged:
                    raise ConnectionError("the listening connection does not answer")
        finally:
            with suppress(Exception):
                await connection.close()

    def _pass_on(self, payload: str) -> None:
        if payload != Word.PING:
            self._notified(payload)
        self._well()


class _NotificationReader:
    """Reads notifications as soon as they arrive, straight from the socket."""

    def __init__(self, connection: AsyncConnection[Any], notified: Callable[[str], None]) -> None:
        self._pgconn = connection.pgconn
        self._socket = connection.pgconn.socket  # libpq forgets it when the connection breaks
        self._encoding = connection.info.encoding
        self._notified = notified
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.received_at = time.monotonic()
        """When the last notification came: until then the connection worked."""
        connection.add_notify_handler(lambda note: self._take(note.payload))  # what comes along with an answer

    async def until_silent(self, seconds: float) -> None:
        """Waits until nothing has come for so many seconds."""
        while (rest := self.received_at + seconds - time.monotonic()) > 0:
            await self.wait(rest)

    async def wait(self, seconds: float) -> None:
        """Reads for so many seconds. At other times the driver may use the connection."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._read)
        try:
            self._read()  # what the driver has left in its buffer
            await asyncio.wait([self._failed], timeout=seconds)
        finally:
            loop.remove_reader(self._socket)
        if self._failed.done():
            raise self._failed.result()

    def _read(self) -> None:
        try:
            self._pgconn.consume_input()
            while (note := self._pgconn.notifies()) is not None:
                self._take(note.extra.decode(self._encoding))
        except Exception as error:
            asyncio.get_running_loop().remove_reader(self._socket)
            if not self._failed.done():
                self._failed.set_result(error)

    def _take(self, payload: str) -> None:
        self.received_at = time.monotonic()
        self._notified(payload)
