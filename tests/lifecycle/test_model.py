"""F27: random lives of tasks on the real statements, against a small model of the rows in plain Python.

Three workers claim, beat and settle, also late and with fences of long ago; people enqueue, cancel, retry and
discard; the reaper comes by; time passes. After every step the whole table `task` must be what the model says,
and at the end the archive and the log of attempts. `HOLDFAST_MODEL_EXAMPLES=5000` runs it for longer.
"""

import json
import os
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from .model import LIMITS, WORKERS, Model, Row
from .support import BEGINNING, LEASE, Db

EXAMPLES = int(os.environ.get("HOLDFAST_MODEL_EXAMPLES", "150"))
KNOWN = ["m.A", "m.B"]

picks = st.integers(0, 10_000)
workers = st.sampled_from(range(3))
steps = st.sampled_from("AAB")
outcomes = st.sampled_from(
    ["finish", "advance", "later", "keep", "retried", "retried", "failed", "snoozed", "released", "untouched", "cancel"]
)


class Life(Model):
    """What may happen, one rule each."""

    # Few tasks at a time, so that much happens to each.
    @precondition(lambda self: len(self.rows) < 3)
    @rule(priority=st.sampled_from([0, 0, 5]), delay=st.sampled_from([0, 0, 0, 20, 90]), step=st.sampled_from("AABX"))
    def enqueue(self, priority: int, delay: int, step: str) -> None:
        self.new_task(priority, delay, step)

    @rule(by=st.sampled_from([1, 10, 31, 100]))
    def pass_time(self, by: int) -> None:
        self.move_clock(by)

    @rule(who=workers, limit=st.integers(1, 4))
    def claim(self, who: int, limit: int) -> None:
        worker = WORKERS[who]
        limits = json.dumps({f"m.{step}": limit for step, limit in LIMITS.items()})
        claimed = self.db.claim(worker, limit, known=KNOWN, crash_limits=limits, marks=[BEGINNING] * 10)
        due = [r for r in self.rows.values() if r.state == "ready" and r.run_at <= self.now and r.step in LIMITS]
        suspects = sorted((r for r in due if r.crashes), key=lambda r: (r.run_at, r.id))
        others = sorted((r for r in due if not r.crashes), key=lambda r: (-r.priority, r.run_at, r.id))
        chosen = (suspects[:1] + others)[:limit]
        assert {c.id for c in claimed} == {r.id for r in chosen}
        for row in chosen:
            self.rows[row.id] = replace(
                row, state="running", worker=worker, attempt=row.attempt + 1, lease=self.now + LEASE,
                claimed_at=self.now, max_crashes=LIMITS[row.step],
            )  # fmt: skip
            self.begun[who].append(self.rows[row.id])
        for got in claimed:
            row = self.rows[got.id]
            assert (got.step, got.attempt, got.moves, got.errors, got.crashes, json.loads(got.args)) == (
                row.step, row.attempt, row.moves, row.errors, row.crashes, {"n": row.n}
            )  # fmt: skip

    @rule(who=workers)
    def beat(self, who: int) -> None:
        believed = list({row.id for row in self.begun[who]})
        answer = self.db.run(self.db.queries.beat("default", WORKERS[who], believed, LEASE))
        mine = [r for r in self.rows.values() if r.worker == WORKERS[who] and r.id in believed]
        assert sorted(answer) == sorted((r.id, r.attempt, r.cancelled) for r in mine)
        for row in mine:
            self.rows[row.id] = replace(row, lease=self.now + LEASE)

    @precondition(lambda self: self.attempts(mine=True, current=True))
    @rule(pick=picks, alone=st.booleans(), step=steps, how=outcomes, skip_locked=st.booleans())
    def settle(self, pick: int, alone: bool, step: str, how: str, skip_locked: bool) -> None:
        """A worker settles what it holds, or everything it ever began, whether that is its own still or not."""
        held = self.attempts(mine=True, current=True)
        who, row = held[pick % len(held)]
        self.settle_batch(who, [row] if alone else self.begun[who], step, how, skip_locked)

    @precondition(lambda self: self.attempts(mine=True, current=False))
    @rule(pick=picks, step=steps, how=outcomes, skip_locked=st.booleans())
    def settle_an_older_attempt(self, pick: int, step: str, how: str, skip_locked: bool) -> None:
        """The worker holds the task again, or still; but this attempt of it is over."""
        stale = self.attempts(mine=True, current=False)
        who, row = stale[pick % len(stale)]
        self.settle_batch(who, [row], step, how, skip_locked)

    @precondition(lambda self: self.attempts(mine=False, current=None))
    @rule(pick=picks, step=steps, how=outcomes, skip_locked=st.booleans())
    def settle_too_late(self, pick: int, step: str, how: str, skip_locked: bool) -> None:
        """The task has gone on without this worker."""
        stale = self.attempts(mine=False, current=None)
        who, row = stale[pick % len(stale)]
        self.settle_batch(who, [row], step, how, skip_locked)

    def settle_batch(self, who: int, begun: list[Row], step: str, how: str, skip_locked: bool) -> None:
        batch = list({row.id: row for row in begun}.values())
        values: dict[UUID, dict[str, Any]] = {}
        for row in batch:
            assert row.claimed_at is not None
            values[row.id] = {"attempt": row.attempt, "n": self.count()}
            match how:
                case "advance" | "later" | "keep":
                    values[row.id] |= {
                        "step": step, "args": {"n": self.counter}, "old_step": row.step, "old_args": {"n": row.n},
                        "claimed_at": row.claimed_at.timestamp(), "max_crashes": LIMITS[step],
                        "delay": 20 if how == "later" else None,
                    }  # fmt: skip
                case "retried":
                    values[row.id] |= {"outcome": how, "error": {"type": "Boom"}, "errors": 1, "delay": 0}
                case "failed":
                    values[row.id] |= {"outcome": how, "error": {"type": "Boom"}, "errors": 1}
                case "snoozed":
                    values[row.id] |= {"outcome": how, "delay": 20}
                case "released":
                    values[row.id] |= {"outcome": how}
                case "untouched":
                    values[row.id] |= {"outcome": None}
        self.write(who, how, batch, values, skip_locked)

    def write(
        self, who: int, how: str, batch: list[Row], values: dict[UUID, dict[str, Any]], skip_locked: bool
    ) -> None:
        queries, worker = self.db.queries, WORKERS[who]
        ids, text = list(values), json.dumps({str(id): value for id, value in values.items()}).encode()
        match how:
            case "finish":
                query = queries.finish("default", worker, ids, text)
            case "cancel":
                query = queries.cancel("default", worker, ids, text)
            case "advance" | "later" | "keep":
                query = queries.advance("default", worker, ids, text, keep=how == "keep", lease=LEASE)
            case _:
                query = queries.stay("default", worker, ids, text)
        answer = self.db.run(queries.skip_locked(query) if skip_locked else query)
        expected = set()
        for believed in batch:
            row = self.rows.get(believed.id)
            if row is None or row.worker != worker or row.attempt != believed.attempt:
                continue
            if row.cancelled and how not in ("finish", "cancel"):
                continue
            expected.add(row.id)
            self.settled(who, how, row, values[row.id])
        assert set(answer) == expected

    @rule()
    def lose_all_workers(self) -> None:
        """All leases run out, and the reaper comes by."""
        self.move_clock(31)
        self.take_back(10)

    @rule(limit=st.integers(1, 3))
    def reap(self, limit: int) -> None:
        self.take_back(limit)

    def take_back(self, limit: int) -> None:
        reaped = self.db.run(self.db.queries.reap("default", limit))
        lost = sorted((r for r in self.expired() if not r.cancelled), key=lambda r: r.id)[:limit]
        for row in lost:
            crashed = row.worker not in self.stopping
            parked = row.max_crashes == 0 or (crashed and row.crashes >= row.max_crashes)
            self.logged(row, "lost")
            self.rows[row.id] = replace(
                row, state="parked" if parked else "ready", worker=None, lease=None, crashes=row.crashes + crashed,
                error="WorkerLost" if parked else row.error,
            )  # fmt: skip
        found = [(r.id, r.state, r.attempt, r.crashes) for r in reaped]
        after = [self.rows[r.id] for r in lost]
        assert sorted(found) == [(r.id, r.state, r.attempt, r.crashes) for r in after]

    @rule(limit=st.integers(1, 3))
    def reap_cancelled(self, limit: int) -> None:
        gone = self.db.run(self.db.queries.reap_cancelled("default", limit))
        lost = sorted((r for r in self.expired() if r.cancelled), key=lambda r: r.id)[:limit]
        assert gone == {row.id for row in lost}
        for row in lost:
            self.end(row, "cancelled", "lost")

    @rule(who=workers)
    def stop(self, who: int) -> None:
        queries = self.db.queries
        self.db.run(
            queries.register(WORKERS[who], name="w", host="h", pid=1, version="0", queues=[], steps=[], slots=1)
        )
        self.db.run(queries.stopping(WORKERS[who]))
        self.stopping.add(WORKERS[who])

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        row = self.person(pick, "cancel", {"ready", "running", "parked"}, {})
        if row is not None and row.state == "running":
            self.rows[row.id] = replace(row, cancelled=True)
        elif row is not None:
            self.end(row, "cancelled", None)

    @rule(pick=picks)
    def discard(self, pick: int) -> None:
        row = self.person(pick, "discard", {"parked"}, {})
        if row is not None:
            self.end(row, "discarded", None)

    @rule(pick=picks, step=st.none() | steps, patched=st.booleans(), expected=st.sampled_from([None, None, 1]))
    def retry(self, pick: int, step: str | None, patched: bool, expected: int | None) -> None:
        n = self.count()
        given = {"step": step, "args": {"n": n} if patched else None, "expected_attempt": expected}
        row = self.person(pick, "retry", {"parked", "ready"}, {k: v for k, v in given.items() if v is not None})
        if row is not None:
            self.rows[row.id] = replace(
                row, state="ready", run_at=self.now, errors=0, crashes=0, error=None, n=n if patched else row.n,
                step=step or row.step, moves=row.moves + (step is not None and step != row.step),
            )  # fmt: skip

    def person(self, pick: int, verb: str, states: set[str], options: dict[str, object]) -> Row | None:
        """A person's verb on some task; the row as it was, if the verb was allowed."""
        if not self.ids:
            return None
        id = self.ids[pick % len(self.ids)]
        row = self.rows.get(id)
        expected = options.get("expected_attempt")
        allowed = row is not None and row.state in states and expected in (None, row.attempt)
        try:
            getattr(self.db, verb)(id, **options)
        except psycopg.Error as error:
            assert error.sqlstate == "HF409" and not allowed
            return None
        assert allowed
        return row


def test_F27_random_lives_agree_with_the_model(own_db: Db) -> None:
    own_db.run(own_db.queries.ensure_partitions())
    Life.db = own_db
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
        ),
    )
