"""My tasks. Change them as you like: `holdfast dev` notices."""

from dataclasses import dataclass

from holdfast import App, Done, Retry

# The database: HOLDFAST_URL, or [tool.holdfast] url in pyproject.toml, or the server that `holdfast dev` brings.
app = App()


# A function is a task with one step. If it raises, it is attempted 3 more times, after 1, 2 and 4 seconds;
# then the task is parked and waits for a person: `holdfast parked`, `holdfast show ID`, `holdfast retry ID`.
@app.task(retry=Retry(3, delay="1s"))
async def hello(name: str) -> str:
    return f"Hello, {name}"


# Several steps: each returns the next one, and the move to it is recorded. After a crash, a deploy or a repaired
# bug a task goes on where it stopped, and what was recorded is not executed again.
order = app.kind("order", result=str, retry=Retry(5, delay="2s"))


@order.step
@dataclass
class Pack:
    item: str
    pieces: int = 1

    def run(self) -> "Ship":  # a plain def is executed in a thread
        return Ship(parcel=f"{self.pieces} x {self.item}")


@order.step
@dataclass
class Ship:
    parcel: str

    async def run(self) -> Done[str]:  # Done is the end, with a result
        return Done(f"shipped {self.parcel}")


# In Python:  await hello.enqueue("Ada")  or  await order.enqueue(Pack("book", pieces=2))
# In blocking code:  app.sync.enqueue(hello.bind("Ada"))
