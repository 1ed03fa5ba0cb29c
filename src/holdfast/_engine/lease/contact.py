"""Whether the server accepts the heartbeats of a worker, and under which identity the worker claims."""

import math
import time
from collections.abc import Iterable
from uuid import UUID

from holdfast._db.driver.session import Link
from holdfast._engine.run.attempt import now
from holdfast._model.enqueue.ids import uuid7


class Identity:
    """The id under which a worker claims. It changes when the worker meets another server."""

    def __init__(self) -> None:
        self.worker_id: UUID = uuid7()

    def renew(self) -> None:
        self.worker_id = uuid7()


class Contact:
    """The contact with the server. The heartbeat's thread notes it, the other stages read it.

    `healthy` is what the worker's loop has made of it at its last tick.
    """

    def __init__(self, lease: float, links: Iterable[Link] = ()) -> None:
        self._lease = lease
        self._links = list(links)
        self.accepted_at = now()
        self.failing = False
        self.well_since: float | None = -math.inf
        self.healthy = True

    def begin(self) -> None:
        """From now on heartbeats are sent: before, nothing is known against the contact."""
        self.accepted_at, self.well_since = now(), None

    def accepted(self, sent: float | None) -> None:
        """The server has answered a heartbeat; `sent`: when it was sent, if it renewed leases."""
        if sent is not None:
            self.accepted_at = sent
        self.failing = False
        if self.well_since is None:
            self.well_since = time.monotonic()

    def failed(self) -> None:
        """A heartbeat has failed."""
        self.failing, self.well_since = True, None

    @property
    def overdue(self) -> bool:
        """No heartbeat was accepted for a lease length, counted from when the last accepted one was sent."""
        return now() - self.accepted_at > self._lease

    @property
    def all_well_since(self) -> float | None:
        """Since when heartbeats are accepted, and the server has not lacked anything."""
        since = self.well_since
        return None if since is None else max([since, *(link.starved_at for link in self._links)])

    def judge(self, *, overdue: bool) -> bool:
        """Decides whether the worker may claim; tells whether it may again."""
        before, self.healthy = self.healthy, not self.failing and not overdue
        return self.healthy and not before
