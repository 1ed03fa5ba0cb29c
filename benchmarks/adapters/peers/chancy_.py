"""chancy: the asyncio executor, 100 at once, eager polling, enqueues of many in one call."""

import logging
from datetime import UTC, datetime, timedelta

from chancy import Chancy, Queue, Worker, job
from common import handled, main


@job(queue="default")
async def noop(*, n):
    handled.began(n)


def make(url):
    return Chancy(url, log=logging.getLogger("quiet"))


class Peer:
    async def setup(self, url):
        async with make(url) as chancy:
            await chancy.migrate()
            await chancy.declare(
                Queue(
                    "default",
                    concurrency=100,
                    polling_interval=1,
                    eager_polling=True,
                    executor="chancy.executors.asyncex.AsyncExecutor",
                ),
                upsert=True,
            )

    async def open(self, url):
        self.chancy = await make(url).__aenter__()

    async def enqueue(self, n):
        await self.chancy.push(noop.job.with_kwargs(n=n))

    async def enqueue_many(self, numbers, options):
        base = noop.job
        if options.get("delay"):
            base = base.with_scheduled_at(datetime.now(UTC) + timedelta(seconds=options["delay"]))
        async for _ in self.chancy.push_many([base.with_kwargs(n=n) for n in numbers], batch_size=1000):
            pass

    async def work(self, url, options, go):
        logging.disable(logging.WARNING)
        async with make(url) as chancy:
            await go()
            async with Worker(chancy, register_signal_handlers=False) as worker:
                await worker.wait_for_shutdown()


main(Peer())
