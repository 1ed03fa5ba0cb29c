"""The command that started a worker process, as that process sees it: it says what to do, and may be gone.

They talk over a socket, in lines of JSON:

    command ──► {"order": …}     which App, and how
            ◄── {"started": …}   the worker works
            ──► {"stop": …}      end gracefully; a second time, at once
            ◄── {"stopping": …}  it was heard: the event loop is alive
            ◄── {"finished": …}  it ends as it was asked to, or because nothing is due: nobody takes its place

If the socket closes, the command is gone, however it ended: the worker stops gracefully, and this process ends.
"""

import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._db.driver.forks import not_for_children
from holdfast.cli.worker.child import MASKED

if TYPE_CHECKING:
    import asyncio

    from holdfast._engine.worker import Worker

LAST_SECONDS = 20.0
"""Seconds beyond the grace time after which a process whose command is gone ends by force."""


class Parent:
    """The command, as its worker sees it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = not_for_children(socket.socket(fileno=descriptor))
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._ended, self._is_gone = threading.Event(), threading.Event()
        self._stop: Callable[[], None] | None = None
        self.grace = 5.0
        self._thread = threading.Thread(target=self._listen, name="holdfast-parent", daemon=True)
        self._thread.start()

    def tell(self, **message: Any) -> None:
        """Says something; if nobody is there any more, `_listen` knows."""
        with suppress(OSError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, what: str) -> Any:
        """Waits for an answer."""
        while what not in (message := self._answers.get()):
            pass
        return message[what]

    def serve(self, stop: Callable[[], None]) -> None:
        """From now on a stop is graceful."""
        self._stop = stop

    def ended(self) -> None:
        """There is no worker left to stop; if the command is gone, perhaps something else."""
        self._ended.set()
        if self._is_gone.is_set():
            self._thread.join()

    def _listen(self) -> None:
        with suppress(OSError), self._socket.makefile("rb") as lines:
            for each in lines:
                self._take(json.loads(each))
        self._is_gone.set()
        if self._stop is not None:
            self._stop()
            self._ended.wait(self.grace + LAST_SECONDS)
        with suppress(Exception):
            self._when_gone()
        os._exit(0)

    def _take(self, message: dict[str, Any]) -> None:
        if "stop" not in message:
            self._answers.put(message)
        elif self._stop is not None:
            self._stop()
        else:
            os._exit(0)  # it has only loaded code so far

    def _when_gone(self) -> None:
        """The command is gone and the worker has ended: what is left to do."""


P = TypeVar("P", bound=Parent)


@contextmanager
def listening(parent: P) -> Iterator[P]:
    """From the first order to the end. Signals of a terminal are for the command alone."""
    for each in MASKED:
        # Not SIG_IGN, which programs that a step starts would inherit.
        signal.signal(each, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, MASKED)
    try:
        yield parent
    finally:
        parent.ended()


def obey(parent: Parent, made: "Worker", running: "asyncio.Task[None]") -> None:
    """Tells when a worker has started, and stops it when the command says so."""
    import asyncio

    from holdfast.cli.commands.worker import steps_in_flight, stop_worker

    asked = 0

    def stop() -> None:
        nonlocal asked
        asked += 1
        # A signal to everybody may have come before: only a second word of the command means at once.
        if (made.stopping and asked == 1) or stop_worker(made, running):
            parent.tell(stopping=steps_in_flight(made))

    async def tell_start() -> None:
        await made.started.wait()
        parent.tell(started=True)

    loop = asyncio.get_running_loop()

    def stop_from_outside() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop)

    parent.serve(stop_from_outside)
    telling = loop.create_task(tell_start())
    running.add_done_callback(lambda _: telling.cancel())


def on_signal(made: "Worker", running: "asyncio.Task[None]", number: signal.Signals) -> None:
    """A signal to this process alone, or to everybody: it never means at once."""
    from holdfast.cli.commands.worker import stop_worker

    if not made.stopping:
        stop_worker(made, running)
