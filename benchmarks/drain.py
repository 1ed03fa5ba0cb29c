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
        "INSERT INTO holdfast.task (id, kind, step) SELECT holdfast.new_id(), 'unknown', 'main' FROM generate_series(1, $1)",
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
        rounds = [run(drain(url, given.tasks, given.steps, given.unroutable)) for _ in range(given.rounds)]
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
