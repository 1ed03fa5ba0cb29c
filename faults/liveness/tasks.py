"""The tasks of the liveness test: `holdfast worker faults.liveness.tasks`. Their handlers keep a log of their own."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

from faults.oracle import WORKER, witnessed
from holdfast import App, Context, Retry

FOLDER = "FAULTS_LIVENESS_FOLDER"
"""The environment variable that names the folder of the handlers' log."""

RETRY_SECONDS = 0.3
TICK = 0.05
NOTABLE = 0.2
"""Silences of the event loop that are longer than this are written down."""

app = App()
_retry = Retry(5, delay=RETRY_SECONDS, jitter=0)


class Pulse:
    """Watches the event loop of its worker."""


@app.resource
async def pulse() -> AsyncIterator[Pulse]:
    """Writes down how long the event loop was silent, for as long as the worker lives."""
    file = Path(os.environ[FOLDER]).parent / f"{os.environ[WORKER]}.silences"

    async def watch() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK)
            last, before = time.monotonic(), last
            if last - before > NOTABLE:
                with file.open("a") as lines:
                    lines.write(f"{last - before:.3f}\n")

    watching = asyncio.create_task(watch())
    yield Pulse()
    watching.cancel()


@app.task(retry=_retry)
async def toil(ctx: Context, seconds: float, failures: int = 0) -> None:
    """Takes a while, and fails some times before."""
    with witnessed(Path(os.environ[FOLDER]), ctx):
        await asyncio.sleep(seconds)
        if ctx.errors < failures:
            raise ValueError("not yet")


@app.task(retry=_retry)
def toil_in_a_thread(ctx: Context, seconds: float, failures: int = 0) -> None:
    """The same in a thread."""
    with witnessed(Path(os.environ[FOLDER]), ctx):
        time.sleep(seconds)
        if ctx.errors < failures:
            raise ValueError("not yet")


@app.task(on_lost="fail", retry=_retry)
async def toil_once(ctx: Context, seconds: float, failures: int = 0) -> None:
    """The same, parked if its worker is lost."""
    with witnessed(Path(os.environ[FOLDER]), ctx):
        await asyncio.sleep(seconds)
        if ctx.errors < failures:
            raise ValueError("not yet")


KINDS = ("toil", "toil", "toil", "toil_in_a_thread", "toil_once")
