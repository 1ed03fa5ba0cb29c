"""The worker of `holdfast dev`, a process of its own: `python -m holdfast.cli.dev.worker FD`.

It talks with `dev` over a socket, in lines of JSON:

    dev ──► {"order": …}     which App, and how
        ◄── {"loaded": …}    the App is loaded: its database if one is named, its tasks
        ──► {"server": …}    the folder of an embedded server that dev has started
        ──► {"go": url}      the database is ready
        ◄── {"started": …}   the worker works
        ──► {"stop": …}      end gracefully; a second time, at once
        ◄── {"stopping": …}  it was heard: the event loop is alive

If the socket closes, `dev` is gone, however it ended: this process ends too, and sees to the server that `dev`
had started.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypedDict

from holdfast.cli.dev.child import MASKED

if TYPE_CHECKING:
    import asyncio

    from holdfast._engine.worker import Worker
    from holdfast.app import App

BLOCKED = 1.0
"""Seconds that a step may block the event loop before a warning: somebody sits there and wonders."""
LAST_SECONDS = 20.0
"""Seconds beyond the grace time after which a process without `dev` ends by force."""


class Order(TypedDict):
    """What `dev` wants to be done."""

    app: str | None
    url: str | None
    schema: str | None
    settings: dict[str, Any]
    log_level: str | None
    json: bool


class Loaded(TypedDict):
    """What there is to know about the App."""

    url: str | None
    source: str
    schema: str
    queues: list[str]
    commands: list[str]
    warnings: list[str]


class Parent:
    """`dev`, as its worker sees it."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._answers: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._ended, self._is_gone = threading.Event(), threading.Event()
        self._stop: Callable[[], None] | None = None
        self._server: str | None = None
        self.grace = 5.0
        self._thread = threading.Thread(target=self._listen, name="holdfast-dev", daemon=True)
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
        """There is no worker left to stop; if `dev` is gone, perhaps a server."""
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
            self._stop_server()
        os._exit(0)

    def _take(self, message: dict[str, Any]) -> None:
        self._server = message.get("server", self._server)
        if "stop" not in message:
            self._answers.put(message)
        elif self._stop is not None:
            self._stop()
        else:
            os._exit(0)  # it has only loaded code so far

    def _stop_server(self) -> None:
        from holdfast import embedded

        server = embedded.find(Path(self._server)) if self._server else None
        if server is not None:
            server.stop()


def main(descriptor: int) -> int:
    """Does what `dev` wants; the exit code."""
    for each in MASKED:
        # Not SIG_IGN, which programs that a step starts would inherit.
        signal.signal(each, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, MASKED)
    parent = Parent(descriptor)
    order: Order = parent.hear("order")
    try:
        return _exit_code(lambda: _work(parent, order), as_json=order["json"])
    finally:
        parent.ended()


def _exit_code(work: Callable[[], None], *, as_json: bool) -> int:
    """Does something and tells what went wrong, as every command does."""
    import click

    from holdfast.cli.output import FAILED, code_of, known_failure, report, report_bug

    try:
        work()
    except click.ClickException as error:
        report(error, as_json=as_json)
        return code_of(error)
    except Exception as error:
        failure = known_failure(error)
        if failure is None:
            report_bug(error, as_json=as_json)
            return FAILED
        report(failure, as_json=as_json)
        return failure.code
    return 0


def _work(parent: Parent, order: Order) -> None:
    from holdfast._db.config import setting, worker_options
    from holdfast._engine.settings import WorkerSettings
    from holdfast.cli.introduce import declared_queues
    from holdfast.cli.load import load_app
    from holdfast.cli.logs import configure, revive
    from holdfast.cli.work import run_worker, steps_in_flight, stop_worker

    log_format = "json" if order["json"] else setting("log_format").value
    configure(setting("log_level", order["log_level"]).value, log_format, dev=True)
    app = load_app(order["app"], url=order["url"], schema=order["schema"])
    revive()
    settings: Any = {"queues": declared_queues(app), **worker_options(order["settings"]), "blocked": BLOCKED}
    chosen = WorkerSettings.of(**settings)  # says now what is wrong with them
    parent.grace = chosen.grace
    parent.tell(loaded=_loaded(app, chosen.queues))
    app.use(parent.hear("go"))

    def begun(made: "Worker", running: "asyncio.Task[None]") -> None:
        import asyncio

        asked = 0

        def stop() -> None:
            nonlocal asked
            asked += 1
            # A signal to everybody may have come before: only a second word of `dev` means at once.
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
        if not made.stopping:
            stop_worker(made, running)

    run_worker(lambda: app.make_worker(**settings), {signal.SIGTERM: on_signal}, begun=begun)


def _loaded(app: "App", queues: Sequence[str]) -> Loaded:
    from holdfast.cli.introduce import enqueue_commands, start_warnings
    from holdfast.errors import NoDatabase

    try:
        url, source = app.database.url, app.database.source
    except NoDatabase:
        url, source = None, ""
    return Loaded(
        url=url,
        source=source,
        schema=app.schema,
        queues=list(queues),
        commands=enqueue_commands(app),
        warnings=start_warnings(app, queues),
    )


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
