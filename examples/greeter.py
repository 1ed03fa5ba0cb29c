"""A task that greets somebody whose name is in a file.

    holdfast pg start                                    # or export HOLDFAST_URL=postgresql://…
    holdfast migrate
    holdfast worker examples/greeter.py                  # in one terminal
    holdfast enqueue greeter.ReadName filename=name.txt  # in another; it prints the task's id

There is no name.txt, so the step fails. It is attempted six times; then the task is parked:

    holdfast tasks --state parked
    holdfast show ID

Repair the cause, and it goes on from where it stopped:

    echo Ada > name.txt
    holdfast retry ID
    holdfast show ID                                     # result  "Hello, Ada!"

A relative file name is seen from the folder in which the worker was started.
"""

from dataclasses import dataclass
from pathlib import Path

from holdfast import App, Done, Retry

app = App()
greeter = app.kind("greeter", result=str, retry=Retry(5, delay="1s", backoff=1))


@greeter.step
@dataclass
class ReadName:
    filename: str

    def run(self) -> "SayHello":
        name = Path(self.filename).read_text(encoding="utf-8").strip()
        return SayHello(name)


@greeter.step
@dataclass
class SayHello:
    name: str

    async def run(self) -> Done[str]:
        return Done(f"Hello, {self.name}!")
