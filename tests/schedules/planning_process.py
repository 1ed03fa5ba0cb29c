"""A worker process for tests: `python -m schedules.planning_process URL`. It has one schedule, every second."""

import asyncio
import signal
import sys

from holdfast import App, Every

app = App()


@app.task
async def beat() -> None:
    pass


app.schedule("beat", Every("1s"), beat.bind(), catch_up="all", catch_up_limit=1000)


async def main(url: str) -> None:
    worker = app.use(url).make_worker(poll="200ms", queues=["nobody"])
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
