"""The worker of `holdfast dev`, a process of its own: `python -m holdfast.cli.dev.worker FD`.

Beyond what `parent` tells about, these are said:

    dev ──► {"order": …}     which App, and how
        ◄── {"loaded": …}    the App is loaded: its database if one is named, its tasks
        ──► {"server": …}    the folder of an embedded server that dev has started
        ──► {"go": url}      the database is ready

If `dev` is gone, however it ended, this process ends too, and sees to the server that `dev` had started.
"""

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from holdfast.cli.output.printing import exit_code
from holdfast.cli.worker.parent import Parent, listening, obey, on_signal

if TYPE_CHECKING:
    from holdfast.app import App

BLOCKED = 1.0
"""Seconds that a step may block the event loop before a warning: somebody sits there and wonders."""


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


class Dev(Parent):
    """`dev`, as its worker sees it."""

    _server: str | None = None

    def _take(self, message: dict[str, Any]) -> None:
        self._server = message.get("server", self._server)
        super()._take(message)

    def _when_gone(self) -> None:
        from holdfast import embedded

        server = embedded.find(Path(self._server)) if self._server else None
        if server is not None:
            server.stop()


def main(descriptor: int) -> int:
    """Does what `dev` wants; the exit code."""
    with listening(Dev(descriptor)) as parent:
        order: Order = parent.hear("order")
        return exit_code(lambda: _work(parent, order), as_json=order["json"])


def _work(parent: Parent, order: Order) -> None:
    from holdfast._db.config.resolve import setting, worker_options
    from holdfast._engine.settings import WorkerSettings
    from holdfast.cli.commands.worker import run_worker
    from holdfast.cli.input.app import load_app
    from holdfast.cli.output.introduction import declared_queues
    from holdfast.cli.output.logs import configure, revive

    log_format = "json" if order["json"] else setting("log_format").value
    configure(setting("log_level", order["log_level"]).value, log_format, dev=True)
    app = load_app(order["app"], url=order["url"], schema=order["schema"])
    revive()
    settings: Any = {"queues": declared_queues(app), **worker_options(order["settings"]), "blocked": BLOCKED}
    chosen = WorkerSettings.of(**settings)  # says now what is wrong with them
    parent.grace = chosen.grace
    parent.tell(loaded=_loaded(app, chosen.queues))
    app.use(parent.hear("go"))

    run_worker(lambda: app.make_worker(**settings), {signal.SIGTERM: on_signal}, begun=partial(obey, parent))
    parent.tell(finished=True)


def _loaded(app: "App", queues: Sequence[str]) -> Loaded:
    from holdfast.cli.output.introduction import enqueue_commands, start_warnings
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
