"""What the adapters written in Python share: `python ADAPTER VERB URL OPTIONS`, lines of JSON on standard output.

    setup     makes the tables                      {"ok": true}
    single    callers, seconds                      {"count": …, "seconds": …}
    bulk      tasks, delay, priorities, steps       {"count": …, "seconds": …}
    send      samples, gap                          {"commits": [[n, when it was committed], …]}
    load      rate, seconds                         {"commits": …, "seconds": …}
    work      steps, starts                         {"ready": true}; after a line of input it works for ever and tells
                                                    {"count": …, "at": when the last one was handled, "starts": …}

Times are CLOCK_MONOTONIC, which all processes of a machine share. This file is read by the peers' own environments as
well: it needs nothing but Python.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

TICK = 0.02
"""Seconds between two lines about what was handled."""


class Adapter(Protocol):
    """How one system is driven."""

    async def setup(self, url: str) -> None: ...

    async def open(self, url: str) -> None:
        """Ready to enqueue."""
        ...

    async def enqueue(self, n: int) -> None: ...

    async def enqueue_many(self, numbers: Sequence[int], options: dict[str, Any]) -> None: ...

    async def work(self, url: str, options: dict[str, Any], go: Callable[[], Awaitable[None]]) -> None:
        """Makes a worker ready, waits for `go`, works until it is killed."""
        ...


class Handled:
    """Counts what a worker has handled; `began` is told of the number of each task."""

    def __init__(self) -> None:
        self.count = 0
        self._at = 0.0
        self._starts: list[tuple[int, float]] = []
        self.keeps_starts = False

    def began(self, n: int) -> None:
        self.count += 1
        if self.keeps_starts:
            self._starts.append((n, time.monotonic()))

    def many(self, count: int) -> None:
        self.count += count

    def tell(self) -> None:
        """Says for ever how many there were, and when the last one was seen."""
        told = 0
        while True:
            time.sleep(TICK)
            if self.count != told:
                told, starts, self._starts = self.count, self._starts, []
                say({"count": told, "at": time.monotonic(), "starts": starts})


handled = Handled()


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def _single(adapter: Adapter, callers: int, seconds: float) -> None:
    await adapter.enqueue(0)
    began = time.monotonic()
    end = began + seconds

    async def call() -> int:
        done = 0
        while time.monotonic() < end:
            await adapter.enqueue(done)
            done += 1
        return done

    done = sum(await asyncio.gather(*(call() for _ in range(callers))))
    say({"count": done, "seconds": time.monotonic() - began})


async def _bulk(adapter: Adapter, options: dict[str, Any]) -> None:
    began = time.monotonic()
    await adapter.enqueue_many(range(options["tasks"]), options)
    say({"count": options["tasks"], "seconds": time.monotonic() - began})


async def _send(adapter: Adapter, samples: int, gap: float) -> None:
    commits = []
    for n in range(samples):
        await adapter.enqueue(n)
        commits.append((n, time.monotonic()))
        # Never in step with somebody's timer.
        await asyncio.sleep(gap * (0.5 + (n * 0.618034) % 1))
    say({"commits": commits})


async def _load(adapter: Adapter, rate: float, seconds: float) -> None:
    """Enqueues at a steady rate: whatever is due, in one call; behind its time it goes on without a rest."""
    commits: list[tuple[int, float]] = []
    began = time.monotonic()
    sent = 0
    while (now := time.monotonic()) < began + seconds:
        due = min(int((now - began) * rate), int(seconds * rate))
        if due > sent:
            await adapter.enqueue_many(range(sent, due), {})
            committed = time.monotonic()
            commits += [(n, committed) for n in range(sent, due)]
            sent = due
        await asyncio.sleep(0.01)
    say({"commits": commits, "seconds": time.monotonic() - began})


async def _work(adapter: Adapter, url: str, options: dict[str, Any]) -> None:
    handled.keeps_starts = bool(options.get("starts"))

    async def go() -> None:
        say({"ready": True})
        await asyncio.to_thread(sys.stdin.readline)
        threading.Thread(target=handled.tell, daemon=True).start()

    await adapter.work(url, options, go)


async def _do(adapter: Adapter, verb: str, url: str, options: dict[str, Any]) -> None:
    match verb:
        case "setup":
            await adapter.setup(url)
            say({"ok": True})
            return
        case "work":
            await _work(adapter, url, options)
            return
    await adapter.open(url)
    match verb:
        case "single":
            await _single(adapter, options["callers"], options["seconds"])
        case "bulk":
            await _bulk(adapter, options)
        case "send":
            await _send(adapter, options["samples"], options["gap"])
        case "load":
            await _load(adapter, options["rate"], options["seconds"])
        case _:
            raise SystemExit(f"no such verb: {verb}")


def main(adapter: Adapter) -> None:
    verb, url, options = sys.argv[1:]
    try:
        import uvloop

        run: Callable[[Any], Any] = uvloop.run
    except ImportError:
        run = asyncio.run
    run(_do(adapter, verb, url, json.loads(options)))
