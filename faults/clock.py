"""F12: clocks that are wrong. Only the database's counts, and it may step."""

import asyncio
import json
import os
import subprocess
import sys

from faults.lab import ROOT, Lab
from faults.places import Clock, own_clock, with_clock
from faults.suite import Figures, fault

LATE = 60.0
"""Seconds: far more than any load delays a task, far less than the clocks are wrong."""


@fault("F12", "workers and callers whose clocks are an hour ahead or behind", seconds=20, short=4)
async def wrong_clocks(lab: Lab) -> Figures:
    """Nothing begins early or late, no lease is lost (L11)."""
    lab.lease = 3.0
    for offset in ("+1h", "-1h"):
        lab.start(**with_clock(offset))
    producers: list[subprocess.Popen[str]] = []
    told: list[str] = []
    try:
        async with lab.under_load() as load:
            producers += [_producer(lab, name, offset) for name, offset in (("ahead", "+1h"), ("behind", "-1h"))]
            await asyncio.sleep(lab.seconds)
            told = [(await asyncio.to_thread(each.communicate, "", 60))[0] for each in producers]
            asked = [json.loads(line) for text in told for line in text.splitlines()]
            load.ledger.acknowledged |= {tag: id for tag, id, _, _ in asked}
    finally:
        for producer in producers:
            producer.kill()
    lab.require(all(each.returncode == 0 for each in producers), "F12", "a caller failed")
    begun: dict[str, float] = {}
    for execution in lab.history.executions:
        begun.setdefault(execution.task, execution.begin)
    waited = [begun[id] - at - delay for _, id, at, delay in asked if id in begun]
    lab.require(len(waited) > lab.seconds, "F12", f"only {len(waited)} tasks by callers with wrong clocks")
    lab.require(min(waited, default=0) >= 0, "L11", f"a task began {-min(waited, default=0):.1f} s early")
    lab.require(max(waited, default=0) < LATE, "L11", f"a task began {max(waited, default=0):.1f} s late")
    lab.nobody_charged("L11")
    return {"tasks by these callers": str(len(waited)), "latest start": f"{max(waited, default=0):.1f} s"}


def _producer(lab: Lab, name: str, offset: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HOLDFAST_URL": lab.url, **with_clock(offset)}
    return subprocess.Popen(
        [sys.executable, "-m", "faults.producer", name],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@fault("F12b", "the database's clock steps back and forth by many leases", seconds=40, short=8, place=own_clock)
async def stepping_clock(lab: Lab) -> Figures:
    """Nothing is lost or done twice, and nobody is charged when it steps ahead of all leases (M1)."""
    clock = lab.place
    assert isinstance(clock, Clock)
    lab.lease = 3.0
    steps, ahead = 0, 0.0
    async with lab.under_load():
        async for number in lab.every(3, 5):
            # What was enqueued before a step back waits until the clock has come there again.
            change = lab.lease * lab.chance.uniform(2, 5)
            ahead += change if number % 2 else -change / 2
            clock.step(ahead)
            steps += 1
        clock.step(ahead + 60)
    lab.nobody_charged("M1")
    return {"steps": str(steps + 1)}
