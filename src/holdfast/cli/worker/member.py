"""One of the worker processes of `holdfast worker --processes`: `python -m holdfast.cli.worker.member FD`."""

import asyncio
import random
import signal
import sys
from typing import TYPE_CHECKING, Any, TypedDict

from holdfast._model.safe_log import Log
from holdfast.cli.output.printing import exit_code
from holdfast.cli.worker.parent import Parent, listening, obey, on_signal

if TYPE_CHECKING:
    from holdfast._engine.worker import Worker

log = Log("holdfast.worker")

AGAIN = 75
"""The exit code of a process that has done enough and wants to be replaced."""
LOOK_SECONDS = 2.0
"""Seconds between two looks at the memory."""
SPREAD = 10
"""Several processes take up to this part of their tasks or memory less, so that they are not replaced all at once."""


class Order(TypedDict):
    """What the command wants to be done. `number` is for people; `introduces`: this one tells about the App."""

    number: int
    processes: int
    introduces: bool
    app: str | None
    url: str | None
    schema: str | None
    settings: dict[str, Any]
    max_tasks: int | None
    max_memory: int | None
    drain: bool
    log_level: str
    log_format: str
    json: bool


def main(descriptor: int) -> int:
    """Does what the command wants; the exit code."""
    with listening(Parent(descriptor)) as parent:
        order: Order = parent.hear("order")
        return exit_code(lambda: _work(parent, order), as_json=order["json"])


def _work(parent: Parent, order: Order) -> int:
    from holdfast._engine.settings import WorkerSettings
    from holdfast._model.address import beside, parse_address
    from holdfast.cli.commands.worker import run_worker, tell_start
    from holdfast.cli.input.app import load_app
    from holdfast.cli.output.logs import configure, revive

    number = order["number"] if order["processes"] > 1 else None
    configure(order["log_level"], order["log_format"], process=number)
    settings = order["settings"]
    if settings.get("name") and number is not None:
        settings["name"] += f"-{number}"
    if settings.get("http") is not None and number is not None:
        host, port = beside(parse_address(settings["http"]), number - 1)
        settings["http"] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    chosen = WorkerSettings.of(**settings)
    parent.grace = chosen.grace
    app = load_app(order["app"], url=order["url"], schema=order["schema"])
    revive()
    app.database  # noqa: B018 - says now if there is none
    if order["introduces"]:
        tell_start(app, chosen)
    workers: list[Worker] = []

    def begun(made: "Worker", running: "asyncio.Task[None]") -> None:
        workers.append(made)
        obey(parent, made, running)
        if order["max_tasks"] is not None:
            made.dispatcher.retire_after(spread(order["max_tasks"], order["processes"]))
        if order["max_memory"] is not None:
            watching = asyncio.get_running_loop().create_task(
                _watch_memory(made, spread(order["max_memory"], order["processes"]))
            )
            running.add_done_callback(lambda _: watching.cancel())

    run_worker(lambda: app.make_worker(**settings), {signal.SIGTERM: on_signal}, drain=order["drain"], begun=begun)
    if workers[0].retired:
        return AGAIN
    parent.tell(finished=True)
    return 0


def spread(limit: int, processes: int) -> int:
    """A limit for one of several processes: the same, or up to a tenth less."""
    return limit if processes == 1 else limit - random.randrange(limit // SPREAD + 1)  # noqa: S311


async def _watch_memory(made: "Worker", limit: int) -> None:
    from holdfast._db.config.settings import Size

    while True:
        used = memory()
        if used > limit:
            made.retire(f"it uses {Size(used)} of memory, more than {Size(limit)}")
            return
        await asyncio.sleep(LOOK_SECONDS)


def memory() -> int:
    """How many bytes of memory this process has in use; where nobody tells, the most that it had."""
    import os
    import resource

    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - every few seconds
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
