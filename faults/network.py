"""F8 and F9: a network that falls silent without closing anything, cuts, or is slow."""

import asyncio

from faults.crew import nap
from faults.lab import Lab
from faults.proxy import Weather
from faults.suite import Figures, fault


@fault("F8", "the network falls silent for up to 3 leases, closing nothing, then goes on or cuts")
async def half_open(lab: Lab) -> Figures:
    """Requests that were held up arrive late; whoever was away too long gives up what he held."""
    proxy = lab.go_through_proxy()
    silences = 0
    async with lab.under_load():
        async for _ in lab.every(0.5, 3):
            proxy.weather = Weather(frozen=True)
            await asyncio.sleep(lab.lease * lab.chance.uniform(0.5, 3))
            if lab.chance.random() < 0.5:
                proxy.cut()
            proxy.weather = Weather()
            silences += 1
    return {"silences": str(silences)}


@fault("F8b", "one worker's network alone falls silent", seconds=30)
async def half_open_for_one(lab: Lab) -> Figures:
    """The others take over; the one that was cut off changes nothing any more."""
    proxy = lab.go_through_proxy()
    lab.start()
    lab.url = lab.direct
    silences = 0
    async with lab.under_load():
        async for _ in lab.every(0.5, 2):
            proxy.weather = Weather(frozen=True)
            await asyncio.sleep(lab.lease * lab.chance.uniform(0.5, 3))
            if lab.chance.random() < 0.5:
                proxy.cut()
            proxy.weather = Weather()
            silences += 1
    return {"silences": str(silences)}


@fault("F8c", "the listeners' network alone falls silent", seconds=20)
async def half_open_for_listeners(lab: Lab) -> Figures:
    """Polling finds everything meanwhile."""
    lab.lease = 3.0
    proxy = lab.go_through_proxy()
    async with lab.under_load():
        proxy.weather = Weather(frozen=True, only="holdfast listen")
        await asyncio.sleep(lab.seconds)
        proxy.weather = Weather()
    lab.nobody_charged("W3")
    return {}


@fault("F8d", "the network falls silent for 3 leases when a look for expired leases is on its way", seconds=10, short=5)
async def held_up_reap(lab: Lab) -> Figures:
    """When it arrives at last, it charges nobody for the silence (M1)."""
    proxy = lab.go_through_proxy()
    async with lab.under_load() as load:
        await load.many([nap.bind(4 * lab.lease)] * 4 * lab.workers)
        await lab.wait(lambda: sum(line.word == "begin" for line in lab.lines()) > 4 * lab.workers)
        # Before it is prepared, its words come by.
        lab.start()
        proxy.freeze_at = b"interval '5 minutes'"
        await lab.wait(lambda: proxy.weather.frozen)
        await asyncio.sleep(3 * lab.lease)
        proxy.weather = Weather()
    lab.nobody_charged("M1")
    return {}


@fault("F9", "a slow network: 100 ms with 50 ms of jitter", seconds=20)
async def slow(lab: Lab) -> Figures:
    """No lease is lost."""
    lab.lease = 3.0
    proxy = lab.go_through_proxy()
    async with lab.under_load():
        proxy.weather = Weather(delay=0.05, jitter=0.025)
        await asyncio.sleep(lab.seconds)
        proxy.weather = Weather()
    lab.nobody_charged("L5")
    return {}
