"""PgQueuer: asyncpg, uvloop, batches of 1,000, enqueues of many rows in one call."""

import asyncio
from datetime import timedelta

import asyncpg
from common import handled, main
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries

MANY = 10_000


class Peer:
    async def setup(self, url):
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self, url):
        self.queries = Queries(AsyncpgPoolDriver(await asyncpg.create_pool(url, min_size=1, max_size=16)))

    async def enqueue(self, n):
        await self.queries.enqueue("noop", b'{"n": %d}' % n)

    async def enqueue_many(self, numbers, options):
        after = timedelta(seconds=options["delay"]) if options.get("delay") else None
        for start in range(0, len(numbers), MANY):
            part = numbers[start : start + MANY]
            await self.queries.enqueue(
                ["noop"] * len(part), [b'{"n": %d}' % n for n in part], [0] * len(part), [after] * len(part)
            )

    async def work(self, url, options, go):
        app = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))

        @app.entrypoint("noop")
        async def noop(job):
            handled.began(int(job.payload[6:-1]))

        await go()
        await app.run(batch_size=1000, dequeue_timeout=timedelta(seconds=1))
        await asyncio.sleep(1)


main(Peer())
