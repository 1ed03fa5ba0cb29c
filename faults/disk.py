"""F11: the disk is full. Callers are told so, workers wait, and all goes on when there is room again."""

import asyncio
import time

import psycopg

from faults.lab import Lab
from faults.places import Disk, small_disk
from faults.suite import AGAIN, Figures, fault, spread
from holdfast import embedded
from holdfast.errors import DatabaseUnreachable


@fault("F11", "the disk is full, again and again, and freed", seconds=40, short=8, place=small_disk)
async def full(lab: Lab) -> Figures:
    """The server may crash of it; nothing acknowledged is lost, and nobody is charged."""
    disk = lab.place
    assert isinstance(disk, Disk)
    lab.lease = 3.0
    again: list[float] = []
    crashes = 0
    async with lab.under_load() as load:
        async for number in lab.every(1, 3):
            await asyncio.to_thread(disk.fill if number % 2 else disk.fill_and_crash)
            await asyncio.sleep(lab.chance.uniform(2, 6))
            disk.free()
            freed = time.monotonic()
            crashes += embedded.find(disk.server.folder) is None
            await asyncio.to_thread(disk.ensure)
            await lab.wait(lambda freed=freed: any(line.at > freed for line in lab.lines()))  # type: ignore[misc]
            again.append(time.monotonic() - freed)
    for error in load.errors:
        clear = isinstance(error, (DatabaseUnreachable, psycopg.Error))
        lab.require(clear, "F11", f"a caller was told {type(error).__name__}: {error}")
    return {
        AGAIN: spread(again),
        "servers that gave up": str(crashes),
        "callers who saw an error": str(len(load.errors)),
    }
