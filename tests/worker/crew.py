"""A worker process for tests: `python -m worker.crew URL LOG OPTIONS`. Its handlers keep a log of their own."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import App, Context, Done, Retry
from holdfast._db.driver.session import Link
from holdfast._engine import worker as engine
from holdfast._engine.lease.heartbeat import Heartbeat

from .support import write_line

app = App()
trip = app.kind("trip", result=int, retry=Retry(3, delay="100ms", jitter=0))


def log_of(ctx: Context) -> Path:
    return Path(ctx.headers["log"])


@trip.step
@dataclass
class Leave:
    n: int
    pause: float = 0.0

    async def run(self, ctx: Context) -> "Cross":
        write_line(log_of(ctx), "begin", ctx)
        await asyncio.sleep(self.pause)
        write_line(log_of(ctx), "end", ctx)
        return Cross(self.n, self.pause)


@trip.step
@dataclass
class Cross:
    n: int
    pause: float = 0.0

    def run(self, ctx: Context) -> "Arrive":
        write_line(log_of(ctx), "begin", ctx)
        time.sleep(self.pause)
        write_line(log_of(ctx), "end", ctx)
        return Arrive(self.n, self.pause)


@trip.step
@dataclass
class Arrive:
    n: int
    pause: float = 0.0

    async def run(self, ctx: Context) -> Done[int]:
        write_line(log_of(ctx), "begin", ctx)
        await asyncio.sleep(self.pause)
        write_line(log_of(ctx), "end", ctx)
        return Done(self.n)


@app.task
async def nap(ctx: Context, seconds: float) -> str:
    write_line(log_of(ctx), "begin", ctx)
    await asyncio.sleep(seconds)
    write_line(log_of(ctx), "end", ctx)
    return "rested"


@app.task(on_lost="fail")
async def pay(ctx: Context, seconds: float) -> str:
    write_line(log_of(ctx), "begin", ctx)
    await asyncio.sleep(seconds)
    return "paid"


@app.task
async def wedge(ctx: Context, seconds: float) -> str:
    """Blocks the event loop at its first attempt."""
    write_line(log_of(ctx), "begin", ctx)
    if ctx.attempt == 1:
        time.sleep(seconds)
    return "free"


@app.task
async def kill_worker(ctx: Context) -> None:
    """The culprit: whatever runs beside it dies with it."""
    write_line(log_of(ctx), "begin", ctx)
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def kill_at_once(ctx: Context) -> None:
    write_line(log_of(ctx), "begin", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def fork(ctx: Context) -> int:
    """Forks: the child goes on in the worker's own loop, as after a careless os.fork()."""
    write_line(log_of(ctx), "begin", ctx)
    child = os.fork()
    if child == 0:
        return 0
    await asyncio.sleep(1)
    return child


@app.task(executor="process")
def dig(ctx: Context, seconds: float) -> int:
    write_line(Path(ctx.headers["log"]), "begin", ctx)
    time.sleep(seconds)
    write_line(Path(ctx.headers["log"]), "end", ctx)
    return os.getpid()


@app.task(executor="process")
def vanish(code: int) -> None:
    os._exit(code)


async def main(url: str, options: dict[str, Any]) -> None:
    wedged_after = options.pop("wedged_after", None)
    link_timeout = options.pop("link_timeout", None)
    maintain = options.pop("maintain", None)
    if link_timeout is not None:
        setattr(engine, "Link", partial(Link, timeout=link_timeout))  # noqa: B010
    if wedged_after is not None:
        setattr(engine, "Heartbeat", partial(Heartbeat, wedged_after=wedged_after))  # noqa: B010
    app._url = url
    made = app.make_worker(**options)
    if maintain is not None:
        made.maintenance.first = made.maintenance.every = made.maintenance.soon = maintain
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, made.stop)
    await made.run()


if __name__ == "__main__":
    # Under its own name, so that child processes find the steps.
    from worker import crew

    logging.basicConfig(level=logging.INFO if "HOLDFAST_TEST_VERBOSE" in os.environ else logging.CRITICAL)
    asyncio.run(crew.main(sys.argv[1], json.loads(sys.argv[3])))
