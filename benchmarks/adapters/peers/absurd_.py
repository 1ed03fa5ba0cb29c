"""absurd: the asyncio client, claims of 100, a poll of 20 ms; it has no bulk enqueue, so one transaction of spawns."""

import os
import subprocess
import sys
from pathlib import Path

from absurd_sdk import AsyncAbsurd
from common import handled, main
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool


class Peer:
    async def setup(self, url):
        program = Path(sys.executable).with_name("absurdctl")
        for words in (["init"], ["create-queue", "default"]):
            environment = os.environ | {"ABSURD_DATABASE_URL": url}
            subprocess.run([program, *words], check=True, capture_output=True, env=environment)

    async def open(self, url):
        self.pool = AsyncConnectionPool(url, min_size=1, max_size=16, kwargs={"autocommit": True}, open=False)
        await self.pool.open()
        self.url = url

    async def enqueue(self, n):
        async with self.pool.connection() as connection:
            await AsyncAbsurd(connection).spawn("noop", {"n": n}, queue="default")

    async def enqueue_many(self, numbers, options):
        name = "three" if options.get("steps") == 3 else "noop"
        async with await AsyncConnection.connect(self.url) as connection:
            absurd = AsyncAbsurd(connection)
            for n in numbers:
                await absurd.spawn(name, {"n": n}, queue="default")

    async def work(self, url, options, go):
        absurd = AsyncAbsurd(url)

        @absurd.register_task("noop")
        async def noop(params, ctx):
            handled.began(params["n"])

        @absurd.register_task("three")
        async def three(params, ctx):
            async def value():
                return params["n"]

            for step in ("first", "second", "third"):
                await ctx.step(step, value)
            handled.began(params["n"])

        await go()
        await absurd.start_worker(concurrency=100, batch_size=100, poll_interval=0.02)


main(Peer())
