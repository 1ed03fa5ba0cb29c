"""The claim that a resting claimer has ready: the bell sends it, and it is taken in where its answer arrives.

Both happen in callbacks of the event loop, while the claimer sleeps: what it would do after the send takes a core from
the server, and what it does with an answer can wait until the first step has begun. Whatever goes wrong in a callback
the claimer meets when it wakes.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from holdfast._db.driver.session import Link
from holdfast._engine.run.attempt import now
from holdfast._sql.query import Query
from holdfast._sql.rows import Claimed

ANSWER_SECONDS = 1.0
"""Seconds after which the claimer no longer sleeps while an answer is on its way: it may never come."""


class ReadyClaim(NamedTuple):
    """A claim that is ready to be sent; one of a certain task is given its id."""

    queue: str
    query: Query[list[Claimed]]
    limit: int
    send: Callable[[bytes], None]


class Prefetch:
    """A claim that is ready, on its way, or answered. `hand_over` gets its rows, and `wake` wakes the claimer."""

    def __init__(
        self, link: Link, *, hand_over: Callable[[str, list[Claimed], float], None], wake: Callable[[], None]
    ) -> None:
        self._link = link
        self._hand_over = hand_over
        self._wake = wake
        self._overdue: asyncio.TimerHandle | None = None
        self._came: tuple[ReadyClaim, list[Claimed]] | None = None
        self._fault: Exception | None = None
        self.sent: tuple[ReadyClaim, float] | None = None
        """The one that is on its way, and since when."""
        self.ready: tuple[ReadyClaim, ReadyClaim] | None = None
        """One of any tasks, and one of a certain task."""

    @property
    def to_be_received(self) -> bool:
        return self.sent is not None or self._came is not None

    async def make_ready(self, queue: str, limit: int, *, any: Query[list[Claimed]], one: Query[list[Claimed]]) -> None:
        """Makes claims ready that are for so many tasks at most, unless the connection does not allow it."""
        send = await self._link.sender(any, self._arrived)
        send_one = await self._link.sender(one, self._arrived, "id")
        if send is not None and send_one is not None:
            # However few slots are free: that a certain task was there tells nothing of others.
            self.ready = ReadyClaim(queue, any, limit, send), ReadyClaim(queue, one, limit + 1, send_one)

    def send(self, ready: ReadyClaim, raw_id: bytes = b"") -> None:
        """Sends one of them."""
        self.ready, self.sent = None, (ready, now())
        ready.send(raw_id)
        self._overdue = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._wake)

    async def receive(self) -> tuple[str, list[Claimed], int]:
        """What came of it: the queue, the rows, which are handed over by then, and how many it was for."""
        if self._overdue is not None:
            self._overdue.cancel()
        if self._came is not None:
            (claim, rows), self._came = self._came, None
            if (fault := self._fault) is not None:
                self._fault = None
                raise fault
        else:
            assert self.sent is not None  # noqa: S101 - else there is nothing to receive
            (claim, sent), self.sent = self.sent, None
            rows = await self._link.answer(claim.query)
            if rows:
                self._hand_over(claim.queue, rows, sent)
        return claim.queue, rows, claim.limit

    def _arrived(self) -> None:
        if self.sent is not None:  # else the claimer waits for it already
            self._take_in(*self.sent)
        self._wake()

    def _take_in(self, claim: ReadyClaim, sent: float) -> None:
        try:
            rows = self._link.answer_now(claim.query)
        except Exception:
            return  # the claimer meets it again
        self.sent, self._came = None, (claim, rows)
        if rows:
            try:
                self._hand_over(claim.queue, rows, sent)
            except Exception as error:
                self._fault = error


def raw(id: str) -> bytes:
    """The id in a notification, as bytes; none if it is no id, for any session may notify anything."""
    try:
        raw_id = bytes.fromhex(id.replace("-", ""))
    except ValueError:
        return b""
    return raw_id if len(raw_id) == 16 else b""
