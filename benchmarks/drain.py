"""Drains no-op tasks with one worker process, durable and with full history, and prints the rate.

    python benchmarks/drain.py [--tasks 100000] [--steps 1|3] [--unroutable 100000] [--url URL] [--json]

Starts the embedded server with fsync and synchronous_commit on, unless a URL is given.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from holdfast import App, Done, embedded
from holdfast._db.connection import connect
from holdfast._db.migrate import migrate

app = App()


@app.task
async def noop(n: int) -> None: ...


three = app.kind("three", result=int)


@three.step
@dataclass
class First:
    n: int

    async def run(self) -> "Second":
        return Second(self.n + 1)


@three.step
@dataclass
class Second:
    n: int

    async def run(self) -> "Third":
        return Third(self.n + 1)


@three.step
@dataclass
class Third:
    n: int

    async def run(self) -> Done[int]:
        return Done(self.n)


async def drain(url: str, tasks: int, steps: int, unroutable: int) -> dict[str, float]:
    """One round on an empty schema."""
    await migrate(url, to=0)
    await migrate(url)
    app.use(url)
    connection = await connect(url)
    await connection.execute(
        "INSERT INTO holdfast.task (id, kind, step)"
        " SELECT holdfast.new_id(), 'unknown', 'main' FROM generate_series(1, $1)",
        [unroutable],
    )
    async with app:
        began = time.perf_counter()
        entries: list[Any] = [noop.bind(i) if steps == 1 else First(i) for i in range(tasks)]
        await app.enqueue_many(entries)
        enqueued = time.perf_counter() - began
        worker = app.make_worker()
        began = time.perf_counter()
        await worker.run(until_idle=True)
        drained = time.perf_counter() - began
    cursor = await connection.execute(
        "SELECT count(*) FILTER (WHERE state = 'done'), (SELECT count(*) FROM holdfast.attempt) FROM holdfast.archive"
    )
    done, attempts = (await cursor.fetchone()) or (0, 0)
    await connection.close()
    if done != tasks or attempts != tasks * (steps - 1):
        sys.exit(f"history is not complete: {done} done and {attempts} earlier attempts of {tasks}")
    return {"enqueue_per_second": tasks / enqueued, "drain_per_second": tasks / drained}


async def raw(url: str, tasks: int) -> float:
    """What the server itself does: claim 500, delete 500, on a bare table by one connection, keeping nothing."""
    connection = await connect(url)
    await connection.execute("DROP TABLE IF EXISTS raw")
    await connection.execute(
        "CREATE TABLE raw (id uuid PRIMARY KEY, state text, run_at timestamptz, args jsonb, worker uuid)"
    )
    await connection.execute("CREATE INDEX ON raw (run_at, id) WHERE state = 'ready'")
    await connection.execute(
        "INSERT INTO raw SELECT gen_random_uuid(), 'ready', now(), '{\"n\": 1}' FROM generate_series(1, $1)", [tasks]
    )
    began = time.perf_counter()
    while True:
        cursor = await connection.execute(
            "UPDATE raw SET state = 'running', worker = gen_random_uuid() WHERE id = ANY (ARRAY(SELECT id FROM raw"
            " WHERE state = 'ready' AND run_at <= now() ORDER BY run_at, id LIMIT 500 FOR UPDATE SKIP LOCKED))"
            " RETURNING id, args",
            binary=True,
        )
        rows = await cursor.fetchall()
        if not rows:
            break
        await connection.execute("DELETE FROM raw WHERE id = ANY ($1)", [[row[0] for row in rows]])
    rate = tasks / (time.perf_counter() - began)
    await connection.execute("DROP TABLE raw")
    await connection.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--steps", type=int, choices=(1, 3), default=1)
    parser.add_argument("--unroutable", type=int, default=0, help="so many tasks nobody knows lie in front")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    try:
        import uvloop

        run: Any = uvloop.run
    except ImportError:
        run = asyncio.run
    folder = Path(mkdtemp(prefix="holdfast-bench-"))
    server = None if given.url else embedded.start(folder)
    try:
        url = given.url or (server.url() if server else "")
        rounds = []
        for _ in range(given.rounds):
            # In turns, because machines are noisy: only ratios of one run count.
            round_ = run(drain(url, given.tasks, given.steps, given.unroutable))
            rounds.append(round_ | {"raw_sql_per_second": run(raw(url, given.tasks))})
    finally:
        if server:
            embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    if given.json:
        print(json.dumps({"tasks": given.tasks, "steps": given.steps, "rounds": rounds, "medians": medians}))
        return
    print(f"{given.tasks} tasks of {given.steps} step(s), one process, median of {given.rounds}:")
    for name, value in medians.items():
        low, high = min(r[name] for r in rounds), max(r[name] for r in rounds)
        print(f"  {name.replace('_', ' '):20} {value:>9,.0f}   ({low:,.0f} to {high:,.0f})")


if __name__ == "__main__":
    main()
