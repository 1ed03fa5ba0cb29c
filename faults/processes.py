"""Faults of processes: killed, stopped, stuck, poisoned."""

import asyncio
import signal
import time

from faults.crew import MEMORY, WEDGED, block_loop, dig, eat, hog, kill_worker, nap, wedge
from faults.lab import Lab, Member
from faults.oracle import executions
from faults.suite import Figures, fault, recoveries, spread
from holdfast._engine.lease.heartbeat import EXIT_WEDGED


@fault("F1", "kill -9 of a random worker, again and again", seconds=60, short=3)
async def kill_9(lab: Lab) -> Figures:
    """Each task of a killed worker runs elsewhere (L8)."""
    lab.kills_by_chance = True
    kills = 0
    async with lab.under_load():
        async for _ in lab.every(1, 3):
            lab.victim().kill()
            lab.start()
            kills += 1
    return {"kills": str(kills), "runs again after": spread(recoveries(lab.history))}


@fault("F2", "SIGTERM, SIGINT, SIGTERM twice, SIGQUIT", seconds=40)
async def signals(lab: Lab) -> Figures:
    """All but SIGQUIT end with 0 and charge nobody (W4)."""
    ways = [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGQUIT]]
    took: list[float] = []
    async with lab.under_load():
        async for turn in lab.every(0.5, 2):
            way = ways[(turn - 1) % len(ways)]
            lab.start()
            await lab.started()
            victim, begun = lab.victim(), time.monotonic()
            victim.dismissed = True
            for number in way:
                victim.signal(number)
                await asyncio.sleep(0.2)
            if not await lab.wait(lambda victim=victim: not victim.is_alive, strict=False):  # type: ignore[misc]
                lab.require(False, "W4", f"{victim.label} did not end after {way}:\n{await victim.last_words()}")
                victim.kill()
            took.append(time.monotonic() - begun)
            if way == [signal.SIGQUIT]:
                victim.died = time.monotonic()
            else:
                code = victim.process.returncode
                lab.require(code == 0, "W4", f"{victim.label} ended with {code} after {way}")
    quit_ = {member.label for member in lab.members if member.died is not None}
    for each in lab.lost_executions():
        lab.require(each.worker in quit_, "W4", f"{each} was charged for a graceful stop")
    return {"stops": str(len(took)), "a stop takes": spread(took)}


@fault("F3", "SIGSTOP of a worker for 1, 3 and 10 leases", seconds=60, short=4)
async def stopped(lab: Lab) -> Figures:
    """What it writes late is refused (I4), and its handlers are told that the lease is lost (L6)."""
    stops = 0
    async with lab.under_load():
        async for number in lab.every(0.5, 2):
            victim = lab.victim()
            victim.signal(signal.SIGSTOP)
            await asyncio.sleep(lab.lease * (1, 3, 10)[(number - 1) % 3] * lab.chance.uniform(0.8, 1.2))
            victim.signal(signal.SIGCONT)
            stops += 1
    return {"stops": str(stops)}


@fault("F4", "a blocked event loop, and a step that keeps the interpreter to itself", seconds=20, short=4)
async def blocked(lab: Lab) -> Figures:
    """The beat goes on in its own thread: nobody is charged."""
    lab.lease = 3.0
    lab.workers = 2
    async with lab.under_load(rate=lab.rate / 3) as load:
        async for _ in lab.every(1, 2):
            await load.enqueue(block_loop.bind(2 * lab.lease))
            await load.enqueue(hog.bind(lab.lease))
    lab.nobody_charged("L5")
    return {}


@fault("F15", "a task that kills its worker", seconds=20, short=4)
async def poison(lab: Lab) -> Figures:
    """The culprit is parked after its crashes, its neighbours are not (L9)."""
    lab.may_park = frozenset({"kill_worker"})
    culprits: list[str | None] = []
    async with lab.under_load(rate=lab.rate / 3) as load:
        supervisor = asyncio.create_task(lab.supervise())
        for _ in range(1 if lab.seconds < 10 else 3):
            culprits.append(await load.enqueue(kill_worker.bind()))
            await load.many([nap.bind(0.5)] * 5)
            await asyncio.sleep(lab.seconds / 3)
        await lab.wait(lambda: lab.state_of(culprits[-1]) == "parked", strict=False)
        supervisor.cancel()
    for culprit in culprits:
        lab.require(lab.state_of(culprit) == "parked", "L9", "the culprit was not found")
    return {"deaths": str(sum(m.died is not None for m in lab.members))}


@fault("F15b", "a step that takes all the memory that its worker may have", seconds=15, short=4)
async def no_memory(lab: Lab) -> Figures:
    """It is parked with its error, or after its crashes; its neighbours are not."""
    lab.may_park = frozenset({"eat"})
    lab.environment[MEMORY] = "1500"
    eaters: list[str | None] = []
    async with lab.under_load(rate=lab.rate / 3) as load:
        supervisor = asyncio.create_task(lab.supervise())
        async for _ in lab.every(1, 3):
            eaters.append(await load.enqueue(eat.bind()))
        await lab.wait(lambda: all(lab.state_of(each) == "parked" for each in eaters), strict=False)
        supervisor.cancel()
    for each in eaters:
        lab.require(lab.state_of(each) == "parked", "F15b", f"{each} is {lab.state_of(each)}")
    return {"eaters": str(len(eaters)), "deaths": str(sum(m.died is not None for m in lab.members))}


@fault("M19", "a dead event loop under a live beat", seconds=10, short=4)
async def wedged(lab: Lab) -> Figures:
    """The worker ends by itself, and its tasks are taken over (M19)."""
    lab.environment[WEDGED] = "3"
    async with lab.under_load() as load:
        await load.enqueue(wedge.bind())
        await lab.wait(lambda: len(lab.alive()) < lab.workers)
        (gone,) = [member for member in lab.members if not member.is_alive]
        gone.died = time.monotonic()
        lab.require(gone.process.returncode == EXIT_WEDGED, "M19", f"it ended with {gone.process.returncode}")
        lab.start()
        await asyncio.sleep(lab.seconds / 2)
    return {"runs again after": spread(recoveries(lab.history))}


@fault("X7", "kill -9 of workers with process children", seconds=20, short=3)
async def orphans(lab: Lab) -> Figures:
    """Children die with their parent: none goes on beside the rerun (X7)."""
    lab.kills_by_chance = True
    async with lab.under_load(rate=lab.rate / 3) as load:
        async for _ in lab.every(1, 2):
            await load.many([dig.bind(1.5)] * 3)
            await lab.wait(lambda: _diggers(lab))
            _diggers(lab)[0].kill()
            lab.start()
    for each in lab.history.executions:
        died = lab.history.deaths.get(each.worker)
        late = died is not None and each.end is not None and each.end > died + 0.5
        lab.require(not late, "X7", f"{each} went on after its worker had died")
    return {"runs again after": spread(recoveries(lab.history))}


def _diggers(lab: Lab) -> list[Member]:
    """Workers with a child that is at work just now."""
    parents = {member.process.pid for member in lab.members}
    at_work = {each.worker for each in executions(lab.lines()) if each.end is None and each.pid not in parents}
    return [member for member in lab.alive() if member.label in at_work]
