"""`holdfast worker` and `holdfast stop`."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from holdfast.cli.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output import FAILED, NOT_FOUND, Failure, line, note, print_json

if TYPE_CHECKING:
    from holdfast._engine.worker import Worker
    from holdfast.app import App
    from holdfast.insights import WorkerInfo

log = logging.getLogger("holdfast.worker")

SILENT = 60.0
"""Seconds without a sign of life after which nobody waits for a worker any more."""


@click.command()
@click.argument("app", required=False)
@click.option(
    "-q", "--queues", multiple=True, metavar="NAMES", help="Queues to serve: mail,default.  [default: default]"
)
@click.option("-c", "--concurrency", type=int, default=10, show_default=True, help="Steps at once.")
@click.option("--lease", type=duration, default="30s", show_default=True, help="Others take over after this silence.")
@click.option(
    "--beat", type=duration, help="How often leases are renewed.  [default: a third of the lease, 10s at most]"
)
@click.option("--poll", type=duration, default="1s", show_default=True, help="Look for tasks this often in any case.")
@click.option("--reap", type=duration, default="5s", show_default=True, help="Look for lost workers this often.")
@click.option("--grace", type=duration, default="30s", show_default=True, help="Time for steps to end when stopping.")
@click.option("--name", default="", help="A label for people.  [default: host:pid]")
@click.option("--drain", is_flag=True, help="Stop when nothing is due any more.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
)
@click.option("--log-format", type=click.Choice(["pretty", "json"]), help="json also by --json.  [default: pretty]")
@common_options
@pass_setup
def worker(
    setup: Setup,
    /,
    app: str | None,
    queues: Sequence[str],
    drain: bool,
    log_level: str,
    log_format: str | None,
    **settings: Any,
) -> None:
    """Run the tasks of APP.

    APP is a module or a file with an App in it: shop.app:app, shop.app, hello.py or hello.py:app. Without one, it is
    what [tool.holdfast] app in pyproject.toml says.

    SIGTERM and Ctrl-C stop it gracefully: running steps may end within the grace time, the rest is given back. A
    second signal stops it at once. Exit codes: 0 stopped, 1 failed, 4 the database cannot be reached.

    \b
    Example:
      holdfast worker shop.app -q mail,default -c 20
      holdfast worker hello.py --drain
    """
    from holdfast._engine.settings import WorkerSettings
    from holdfast.cli.load import load_app
    from holdfast.cli.logs import configure

    settings["queues"] = ",".join(queues) or "default"
    chosen = WorkerSettings.of(**settings)  # says now what is wrong with them
    configure(log_level, log_format or ("json" if setup.json else "pretty"))
    loaded = load_app(app, url=setup.url, schema=setup.chosen_schema)
    loaded.database  # noqa: B018 - says now if there is none
    _tell_start(loaded, chosen.queues)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(lambda: loaded.make_worker(**settings), drain))


async def _serve(make: Callable[[], "Worker"], drain: bool) -> None:
    """Runs a worker until it ends or a signal ends it."""
    from holdfast.errors import ConfigError

    made = make()
    running = asyncio.create_task(made.run(until_idle=drain), name="holdfast worker")
    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(each, _on_signal, made, running, each)
    try:
        await running
    except asyncio.CancelledError:
        if not running.cancelled():
            raise
    except ConfigError as error:
        raise Failure(str(error), FAILED, type(error).__name__) from None
    log.info("stopped")


def _on_signal(made: "Worker", running: "asyncio.Task[None]", number: signal.Signals) -> None:
    if not made.started.is_set():
        # It still waits for the database or opens resources: there is nothing to finish.
        running.cancel()
        return
    held = len(made.roster.held)
    tasks = "1 task" if held == 1 else f"{held} tasks"
    if made.stopping:
        log.info("%s: stopping at once; what runs is given back (%s)", number.name, tasks)
    else:
        log.info(
            "%s: stopping; what runs may end within the grace time (%s). Once more stops at once", number.name, tasks
        )
    made.stop()


def _tell_start(app: "App", queues: Sequence[str]) -> None:
    from holdfast._db.config import redact

    known = sorted({f"{step.kind}.{step.name}" for step in app._steps.values()})
    log.info("database %s (%s), schema %s", redact(app.database.url), app.database.source, app.schema)
    if not known:
        log.warning("this App declares no tasks: did you name its modules, App(modules=[…])?")
    else:
        log.info("%s steps: %s", len(known), ", ".join(known))
    elsewhere = sorted({(step.queue, step.kind) for step in app._steps.values() if step.queue not in queues})
    for queue, kind in elsewhere:
        log.warning("%s goes to the queue %s, which this worker does not serve: add -q %s", kind, queue, queue)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.implementation.name != "cpython" or sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


# --- stop


@click.command()
@click.argument("worker_id", type=click.UUID, required=False)
@click.option("--wait", is_flag=True, help="Wait until they have stopped.")
@click.option("--timeout", type=duration, default="5m", show_default=True, help="How long to wait.")
@common_options
@pass_setup
def stop(setup: Setup, /, worker_id: UUID | None, wait: bool, timeout: float) -> None:
    """Ask all workers to stop, or the one with WORKER_ID.

    They stop as by SIGTERM, wherever they run. Exit code 3 if there is no such worker.

    \b
    Example:
      holdfast stop --wait
      holdfast stop 01890a5d-ac96-774b-bcce-b302099a8057
    """
    from holdfast import insights

    with setup.opened() as (app, queries):
        asked = app.stop_workers(worker_id)
        if worker_id is not None and not asked:
            raise Failure(f"there is no running worker {worker_id}", NOT_FOUND, "WorkerNotFound")

        def look() -> "list[WorkerInfo]":
            known = app.ask(insights.workers(queries, limit=10_000))
            return [each for each in known if each.stop_requested_at and (worker_id is None or each.id == worker_id)]

        if not setup.json:
            several = "s" if asked > 1 else ""
            click.echo(f"asked {asked} worker{several} to stop." if asked else "no worker is running.")
        left, lost = _wait_for(look, timeout) if wait else ([], [])
    if setup.json:
        print_json({"asked": asked, "waited": wait, "running": left, "lost": lost})
    elif wait and asked:
        for each in lost:
            note(f"{line(each.name)} ({each.id}) shows no sign of life since {each.seen_at:%Y-%m-%d %H:%M:%S %Z}.")
        if not left:
            click.echo("stopped." if not lost else "the others have stopped.")
    if left:
        raise Failure(f"{len(left)} have not stopped within {timeout:g} s: {', '.join(str(e.id) for e in left)}")


def _wait_for(look: "Callable[[], list[WorkerInfo]]", timeout: float) -> "tuple[list[WorkerInfo], list[WorkerInfo]]":
    """Those that have not stopped in time, and those that are not there any more to do so."""
    until = time.monotonic() + timeout
    signs: dict[UUID, tuple[Any, float]] = {}
    while True:
        open_ = [each for each in look() if each.stopped_at is None]
        now = time.monotonic()
        for each in open_:
            if each.id not in signs or signs[each.id][0] != each.seen_at:
                signs[each.id] = (each.seen_at, now)
        lost = [each for each in open_ if _is_silent(each) or now - signs[each.id][1] > SILENT]
        left = [each for each in open_ if each not in lost]
        if not left or now > until:
            return left, lost
        time.sleep(0.1)


def _is_silent(worker: "WorkerInfo") -> bool:
    """Whether it had been silent for long when it was asked; both times are the database's."""
    asked = worker.stop_requested_at
    return asked is not None and (asked - worker.seen_at).total_seconds() > SILENT
