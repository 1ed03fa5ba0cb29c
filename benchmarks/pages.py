"""Measures how much time of the database each page of the dashboard and each reading command takes on large tables.

    python -m benchmarks.pages [--archived 5000000] [--live 1000000] [--json FILE]
    python -m benchmarks.pages --url URL [--json FILE]

Starts a server of its own and plants tables there (`plant.py`), unless a URL is given: of a server that has
pg_stat_statements in shared_preload_libraries, and a planted database. Time is what the server says it needed to plan
and to execute: once as it comes first, then the best of five, for a machine has other things to do as well. Ends with 1
if something took more than 100 ms.
"""

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from click.testing import CliRunner
from psycopg import Connection

from benchmarks.plant import count, plant
from holdfast import App, embedded
from holdfast._db.driver.connection import connect_sync
from holdfast._db.migrate import migrate
from holdfast.cli import main as holdfast
from holdfast.testing.server import new_folder
from holdfast.web import dashboard

ALLOWED = 100.0
"""Milliseconds."""
AGAIN = 5

FILTERS = (
    "",
    "state:due",
    "state:scheduled",
    "state:retrying",
    "state:running",
    "state:parked",
    "state:unroutable",
    "state:paused",
    "state:done",
    "state:cancelled",
    "state:discarded",
    "queue:default",
    "queue:export state:ready",
    "queue:nowhere",
    "kind:rare",
    "kind:kind_1*",
    "-kind:kind_*",
    "key:order-4999980",
    "key:nothing",
    "args.n:3",
    "args.nothing:x",
    "error:OSError",
    "error:nothing",
    "state:parked kind:rare",
    "state:parked error:Error39",
    "state:parked error:nothing",
    "state:running worker:worker-7",
    "worker:worker-7",
    "since:1h",
    "before:6d",
    "priority:2 since:1d",
)
"""What people may ask: also for what is rare, old, or not there at all."""


@dataclass(frozen=True)
class Measured:
    """What something took: statements, milliseconds as it came first, and afterwards; the slowest of the statements."""

    what: str
    statements: int
    first: float
    then: float
    slowest: str


def pages(ids: dict[str, str]) -> Iterator[str]:
    """Paths of pages."""
    yield from ("/", "/?span=7d", "/queues", "/kinds", "/kinds/kind_0", "/kinds/rare", "/workers", "/workers?all=true")
    yield from ("/schedules", "/schedules/schedule-1", "/database", "/metrics", "/queues/default/pause")
    yield from (f"/tasks/{id}" for id in ids.values())
    yield from ("/parked", "/parked?q=kind:kind_0", "/parked?q=error:Error39", "/parked?q=error:nothing")
    yield from (f"/tasks?q={filter}" for filter in FILTERS)
    yield from (f"/tasks?q={filter}&below={ids['old']}" for filter in ("", "state:parked", "error:nothing"))
    yield from (f"/bulk/new?verb=retry&q={filter}" for filter in ("state:parked", "state:parked error:nothing"))


def commands(ids: dict[str, str]) -> Iterator[list[str]]:
    """Command lines that read."""
    yield from (["tasks", *filter.split()] for filter in ("", "state:parked", "kind:rare", "error:nothing"))
    yield from (["tasks", "--count", *filter.split()] for filter in ("", "state:parked", "state:parked error:nothing"))
    yield from (["show", id] for id in ids.values())
    yield ["show", ids["due"][:13]]
    yield from (["queues"], ["kinds"], ["kinds", "rare"], ["parked"], ["parked", "error:nothing"], ["failures"])
    yield from (["stats"], ["stats", "--since", "7d", "--by", "step"], ["top", "--once"], ["workers"])
    yield from (["schedules"], ["schedules", "show", "schedule-1"], ["doctor"])


