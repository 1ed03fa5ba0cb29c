"""F21: nobody can be notified of anything. Notifications are a hint: whatever they would tell is found by looking."""

import asyncio
import time

import psycopg

from faults.crew import nap
from faults.lab import Lab
from faults.places import small_notice_board
from faults.suite import Figures, fault
from holdfast._db.driver.connection import connect_sync

_MANY = b"SELECT pg_notify('faults', n || repeat('.', 7000)) FROM generate_series(1, 10) AS n"


@fault("F21", "the queue of notifications is full", seconds=20, place=small_notice_board)
async def full(lab: Lab) -> Figures:
    """Enqueues and steps go on. Only a caller's own transaction is refused, by the server, with what it would tell."""
    lab.lease = 3.0
    refused = 0
    async with lab.under_load() as load:
        with connect_sync(lab.direct, "deaf") as deaf, connect_sync(lab.direct, "loud") as loud:
            # Whoever listens and is in a transaction keeps all that comes after it.
            for text in (b"LISTEN faults", b"BEGIN", b"SELECT 1"):
                deaf.execute(text)
            waiting = asyncio.create_task(_results(lab))
            until = time.monotonic() + lab.seconds
            while time.monotonic() < until:
                try:
                    await asyncio.to_thread(loud.execute, _MANY)
                except psycopg.errors.ProgramLimitExceeded:
                    refused += 1
                    await asyncio.sleep(0.2)
            results = await waiting
            deaf.execute(b"COMMIT")
    lab.require(refused > lab.seconds, "F21", f"it was found full {refused} times only: nothing was tried")
    for error in load.errors:
        theirs = isinstance(error, psycopg.errors.ProgramLimitExceeded)
        lab.require(theirs, "F21", f"a caller was told {type(error).__name__}: {error}")
    lab.nobody_charged("F21")
    return {"transactions of callers refused": str(len(load.errors)), "results waited for": str(results)}


async def _results(lab: Lab) -> int:
    """Waits for tasks whose end nobody can be told of."""
    count = int(lab.seconds)
    for _ in range(count):
        await asyncio.sleep(0.5)
        ref = await lab.app.enqueue(nap.bind(0.2))
        lab.require(await ref.result(timeout=60) == "rested", "A3", f"{ref.id} has no result")
    return count
