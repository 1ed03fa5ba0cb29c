"""Enqueues from Python beside what the server itself does: pgbench's inserts and a raw COPY of the same rows.

    python benchmarks/enqueue.py [--seconds 5] [--bulk 100000] [--rounds 3] [--url URL] [--json]

One caller, 16 callers of one app, and one call with many, each in turns with its counterpart: machines are noisy,
so only ratios of one run count. Starts the embedded server with fsync and synchronous_commit on, unless a URL is
given; pgbench is the server's own, or the one on the PATH.
"""

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from holdfast import App, embedded
from holdfast._db.connection import connect
from holdfast._db.migrate import migrate
from holdfast._model.ids import uuid7

CALLERS = 16
INSERT = """
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at)
VALUES (gen_random_uuid(), 'default', 'noop', 'main', '{"n": 1}', 0, holdfast.now());
"""
COPY = "COPY holdfast.task (id, queue, kind, step, args, priority, run_at) FROM STDIN"

app = App()


@app.task
async def noop(n: int) -> None: ...


async def empty(url: str) -> None:
    """The same beginning for everybody."""
    connection = await connect(url)
    await connection.execute("TRUNCATE holdfast.task")
    await connection.execute("CHECKPOINT")
    await connection.close()


async def callers(url: str, count: int, seconds: float) -> float:
    """Enqueues per second of so many callers of one app, each waiting for its answer before it goes on."""
    await empty(url)
    end = 0.0

    async def call() -> int:
        done = 0
        while time.perf_counter() < end:
            await app.enqueue(noop.bind(done))
            done += 1
        return done

    async with app:
        await app.enqueue(noop.bind(0))
        began = time.perf_counter()
        end = began + seconds
        done = sum(await asyncio.gather(*(call() for _ in range(count))))
        return done / (time.perf_counter() - began)


async def pgbench(url: str, program: Path, script: Path, clients: int, seconds: float) -> float:
    """Inserts per second of so many clients of pgbench, with prepared statements."""
    await empty(url)
    command: list[str | Path] = [
        program,
        "-n",
        "-M",
        "prepared",
        "-f",
        script,
        "-c",
        str(clients),
        "-T",
        f"{seconds:.0f}",
        url,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"tps = ([\d.]+)", ran.stdout)
    if found is None:
        raise SystemExit(f"pgbench said: {ran.stdout}")
    return float(found[1])


async def bulk(url: str, count: int) -> float:
    """Tasks per second of one enqueue_many, the binding of arguments included."""
    await empty(url)
    async with app:
        await app.enqueue(noop.bind(0))
        began = time.perf_counter()
        refs = await app.enqueue_many(noop.bind(n) for n in range(count))
        took = time.perf_counter() - began
    if len({ref.id for ref in refs}) != count:
        raise SystemExit("an id came twice")
    return count / took


async def raw_copy(url: str, count: int) -> float:
    """Rows per second of a COPY by the driver, with ids and JSON made on the way."""
    await empty(url)
    connection = await connect(url)
    cursor = await connection.execute("SELECT now()")
    now = ((await cursor.fetchone()) or (None,))[0]
    began = time.perf_counter()
    async with connection.cursor().copy(COPY) as copy:
        for n in range(count):
            await copy.write_row((uuid7(), "default", "noop", "main", json.dumps({"n": n}), 0, now))
    took = time.perf_counter() - began
    await connection.close()
    return count / took


async def one_round(url: str, program: Path, script: Path, seconds: float, count: int) -> dict[str, float]:
    return {
        "1 caller": await callers(url, 1, seconds),
        "pgbench -c 1": await pgbench(url, program, script, 1, seconds),
        f"{CALLERS} callers": await callers(url, CALLERS, seconds),
        f"pgbench -c {CALLERS}": await pgbench(url, program, script, CALLERS, seconds),
        "enqueue_many": await bulk(url, count),
        "raw COPY": await raw_copy(url, count),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--bulk", type=int, default=100_000)
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
        program = server.bindir / "pgbench" if server else Path(shutil.which("pgbench") or "pgbench")
        script = folder / "insert.sql"
        script.write_text(INSERT)
        run(migrate(url))
        app.use(url)
        rounds = [run(one_round(url, program, script, given.seconds, given.bulk)) for _ in range(given.rounds)]
    finally:
        if server:
            embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(r[name] for r in rounds) for name in rounds[0]}
    names = list(medians)
    ratios = {
        f"{ours} / {theirs}": statistics.median(r[ours] / r[theirs] for r in rounds)
        for ours, theirs in zip(names[::2], names[1::2], strict=True)
    }
    if given.json:
        print(json.dumps({"rounds": rounds, "medians": medians, "ratios": ratios}))
        return
    print(f"per second, median of {given.rounds}; bulk of {given.bulk:,}:")
    for name, value in medians.items():
        low, high = min(r[name] for r in rounds), max(r[name] for r in rounds)
        print(f"  {name:32} {value:>9,.0f}   ({low:,.0f} to {high:,.0f})")
    for name, ratio in ratios.items():
        print(f"  {name:32} {ratio:>9.2f}")


if __name__ == "__main__":
    main()
