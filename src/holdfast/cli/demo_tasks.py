"""The tasks of `holdfast demo`. To run them by yourself: `holdfast worker holdfast.cli.demo_tasks`."""

from dataclasses import dataclass
from pathlib import Path

from holdfast import App, Done, Later, Retry

app = App()


# Plain functions.


@app.task
async def add(x: int, y: int) -> int:
    return x + y


@app.task
def count_words(text: str) -> int:  # a plain def runs in a thread
    return len(text.split())


# Three steps. Each move from one to the next is recorded, and the wait costs nobody anything.

parcel = app.kind("parcel", result=str)


@parcel.step
@dataclass
class Pack:
    what: str

    def run(self) -> "Later[Ship]":
        return Later(Ship(f"a box with {self.what}"), "1s")


@parcel.step
@dataclass
class Ship:
    box: str

    async def run(self) -> "Deliver":
        return Deliver(self.box, to="Ada")


@parcel.step
@dataclass
class Deliver:
    box: str
    to: str

    async def run(self) -> Done[str]:
        return Done(f"{self.to} has {self.box}")


# A step that depends on the world. Six attempts in all, then it waits for a person.

greeter = app.kind("greeter", result=str, retry=Retry(5, delay="300ms", backoff=1, jitter=0))


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
