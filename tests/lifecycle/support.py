"""What the tests of the statements share: a database whose clock stands still, and workers that are only an id."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest
from psycopg import Connection
from psycopg.conninfo import make_conninfo

from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._db.driver.facts import detect_pooler_sync
from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request
from holdfast._sql.queries import Queries
from holdfast._sql.query import Query, statements
from holdfast._sql.rows import Claimed
from holdfast.testing import Clock
from holdfast.testing.session import Session

T = TypeVar("T")

NOW = datetime(2031, 5, 20, 12, 0, tzinfo=UTC)
"""Where the clock of a test stands at its beginning."""

LEASE = timedelta(seconds=30)
BEGINNING = datetime(1000, 1, 1, tzinfo=UTC)
KNOWN = ["greeter.ReadName", "greeter.SayHello"]
PATIENCE = 60.0
"""Seconds after which a wait in a test is given up."""

BOOM = {"type": "ValueError", "message": "boom", "traceback": "…", "causes": [{"type": "OSError", "message": "disk"}]}


class Db:
    """A database of its own, and the statements as short verbs. `via=` chooses another connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.queries = Queries("holdfast")
        self._session = Session(url)
        self.clock = Clock(self._session, "holdfast")
        self._opened: list[Connection[Any]] = []
        self._threads = ThreadPoolExecutor(8)
        self.connection = self.connect()
        self._name = self.one("SELECT current_database()")

    def connect(self, *, options: str = "") -> Connection[Any]:
        """Another connection; no statement on it takes for ever."""
        bounded = make_conninfo(self.url, options=f"-c statement_timeout={int(PATIENCE * 1000)} {options}")
        connection = connect_sync(bounded)
        self._opened.append(connection)
        if detect_pooler_sync(connection) and options:
            pytest.skip("not through a pooler: it sets something for its session")
        return connection

    def listen(self) -> Connection[Any]:
        """A connection that hears notifications."""
        connection = self.connect()
        if connection.prepare_threshold is None:
            pytest.skip("not through a pooler: it needs notifications")
        connection.execute(b"LISTEN holdfast")
        return connection

    def close(self) -> None:
        self._session.close()
        for connection in self._opened:
            connection.close()
        self._threads.shutdown(wait=True)

    def run(self, query: Query[T], via: Connection[Any] | None = None) -> T:
        return run_sync(via or self.connection, query)

    def sql(self, text: str, *values: object, via: Connection[Any] | None = None) -> list[tuple[Any, ...]]:
        cursor = (via or self.connection).execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []

    def one(self, text: str, *values: object, via: Connection[Any] | None = None) -> Any:
        return self.sql(text, *values, via=via)[0][0]

    def explain(self, query: Query[Any], options: str = "COSTS OFF") -> str:
        """The plan that these parameters get."""
        rows = self.sql(f"EXPLAIN ({options}) {query.statement.text}", *query.parameters)
        return "\n".join(row[0] for row in rows)

    # --- tasks

    def enqueue(
        self,
        step: str = "greeter.ReadName",
        args: str = '{"n": 1}',
        *,
        via: Connection[Any] | None = None,
        **fields: Any,
    ) -> UUID:
        kind, _, name = step.partition(".")
        task = Request(**{"id": uuid7(), "queue": "default", **fields}, kind=kind, step=name, args=args.encode())
        if task.keyed:
            assert self.run(self.queries.enqueue_keyed([task]), via)[0].enqueued == "created"
        else:
            assert self.run(self.queries.enqueue(task), via)
        return task.id

    def claim(
        self,
        worker: UUID,
        limit: int = 1,
        *,
        queue: str = "default",
        known: list[str] = KNOWN,
        crash_limits: str = "{}",
        lease: timedelta = LEASE,
        marks: list[datetime] | None = None,
        mark_ids: Sequence[UUID] | None = None,
        suspects: int = 1,
        id: UUID | None = None,
        via: Connection[Any] | None = None,
    ) -> list[Claimed]:
        query = self.queries.claim(
            queue,
            worker,
            limit=limit,
            lease=lease,
            known=known,
            crash_limits=crash_limits,
            marks=marks,
            mark_ids=mark_ids,
            suspects=suspects,
            id=id,
        )
        return self.run(query, via)

    def claimed(self, worker: UUID, step: str = "greeter.ReadName", **fields: Any) -> Claimed:
        """A new task, running."""
        limits = fields.pop("crash_limits", "{}")
        id = self.enqueue(step, **fields)
        rows = self.claim(worker, 1000, known=[step], crash_limits=limits, queue=fields.get("queue", "default"))
        return next(row for row in rows if row.id == id)

    def parked(self, error: object = BOOM, **fields: Any) -> UUID:
        """A new task, parked."""
        worker = uuid7()
        task = self.claimed(worker, **fields)
        assert self.run(self.stay(worker, [task], "failed", error=error, errors=1))
        return task.id

    # --- outcomes, as queries

    def finish(self, worker: UUID, tasks: Sequence[Claimed], **values: Any) -> Query[dict[UUID, float | None]]:
        return self.queries.finish("default", worker, ids(tasks), outcomes(tasks, **values))

    def advance(
        self, worker: UUID, tasks: Sequence[Claimed], *, keep: bool = False, step: str = "SayHello", **values: Any
    ) -> Query[dict[UUID, float | None]]:
        chosen = outcomes(tasks, **{"step": step, "args": {"next": True}, **values}, old=True)
        return self.queries.advance("default", worker, ids(tasks), chosen, keep=keep, lease=LEASE)

    def stay(
        self, worker: UUID, tasks: Sequence[Claimed], outcome: str | None, **values: Any
    ) -> Query[dict[UUID, float | None]]:
        return self.queries.stay("default", worker, ids(tasks), outcomes(tasks, outcome=outcome, **values))

    def end_cancelled(self, worker: UUID, tasks: Sequence[Claimed], **values: Any) -> Query[dict[UUID, float | None]]:
        return self.queries.cancel("default", worker, ids(tasks), outcomes(tasks, **values))

    def settling(self, worker: UUID, tasks: Sequence[Claimed]) -> dict[str, Query[dict[UUID, float | None]]]:
        """Every write that ends an attempt, by name."""
        return {
            "finish": self.finish(worker, tasks),
            "advance": self.advance(worker, tasks),
            "keep": self.advance(worker, tasks, keep=True),
            "retried": self.stay(worker, tasks, "retried", error=BOOM, errors=1, delay=5),
            "failed": self.stay(worker, tasks, "failed", error=BOOM, errors=1),
            "snoozed": self.stay(worker, tasks, "snoozed", delay=5),
            "released": self.stay(worker, tasks, "released"),
            "cancel": self.end_cancelled(worker, tasks, reason="enough"),
        }

    # --- verbs of people

    def retry(self, id: UUID, via: Connection[Any] | None = None, **options: object) -> str:
        return self.run(self.queries.retry(id, json.dumps(options).encode()), via)

    def cancel(self, id: UUID, via: Connection[Any] | None = None, **options: object) -> str:
        return self.run(self.queries.cancel_task(id, json.dumps(options).encode()), via)

    def discard(self, id: UUID, via: Connection[Any] | None = None, **options: object) -> str:
        return self.run(self.queries.discard(id, json.dumps(options).encode()), via)

    def reap(self, limit: int = 1000, via: Connection[Any] | None = None) -> dict[UUID, str]:
        """Takes expired leases back, and tells what became of each task."""
        reaped = {r.id: r.state for r in self.run(self.queries.reap("default", limit), via)}
        return reaped | dict.fromkeys(self.run(self.queries.reap_cancelled("default", limit), via), "cancelled")

    # --- what the tables say

    def task(self, id: UUID) -> dict[str, Any]:
        """The live row of a task."""
        return self._row("SELECT * FROM holdfast.task WHERE id = $1", id)

    def archived(self, id: UUID) -> dict[str, Any]:
        """The archived row of a task."""
        return self._row("SELECT * FROM holdfast.archive WHERE id = $1", id)

    def state(self, id: UUID) -> str:
        """The state of a task, live or archived; it must be in one place only."""
        rows = self.sql("SELECT state FROM holdfast.tasks WHERE id = $1", id)
        assert len(rows) == 1, rows
        return str(rows[0][0])

    def log(self, id: UUID) -> list[tuple[int, str, str | None]]:
        """The attempts of a task: number, step and outcome."""
        text = "SELECT attempt, step, outcome FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt"
        return [(row[0], row[1], row[2]) for row in self.sql(text, id)]

    def snapshot(self) -> tuple[list[Any], ...]:
        """Everything in the tables that a settling statement could change."""
        return tuple(
            self.sql(f"SELECT t::text FROM holdfast.{name} t ORDER BY 1") for name in ("task", "archive", "attempt")
        )

    def _row(self, text: str, id: UUID) -> dict[str, Any]:
        cursor = self.connection.execute(text.encode(), [id])
        rows = cursor.fetchall()
        assert len(rows) == 1, f"{len(rows)} rows for {text}"
        names = [column.name for column in cursor.description or []]
        return {
            name: json.loads(value) if isinstance(value, bytes) else value
            for name, value in zip(names, rows[0], strict=True)
        }

    # --- gates

    def blocked(self, via: Connection[Any], call: Callable[[], T]) -> "Future[T]":
        """Starts a call on a connection in a thread, and returns once it waits there for somebody's lock."""
        before = self._waiting()
        future = self._threads.submit(call)
        deadline = time.monotonic() + PATIENCE
        while not _includes(via, self._waiting(), before):
            assert not future.done(), f"it did not wait: {future.result()!r}"
            assert time.monotonic() < deadline, "it neither ended nor waited for a lock"
            time.sleep(0.005)
        return future

    def _waiting(self) -> set[int]:
        """Who waits for somebody's lock."""
        text = "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND cardinality(pg_blocking_pids(pid)) > 0"
        return {pid for (pid,) in self.sql(text, self._name)}


def _includes(via: Connection[Any], waiting: set[int], before: set[int]) -> bool:
    # Through a pooler a client does not know its own process.
    return bool(waiting - before) if via.prepare_threshold is None else via.info.backend_pid in waiting


def ids(tasks: Sequence[Claimed]) -> list[UUID]:
    return [task.id for task in tasks]


def outcomes(tasks: Sequence[Claimed], *, old: bool = False, **values: Any) -> bytes:
    """The values of a batch by id, with the fence of each task."""
    made = {}
    for task in tasks:
        made[str(task.id)] = {"attempt": task.attempt, **values}
        if old:
            made[str(task.id)] |= {
                "old_step": task.step,
                "old_args": json.loads(task.args),
                "claimed_at": task.claimed_at,
            }
    return json.dumps(made).encode()


def with_text(query: Query[T], old: str, new: str) -> Query[T]:
    """A query with its text changed, to show what a simpler form would do."""
    assert old in query.statement.text
    changed = query.statement.with_text(query.statement.text.replace(old, new))
    return Query(changed, query.parameters, query.read)


def all_statements() -> list[str]:
    return sorted(statements("holdfast"))
