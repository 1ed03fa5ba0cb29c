"""Holdfast, with its defaults: one worker, ten slots, everything durable, every attempt kept."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.adapters.common import handled, main
from holdfast import App, Done, Entry
from holdfast._db.migrate import migrate
from holdfast._model.garbage import loaded_set_aside

app = App()


@app.task
async def noop(n: int) -> None:
    handled.began(n)


three = app.kind("three", result=int)


@three.step
@dataclass
class First:
    n: int

    async def run(self) -> "Second":
        return Second(self.n)


@three.step
@dataclass
class Second:
    n: int

    async def run(self) -> "Third":
        return Third(self.n)


@three.step
@dataclass
class Third:
    n: int

    async def run(self) -> Done[int]:
        handled.began(self.n)
        return Done(self.n)


class Ours:
    async def setup(self, url: str) -> None:
        await migrate(url)

    async def open(self, url: str) -> None:
        app.use(url)
        await app.retention()  # anything that is asked: connected, as the others are now

    async def enqueue(self, n: int) -> None:
        await app.enqueue(noop.bind(n))

    async def enqueue_many(self, numbers: Sequence[int], options: dict[str, Any]) -> None:
        delay, priorities = options.get("delay", 0), options.get("priorities", 1)
        if options.get("steps") == 3:
            await app.enqueue_many(First(n) for n in numbers)
        elif delay or priorities > 1:
            await app.enqueue_many(Entry(noop.bind(n), delay=delay, priority=n % priorities) for n in numbers)
        else:
            await app.enqueue_many(noop.bind(n) for n in numbers)

    async def work(self, url: str, options: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        app.use(url)
        async with app:
            worker = app.make_worker()
            with loaded_set_aside():  # as `holdfast worker` does
                await go()
                await worker.run()


if __name__ == "__main__":
    main(Ours())
