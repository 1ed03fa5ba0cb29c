"""Steps for child processes, in a module that they can import."""

import os

from holdfast import Context, Tasks

tasks = Tasks()


@tasks.task(executor="process")
def pid_of() -> int:
    return os.getpid()


@tasks.task(executor="process")
def enqueues(ctx: Context, n: int) -> str:
    return str(ctx.enqueue(pid_of.bind(), priority=n).id)
