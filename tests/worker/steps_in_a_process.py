"""Steps for child processes, in a module that they can import."""

import os

from holdfast import Tasks

tasks = Tasks()


@tasks.task(executor="process")
def pid_of() -> int:
    return os.getpid()
