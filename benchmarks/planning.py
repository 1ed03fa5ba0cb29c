"""How late one worker enqueues the occurrences of many schedules, by the database's clock.

    python benchmarks/planning.py [--schedules 10000] [--every 100] [--seconds 30] [--url URL] [--json]

With the defaults 100 of 10,000 schedules are due each second. The worker executes their tasks as well. Starts the
embedded server with fsync and synchronous_commit on, unless a URL is given.
"""

import argparse
import asyncio
import json
import shutil
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp

from holdfast import App, Every, embedded
from holdfast._db.driver.connection import connect
from holdfast._db.migrate import migrate

app = App()


@app.task
async def noop() -> None: ...


async def measure(url: str, schedules: int, every: int, seconds: int) -> dict[str, float]:
    await migrate(url, to=0)
    await migrate(url)
    app.use(url)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    async with app:
        for n in range(schedules):
            await app.schedules.set(f"s-{n}", Every(every, anchor=begin + timedelta(seconds=n % every)), noop.bind())
        async with app.worker():
            await asyncio.sleep(every // 10 + 5)  # all of them are planned for the first time
            connection = await connect(url)
            since = (await (await connection.execute("SELECT holdfast.now()")).fetchone() or [None])[0]
            await asyncio.sleep(seconds)
            cursor = await connection.execute(
                "SELECT count(*), percentile_cont(ARRAY[0.5, 0.99, 1]) WITHIN GROUP ("
                " ORDER BY extract(epoch FROM created_at - plan_time)) FROM holdfast.occurrence WHERE plan_time > $1",
                [since],
            )
            count, (median, late, latest) = await cursor.fetchone() or (0, (0, 0, 0))
            await connection.close()
    return {"occurrences": count, "p50_seconds": median, "p99_seconds": late, "max_seconds": latest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=100, help="seconds between two occurrences of a schedule")
    parser.add_argument("--seconds", type=int, default=30, help="how long to measure")
    parser.add_argument("--url")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    folder = Path(mkdtemp(prefix="holdfast-bench-"))
    try:
        url = given.url or embedded.start(folder).url()
        found = asyncio.run(measure(url, given.schedules, given.every, given.seconds))
    finally:
        if not given.url:
            embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)
    if given.json:
        json.dump(found, sys.stdout)
    else:
        late = [found[f"{part}_seconds"] for part in ("p50", "p99", "max")]
        print(
            f"{found['occurrences']} occurrences of {given.schedules} schedules within {given.seconds} s; late by "
            f"{late[0]:.3f} s (median), {late[1]:.3f} s (p99), {late[2]:.3f} s (max)"
        )


if __name__ == "__main__":
    main()
