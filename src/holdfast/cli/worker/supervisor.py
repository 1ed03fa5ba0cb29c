"""`holdfast worker --processes 4`: a parent that starts worker processes, replaces them, and ends with them.

It loads no code of the user and opens no connection. The first process begins alone: what will not pass by itself (no
schema, wrong password, no such APP) is told once, and ends everything. After that a process that ends is replaced, at
once the first time, then after longer and longer pauses, unless it says that it was asked to stop or has drained its
queues. If the parent is killed, its processes notice and stop.
"""

import asyncio
import random
import signal
from typing import TYPE_CHECKING, Any

from holdfast._model.safe_log import Log
from holdfast.cli.commands.worker import be_deaf_to
from holdfast.cli.output.printing import FAILED, UNREACHABLE, USAGE
from holdfast.cli.worker.child import LAST_SECONDS, Child
from holdfast.cli.worker.member import AGAIN

if TYPE_CHECKING:
    from holdfast.cli.worker.member import Order

log = Log("holdfast.worker")

LONGEST_PAUSE = 30.0
"""Seconds between two starts of a process that dies again and again."""
STABLE = 60.0
"""Seconds after which a death is not counted together with those before."""
_FOR_GOOD = (FAILED, USAGE, UNREACHABLE)


class Supervisor:
    """The parent of some worker processes."""

    def __init__(self, order: "Order", grace: float) -> None:
        self._order = order
        self._grace = grace
        self._children: dict[int, Child] = {}
        self._begun, self._ending, self._at_once = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """Lives until all processes have ended and are not to be replaced; the worst of their exit codes."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        keeping = [loop.create_task(self._keep(1))]
        begun = loop.create_task(self._begun.wait())
        await asyncio.wait([keeping[0], begun], return_when=asyncio.FIRST_COMPLETED)
        if begun.done() and not self._ending.is_set():
            keeping += [loop.create_task(self._keep(n)) for n in range(2, self._order["processes"] + 1)]
        begun.cancel()
        worst = max(await asyncio.gather(*keeping))
        if self._ending.is_set():
            be_deaf_to(numbers)
        return worst

    def _on_signal(self, number: signal.Signals) -> None:
        if self._ending.is_set():
            log.info("%s: stopping at once; what runs is given back", number.name)
            self._at_once.set()
        else:
            log.info("%s: stopping; what runs may end within the grace time. Once more stops at once", number.name)
            self._ending.set()

    async def _keep(self, number: int) -> int:
        """One process after the other under one number; the exit code of the last."""
        deaths = 0
        while True:
            child = await self._start(number)
            await self._until(child.started, child.ended)
            is_started = child.started.done()
            if is_started:
                self._begun.set()
            await self._until(child.ended)
            if self._ending.is_set():
                return await self._stop(number, child)
            code = child.ended.result()
            if code == AGAIN:
                deaths = 0
                continue
            if child.is_finished:  # not by its exit code: any step can end its process with 0
                self._begun.set()
                return FAILED if code < 0 else code
            if not is_started and code in _FOR_GOOD and not self._has_others(number):
                self._ending.set()
                return code
            deaths = 1 if child.age > STABLE else deaths + 1
            pause = 0.0 if deaths == 1 else min(LONGEST_PAUSE, 2.0 ** (deaths - 2)) * random.uniform(0.8, 1.0)  # noqa: S311
            when = f"in {pause:.1f} s" if pause else "now"
            log.error("%s ended %s: another one is started %s", self._name(number, child), child.end, when)
            await self._until(limit=pause)
            if self._ending.is_set():
                return code if code > 0 else FAILED

    async def _start(self, number: int) -> Child:
        order = {**self._order, "number": number, "introduces": not self._children}
        child = self._children[number] = await Child.start("holdfast.cli.worker.member", order=order)
        return child

    async def _stop(self, number: int, child: Child) -> int:
        is_graceful = await child.stop(self._grace, self._at_once, hurried=LAST_SECONDS)
        code = child.ended.result()
        if is_graceful:
            return 0 if code == AGAIN else FAILED if code < 0 else code
        log.error("%s did not stop and was killed: others take its tasks over", self._name(number, child))
        return FAILED

    def _has_others(self, number: int) -> bool:
        """Whether another process is at work: that one is not to suffer for what goes wrong here."""
        return any(
            child.started.done() and not child.ended.done() for n, child in self._children.items() if n != number
        )

    def _name(self, number: int, child: Child) -> str:
        return f"process {number} (pid {child.pid})"

    async def _until(self, *futures: "asyncio.Future[Any]", limit: float | None = None) -> None:
        """Waits for one of these, for the end, or for a limited time."""
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            await asyncio.wait([*futures, ending], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
