"""F10: a standby takes over. Workers and callers know both servers by one URL and need no restart."""

import asyncio
import time

from faults.crew import nap
from faults.lab import Lab
from faults.places import Pair, pair, run_sql
from faults.suite import AGAIN, Figures, fault, spread

_CAUGHT_UP = "SELECT bool_and(replay_lsn >= $1::pg_lsn) FROM pg_stat_replication"


@fault("F10", "the primary crashes and its synchronous standby takes over", seconds=15, place=pair)
async def crash(lab: Lab) -> Figures:
    """Nothing acknowledged is lost, nobody is charged (M1)."""
    return await _taken_over(lab, stays=False)


@fault("F10b", "the standby takes over, and the old primary stays, read-only", seconds=15, place=pair)
async def switch(lab: Lab) -> Figures:
    """Whoever is still connected to the old one is refused by it, and goes to the new one by himself."""
    return await _taken_over(lab, stays=True)


async def _taken_over(lab: Lab, *, stays: bool) -> Figures:
    assert isinstance(lab.place, Pair)
    lab.lease = 3.0
    async with lab.under_load() as load:
        await asyncio.sleep(lab.seconds / 3)
        await load.many([nap.bind(lab.lease)] * 2 * lab.workers)
        if stays:
            run_sql(lab.server.url(), "ALTER SYSTEM SET default_transaction_read_only = on")
            run_sql(lab.server.url(), "SELECT pg_reload_conf()")
            await asyncio.sleep(0.5)
            (end,) = run_sql(lab.server.url(), "SELECT pg_current_wal_lsn()")[0]
            await lab.wait(lambda: run_sql(lab.server.url(), _CAUGHT_UP, end) == [(True,)])
        else:
            await asyncio.to_thread(lab.server.stop, "immediate")
        begun = time.monotonic()
        await asyncio.to_thread(lab.place.promote)
        await lab.wait(lambda: any(line.word == "begin" and line.at > begun for line in lab.lines()))
        again = time.monotonic() - begun
        await asyncio.sleep(lab.seconds / 2)
    lab.nobody_charged("M1")
    return {AGAIN: spread([again]), "callers who saw an error": str(len(load.ledger.unknown))}
