"""`holdfast worker`: runs the tasks of an App."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from holdfast._model.safe_log import Log
from holdfast.cli.input.options import Setup, common_options, pass_setup, setting_option
from holdfast.cli.output.printing import FAILED, Failure

if TYPE_CHECKING:
    from holdfast._engine.settings import WorkerSettings
    from holdfast._engine.worker import Worker
    from holdfast.app import App
    from holdfast.cli.worker.member import Order

log = Log("holdfast.worker")


@click.command()
@click.argument("app", required=False)
@setting_option("queues", "-q", multiple=True, metavar="NAMES", help="Queues to serve, with limits: mail:5,default.")
@setting_option("only", multiple=True, metavar="STEP", help="Know only this kind or step, such as video.Encode.")
@setting_option("concurrency", "-c", metavar="NUMBER")
@setting_option("lease", metavar="DURATION")
@setting_option("beat", metavar="DURATION")
@setting_option("poll", metavar="DURATION")
@setting_option("reap", metavar="DURATION")
@setting_option("grace", metavar="DURATION")
@setting_option("retention", metavar="DURATION")
@setting_option("processes", metavar="NUMBER")
@setting_option("max_tasks", metavar="NUMBER")
@setting_option("max_memory", metavar="SIZE")
@setting_option("http", metavar="ADDRESS")
@click.option("--name", default="", help="A label for people.  [default: host:pid]")
@click.option("--drain", is_flag=True, help="Stop when nothing is due any more.")
@setting_option("log_level", metavar="LEVEL", help="What it writes: debug, info, warning or error.")
@setting_option("log_format", metavar="FORMAT", help="How it writes it: pretty or json; json also by --json.")
@common_options
@pass_setup
def worker(
    setup: Setup,
    /,
    app: str | None,
    drain: bool,
    processes: int,
    max_tasks: int | None,
    max_memory: int | None,
    log_level: str,
    log_format: str,
    **settings: Any,
) -> None:
    """Run the tasks of APP.

    APP is a module or a file with an App in it: shop.app:app, shop.app, hello.py or hello.py:app. Without one, it is
    what [tool.holdfast] app in pyproject.toml says.

    SIGTERM and Ctrl-C stop it gracefully: running steps may end within the grace time, the rest is given back. A
    second signal stops it at once. Exit codes: 0 stopped, 1 failed, 4 the database cannot be reached.

    -q mail:5,default executes at most 5 steps of mail at once. Queues share the slots: while several have work, none
    takes all. --only is for special machines: the other steps of APP stay for other workers.

    --processes starts several worker processes, each with all of -q and -c, and replaces one that dies. --max-tasks
    and --max-memory replace a process that has done much or uses much; its steps end first. A signal to the parent
    stops them all; the exit code is the worst of theirs.

    --http serves /healthz, /readyz and /metrics at an address, for load balancers and Prometheus; with --processes each
    process has a port of its own, the given one and those that follow.

    It never starts a database server: `holdfast dev` does, for development.

    \b
    Example:
      holdfast worker shop.app --processes 4 --max-memory 500MB
      holdfast worker shop.app -q mail:5,default -c 20
      holdfast worker shop.app --only video.Encode --only thumbnails
      holdfast worker shop.app --http 127.0.0.1:8421
      holdfast worker hello.py --drain
    """
    from holdfast._engine.settings import WorkerSettings
    from holdfast.cli.input.app import load_app
    from holdfast.cli.output.logs import configure, revive

    chosen = WorkerSettings.of(**settings)  # says now what is wrong with them
    if setup.json and setup.setting("log_format").is_default:
        log_format = "json"
    configure(log_level, log_format)
    if processes > 1 or max_tasks is not None or max_memory is not None:
        order: Order = {
            "number": 1,
            "processes": processes,
            "introduces": True,
            "app": app,
            "url": setup.url,
            "schema": setup.chosen_schema,
            "settings": settings,
            "max_tasks": max_tasks,
            "max_memory": max_memory,
            "drain": drain,
            "log_level": log_level,
            "log_format": log_format,
            "json": setup.json,
        }
        _supervise(order, chosen.grace)
    else:
        loaded = load_app(app, url=setup.url, schema=setup.chosen_schema)
        revive()
        loaded.database  # noqa: B018 - says now if there is none
        tell_start(loaded, chosen)
        run_worker(lambda: loaded.make_worker(**settings), dict.fromkeys(_SIGNALS, _on_signal), drain=drain)
    log.info("stopped")


def _supervise(order: "Order", grace: float) -> None:
    from holdfast.cli.worker.supervisor import Supervisor

    if sys.platform == "win32":
        raise click.UsageError("--processes, --max-tasks and --max-memory are not for Windows: start several workers.")

    async def live() -> int:
        return await Supervisor(order, grace).run()

    code = asyncio.run(live())
    if code:
        raise click.exceptions.Exit(code)


OnSignal: TypeAlias = "Callable[[Worker, asyncio.Task[None], signal.Signals], None]"
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_worker(
    make: Callable[[], "Worker"],
    on_signals: Mapping[signal.Signals, OnSignal],
    *,
    drain: bool = False,
    begun: "Callable[[Worker, asyncio.Task[None]], None] | None" = None,
) -> None:
    """Runs a worker in a loop of its own until it ends, or until one of these signals ends it."""
    from holdfast._model.garbage import loaded_set_aside

    with loaded_set_aside(), asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        serving = loop.create_task(_serve(make, on_signals, drain, begun), name="holdfast serve")
        turned = asyncio.Event()
        while not serving.done():
            turned.clear()
            loop.call_soon(turned.set)
            try:
                loop.run_until_complete(serving)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                if not turned.is_set():
                    # Without its descriptors the loop fails again and again, and so would closing it.
                    log.critical("the event loop of this process cannot go on, and the worker ends: %r", error)
                    os._exit(FAILED)
                if not serving.done() and not loop.is_closed():
                    # Code beside the worker has stopped the loop, or a Task or a callback of its own tried to exit.
                    log.error("something in this process tried to end its event loop; the worker goes on: %r", error)
                elif isinstance(error, Exception):
                    raise
                else:
                    raise _ended_by(error) from error


def _ended_by(error: BaseException) -> Failure:
    """What is told of a worker that ended without having been asked to: silence would look like a stop."""
    what = "was cancelled" if isinstance(error, asyncio.CancelledError) else f"was ended by {type(error).__name__}"
    return Failure(
        f"the worker {what}, and nobody asked it to stop: code of this process did that, a step perhaps that cancels "
        "all tasks of the event loop. Let it cancel only what it has begun itself. What this worker held is taken over "
        "when its leases have run out",
        FAILED,
        "WorkerEnded",
    )


async def _serve(
    make: Callable[[], "Worker"],
    on_signals: Mapping[signal.Signals, OnSignal],
    drain: bool,
    begun: "Callable[[Worker, asyncio.Task[None]], None] | None",
) -> None:
    from holdfast.errors import ConfigError

    made = make()
    running = asyncio.create_task(made.run(until_idle=drain), name="holdfast worker")
    loop = asyncio.get_running_loop()
    heard: set[signal.Signals] = set()

    def on_signal(react: OnSignal, number: signal.Signals) -> None:
        heard.add(number)
        react(made, running, number)

    for each, react in on_signals.items():
        with suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(each, on_signal, react, each)
    if begun is not None:
        begun(made, running)
    try:
        await running
    except asyncio.CancelledError:
        if made.started.is_set() or not made.stopping:  # else see `stop_worker`
            raise
    except ConfigError as error:
        raise Failure(str(error), FAILED, type(error).__name__) from None
    finally:
        if heard:
            be_deaf_to(on_signals)


def be_deaf_to(numbers: Iterable[signal.Signals]) -> None:
    """This process has been told to end, and does: who says it once more is not to kill it on its last lines."""
    loop = asyncio.get_running_loop()
    for each in numbers:
        loop.remove_signal_handler(each)
        signal.signal(each, signal.SIG_IGN)


def stop_worker(made: "Worker", running: "asyncio.Task[None]") -> bool:
    """Asks a worker to stop, at once if it was asked before. False if it had not begun: then it just ends."""
    if not made.started.is_set():
        # It still waits for the database or opens resources: there is nothing to finish.
        made.stop()
        running.cancel()
        return False
    made.stop()
    return True


def steps_in_flight(made: "Worker") -> int:
    """How many steps a worker executes just now."""
    return sum(attempt.handle is not None for attempt in made.roster.held.values())


def _on_signal(made: "Worker", running: "asyncio.Task[None]", number: signal.Signals) -> None:
    was_stopping, steps = made.stopping, steps_in_flight(made)
    if not stop_worker(made, running):
        return
    tasks = "1 task" if steps == 1 else f"{steps} tasks"
    if was_stopping:
        log.info("%s: stopping at once; what runs is given back (%s)", number.name, tasks)
    elif steps:
        log.info(
            "%s: stopping; what runs may end within the grace time (%s). Once more stops at once", number.name, tasks
        )
    else:
        log.info("%s: stopping; nothing runs", number.name)


def tell_start(app: "App", settings: "WorkerSettings") -> None:
    """The first lines of a worker: its database, its steps, and what is odd."""
    from holdfast.cli.output.introduction import database_in_short, start_warnings, steps_in_short

    log.info("database: %s", database_in_short(app.database, app.schema))
    if app._steps:
        log.info("%s", steps_in_short(app))
    for warning in start_warnings(app, settings.queues, settings.only):
        log.warning("%s", warning)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.implementation.name != "cpython" or sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        from holdfast._engine.lease.heartbeat import new_loop

        return new_loop
    return uvloop.new_event_loop
