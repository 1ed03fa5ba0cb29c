"""How a worker stands: starting, running or stopping; and whether another process is to take its place."""

import asyncio

from holdfast._engine.run.attempt import StopFlag
from holdfast._model.safe_log import Log

log = Log("holdfast.worker")


class Lifecycle:
    """The life of one worker, shared by all its stages.

    `flag` is set as soon as no attempt may begin any more. `retired`: a fresh process is to take its place.
    """

    def __init__(self) -> None:
        self.flag = StopFlag()
        self.retired = False
        self.started = asyncio.Event()
        self.stop_requested = asyncio.Event()
        self.stop_at_once = asyncio.Event()

    @property
    def state(self) -> str:
        return "stopping" if self.stop_requested.is_set() else "running" if self.started.is_set() else "starting"

    def stop(self) -> None:
        """Asks the worker to stop; asked a second time, it stops at once."""
        if self.stop_requested.is_set():
            self.stop_at_once.set()
        self.stop_requested.set()

    def retire(self, why: str) -> None:
        """Stops the worker gracefully, to be replaced by a fresh process."""
        if not self.stop_requested.is_set():
            log.info("this process is replaced: %s", why)
            self.retired = self.flag.stopping = True  # nothing begins any more, from now on
            self.stop()

    def stop_for_good(self) -> None:
        """An operator asked this worker to stop: no other process takes its place."""
        self.retired = False
        if not self.stop_requested.is_set():
            log.info("asked to stop")
            self.stop()
