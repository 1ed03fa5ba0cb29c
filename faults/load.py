"""The load: a mix of tasks from several callers, and a ledger of what they were told."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from faults.crew import Leave, Pay, child_tag, fan, flaky, nap
from faults.oracle import Ledger
from holdfast import App
from holdfast._db.driver.connection import connect

CALLERS = 4
KEYS = 5


class _ChangedMind(Exception):
    """A caller that rolls back on purpose."""


@dataclass
class Load:
    """Callers that enqueue until they are stopped. `rate`: tasks a second, by all of them together."""

    app: App
    url: str
    chance: random.Random
    rate: float = 40.0
    pause: float = 0.05
    """Seconds that most steps take."""
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._stop = asyncio.Event()
        self._numbers = count()
        self._callers: list[asyncio.Task[None]] = []
        self.errors: list[Exception] = []

    def start(self) -> None:
        self._callers = [asyncio.create_task(self._call()) for _ in range(CALLERS)]

    async def stop(self) -> None:
        """Waits until each caller has his last answer."""
        self._stop.set()
        await asyncio.gather(*self._callers)

    async def enqueue(self, what: Any, tag: str = "", **options: Any) -> str | None:
        """One task by itself, noted in the ledger; its id."""
        tag = tag or f"t{next(self._numbers)}"

        async def ask() -> str:
            ref = await self.app.enqueue(what, headers={"tag": tag}, **options)
            return str(ref.id) if ref.created else ""

        return await self._noted(tag, ask)

    async def many(self, what: list[Any]) -> list[str]:
        """Tasks enqueued together; their ids."""
        return [id for id in [await self.enqueue(each) for each in what] if id]

    async def _call(self) -> None:
        while not self._stop.is_set():
            await self._one(f"t{next(self._numbers)}")
            try:
                async with asyncio.timeout(self.chance.expovariate(self.rate / CALLERS)):
                    await self._stop.wait()
            except TimeoutError:
                pass

    async def _one(self, tag: str) -> None:
        kind = self.chance.choices(
            ["trip", "bill", "nap", "flaky", "fan", "keyed", "rolled back", "committed"], [40, 15, 8, 7, 10, 10, 5, 5]
        )[0]
        n, pause = int(tag[1:]), self.chance.uniform(0, 2 * self.pause)
        match kind:
            case "trip":
                await self.enqueue(Leave(n, pause), tag)
            case "bill":
                await self.enqueue(Pay(n, pause), tag)
            case "nap":
                await self.enqueue(nap.bind(20 * pause), tag)
            case "flaky":
                await self.enqueue(flaky.bind(), tag)
            case "fan":
                self.ledger.children[tag] = [child_tag(tag, each) for each in range(3)]
                await self.enqueue(fan.bind(3), tag)
            case "keyed":
                await self.enqueue(Leave(n, pause), tag, key=f"key-{self.chance.randrange(KEYS)}")
            case _:
                await self._in_a_transaction(tag, Leave(n, pause), rolls_back=kind == "rolled back")

    async def _in_a_transaction(self, tag: str, what: Any, *, rolls_back: bool) -> None:
        async def ask() -> str:
            connection = await connect(self.url, "caller")
            try:
                async with connection.transaction():
                    ref = await self.app.enqueue(what, conn=connection, headers={"tag": tag})
                    if rolls_back:
                        raise _ChangedMind
                return str(ref.id)
            finally:
                await connection.close()

        await self._noted(tag, ask)

    async def _noted(self, tag: str, ask: Callable[[], Awaitable[str]]) -> str | None:
        """Asks, and notes the answer: an id, or nothing if another task holds the key."""
        try:
            id = await ask()
        except _ChangedMind:
            self.ledger.rolled_back.add(tag)
        except Exception as error:  # whatever was raised: the caller does not know
            self.ledger.unknown.add(tag)
            self.errors.append(error)
        else:
            if id:
                self.ledger.acknowledged[tag] = id
                return id
            self.ledger.children.pop(tag, None)
        return None
