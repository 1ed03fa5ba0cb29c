"""Plants a large history and many unfinished tasks by SQL, in minutes, as a busy system would have them.

    python benchmarks/plant.py --url URL [--archived 5000000] [--live 1000000] [--days 7] [--schema holdfast]
    python benchmarks/plant.py --measure [--archived … --live …]

The schema must be migrated, and is not emptied before. Archived tasks are spread over the last days, and for each there
is an attempt that was not its last one. Live tasks are mostly scheduled or due, some running, many parked. Nine of ten
are in one queue. There are 200 workers and 500 schedules. Figures are counted as workers do it. `--measure` starts a
server of its own, plants there, and tells how long reading takes.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from psycopg import Connection

from holdfast import Cron, embedded, insights
from holdfast._db.driver.connection import connect_sync, run_sync
from holdfast._db.migrate import migrate
from holdfast._model.time.schedule import Definition
from holdfast._sql import figures
from holdfast._sql.plans import drive_sync
from holdfast._sql.queries import queries
from holdfast._sql.query import Query, for_schema
from holdfast._sql.template import compose

PART = 250_000
"""Rows of one statement."""
WORKERS, SCHEDULES = 200, 500


def plant(
    url: str, *, archived: int, live: int, days: float, schema: str = "holdfast", with_figures: bool = True
) -> None:
    """Fills a migrated schema."""
    span = timedelta(days=days)
    hourly = Definition(Cron("0 * * * *", tz="UTC"), "kind_0.main", {}, {}).to_json()
    [bodies] = compose([Path(__file__).with_suffix(".sql").read_text("utf-8")])
    text = {name: for_schema(body, schema).encode() for name, body in bodies.items()}
    with connect_sync(url) as connection:
        connection.execute(b"SET synchronous_commit = off")
        [(start,)] = connection.execute(text["beginning"], [span]).fetchall()
        connection.execute(text["partitions"], [int(days)])
        for name, rows, values in (
            ("archived", archived, [start, span, archived]),
            ("logged", archived, [start, span, archived]),
            ("live", live, [live]),
        ):
            for first in range(0, rows, PART):
                connection.execute(text[name], [first, min(rows, first + PART) - 1, *values])
        connection.execute(text["kinds"])
        connection.execute(text["workers"], [WORKERS])
        connection.execute(text["schedules"], [SCHEDULES, json.dumps(hourly)])
        connection.execute(b"VACUUM ANALYZE")
        if with_figures:
            connection.execute(text["counted_since"], [span + timedelta(hours=2)])
            count(connection, schema)


def count(connection: Connection[Any], schema: str = "holdfast") -> None:
    """Counts figures, as workers do it."""
    made = queries(schema)
    more = True
    while more:
        connection.execute(b"BEGIN")
        more = drive_sync(figures.roll_up(made), lambda query: run_sync(connection, query)).more
        connection.execute(b"COMMIT")
    connection.execute(b"VACUUM ANALYZE")


def measure(url: str, schema: str = "holdfast") -> None:
    """How long it takes to ask for figures and to arrange them: the median of five."""
    made = queries(schema)
    asked: dict[str, Callable[[], Query[Any]]] = {
        "the last hour by the minute": lambda: insights.figures(made, "1h", "1m"),
        "the last hour by kind": lambda: insights.figures(made, "1h", "1m", by="kind"),
        "12 hours": lambda: insights.figures(made, "12h"),
        "a day": lambda: insights.figures(made, "1d"),
        "a day by 15 minutes": lambda: insights.figures(made, "1d", "15m"),
        "a day by step": lambda: insights.figures(made, "1d", by="step"),
        "a week by the hour": lambda: insights.figures(made, "7d", "1h"),
        "30 days": lambda: insights.figures(made, "30d"),
    }
    with connect_sync(url) as connection:
        for what, query in asked.items():
            found, times = run_sync(connection, query()), []
            for _ in range(5):
                began = time.perf_counter()
                run_sync(connection, query())
                times.append(time.perf_counter() - began)
            print(f"{what:30} {statistics.median(times) * 1000:7.1f} ms   {found.total.attempts:>10,} attempts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--schema", default="holdfast")
    parser.add_argument("--archived", type=int, default=5_000_000)
    parser.add_argument("--live", type=int, default=1_000_000)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--measure", action="store_true")
    given = parser.parse_args()
    if not given.url and not given.measure:
        parser.error("say --url, or --measure")
    folder = Path(mkdtemp(prefix="holdfast-bench-"))
    server = None if given.url else embedded.start(folder)
    url = given.url or (server.url() if server else "")
    try:
        if server:
            asyncio.run(migrate(url, schema=given.schema))
        began = time.perf_counter()
        plant(url, archived=given.archived, live=given.live, days=given.days, schema=given.schema)
        print(
            f"planted {given.archived:,} archived and {given.live:,} live tasks in {time.perf_counter() - began:,.0f} s"
        )
        if given.measure:
            measure(url, given.schema)
    finally:
        if server:
            embedded.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
