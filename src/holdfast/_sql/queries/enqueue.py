"""New tasks, and who is told of them: the statements of `enqueue.sql`."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast._model.enqueue.request import Request
from holdfast._sql.queries.base import (
    Base,
    Utf8,
    array,
    first_set,
    maybe,
    maybe_value,
    nothing,
    rows_of,
    some,
    text,
    value,
)
from holdfast._sql.query import Query, Row, Statement
from holdfast._sql.rows import Declared, Placed


class EnqueueQueries(Base):
    """New tasks, and who is told of them."""

    @property
    def for_enqueue(self) -> list[Statement]:
        """The statements of a connection that does nothing else."""
        writes = ("enqueue", "enqueue_bare", "enqueue_alike", "enqueue_many")
        return [self._statements[name] for name in (*writes, "notify_if_idle", "notify_along", "set_durable")]

    def enqueue(self, task: Request) -> Query[bool]:
        return self._query(
            "enqueue",
            some,
            id=task.id,
            queue=task.queue,
            kind=task.kind,
            step=task.step,
            args=text(task.args),
            priority=task.priority,
            at=task.at,
            delay=task.delay,
            expires_at=task.expires_at,
            expires_in=task.expires_in,
            headers=text(task.headers),
        )

    def enqueue_bare(self, task: Request) -> Query[None]:
        # In the order of the statement, as they are sent: a lone caller waits for what is done here.
        names = task.queue.encode(), task.kind.encode(), task.step.encode()
        values = Utf8((b"%032x" % task.id.int, *names, task.args, b"%d" % task.priority))
        return Query(self._statements["enqueue_bare"], values, nothing)

    def enqueue_alike(self, tasks: Sequence[Request]) -> Query[set[UUID]]:
        like = tasks[0]
        return self._query(
            "enqueue_alike",
            first_set,
            ids=array([t.id for t in tasks]),
            args=[text(t.args) for t in tasks],
            queue=like.queue,
            kind=like.kind,
            step=like.step,
            priority=like.priority,
            at=like.at,
            delay=like.delay,
            expires_at=like.expires_at,
            expires_in=like.expires_in,
            headers=text(like.headers),
        )

    def enqueue_many(self, queue: str, tasks: Sequence[Request]) -> Query[set[UUID]]:
        return self._query(
            "enqueue_many",
            first_set,
            queue=queue,
            ids=[t.id for t in tasks],
            kinds=[t.kind for t in tasks],
            steps=[t.step for t in tasks],
            args=[text(t.args) for t in tasks],
            priorities=[t.priority for t in tasks],
            ats=[t.at for t in tasks],
            delays=[t.delay for t in tasks],
            expire_ats=[t.expires_at for t in tasks],
            expire_ins=[t.expires_in for t in tasks],
            headers=[text(t.headers) for t in tasks],
        )

    def copy_tasks(self, rows: Iterable[bytes]) -> Query[None]:
        return Query(self._statements["copy_tasks"], (), nothing, rows)

    def copy_bare_tasks(self, rows: Iterable[bytes]) -> Query[None]:
        return Query(self._statements["copy_bare_tasks"], (), nothing, rows)

    def clock(self) -> Query[datetime]:
        return self._query("clock", _microseconds)

    def commits_early(self) -> Query[bool]:
        return self._query("commits_early", maybe_value)

    def set_durable(self, durable: bool | None) -> Query[None]:
        return self._query("set_durable", nothing, durable=durable)

    def declared(self, kind: str) -> Query[Declared | None]:
        return self._query("declared", maybe(Declared), kind=kind)

    def archived(self, ids: Sequence[UUID]) -> Query[bool]:
        return self._query("archived", value, ids=list(ids))

    def enqueue_keyed(self, tasks: Sequence[Request]) -> Query[list[Placed]]:
        return self._query(
            "enqueue_keyed",
            rows_of(Placed),
            **_columns(tasks),
            holds=[t.unique_for for t in tasks],
            rules=[t.on_conflict for t in tasks],
        )

    def enqueue_free(self, tasks: Sequence[Request]) -> Query[bool]:
        return self._query("enqueue_free", value, **_columns(tasks))

    def sweep_keys(self, limit: int) -> Query[int]:
        return self._query("sweep_keys", value, limit=limit)

    def notify(self, queue: str) -> Query[str]:
        return self._query("notify", value, queue=queue)

    def notify_if_idle(self, queue: str) -> Query[None]:
        return self._query("notify_if_idle", nothing, queue=queue)

    def notify_along(self, queue: str, id: UUID | None = None) -> Query[bool]:
        return self._query("notify_along", some, queue=queue, id=id)

    def say(self, said: Sequence[str]) -> Query[None]:
        return self._query("say", nothing, said=list(said))


def _microseconds(rows: Sequence[Row]) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(rows[0][0]))


def _columns(tasks: Sequence[Request]) -> dict[str, list[Any]]:
    return {
        "ids": [t.id for t in tasks],
        "queues": [t.queue for t in tasks],
        "kinds": [t.kind for t in tasks],
        "steps": [t.step for t in tasks],
        "args": [text(t.args) for t in tasks],
        "priorities": [t.priority for t in tasks],
        "ats": [t.at for t in tasks],
        "delays": [t.delay for t in tasks],
        "expire_ats": [t.expires_at for t in tasks],
        "expire_ins": [t.expires_in for t in tasks],
        "keys": [t.key for t in tasks],
        "uniques": [t.unique for t in tasks],
        "headers": [text(t.headers) for t in tasks],
    }
