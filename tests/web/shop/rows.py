"""Rows of the shop: how one is made up, and how many are written."""

import json
import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from holdfast._db.driver.connection import connect_sync

from .stories import Error, args_of, way_of

Row = dict[str, Any]

QUEUES = {
    "order": "orders",
    "invoice": "invoices",
    "report": "reports",
    "send_mail": "mail",
    "sync_stock": "stock",
    "import_prices": "stock",
    "resize_image": "media",
}
WORKERS = (
    ("orders-1", ["orders", "invoices"], 20),
    ("orders-2", ["orders", "invoices"], 20),
    ("mail-1", ["mail"], 40),
    ("batch-1", ["reports", "stock", "media"], 8),
)


class Rows:
    """Makes them up from one seed; only the times depend on when that is."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.chance = random.Random(20)
        self.workers: dict[str, str] = {}
        self.orders = 48_200
        self.now = self.clock()

    def task(self, kind: str, due: datetime, *, step: str | None = None) -> Row:
        """A task that is due."""
        self.orders += 1
        created = due if due <= self.now else self.ago(20, 6 * 3600)
        return {
            "id": self.id(created),
            "queue": QUEUES[kind],
            "kind": kind,
            "step": step or way_of(kind, random.Random(1))[0],
            "args": args_of(kind, self.orders, self.chance),
            "state": "ready",
            "priority": 2 if kind == "order" else 0,
            "run_at": due,
            "created_at": created,
            "moves": 0,
            "attempt": 0,
            "errors": 0,
            "crashes": 0,
        }

    def id(self, at: datetime) -> str:
        """An id of that moment: lists go by it."""
        bits = self.chance.getrandbits
        return str(UUID(int=int(at.timestamp() * 1000) << 80 | 7 << 76 | bits(12) << 64 | 2 << 62 | bits(62)))

    def worker(self, kind: str) -> str:
        """One of those that serve it."""
        return self.workers[self.chance.choice([name for name, served, _ in WORKERS if QUEUES[kind] in served])]

    def span(self, typical: float) -> timedelta:
        return timedelta(seconds=min(self.chance.lognormvariate(math.log(typical), 0.6), 40))

    def ago(self, least: float, most: float) -> datetime:
        return self.now - timedelta(seconds=self.chance.uniform(least, most))

    def write(self, table: str, made: Sequence[Row]) -> None:
        """Rows as they are; what one of them does not name, none of them may."""
        by_columns: dict[tuple[str, ...], list[Row]] = {}
        for row in made:
            by_columns.setdefault(tuple(row), []).append(row)
        for columns, rows in by_columns.items():
            names = ", ".join(columns)
            taken = f"jsonb_populate_recordset(null::holdfast.{table}, $1::jsonb)"
            text = f"insert into holdfast.{table} ({names}) select {names} from {taken}"
            self.run(text, json.dumps(rows, default=str))

    def clock(self) -> datetime:
        found: datetime = self.run("select holdfast.now()")[0][0]
        return found

    def run(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with connect_sync(self.url) as connection:
            cursor = connection.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


def attempt(task: Row, ready: datetime, ended: datetime, outcome: str, error: Error | None) -> Row:
    """A line of the log."""
    kept = ("queue", "kind", "step", "args", "moves", "attempt", "worker_id", "claimed_at")
    told = {name: task[name] for name in kept} | {"task_id": task["id"], "run_at": ready, "finished_at": ended}
    return told | {"outcome": outcome, "error": error, "parked": False}
