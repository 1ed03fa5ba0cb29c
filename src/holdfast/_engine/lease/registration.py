"""What a worker tells the database about itself: information for people and wake-ups, never the proof of a lease."""

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast._db.driver.session import Link
from holdfast._db.errors import is_passing
from holdfast._db.migrate import check_encoding, check_version
from holdfast._engine.run.attempt import now
from holdfast._engine.shared import Shared
from holdfast._model.declare.graph import edges
from holdfast._model.declare.step import Step
from holdfast._model.declare.tasks import Tasks
from holdfast._model.safe_log import Log
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query
from holdfast.errors import ConfigError

log = Log("holdfast.worker")

FIRST_CONTACT = 30.0
"""Seconds a starting worker waits for a database that cannot be reached."""
TELL_EVERY = 5.0
"""Seconds after which it logs again that it waits."""


class Registration:
    """The worker's row, and the kinds it declares."""

    def __init__(self, shared: Shared, link: Link, direct: Link | None, version: str) -> None:
        settings = shared.settings
        self._link = link
        self._queries = shared.queries
        self._tasks = shared.tasks
        self._settings = settings
        self._known = shared.known
        self._direct = direct
        self._version = version
        self._life = shared.life
        self._identity: UUID | None = None
        self._declared: dict[str, _Declaration] = {}
        self.schema_version = 0
        self.name = settings.name or f"{socket.gethostname()}:{os.getpid()}"

    async def first_contact(self, declare: Callable[[], Awaitable[None]]) -> None:
        """Fails clearly if the database cannot be used: at once if waiting would not help, else after a while.

        `declare` tells the database what else the code declares; it may be called several times.
        """
        until = now() + FIRST_CONTACT
        tell_at = FIRST_CONTACT
        while not self._life.stop_requested.is_set():
            try:
                self.schema_version = await self._link.run(self._queries.schema_version())
                check_version(self.schema_version, self._queries.schema)
                check_encoding(await self._link.run(self._queries.encoding()))
                await self._check_direct()
                await self._link.run(self._queries.ensure_partitions())
                await self._declare()
                await declare()
                return
            except Exception as error:
                left = until - now()
                if not is_passing(error) or left <= 0:
                    raise
                if left <= tell_at:
                    what = "waiting for the database" if tell_at == FIRST_CONTACT else "still waiting for the database"
                    log.warning("%s, %.0f s at most: %s", what, left, _in_short(error))
                    tell_at = left - TELL_EVERY
                await asyncio.sleep(0.5)

    async def _declare(self) -> None:
        self._declared = _declarations(self._tasks)
        for name, declared in self._declared.items():
            await self._link.run(declared.statement(self._queries, name))

    async def declare_again(self) -> None:
        """Declares the kinds again, and updates the row of the worker: more steps were declared."""
        await self._declare()
        if self._identity is not None:
            await self._link.run(self._registration(self._identity))

    async def _check_direct(self) -> None:
        """A heartbeat on another database would renew nothing, and no notification would come from there."""
        if self._direct is None:
            return
        databases = [await link.run(self._queries.place()) for link in (self._link, self._direct)]
        await self._direct.close()
        if databases[0] != databases[1]:
            raise ConfigError(
                "direct_url (HOLDFAST_DIRECT_URL) names another database than the URL: it must be the same one, "
                "without the pooler. `holdfast config` shows both"
            )

    async def introduce(self, worker_id: UUID) -> None:
        """Writes the worker's row; again under a new identity when the server changed."""
        if self._identity is not None:
            # An operator who asked the old identity to stop meant this process.
            if await self._link.run(self._queries.seen(self._identity, 0)):
                self._life.stop()
            await self._link.run(self._queries.stopped(self._identity))
        await self._link.run(self._registration(worker_id))
        self._identity = worker_id
        slots, only = self._settings.concurrency, ", ".join(self._settings.only)
        what = ("slot" if slots == 1 else "slots") + (f", only {only}" if only else "")
        log.info(
            "worker %s serves %s with %s %s", worker_id, self._settings.served, slots, what, extra={"routine": True}
        )

    def _registration(self, worker_id: UUID) -> Query[None]:
        return self._queries.register(
            worker_id,
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            queues=list(self._settings.queues),
            limits=self._settings.limits,
            steps=self._known.steps,
            only=list(self._settings.only),
            kinds={name: each.fingerprint for name, each in self._declared.items()},
            slots=self._settings.concurrency,
            lease=timedelta(seconds=self._settings.lease),
            schedules=sorted(self._tasks._schedules) if self._settings.schedules else [],
        )

    async def asked_to_stop(self, stuck: int) -> bool:
        """Whether an operator asked this worker to stop; no if the database does not answer."""
        with suppress(Exception):
            return self._identity is not None and bool(await self._link.run(self._queries.seen(self._identity, stuck)))
        return False

    async def stopping(self) -> None:
        """The first act of a stop."""
        await self._tell(self._queries.stopping)

    async def stopped(self) -> None:
        """The last act of a stop."""
        await self._tell(self._queries.stopped)

    async def _tell(self, query: Callable[[UUID], Query[None]]) -> None:
        if self._identity is not None:
            with suppress(Exception):
                await self._link.run(query(self._identity))


class _Declaration(NamedTuple):
    """What a worker tells about a kind."""

    queue: str
    priority: int
    first: str | None
    graph: dict[str, list[str]]
    was: list[str]
    about: dict[str, Any]

    def statement(self, queries: Queries, name: str) -> Query[None]:
        return queries.declare_kind(
            name,
            self.queue,
            self.priority,
            self.first,
            msgspec.json.encode(self.graph),
            was=self.was,
            about=msgspec.json.encode(self.about),
        )

    @property
    def fingerprint(self) -> str:
        """The same in all processes that declare it alike, in whatever order."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()[:8]


def _declarations(tasks: Tasks) -> dict[str, _Declaration]:
    """The kinds that have steps. In one pass: there may be thousands."""
    steps: dict[str, dict[str, Step]] = {}
    was: dict[str, set[str]] = {}
    for (kind, _), step in tasks._steps.items():
        steps.setdefault(kind, {})[step.name] = step
        was.setdefault(step.kind, set()).add(kind)
    made: dict[str, _Declaration] = {}
    for name in tasks._kinds:
        if its := steps.get(name):
            first = next(iter(its.values()))
            made[name] = _Declaration(
                first.queue,
                first.priority,
                first.name if len(its) == 1 else None,
                {step: sorted({e.step for e in followers}) for step, followers in edges(tasks, name).items()},
                sorted(was[name] - {name}),
                {each.name: each.about for each in its.values()},
            )
    return made


def _in_short(error: Exception) -> str:
    """The first line of an error; what to do about it is told once the worker gives up."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
