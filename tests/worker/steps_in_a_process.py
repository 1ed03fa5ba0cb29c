"""Steps for child processes, in a module that they can import."""

import os
import time
from pathlib import Path

from holdfast import Context, Tasks

tasks = Tasks()


@tasks.task(executor="process")
def pid_of() -> int:
    return os.getpid()


@tasks.task(executor="process")
def enqueues(ctx: Context, n: int) -> str:
    return str(ctx.enqueue(pid_of.bind(), priority=n).id)


@tasks.task(executor="process")
def tells(ctx: Context, until: str) -> None:
    """Tells how far it has come, and goes on once a file is there."""
    ctx.progress(0.5, "in a child")
    while not Path(until).exists():
        time.sleep(0.01)
    for n in range(4):
        ctx.report(rows=n)
