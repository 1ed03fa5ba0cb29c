"""procrastinate: psycopg's pool, 20 tasks at once, notifications, enqueues of many in one call."""

import logging

from common import handled, main
from procrastinate import App, PsycopgConnector

MANY = 5_000


def make(url):
    app = App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=24))

    @app.task(name="noop")
    async def noop(n):
        handled.began(n)

    return app, noop


class Peer:
    async def setup(self, url):
        app, _ = make(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self, url):
        self.app, self.noop = make(url)
        await self.app.open_async()

    async def enqueue(self, n):
        await self.noop.defer_async(n=n)

    async def enqueue_many(self, numbers, options):
        task = self.noop.configure(schedule_in={"seconds": options["delay"]}) if options.get("delay") else self.noop
        for start in range(0, len(numbers), MANY):
            await task.batch_defer_async(*({"n": n} for n in numbers[start : start + MANY]))

    async def work(self, url, options, go):
        app, _ = make(url)
        logging.disable(logging.WARNING)
        async with app.open_async():
            await go()
            await app.run_worker_async(concurrency=20, install_signal_handlers=False)


main(Peer())
