"""Workers that vanish where it hurts: between a step's effect and the record of it, or before the step began."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from holdfast._engine.worker import Worker
from holdfast._model.run.context import Context

draining: ContextVar[Worker] = ContextVar("holdfast_testing_worker")
"""The worker of the drain that a step runs in."""


class SimulatedCrash(BaseException):
    """The worker vanished, as by kill -9: nothing that it ran is recorded or given back."""


class Crash:
    """A middleware, around all others, in which the worker of a drain vanishes. `lost` are those that did."""

    def __init__(self, when: Callable[[Context], bool], *, before: bool) -> None:
        self._when = when
        self._before = before
        self.lost: list[UUID] = []

    async def __call__(self, ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        worker = draining.get(None)
        if worker is None or not self._when(ctx):
            return await proceed()
        if not self._before:
            with suppress(Exception):  # nobody will hear how it ended
                await proceed()
        self.lost.append(worker.claimer.worker_id)
        worker.vanish(SimulatedCrash(f"the worker of {ctx.kind}.{ctx.step}, attempt {ctx.attempt}, vanished"))
        return await asyncio.Event().wait()  # until the worker's end
