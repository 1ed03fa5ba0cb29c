"""Much at once: everything fails together (F29), and history is dropped under a reader (M13)."""

import asyncio
import time
from collections import Counter

from faults.crew import STORM, stormy
from faults.lab import Lab
from faults.places import run_sql
from faults.suite import Figures, fault
from holdfast._db.driver.connection import connect_sync
from holdfast._db.driver.session import Link
from holdfast._engine.maintain.maintenance import CHORES, Maintenance


@fault("F29", "a storm of retries: all tasks fail together, for a while", seconds=25, short=5)
async def storm(lab: Lab) -> Figures:
    """Retries are spread, everything else goes on, and all come to their end (T9)."""
    sign = lab.folder / STORM
    count = int(40 * lab.seconds)
    async with lab.under_load() as load:
        sign.touch()
        refs = await lab.app.enqueue_many([stormy.bind()] * count)
        load.ledger.acknowledged |= {f"storm/{n}": str(ref.id) for n, ref in enumerate(refs)}
        begun = time.monotonic()
        await lab.wait(lambda: sum(line.word == "begin" for line in lab.lines()) > count)
        await asyncio.sleep(max(0.0, lab.seconds - (time.monotonic() - begun)))
        due = run_sql(lab.direct, "SELECT extract(epoch FROM run_at)::bigint FROM holdfast.task WHERE errors > 0")
        busiest = max(Counter(second for (second,) in due).values(), default=0)
        sign.unlink()
    lab.require(busiest < count / 2, "T9", f"{busiest} of {count} retries in one second")
    return {"tasks in the storm": str(count), "retries in the busiest second": f"{100 * busiest / count:.0f} %"}


_HELD = """
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM holdfast.archive;
SELECT count(*) FROM holdfast.attempt
"""
_OLD = "SELECT count(*) FROM pg_class WHERE relname ~ '^(archive|attempt)_p2001' AND relkind = 'r'"


@fault("M13", "a reader holds a transaction open while old days are dropped", seconds=20, short=5)
async def reader(lab: Lab) -> Figures:
    """Neither the reader nor the dropping keeps anybody from finishing; the days go when he is gone."""
    for day in range(1, 9):
        run_sql(lab.direct, f"SELECT holdfast.ensure_partition('2001-01-0{day}')")
    before = run_sql(lab.direct, _OLD)[0][0]
    link = Link(lab.direct, lab.app._queries, "lab maintain")
    chores = {name: chore for name, chore in CHORES.items() if name == "dropping old history"}
    ended, longest, passes = 0, 0.0, 0
    try:
        async with lab.under_load():
            with connect_sync(lab.direct, "reader") as holding:
                holding.execute(_HELD.encode())
                last = time.monotonic()
                until = last + lab.seconds
                while time.monotonic() < until:
                    await asyncio.wait_for(Maintenance(link, lab.app._queries).once(chores), 60)
                    passes += 1
                    now = sum(line.word == "end" for line in lab.lines())
                    if now > ended:
                        ended, last = now, time.monotonic()
                    longest = max(longest, time.monotonic() - last)
                holding.execute(b"COMMIT")
            patience = time.monotonic() + 60
            while run_sql(lab.direct, _OLD)[0][0] and time.monotonic() < patience:
                await asyncio.wait_for(Maintenance(link, lab.app._queries).once(chores), 60)
    finally:
        await link.close()
    left = run_sql(lab.direct, _OLD)[0][0]
    lab.require(before > 0 and left == 0, "M13", f"{left} of {before} old partitions are still there")
    lab.require(longest < 30, "M13", f"nothing ended for {longest:.1f} s")
    lab.nobody_charged("M13")
    return {"passes under the reader": str(passes), "partitions dropped": str(before - left)}
