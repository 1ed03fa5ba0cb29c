"""Faults of the database: sessions ended, the server crashed or away, no connection left, time limits, deadlocks."""

import asyncio
import time

from faults.crew import nap
from faults.lab import Lab
from faults.places import run_sql
from faults.suite import AGAIN, Figures, fault, spread
from holdfast import Entry
from holdfast._db.driver.connection import connect_sync

_END = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE $1
"""


def end_sessions(lab: Lab, names: str) -> int:
    """Ends the sessions whose names are like this; how many."""
    return int(run_sql(lab.direct, _END, names)[0][0])


async def _end_sessions(lab: Lab, names: str) -> Figures:
    """Whoever loses his connection is back within his lease: nobody is charged."""
    lab.lease = 3.0
    ended = 0
    async with lab.under_load():
        async for _ in lab.every(0.8, 1.2):
            ended += await asyncio.to_thread(end_sessions, lab, names)
    lab.nobody_charged("L12")
    return {"sessions ended": str(ended)}


@fault("F5", "all sessions ended every second")
async def end_all_sessions(lab: Lab) -> Figures:
    return await _end_sessions(lab, "%")


@fault("F5b", "the listeners' sessions ended every second", seconds=15)
async def end_listeners(lab: Lab) -> Figures:
    return await _end_sessions(lab, "holdfast listen")


@fault("F5c", "the beats' sessions ended every second", seconds=15)
async def end_beats(lab: Lab) -> Figures:
    return await _end_sessions(lab, "holdfast beat")


@fault("F6", "the server crashes and is away for up to 2 s, again and again", seconds=60)
async def restarts(lab: Lab) -> Figures:
    """No worker ends; nobody is charged (M1)."""
    lab.lease = 3.0
    crashes = 0
    async with lab.under_load():
        async for _ in lab.every(2, 8) if lab.seconds > 20 else lab.every(1, 2):
            await lab.restart_server(lab.chance.uniform(0, 2))
            crashes += 1
    lab.nobody_charged("M1")
    return {"crashes": str(crashes)}


@fault("F6L", "the server is away for two minutes, which is many leases", seconds=125, short=7)
async def long_outage(lab: Lab) -> Figures:
    """Nobody is charged (M1), and what is logged meanwhile is bounded (W5)."""
    async with lab.under_load() as load:
        await load.many([nap.bind(4 * lab.lease)] * 4 * lab.workers)
        await lab.wait(lambda: sum(line.word == "begin" for line in lab.lines()) > 4 * lab.workers)
        before, begun = lab.log_lines(), time.monotonic()
        await lab.restart_server(max(3 * lab.lease, lab.seconds - 5))
        minutes = (time.monotonic() - begun) / 60
        each = (lab.log_lines() - before) / lab.workers
        back, begins = time.monotonic(), len(lab.lines())
        await lab.wait(lambda: len(lab.lines()) > begins)
        again = time.monotonic() - back
        await asyncio.sleep(2)
    lab.nobody_charged("M1")
    # Each loop may say once that it is interrupted, and each step that was broken off.
    lab.require(each <= 40, "W5", f"{each:.0f} lines by each worker in one outage")
    return {"log lines a minute, each worker": f"{each / minutes:.0f}", AGAIN: spread([again])}


@fault("F6b", "a worker killed, the server crashed, one worker starting and one stopping, all at once")
async def combined(lab: Lab) -> Figures:
    """Two faults and more: nothing is stranded."""
    lab.kills_by_chance = True
    rounds = 0
    async with lab.under_load():
        async for _ in lab.every(3, 6) if lab.seconds > 20 else lab.every(1, 2):
            lab.victim().kill()
            lab.dismiss(lab.victim())
            await asyncio.sleep(0.2)
            lab.start("--name", "the-same")
            lab.start("--name", "the-same")
            await lab.restart_server(0)
            rounds += 1
    return {"rounds": str(rounds)}


@fault("F24", "no connection left for anybody", seconds=20)
async def exhausted(lab: Lab) -> Figures:
    """Workers wait for a connection; none ends."""
    taken = []
    with connect_sync(lab.direct, "lab") as control:
        async with lab.under_load():
            async for _ in lab.every(0.5, 2):
                control.execute(_END.encode(), ["holdfast%"])
                until = time.monotonic() + lab.chance.uniform(1, 3)
                while time.monotonic() < until:
                    try:
                        taken.append(await asyncio.to_thread(connect_sync, lab.direct, "greedy"))
                    except Exception:
                        await asyncio.sleep(0.05)
                for each in taken:
                    each.close()
            # All that were refused have to be there again.
            await asyncio.sleep(1)
    lab.require(len(taken) > 50, "F24", f"only {len(taken)} connections were taken: nothing was tried")
    return {"connections taken": str(len(taken))}


@fault("F25", "the same keys from many callers in random order, while tasks end and are cancelled", seconds=30)
async def deadlocks(lab: Lab) -> Figures:
    """Nobody sees a deadlock, and keys stay unique (I8)."""
    errors: list[str] = []
    asked = 0

    async def ask(chance_of: int) -> None:
        nonlocal asked
        chance = type(lab.chance)(lab.seed + chance_of)
        until = time.monotonic() + lab.seconds
        while time.monotonic() < until:
            keys = [f"shared-{n}" for n in chance.sample(range(40), 15)]
            try:
                refs = await lab.app.enqueue_many([Entry(nap.bind(0), key=key) for key in keys])
                asked += 1
                if chance.random() < 0.3:
                    await lab.app.cancel(chance.choice(refs).id)
            except Exception as error:
                if "has ended" not in str(error):
                    errors.append(f"{type(error).__name__}: {error}")

    async with lab.under_load():
        await asyncio.gather(*map(ask, range(8)))
    lab.require(not errors, "F25", f"{len(errors)} of {asked} callers saw an error, such as {errors[:1]}")
    return {"bulk enqueues": str(asked)}


@fault("F26", "statement_timeout 50 ms, lock_timeout 20 ms, idle_in_transaction 1 s for the role", seconds=30)
async def time_limits(lab: Lab) -> Figures:
    """Everything is small enough, or is tried again."""
    for setting in (
        "statement_timeout = '50ms'",
        "lock_timeout = '20ms'",
        "idle_in_transaction_session_timeout = '1s'",
    ):
        run_sql(lab.direct, f"ALTER ROLE CURRENT_USER IN DATABASE {lab.database} SET {setting}")
    async with lab.under_load():
        await asyncio.sleep(lab.seconds)
    return {}
