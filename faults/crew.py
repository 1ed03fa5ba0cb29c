"""The tasks that run under faults: `holdfast worker faults.crew`. Their handlers keep a log of their own."""

import asyncio
import os
import re
import resource
import signal
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from faults.nasty import ENDINGS
from faults.oracle import witnessed
from holdfast import App, Context, Done, Every, Retry
from holdfast._engine import worker as engine
from holdfast._engine.lease.heartbeat import Heartbeat

FOLDER = "FAULTS_FOLDER"
"""The environment variable that names the folder of the handlers' log."""

WEDGED = "FAULTS_WEDGED"
"""The environment variable for the seconds after which a worker with a dead loop ends; 5 minutes otherwise."""

EFFECTS = "CREATE TABLE public.effect (task text NOT NULL, moves integer NOT NULL)"
TRANSACTIONAL = frozenset({"Pay"})

MEMORY = "FAULTS_MEMORY"
"""The environment variable for the megabytes that a worker may have."""

if MEMORY in os.environ:
    _most = int(os.environ[MEMORY]) << 20
    resource.setrlimit(resource.RLIMIT_AS, (_most, _most))
if WEDGED in os.environ:
    setattr(engine, "Heartbeat", partial(Heartbeat, wedged_after=float(os.environ[WEDGED])))  # noqa: B010


def _tell_tasks(*_: object) -> None:
    """Where each task of the event loop stands, for those who wonder why a worker does not end."""
    for task in asyncio.all_tasks():
        task.print_stack()


if FOLDER in os.environ:  # in a worker
    signal.signal(signal.SIGUSR2, _tell_tasks)

app = App()
trip = app.kind("trip", result=int, retry=Retry(3, delay="100ms", jitter=0))
bill = app.kind("bill", result=int)


def seen(ctx: Context) -> AbstractContextManager[None]:
    return witnessed(Path(os.environ[FOLDER]), ctx)


@trip.step
@dataclass
class Leave:
    n: int
    pause: float = 0.0

    async def run(self, ctx: Context) -> "Cross":
        with seen(ctx):
            await asyncio.sleep(self.pause)
        return Cross(self.n, self.pause)


@trip.step
@dataclass
class Cross:
    n: int
    pause: float = 0.0

    def run(self, ctx: Context) -> "Arrive":
        with seen(ctx):
            threading.Event().wait(self.pause)  # under libfaketime, time.sleep fails
        return Arrive(self.n, self.pause)


@trip.step
@dataclass
class Arrive:
    n: int
    pause: float = 0.0

    async def run(self, ctx: Context) -> Done[int]:
        with seen(ctx):
            await asyncio.sleep(self.pause)
        return Done(self.n)


@bill.step(transactional=True)
@dataclass
class Pay:
    """Its write and its move are committed together, or not at all."""

    n: int
    pause: float = 0.0

    async def run(self, ctx: Context) -> "Thank":
        with seen(ctx):
            await ctx.tx.execute("INSERT INTO public.effect VALUES (%s, %s)", [str(ctx.id), ctx.moves])
            await asyncio.sleep(self.pause)
        return Thank(self.n)


@bill.step
@dataclass
class Thank:
    n: int

    async def run(self, ctx: Context) -> Done[int]:
        with seen(ctx):
            return Done(self.n)


@app.task
async def nap(ctx: Context, seconds: float) -> str:
    with seen(ctx):
        await asyncio.sleep(seconds)
    return "rested"


@app.task(retry=Retry(3, delay="100ms", jitter=0))
async def flaky(ctx: Context) -> int:
    """Fails once."""
    with seen(ctx):
        if ctx.errors == 0:
            raise ValueError("not yet")
    return ctx.errors


@app.task
async def fan(ctx: Context, children: int) -> int:
    """Enqueues children, which exist exactly if it ends."""
    with seen(ctx):
        for n in range(children):
            ctx.enqueue(nap.bind(0), headers={"tag": child_tag(ctx.headers["tag"], n)})
    return children


def child_tag(parent: str, n: int) -> str:
    return f"{parent}/{n}"


@app.task
async def tick(ctx: Context) -> None:
    with seen(ctx):
        pass


app.schedule("tick", Every("1s"), tick.bind(), catch_up="all", catch_up_limit=1000)


# --- those that misbehave


@app.task
async def kill_worker(ctx: Context) -> None:
    """The culprit: whatever runs beside it dies with it."""
    with seen(ctx):
        await asyncio.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def block_loop(ctx: Context, seconds: float) -> str:
    """Blocks the event loop."""
    with seen(ctx):
        time.sleep(seconds)
    return "free"


@app.task
async def wedge(ctx: Context) -> str:
    """Blocks the event loop for ever, at its first attempt."""
    with seen(ctx):
        if ctx.attempt == 1:
            time.sleep(3600)
    return "free"


@app.task
def hog(ctx: Context, seconds: float) -> int:
    """Keeps the interpreter to itself for as long as a regular expression takes, again and again."""
    rounds = 0
    with seen(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            re.match(r"(a+)+$", "a" * 21 + "b")
            rounds += 1
    return rounds


@app.task(executor="process")
def dig(ctx: Context, seconds: float) -> int:
    with seen(ctx):
        time.sleep(seconds)
    return os.getpid()


@app.task
def eat(ctx: Context) -> int:
    """Takes all the memory there is."""
    eaten: list[bytearray] = []
    with seen(ctx):
        while True:
            eaten.append(bytearray(1 << 24))


STORM = "storm"


@app.task(retry=Retry(50, delay="200ms", max_delay="5s", jitter=0.5))
async def stormy(ctx: Context) -> int:
    """Fails for as long as there is a file of that name in the folder."""
    with seen(ctx):
        if (Path(os.environ[FOLDER]).parent / STORM).exists():
            raise ConnectionError("somebody else is away")
    return ctx.errors


@app.task
async def echo(ctx: Context, value: Any) -> Any:
    with seen(ctx):
        return value


@app.task
async def spoil(ctx: Context, how: str) -> Any:
    """Ends as badly as it is asked to, on the loop."""
    with seen(ctx):
        return ENDINGS[how]()


@app.task
def spoil_in_a_thread(ctx: Context, how: str) -> Any:
    with seen(ctx):
        return ENDINGS[how]()
