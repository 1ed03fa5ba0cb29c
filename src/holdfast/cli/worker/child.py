"""A worker process as the command that started it sees it: told what to do, stopped, or found dead.

`holdfast dev` has one, `holdfast worker --processes` has several. The other end is `parent`.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

LAST_SECONDS = 17.0
"""Seconds beyond the grace time in which a worker may clean up and record."""
AT_ONCE = 3.0
MASKED = (signal.SIGINT, signal.SIGHUP)
"""The signals that a terminal sends to everybody at it: they are for the command, which tells its workers."""
_LONGEST_LINE = 16 * 1024 * 1024


@contextmanager
def _without_interruptions() -> Iterator[None]:
    """Ctrl-C reaches a process that is started here only when it is prepared for it; until then it waits."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, MASKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """One process, from its start to its end. See `parent` for what is said."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._process = process
        self._writer = writer
        self._begun_at = time.monotonic()
        self.loaded: asyncio.Future[Any] = loop.create_future()
        self.started: asyncio.Future[float] = loop.create_future()
        self.stopping: asyncio.Future[int] = loop.create_future()
        self.is_finished = False
        self.ended = loop.create_task(self._until_end(reader))

    @classmethod
    async def start(cls, module: str, **first_words: Any) -> "Child":
        """A new process of a module that takes its orders from here."""
        ours, theirs = socket.socketpair()
        with theirs, _without_interruptions():
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONUNBUFFERED": "1"},  # what a step prints is to be seen at once
            )
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LONGEST_LINE)
        made = cls(process, reader, writer)
        made.tell(**first_words)
        return made

    def tell(self, **message: Any) -> None:
        """Says something; a process that has ended does not hear it."""
        with suppress(OSError, RuntimeError):
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def stop(self, grace: float, at_once: asyncio.Event, *, hurried: float = AT_ONCE) -> bool:
        """Ends it: gracefully if it listens and nobody is in a hurry. False if it had to be killed.

        `hurried`: seconds that it has to give everything back when somebody is.
        """
        hurry = asyncio.ensure_future(at_once.wait())
        try:
            self.tell(stop=True)
            # One whose event loop is blocked does not hear it, and cannot give anything back.
            await self._wait(max(1.0, grace), self.stopping, hurry)
            if self.stopping.done():
                await self._wait(grace + LAST_SECONDS, hurry)
            if hurry.done():
                self.tell(stop=True)
                await self._wait(hurried)
        finally:
            hurry.cancel()
        is_graceful = self.ended.done()
        if not is_graceful:
            self._process.kill()
        await self.ended
        return is_graceful

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._begun_at

    @property
    def end(self) -> str:
        """How it ended: `with exit code 70`, `by SIGSEGV`."""
        code = self.ended.result()
        if code >= 0:
            return f"with exit code {code}"
        try:
            return f"by {signal.Signals(-code).name}"
        except ValueError:
            return f"by signal {-code}"

    async def _wait(self, limit: float, *also: "asyncio.Future[Any]") -> None:
        await asyncio.wait([self.ended, *also], timeout=limit, return_when=asyncio.FIRST_COMPLETED)

    async def _until_end(self, reader: asyncio.StreamReader) -> int:
        listening = asyncio.ensure_future(self._listen(reader))
        try:
            return await self._process.wait()
        finally:
            # What it said before its end is still to be heard; its own children may keep the socket open.
            await asyncio.wait([listening], timeout=0.5)
            listening.cancel()
            self._writer.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError, ValueError):
            async for line in reader:
                message = json.loads(line)
                if "loaded" in message and not self.loaded.done():
                    self.loaded.set_result(message["loaded"])
                if "started" in message and not self.started.done():
                    self.started.set_result(self.age)
                if "stopping" in message and not self.stopping.done():
                    self.stopping.set_result(message["stopping"])
                if "finished" in message:
                    self.is_finished = True
