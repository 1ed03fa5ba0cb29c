"""F6c: two faults at once, chosen by the seed. Most defects that single faults do not find need two."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg

from faults.crew import kill_worker
from faults.database import end_sessions
from faults.lab import Lab
from faults.places import run_sql
from faults.proxy import Proxy, Weather
from faults.suite import Figures, fault
from holdfast._db.driver.connection import connect_sync

Disturbance: TypeAlias = Callable[[Lab, Proxy], Awaitable[None]]


async def _kill(lab: Lab, proxy: Proxy) -> None:
    lab.victim().kill()
    lab.start()


async def _dismiss(lab: Lab, proxy: Proxy) -> None:
    lab.start()
    await asyncio.sleep(1)  # the server cannot be asked whether it has started: it may be away
    lab.dismiss(lab.victim())


async def _stop(lab: Lab, proxy: Proxy) -> None:
    victim = lab.victim()
    victim.signal(signal.SIGSTOP)
    await asyncio.sleep(lab.lease * lab.chance.uniform(0.5, 3))
    victim.signal(signal.SIGCONT)


async def _poison(lab: Lab, proxy: Proxy) -> None:
    await lab.load.enqueue(kill_worker.bind())


async def _crash(lab: Lab, proxy: Proxy) -> None:
    await lab.restart_server(lab.chance.uniform(0, 2))


async def _end_sessions(lab: Lab, proxy: Proxy) -> None:
    with suppress(Exception):  # the server may be away
        await asyncio.to_thread(end_sessions, lab, "holdfast%")


async def _exhaust(lab: Lab, proxy: Proxy) -> None:
    taken: list[psycopg.Connection[Any]] = []
    with suppress(Exception):
        while len(taken) < 300:
            taken.append(await asyncio.to_thread(connect_sync, lab.direct, "greedy"))
    await asyncio.sleep(lab.lease)
    for each in taken:
        each.close()


async def _fall_silent(lab: Lab, proxy: Proxy) -> None:
    proxy.weather = Weather(frozen=True)
    await asyncio.sleep(lab.lease * lab.chance.uniform(0.3, 2))
    proxy.weather = Weather()


async def _lose(lab: Lab, proxy: Proxy) -> None:
    proxy.weather = Weather(lost=0.1)
    await asyncio.sleep(2)
    proxy.weather = Weather()


async def _cut(lab: Lab, proxy: Proxy) -> None:
    proxy.cut()


_ALL: dict[str, Disturbance] = {
    "kill -9": _kill,
    "SIGTERM": _dismiss,
    "SIGSTOP": _stop,
    "poison": _poison,
    "crash": _crash,
    "sessions ended": _end_sessions,
    "no connections": _exhaust,
    "silence": _fall_silent,
    "answers lost": _lose,
    "cut": _cut,
}


@fault("F6c", "two faults at once, chosen by chance, again and again", seconds=90, short=8)
async def two_at_once(lab: Lab) -> Figures:
    """Nothing is lost, done twice or left behind, whichever two meet."""
    lab.may_park = frozenset({"kill_worker"})
    lab.kills_by_chance = True
    proxy = lab.go_through_proxy()
    pairs: set[tuple[str, ...]] = set()
    rounds = 0
    async with lab.under_load():
        supervisor = asyncio.create_task(lab.supervise())
        async for _ in lab.every(1, 3):
            pair = lab.chance.sample(sorted(_ALL), 2)
            lab.say(" and ".join(pair))
            await asyncio.gather(*(_ALL[name](lab, proxy) for name in pair))
            pairs.add(tuple(sorted(pair)))
            rounds += 1
        proxy.weather = Weather()
        culprits = "SELECT count(*) FROM holdfast.task WHERE kind = 'kill_worker' AND state <> 'parked'"
        await lab.wait(lambda: run_sql(lab.direct, culprits) == [(0,)], strict=False)
        supervisor.cancel()
    return {"rounds": str(rounds), "pairs": f"{len(pairs)} of {len(_ALL) * (len(_ALL) - 1) // 2}"}
