"""The model side of `test_model.py`: what the tables should say, in plain Python."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine, invariant

from holdfast._model.enqueue.ids import uuid7
from holdfast._model.enqueue.request import Request

from .support import LEASE, NOW, Db

LIMITS = {"A": 1, "B": 0}
WORKERS = [UUID(int=0xAAAA00000000 + n) for n in range(3)]


@dataclass(frozen=True)
class Row:
    """What the model knows of an unfinished task."""

    id: UUID
    step: str
    n: int
    priority: int
    run_at: datetime
    state: str = "ready"
    moves: int = 0
    attempt: int = 0
    errors: int = 0
    crashes: int = 0
    max_crashes: int = 3
    worker: UUID | None = None
    lease: datetime | None = None
    claimed_at: datetime | None = None
    cancelled: bool = False
    error: str | None = None


ROWS = """
    SELECT id, step, (args ->> 'n')::integer, priority, run_at, state, moves, attempt, errors, crashes, max_crashes,
           worker_id, lease_expires_at, claimed_at, cancel_at IS NOT NULL, error ->> 'type' FROM holdfast.task
"""
ARCHIVED = (
    "SELECT id, state, step, (args ->> 'n')::integer, moves, attempt, errors, crashes, outcome FROM holdfast.archive"
)
LOGGED = """
    SELECT task_id, attempt, step, (args ->> 'n')::integer, moves, outcome, worker_id, claimed_at FROM holdfast.attempt
"""
COUNTED = "SELECT task_id, array_agg(attempt ORDER BY attempt) FROM holdfast.attempts GROUP BY task_id"


class Model(RuleBasedStateMachine):
    """The rows, the archive and the log as they should be."""

    db: ClassVar[Db]

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.rows: dict[UUID, Row] = {}
        self.archive: dict[UUID, tuple[Any, ...]] = {}
        self.log: list[tuple[Any, ...]] = []
        self.ids: list[UUID] = []
        # Every attempt that was ever begun, as its worker remembers it.
        self.begun: list[list[Row]] = [[] for _ in WORKERS]
        self.stopping: set[UUID] = set()
        self.counter = 0
        for table in ("task", "archive", "attempt", "change", "worker"):
            self.db.sql(f"DELETE FROM holdfast.{table}")
        self.set_clock()
        for _ in range(2):
            self.new_task(0, 0, "A")

    def set_clock(self) -> None:
        self.db.sql(
            "CREATE OR REPLACE FUNCTION holdfast.now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE"
            f" AS $$ SELECT '{self.now.isoformat()}'::timestamptz $$"
        )

    def count(self) -> int:
        self.counter += 1
        return self.counter

    def end(self, row: Row, state: str, outcome: str | None) -> None:
        del self.rows[row.id]
        self.archive[row.id] = (
            state, row.step, row.n, row.moves, row.attempt, row.errors, row.crashes, outcome
        )  # fmt: skip

    def logged(self, row: Row, outcome: str) -> None:
        self.log.append((row.id, row.attempt, row.step, row.n, row.moves, outcome, row.worker, row.claimed_at))

    def new_task(self, priority: int, delay: int, step: str) -> None:
        task = Request(uuid7(), "default", "m", step, b'{"n": %d}' % self.count(), priority, timedelta(seconds=delay))
        assert self.db.run(self.db.queries.enqueue(task))
        self.ids.append(task.id)
        self.rows[task.id] = Row(task.id, step, self.counter, priority, self.now + timedelta(seconds=delay))

    def move_clock(self, by: int) -> None:
        self.now += timedelta(seconds=by)
        self.set_clock()

    def expired(self) -> list[Row]:
        return [row for row in self.rows.values() if row.lease is not None and row.lease < self.now]

    def attempts(self, *, mine: bool, current: bool | None) -> list[tuple[int, Row]]:
        """Attempts of unfinished tasks: of workers that hold the task now or do not, its last attempt or not."""
        return [
            (who, row)
            for who, begun in enumerate(self.begun)
            for row in begun
            if (now := self.rows.get(row.id)) is not None
            and (now.worker == WORKERS[who]) == mine
            and current in (None, now.attempt == row.attempt)
        ]

    def settled(self, who: int, how: str, row: Row, value: dict[str, Any]) -> None:
        delay = timedelta(seconds=value.get("delay") or 0)
        match how:
            case "finish":
                self.end(row, "done", "done")
                return
            case "cancel":
                self.end(row, "cancelled", "cancelled")
                return
            case "advance" | "later" | "keep":
                self.logged(row, "advanced")
                new = Row(
                    row.id, value["step"], value["args"]["n"], row.priority, self.now + delay, moves=row.moves + 1,
                    attempt=row.attempt, max_crashes=value["max_crashes"], claimed_at=row.claimed_at,
                )  # fmt: skip
                if how == "keep":
                    new = replace(
                        new, state="running", worker=row.worker, lease=self.now + LEASE, claimed_at=self.now,
                        attempt=row.attempt + 1,
                    )  # fmt: skip
                    self.begun[who].append(new)
            case "untouched":
                left = row.attempt - 1
                new = replace(
                    row, state="ready", worker=None, lease=None, attempt=left,
                    claimed_at=row.claimed_at if left else None,
                )  # fmt: skip
                # Its worker begins nothing any more, and has nothing else to say about this number.
                kept = [each for each in self.begun[who] if (each.id, each.attempt) != (row.id, row.attempt)]
                self.begun[who] = kept
            case _:
                self.logged(row, how)
                new = replace(
                    row, state="parked" if how == "failed" else "ready", worker=None, lease=None,
                    run_at=self.now + delay if "delay" in value else row.run_at,
                    errors=row.errors + value.get("errors", 0),
                    error=value["error"]["type"] if "error" in value else row.error,
                )  # fmt: skip
        self.rows[row.id] = new

    # --- what must hold

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        assert sorted(self.db.sql(ROWS)) == sorted(tuple(asdict(row).values()) for row in self.rows.values())

    def teardown(self) -> None:
        archived = {row[0]: row[1:] for row in self.db.sql(ARCHIVED)}
        assert archived == self.archive
        assert sorted(self.db.sql(LOGGED)) == sorted(self.log)
        attempts = {id: row.attempt for id, row in self.rows.items()}
        attempts |= {id: row[4] for id, row in self.archive.items()}
        expected = {id: list(range(1, last + 1)) for id, last in attempts.items() if last}
        assert dict(self.db.sql(COUNTED)) == expected, "each attempt is recorded once, without gaps"
