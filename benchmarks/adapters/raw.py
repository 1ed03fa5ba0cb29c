"""What the server itself does: pgbench's single inserts, a COPY from Python, batches claimed and deleted by pgbench.

Enqueues go into Holdfast's own table, with its indexes. Batches are claimed in a bare table, and nothing is kept.
"""

import asyncio
import json
import re
import subprocess
import sys
import time
from typing import Any

from benchmarks.adapters.common import say
from holdfast._db.driver.connection import connect
from holdfast._db.migrate import migrate
from holdfast._model.enqueue.ids import uuid7

BATCH = 500
INSERT = """
INSERT INTO holdfast.task (id, queue, kind, step, args, priority, run_at)
VALUES (gen_random_uuid(), 'default', 'noop', 'main', '{"n": 1}', 0, holdfast.now());
"""
COPY = "COPY holdfast.task (id, queue, kind, step, args, priority, run_at) FROM STDIN"
TABLE = """
CREATE TABLE raw (id uuid PRIMARY KEY, state text, run_at timestamptz, args jsonb, worker uuid);
CREATE INDEX ON raw (run_at, id) WHERE state = 'ready';
"""
FILL = "INSERT INTO raw SELECT gen_random_uuid(), 'ready', now(), '{\"n\": 1}' FROM generate_series(1, $1)"
DRAIN = f"""
WITH claimed AS (
    UPDATE raw SET state = 'running', worker = gen_random_uuid() WHERE id = ANY (ARRAY(
        SELECT id FROM raw WHERE state = 'ready' AND run_at <= now()
        ORDER BY run_at, id LIMIT {BATCH} FOR UPDATE SKIP LOCKED))
    RETURNING id, args)
SELECT array_agg(id)::text AS ids, array_agg(args)::text AS args FROM claimed \\gset
DELETE FROM raw WHERE id = ANY (:ids::uuid[]);
"""


def pgbench(program: str, url: str, script: str, clients: int, *limits: str) -> float:
    """Transactions per second."""
    command = [program, "-n", "-M", "prepared", "-f", "-", "-c", str(clients), *limits, url]
    ran = subprocess.run(command, input=script, capture_output=True, text=True)
    found = re.search(r"tps = ([\d.]+)", ran.stdout)
    if ran.returncode or found is None:
        raise SystemExit(f"pgbench failed: {ran.stdout}{ran.stderr}")
    return float(found[1])


async def setup(url: str) -> None:
    await migrate(url)
    connection = await connect(url)
    for statement in TABLE.strip().split("\n"):
        await connection.execute(statement)
    await connection.close()


async def copy(url: str, count: int) -> None:
    """A COPY by the driver, with ids and JSON made on the way."""
    connection = await connect(url)
    cursor = await connection.execute("SELECT now()")
    now = ((await cursor.fetchone()) or (None,))[0]
    began = time.monotonic()
    async with connection.cursor().copy(COPY) as rows:
        for n in range(count):
            await rows.write_row((uuid7(), "default", "noop", "main", json.dumps({"n": n}), 0, now))
    say({"count": count, "seconds": time.monotonic() - began})
    await connection.close()


async def fill(url: str, count: int) -> None:
    connection = await connect(url)
    await connection.execute(FILL, [count])
    await connection.close()


def main() -> None:
    verb, url, given = sys.argv[1:]
    options: dict[str, Any] = json.loads(given)
    match verb:
        case "setup":
            asyncio.run(setup(url))
            say({"ok": True})
        case "single":
            seconds = max(1, round(options["seconds"]))
            rate = pgbench(options["pgbench"], url, INSERT, options["callers"], "-T", str(seconds))
            say({"count": rate * seconds, "seconds": seconds})
        case "bulk":
            asyncio.run(copy(url, options["tasks"]))
        case "drain":
            clients, batches = options["processes"], max(1, options["tasks"] // BATCH // options["processes"])
            asyncio.run(fill(url, clients * batches * BATCH))
            rate = pgbench(options["pgbench"], url, DRAIN, clients, "-j", str(clients), "-t", str(batches))
            say({"count": clients * batches * BATCH, "seconds": clients * batches / rate})
        case _:
            raise SystemExit(f"the server alone has no such verb: {verb}")


if __name__ == "__main__":
    main()
