"""The tasks of `holdfast demo`. A worker for them: `holdfast worker holdfast.cli.demo.tasks -q demo`."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from holdfast import App, Context, Done, Later, Retry

app = App()


async def work(seconds: float = 0.7) -> None:
    """Stands for what a step really does."""
    await asyncio.sleep(seconds)


# Orders: a step returns the next one, and may choose which.

order = app.kind("order", queue="demo", result=str)


@order.step
@dataclass
class Reserve:
    item: str
    price: int
    in_stock: bool = True

    async def run(self) -> "Charge | Restock":
        await work()
        return Charge(self.item, self.price) if self.in_stock else Restock(self.item, self.price)


@order.step
@dataclass
class Restock:
    item: str
    price: int

    async def run(self) -> "Charge":
        await work()
        return Charge(self.item, self.price)


@order.step
@dataclass
class Charge:
    item: str
    price: int

    async def run(self) -> "Ship | Review":
        await work()
        return Review(self.item) if self.price > 500 else Ship(self.item)


@order.step
@dataclass
class Review:
    item: str

    async def run(self) -> "Ship":
        await work()
        return Ship(self.item)


@order.step
@dataclass
class Ship:
    item: str

    async def run(self) -> Done[str]:
        await work()
        return Done(f"{self.item} shipped")


# A flaky call: two errors, then an answer.


@app.task(queue="demo", retry=Retry(3, delay="600ms", backoff=2, jitter=0))
async def exchange_rate(ctx: Context, currency: str) -> float:
    if ctx.errors < 2:
        raise ConnectionError("the bank is busy")
    return {"USD": 1.09, "GBP": 0.85}.get(currency, 1.0)


# A step that is due later: until then the task is a row, and nobody waits.

survey = app.kind("survey", queue="demo", result=str)


@survey.step
@dataclass
class Deliver:
    customer: str

    def run(self) -> "Later[Ask]":  # a plain def runs in a thread
        return Later(Ask(self.customer), "3s")


@survey.step
@dataclass
class Ask:
    customer: str

    def run(self) -> Done[str]:
        return Done(f"{self.customer} was asked")


# Small tasks, for many at once.


@app.task(queue="demo")
async def square(n: int) -> int:
    return n * n


@app.task(queue="demo")
async def add(x: int, y: int) -> int:
    return x + y


# Four steps in a row; their worker is killed on the way.

parcel = app.kind("parcel", queue="demo", result=str)


@parcel.step
@dataclass
class Pick:
    what: str

    async def run(self) -> "Pack":
        await work()
        return Pack(self.what)


@parcel.step
@dataclass
class Pack:
    what: str

    async def run(self) -> "Label":
        await work()
        return Label(f"a box of {self.what}")


@parcel.step
@dataclass
class Label:
    box: str

    async def run(self) -> "Load":
        await work()
        return Load(self.box, to="Ada")


@parcel.step
@dataclass
class Load:
    box: str
    to: str

    async def run(self) -> Done[str]:
        await work()
        return Done(f"{self.box} for {self.to}")


# A step that depends on the world: three attempts in all, then it waits for a person.

greeter = app.kind("greeter", queue="demo", result=str, retry=Retry(2, delay="400ms", backoff=2, jitter=0))


@greeter.step
@dataclass
class ReadName:
    filename: str

    def run(self) -> "SayHello":
        return SayHello(Path(self.filename).read_text(encoding="utf-8").strip())


@greeter.step
@dataclass
class SayHello:
    name: str

    async def run(self) -> Done[str]:
        return Done(f"Hello, {self.name}!")
