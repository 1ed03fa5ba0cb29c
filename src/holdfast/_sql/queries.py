"""Every statement as a typed value: `Queries(schema).claim(…)` is a `Query[list[Claimed]]`, not yet sent."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

from holdfast._sql.query import Query, Row, Statement, statements
from holdfast._sql.records import Beaten, Claimed, Declared, Fence, NewTask, Obstacles, Placed, Reaped, Recorded

T = TypeVar("T")
Ids: TypeAlias = Sequence[UUID] | str
"""Ids of tasks, or the literal of an array of them: `{…,…}`."""


class Queries:
    """The statements of one schema, as functions that give queries."""

    def __init__(self, schema: str = "holdfast") -> None:
        self.schema = schema
        self._statements = statements(schema)
        self._skipping: dict[str, Statement] = {}

    def _query(self, name: str, read: Callable[[Sequence[Row]], T], /, **values: object) -> Query[T]:
        statement = self._statements[name]
        return Query(statement, tuple([values[p] for p in statement.parameters]), read)

    # --- callers

    @property
    def for_enqueue(self) -> list[Statement]:
        """The statements of a connection that does nothing else."""
        return [self._statements[name] for name in ("enqueue", "enqueue_many", "notify_if_idle", "set_durable")]

    def enqueue(self, task: NewTask) -> Query[bool]:
        return self._query(
            "enqueue",
            _some,
            id=task.id,
            queue=task.queue,
            kind=task.kind,
            step=task.step,
            args=_text(task.args),
            priority=task.priority,
            at=task.at,
            delay=task.delay,
            expires_at=task.expires_at,
            expires_in=task.expires_in,
            headers=_text(task.headers),
        )

    def enqueue_many(self, queue: str, tasks: Sequence[NewTask]) -> Query[set[UUID]]:
        return self._query(
            "enqueue_many",
            _first_set,
            queue=queue,
            ids=[t.id for t in tasks],
            kinds=[t.kind for t in tasks],
            steps=[t.step for t in tasks],
            args=[_text(t.args) for t in tasks],
            priorities=[t.priority for t in tasks],
            ats=[t.at for t in tasks],
            delays=[t.delay for t in tasks],
            expire_ats=[t.expires_at for t in tasks],
            expire_ins=[t.expires_in for t in tasks],
            headers=[_text(t.headers) for t in tasks],
        )

    def copy_tasks(self, rows: Iterable[bytes]) -> Query[None]:
        return Query(self._statements["copy_tasks"], (), _nothing, rows)

    def commits_early(self) -> Query[bool]:
        return self._query("commits_early", _maybe_value)

    def set_durable(self, durable: bool) -> Query[None]:
        return self._query("set_durable", _nothing, durable=durable)

    def clock(self) -> Query[datetime]:
        return self._query("clock", _microseconds)

    def declared(self, kind: str) -> Query[Declared | None]:
        return self._query("declared", _maybe(Declared), kind=kind)

    def enqueue_keyed(self, tasks: Sequence[NewTask]) -> Query[list[Placed]]:
        return self._query(
            "enqueue_keyed",
            _rows(Placed),
            ids=[t.id for t in tasks],
            queues=[t.queue for t in tasks],
            kinds=[t.kind for t in tasks],
            steps=[t.step for t in tasks],
            args=[_text(t.args) for t in tasks],
            priorities=[t.priority for t in tasks],
            ats=[t.at for t in tasks],
            delays=[t.delay for t in tasks],
            expire_ats=[t.expires_at for t in tasks],
            expire_ins=[t.expires_in for t in tasks],
            keys=[t.key for t in tasks],
            uniques=[t.unique for t in tasks],
            holds=[t.unique_for for t in tasks],
            rules=[t.on_conflict for t in tasks],
            headers=[_text(t.headers) for t in tasks],
        )

    def sweep_keys(self, limit: int) -> Query[int]:
        return self._query("sweep_keys", _value, limit=limit)

    def notify(self, queue: str) -> Query[None]:
        return self._query("notify", _nothing, queue=queue)

    def notify_if_idle(self, queue: str) -> Query[None]:
        return self._query("notify_if_idle", _nothing, queue=queue)

    def say(self, said: Sequence[str]) -> Query[None]:
        return self._query("say", _nothing, said=list(said))

    # --- claims

    def claim(
        self,
        queue: str,
        worker: UUID,
        *,
        limit: int,
        lease: timedelta,
        known: list[str],
        crash_limits: str,
        marks: list[datetime],
        suspects: int = 1,
    ) -> Query[list[Claimed]]:
        return self._query(
            "claim",
            _rows(Claimed),
            queue=queue,
            worker=worker,
            limit=limit,
            lease=lease,
            known=known,
            crash_limits=crash_limits,
            marks=marks,
            suspects=suspects,
        )

    def next_due(self, queue: str) -> Query[float | None]:
        return self._query("next_due", _value, queue=queue)

    def obstacles(self, queue: str, above: int, known: list[str]) -> Query[Obstacles]:
        return self._query(
            "obstacles", lambda rows: Obstacles._make(rows[0]), queue=queue, above=min(above, 9), known=known
        )

    def unclaimable(self, queue: str, known: list[str]) -> Query[tuple[int, datetime]]:
        return self._query("unclaimable", lambda rows: (rows[0][0], rows[0][1]), queue=queue, known=known)

    def due(self, queue: str, known: list[str]) -> Query[bool]:
        return self._query("due", _value, queue=queue, known=known)

    # --- outcomes

    def finish(
        self, queue: str, worker: UUID, ids: Ids, outcomes: bytes, *, children: bytes | None = None
    ) -> Query[dict[UUID, float | None]]:
        return self._query(
            _with_children("finish", children),
            _ids,
            queue=queue,
            worker=worker,
            ids=_array(ids),
            outcomes=_text(outcomes),
            children=_text(children),
        )

    def advance(
        self,
        queue: str,
        worker: UUID,
        ids: Ids,
        outcomes: bytes,
        *,
        keep: bool,
        lease: timedelta,
        children: bytes | None = None,
    ) -> Query[dict[UUID, float | None]]:
        return self._query(
            _with_children("advance", children),
            _times,
            queue=queue,
            worker=worker,
            ids=_array(ids),
            outcomes=_text(outcomes),
            keep=keep,
            lease=lease,
            children=_text(children),
        )

    def stay(self, queue: str, worker: UUID, ids: Ids, outcomes: bytes) -> Query[dict[UUID, float | None]]:
        return self._query("stay", _times, queue=queue, worker=worker, ids=_array(ids), outcomes=_text(outcomes))

    def cancel(self, queue: str, worker: UUID, ids: Ids, outcomes: bytes) -> Query[dict[UUID, float | None]]:
        return self._query("cancel", _ids, queue=queue, worker=worker, ids=_array(ids), outcomes=_text(outcomes))

    def skip_locked(self, query: Query[T]) -> Query[T]:
        """The same write, passing over rows that somebody else has locked."""
        name = query.statement.name
        if name not in self._skipping:
            self._skipping[name] = query.statement.skip_locked(self.schema)
        return Query(self._skipping[name], query.parameters, query.read)

    def has_written(self) -> Query[bool]:
        return self._query("has_written", _value)

    def begin_to_write(self) -> Query[None]:
        return self._query("begin_to_write", _nothing)

    def fences(self, queue: str, ids: Ids) -> Query[dict[UUID, Fence]]:
        return self._query("fences", lambda rows: {r[0]: Fence._make(r) for r in rows}, queue=queue, ids=_array(ids))

    def recorded(self, ids: Ids) -> Query[list[Recorded]]:
        return self._query("recorded", _rows(Recorded), ids=_array(ids))

    # --- leases

    def beat(self, queue: str, worker: UUID, ids: Ids, lease: timedelta) -> Query[list[Beaten]]:
        return self._query("beat", _rows(Beaten), queue=queue, worker=worker, ids=_array(ids), lease=lease)

    def hurriedly(self) -> Query[None]:
        return self._query("hurriedly", _nothing)

    def progress(self, told: bytes) -> Query[None]:
        return self._query("progress", _nothing, told=_text(told))

    def forget_progress(self, attempts: bytes) -> Query[None]:
        return self._query("forget_progress", _nothing, attempts=_text(attempts))

    def sweep_progress(self, limit: int) -> Query[int]:
        return self._query("sweep_progress", _value, limit=limit)

    def reap(self, queue: str, limit: int) -> Query[list[Reaped]]:
        return self._query("reap", _rows(Reaped), queue=queue, limit=limit)

    def reap_cancelled(self, queue: str, limit: int) -> Query[set[UUID]]:
        return self._query("reap_cancelled", _first_set, queue=queue, limit=limit)

    def expire(self, queue: str, limit: int) -> Query[set[UUID]]:
        return self._query("expire", _first_set, queue=queue, limit=limit)

    def strays(self, queue: str, worker: UUID) -> Query[list[tuple[UUID, int]]]:
        return self._query("strays", lambda rows: [(r[0], r[1]) for r in rows], queue=queue, worker=worker)

    # --- workers

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
        limits: Mapping[str, int] = MappingProxyType({}),
        only: Sequence[str] = (),
        kinds: Mapping[str, str] = MappingProxyType({}),
        schedules: Sequence[str] = (),
    ) -> Query[None]:
        return self._query(
            "register",
            _nothing,
            worker=worker,
            name=name,
            host=host,
            pid=pid,
            version=version,
            queues=queues,
            steps=steps,
            slots=slots,
            limits=json.dumps(dict(limits)),
            only=list(only),
            kinds=json.dumps(dict(kinds)),
            schedules=list(schedules),
        )

    def seen(self, worker: UUID, stuck: int) -> Query[bool | None]:
        return self._query("seen", _maybe_value, worker=worker, stuck=stuck)

    def idle(self, worker: UUID, idle: bool) -> Query[None]:
        return self._query("idle", _nothing, worker=worker, idle=idle)

    def stopping(self, worker: UUID) -> Query[None]:
        return self._query("stopping", _nothing, worker=worker)

    def stopped(self, worker: UUID) -> Query[None]:
        return self._query("stopped", _nothing, worker=worker)

    def bury(self) -> Query[None]:
        return self._query("bury", _nothing)

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
            _nothing,
            name=name,
            queue=queue,
            priority=priority,
            first=first,
            graph=_text(graph),
            about=_text(about),
            was=list(was),
        )

    def ensure_partitions(self) -> Query[None]:
        return self._query("ensure_partitions", _nothing)

    def ensure_today(self) -> Query[None]:
        return self._query("ensure_today", _nothing)

    def schema_version(self) -> Query[int]:
        return self._query("schema_version", _value)

    def archived(self, id: UUID) -> Query[bool]:
        return self._query("archived", _value, id=id)

    def server(self) -> Query[str]:
        return self._query("server", _value)

    def place(self) -> Query[str]:
        return self._query("place", _value)

    def same_server(self, server: str) -> Query[None]:
        return self._query("same_server", _nothing, server=server)

    def isolation(self) -> Query[tuple[str, str]]:
        return self._query("isolation", lambda rows: (rows[0][0], rows[0][1]))

    # --- verbs of people

    def retry(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("retry", _value, id=id, options=_text(options))

    def cancel_task(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("cancel_task", _value, id=id, options=_text(options))

    def discard(self, id: UUID, options: bytes) -> Query[str]:
        return self._query("discard", _value, id=id, options=_text(options))

    def retry_many(
        self,
        ids: Ids,
        seen: Sequence[str],
        options: bytes,
        *,
        first: datetime | None = None,
        spacing: timedelta | None = None,
    ) -> Query[dict[UUID, tuple[str, datetime | None]]]:
        return self._query(
            "retry_many",
            lambda rows: {row[0]: (row[1], row[2]) for row in rows},
            ids=_array(ids),
            seen=list(seen),
            options=_text(options),
            first=first,
            spacing=spacing,
        )

    def cancel_many(self, ids: Ids, options: bytes) -> Query[dict[UUID, str]]:
        return self._query("cancel_many", _states, ids=_array(ids), options=_text(options))

    def discard_many(self, ids: Ids, options: bytes) -> Query[dict[UUID, str]]:
        return self._query("discard_many", _states, ids=_array(ids), options=_text(options))

    def stop_workers(self, worker: UUID | None) -> Query[int]:
        return self._query("stop_workers", _value, worker=worker)

    def pause(self, name: str, options: bytes) -> Query[str]:
        return self._query("pause", _value, name=name, options=_text(options))

    def resume(self, name: str, options: bytes) -> Query[str]:
        return self._query("resume", _value, name=name, options=_text(options))

    def set_queue(self, name: str, options: bytes) -> Query[bytes]:
        return self._query("set_queue", _value, name=name, options=_text(options))

    def set_default(self, options: bytes) -> Query[bytes]:
        return self._query("set_default", _value, options=_text(options))

    # --- what people ask

    def read(self, name: str, /, **values: object) -> Query[list[Row]]:
        """A statement of `insights.sql` or `maintenance.sql`, with its rows as they are."""
        return self._query(name, list, **values)


@cache
def queries(schema: str) -> Queries:
    """The queries of a schema, made once."""
    return Queries(schema)


# How rows are read.


def _text(json: bytes | None) -> str | None:
    return None if json is None else json.decode()


def _with_children(name: str, children: bytes | None) -> str:
    return name if children is None else f"{name}_with_children"


def _array(ids: Ids) -> str:
    return ids if isinstance(ids, str) else "{" + ",".join(map(str, ids)) + "}"


def _microseconds(rows: Sequence[Row]) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(rows[0][0]))


def _nothing(rows: Sequence[Row]) -> None:
    return None


def _some(rows: Sequence[Row]) -> bool:
    return bool(rows)


def _value(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _maybe_value(rows: Sequence[Row]) -> Any:
    return rows[0][0] if rows else None


def _first_set(rows: Sequence[Row]) -> set[Any]:
    return {row[0] for row in rows}


def _ids(rows: Sequence[Row]) -> dict[UUID, float | None]:
    return dict.fromkeys([row[0] for row in rows])


def _states(rows: Sequence[Row]) -> dict[UUID, str]:
    return {row[0]: row[1] for row in rows}


def _times(rows: Sequence[Row]) -> dict[UUID, float | None]:
    return {row[0]: row[1] for row in rows}


_Made = TypeVar("_Made", bound=tuple[Any, ...])


def _rows(cls: type[_Made]) -> Callable[[Sequence[Row]], list[_Made]]:
    make: Callable[[Row], _Made] = cls._make  # type: ignore[attr-defined]
    return lambda rows: list(map(make, rows))


def _maybe(cls: type[_Made]) -> Callable[[Sequence[Row]], _Made | None]:
    make: Callable[[Row], _Made] = cls._make  # type: ignore[attr-defined]
    return lambda rows: make(rows[0]) if rows else None
