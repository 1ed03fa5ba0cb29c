"""DBOS: asyncio workflows on a queue without limits, a poll of 50 ms; for many tasks 16 callers, for want of a bulk."""

import asyncio
import logging
import os

from common import handled, main
from dbos import DBOS, DBOSClient

CALLERS = 16


def launch(url):
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "application_version": "1",
            "executor_id": str(os.getpid()),
            "log_level": "CRITICAL",
            "run_admin_server": False,
        }
    )


@DBOS.workflow(name="noop")
async def noop(n):
    handled.began(n)


@DBOS.step(name="step")
async def step(n):
    return n


@DBOS.workflow(name="three")
async def three(n):
    for _ in range(3):
        n = await step(n)
    handled.began(n)


def ready(url):
    launch(url)
    DBOS.launch()
    DBOS.register_queue("tasks", polling_interval_sec=0.05)


class Peer:
    async def setup(self, url):
        await asyncio.to_thread(ready, url)
        await asyncio.to_thread(DBOS.destroy)

    async def open(self, url):
        logging.disable(logging.CRITICAL)
        self.client = await asyncio.to_thread(DBOSClient, system_database_url=url)

    async def enqueue(self, n, name="noop"):
        options = {"queue_name": "tasks", "workflow_name": name, "app_version": "1"}
        await self.client.enqueue_async(options, n)

    async def enqueue_many(self, numbers, options):
        name = "three" if options.get("steps") == 3 else "noop"
        left = iter(numbers)

        async def call():
            for n in left:
                await self.enqueue(n, name)

        await asyncio.gather(*(call() for _ in range(CALLERS)))

    async def work(self, url, options, go):
        logging.disable(logging.CRITICAL)
        await go()
        await asyncio.to_thread(ready, url)
        await asyncio.sleep(1e9)


main(Peer())
