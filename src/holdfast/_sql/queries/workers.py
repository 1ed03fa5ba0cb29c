"""What workers say of themselves and ask of the server: the statements of `workers.sql`."""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from uuid import UUID

from holdfast._sql.queries.base import Base, maybe_value, nothing, text, value
from holdfast._sql.query import Query
from holdfast._sql.rows import Loops


class WorkerQueries(Base):
    """What workers say of themselves and ask of the server."""

    def register(
        self,
        worker: UUID,
        *,
        name: str,
        host: str,
        pid: int,
        version: str,
        queues: list[str],
        steps: list[str],
        slots: int,
        lease: timedelta = timedelta(minutes=1),
        limits: Mapping[str, int] = MappingProxyType({}),
        only: Sequence[str] = (),
        kinds: Mapping[str, str] = MappingProxyType({}),
        schedules: Sequence[str] = (),
    ) -> Query[None]:
        return self._query(
            "register",
            nothing,
            worker=worker,
            name=name,
            host=host,
            pid=pid,
            version=version,
            queues=queues,
            steps=steps,
            slots=slots,
            lease=lease,
            limits=json.dumps(dict(limits)),
            only=list(only),
            kinds=json.dumps(dict(kinds)),
            schedules=list(schedules),
        )

    def seen(self, worker: UUID, stuck: int, loops: Loops = Loops()) -> Query[bool | None]:  # noqa: B008 - a tuple
        ages = None if loops.ages is None else json.dumps(dict(loops.ages))
        return self._query("seen", maybe_value, worker=worker, stuck=stuck, loops=ages, late=loops.late)

    def idle(self, worker: UUID, idle: bool) -> Query[None]:
        return self._query("idle", nothing, worker=worker, idle=idle)

    def stopping(self, worker: UUID) -> Query[None]:
        return self._query("stopping", nothing, worker=worker)

    def stopped(self, worker: UUID) -> Query[None]:
        return self._query("stopped", nothing, worker=worker)

    def bury(self) -> Query[None]:
        return self._query("bury", nothing)

    def declare_kind(
        self,
        name: str,
        queue: str,
        priority: int,
        first: str | None,
        graph: bytes,
        was: Sequence[str] = (),
        about: bytes = b"{}",
    ) -> Query[None]:
        return self._query(
            "declare_kind",
            nothing,
            name=name,
            queue=queue,
            priority=priority,
            first=first,
            graph=text(graph),
            about=text(about),
            was=list(was),
        )

    def ensure_partitions(self) -> Query[None]:
        return self._query("ensure_partitions", nothing)

    def server(self) -> Query[str]:
        return self._query("server", value)

    def place(self) -> Query[str]:
        return self._query("place", value)

    def same_server(self, server: str) -> Query[None]:
        return self._query("same_server", nothing, server=server)

    def encoding(self) -> Query[str | bytes]:
        return self._query("encoding", value)

    def isolation(self) -> Query[tuple[str, str]]:
        return self._query("isolation", lambda rows: (rows[0][0], rows[0][1]))