class Bench:
    """A planted database, and what the server counts."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._counting: Connection[Any] = connect_sync(url, "holdfast-bench")
        self._counting.execute(b"CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        count(self._counting)

    def close(self) -> None:
        self._counting.close()

    def ids(self) -> dict[str, str]:
        """Tasks to look at, of each sort one."""
        wanted = {
            "due": "task WHERE state = 'ready' AND queue = 'default' AND run_at < holdfast.now() LIMIT 1",
            "running": "task WHERE state = 'running' LIMIT 1",
            "parked": "task WHERE state = 'parked' LIMIT 1",
            "done": "archive WHERE finished_at < holdfast.now() - interval '6 days' LIMIT 1",
            "old": "archive WHERE finished_at < holdfast.now() - interval '3 days' ORDER BY id DESC LIMIT 1",
        }
        return {
            name: str(self._counting.execute(f"SELECT id FROM holdfast.{text}".encode()).fetchall()[0][0])
            for name, text in wanted.items()
        }

    async def measure(self) -> list[Measured]:
        found: list[Measured] = []
        ids = self.ids()
        app = App(self.url)
        transport = httpx.ASGITransport(dashboard(app, auth="trusted"), client=("127.0.0.1", 5000))
        async with app, httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as client:
            for path in pages(ids):
                times = []
                for _ in range(AGAIN + 1):
                    self._reset()
                    answer = await client.get(path)
                    if answer.status_code != 200:
                        print(f"{path}: {answer.status_code} {answer.text[-300:]}", file=sys.stderr)
                    times.append(self._counted())
                found.append(self._measured(path, times))
        for words in commands(ids):
            times = []
            for _ in range(AGAIN + 1):
                self._reset()
                done = await asyncio.to_thread(CliRunner().invoke, holdfast, [*words, "--url", self.url])
                if done.exit_code not in (0, 1, 2):
                    print(f"{words}: {done.output[-300:]}", file=sys.stderr)
                times.append(self._counted())
            found.append(self._measured("holdfast " + " ".join(words), times))
        return found

    def _reset(self) -> None:
        self._counting.execute(b"SELECT pg_stat_statements_reset()")

    def _counted(self) -> list[tuple[int, float, str]]:
        """The statements of others since then: how often, how long, and how they begin."""
        return self._counting.execute(
            b"SELECT calls, total_plan_time + total_exec_time, left(regexp_replace(query, '\\s+', ' ', 'g'), 120)"
            b" FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
            b" AND query NOT LIKE '%pg_stat_statements%' ORDER BY 2 DESC"
        ).fetchall()

    def _measured(self, what: str, times: list[list[tuple[int, float, str]]]) -> Measured:
        sums = [sum(each[1] for each in one) for one in times]
        first = times[0][0] if times[0] else (0, 0.0, "")
        return Measured(
            what,
            sum(each[0] for each in times[0]),
            round(sums[0], 1),
            round(min(sums[1:]), 1),
            f"{first[1]:.0f} ms {first[2]}",
        )


@contextmanager
def planted(archived: int, live: int) -> Iterator[str]:
    """A server in memory, if there is room, with tables that were planted."""
    folder = new_folder("holdfast-pages-")
    server = embedded.start(folder, durable=False)
    try:
        with connect_sync(server.url()) as connection:
            connection.execute(b"ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'")
            connection.execute(b"ALTER SYSTEM SET pg_stat_statements.track_planning = on")
        server.stop()
        url = embedded.start(folder, durable=False).url()
        asyncio.run(migrate(url))
        plant(url, archived=archived, live=live, days=7)
        yield url
    finally:
        embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


def show(found: list[Measured]) -> None:
    print(f"{'statements':>10} {'first':>8} {'then':>8}  page or command")
    for each in found:
        over = f"   <- {each.slowest}" if max(each.first, each.then) > ALLOWED else ""
        print(f"{each.statements:>10} {each.first:>8.1f} {each.then:>8.1f}  {each.what}{over}")
    slow = [each for each in found if each.then > ALLOWED]
    print(f"{len(found)} measured, {len(slow)} of them above {ALLOWED:.0f} ms of database time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--archived", type=int, default=5_000_000)
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    def measured(url: str) -> list[Measured]:
        bench = Bench(url)
        try:
            return asyncio.run(bench.measure())
        finally:
            bench.close()

    if given.url:
        found = measured(given.url)
    else:
        with planted(given.archived, given.live) as url:
            found = measured(url)
    show(found)
    if given.json:
        given.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n")
    sys.exit(any(each.then > ALLOWED for each in found))


if __name__ == "__main__":
    main()
