"""A worker process for tests: `python -m schedules.planning_process URL`. It has one schedule, every second."""

import asyncio
import sys

from holdfast import App, Every

app = App()


@app.task
async def beat() -> None:
    pass


app.schedule("beat", Every("1s"), beat.bind(), catch_up="all", catch_up_limit=1000)

if __name__ == "__main__":
    asyncio.run(app.use(sys.argv[1]).make_worker(poll="200ms", queues=["nobody"]).run())
