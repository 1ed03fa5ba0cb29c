"""`holdfast dev`: a database, a worker, and a new worker whenever a file is saved.

This process watches and tells; the App is loaded by a worker in a process of its own, so that new code never meets
old code, and code that cannot be loaded ends only that process. See `worker` for what the two say to each other.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import USAGE

if TYPE_CHECKING:
    from holdfast._db.config.resolve import Database
    from holdfast.cli.dashboard import Beside
    from holdfast.cli.dev.worker import Loaded, Order
    from holdfast.cli.worker.child import Child

LONGEST_PAUSE = 30.0
"""Seconds between two starts of a worker that crashes again and again."""
STABLE = 60.0
"""Seconds after which a crash is not counted together with those before."""


@click.command()
@click.argument("app", required=False)
@click.option(
    "-q", "--queues", multiple=True, metavar="NAMES", help="Queues to serve.  [default: all that APP declares]"
)
@click.option("-c", "--concurrency", type=click.IntRange(min=1), metavar="NUMBER", help="Steps at once.  [default: 10]")
@click.option(
    "--grace",
    type=duration,
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="Time for steps to end when it reloads or ends.",
)
@click.option("-y", "--yes", is_flag=True, help="Make the tables in a database that has none yet.")
@click.option("--no-reload", is_flag=True, help="Do not watch files.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    help="What the worker writes.  [default: info]",
)
@common_options
@pass_setup
def dev(
    setup: Setup,
    /,
    app: str | None,
    queues: Sequence[str],
    concurrency: int | None,
    grace: float,
    yes: bool,
    no_reload: bool,
    log_level: str | None,
) -> None:
    """Run the tasks of APP while you write them.

    It starts the embedded server of this project unless a database is named, makes the tables, and runs a worker
    that shows what happens, and the dashboard, at http://localhost:8420 or the next free port. In a database that is
    named, tables are made only with --yes. When a .py file or pyproject.toml of the project is saved, steps in flight
    may end within the grace time, or are given back uncharged, and a worker with the new code takes over. In a large
    project saves are noticed sooner with pip install 'holdfast[reload]'. Ctrl-C ends everything; a second one ends it
    at once.

    APP is named as for `holdfast worker`. Exit codes: 0 ended, 1 failed, 2 no such APP, 4 the database cannot be
    reached.

    \b
    Example:
      holdfast dev hello.py
      holdfast dev shop.app -q mail,default --url postgresql://localhost/shop
    """
    settings = {"queues": ",".join(queues) or None, "concurrency": concurrency, "grace": grace}
    order: Order = {
        "app": app,
        "url": setup.url,
        "schema": setup.chosen_schema,
        "settings": {name: each for name, each in settings.items() if each is not None},
        "log_level": log_level,
        "json": setup.json,
    }

    async def live() -> int:
        return await Dev(order, grace, reload=not no_reload, yes=yes).run()

    code = asyncio.run(live())
    if code:
        raise click.exceptions.Exit(code)


class Dev:
    """One `holdfast dev`, from its start to Ctrl-C."""

    def __init__(self, order: "Order", grace: float, *, reload: bool, yes: bool) -> None:
        from holdfast.cli.dev.database import DevDatabase
        from holdfast.cli.dev.reload import watched_folder
        from holdfast.cli.dev.talk import Talk

        self._order = order
        self._grace = grace
        self._watched = watched_folder(order["app"]) if reload else None
        self._talk = Talk(as_json=order["json"], watched=self._watched)
        self._database = DevDatabase(self._talk, order["url"], yes=yes)
        self._ending, self._at_once, self._saved = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._files: set[Path] = set()
        self._was_ready = self._was_saved = False
        self._child: Child | None = None
        self._dashboard: Beside | None = None
        self._crashes = 0

    async def run(self) -> int:
        """Lives until a signal, or an error that no save can repair; the exit code."""

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)
        helpers: list[asyncio.Task[None]] = []
        try:
            if self._watched is not None:
                helpers.append(loop.create_task(self._watch(self._watched)))
                # It watches before any of the code is loaded, so that no save is overlooked.
                await asyncio.sleep(0)
            return await self._lives()
        finally:
            for helper in helpers:
                helper.cancel()
            await self._end_child()
            if self._dashboard is not None:
                await asyncio.to_thread(self._dashboard.stop)
            await self._database.close()

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self._talk.ending()
        elif number != signal.SIGHUP:
            self._at_once.set()

    async def _watch(self, folder: Path) -> None:
        from holdfast.cli.dev.reload import saves

        async for files in saves(folder, self._talk.warn):
            self._files |= files
            self._saved.set()

    # --- one worker after the other

    async def _lives(self) -> int:
        from holdfast.cli.worker.child import Child

        while True:
            self._child = await Child.start("holdfast.cli.dev.worker", order=self._order, server=self._database.folder)
            await self._attend(self._child)
            if self._child.ended.done() and not self._is_interrupted:
                code = await self._after_end(self._child)
                if code is not None:
                    return code
            if self._ending.is_set():
                return 0
            await self._make_way()

    async def _attend(self, child: "Child") -> None:
        """From the start of a worker until it has ended, or until there is a reason to end it."""
        await self._until(child.loaded, child.ended)
        if self._is_interrupted or not child.loaded.done():
            return
        loaded = child.loaded.result()
        try:
            database = await self._prepared(loaded)
        except Exception as error:
            if not self._was_ready:
                raise
            self._talk.failed(error)
            await child.stop(0, self._at_once)
            return
        if database is None:
            return
        self._talk.loaded(self._order["app"], loaded, database)
        child.tell(go=database.url, server=self._database.folder)
        await self._show(database.url, loaded["schema"])
        await self._until(child.started, child.ended)
        if child.started.done():
            self._talk.started(round(child.started.result(), 3), again=self._was_ready)
            self._was_ready = True
        if not self._is_interrupted:
            await self._until(child.ended)

    async def _show(self, url: str, schema: str) -> None:
        """Serves the dashboard of this database, unless it does already."""
        from holdfast.cli.dashboard import Beside

        before = self._dashboard
        if before is not None and before.url == url:
            return
        if before is not None:
            await asyncio.to_thread(before.stop)
        self._dashboard = await asyncio.to_thread(Beside, url, schema)
        self._talk.shown(self._dashboard)

    async def _after_end(self, child: "Child") -> int | None:
        """A worker ended by itself: waits for a reason to start another; the exit code if there will be none."""
        code = child.ended.result()
        if child.started.done() and not child.is_finished:
            self._crashes = 1 if child.age > STABLE else self._crashes + 1
            pause = min(LONGEST_PAUSE, 2.0 ** (self._crashes - 1))
            self._talk.crashed(child, pause)
            await self._until(limit=pause)
            return None
        if child.started.done():
            self._talk.stopped()
        elif code != USAGE or self._was_saved:
            self._talk.not_started(code)
        else:
            return USAGE
        if self._watched is None:
            return code
        await self._until()
        return None

    async def _make_way(self) -> None:
        """Ends the worker for another one with the code that was saved."""
        from holdfast.cli.dev.reload import forget_bytecode

        files = self._taken_files()
        if files:
            self._crashes, self._was_saved = 0, True
            self._talk.reloading(files)
        await self._end_child()
        # What was saved meanwhile is loaded by the next worker too.
        forget_bytecode(files | self._taken_files())

    def _taken_files(self) -> set[Path]:
        self._saved.clear()
        files, self._files = self._files, set()
        return files

    async def _end_child(self) -> None:
        child, self._child = self._child, None
        if child is None or child.ended.done():
            return
        child.stopping.add_done_callback(lambda heard: self._talk.waits_for(heard.result(), self._grace))
        if not await child.stop(self._grace, self._at_once):
            self._talk.killed()

    @property
    def _is_interrupted(self) -> bool:
        return self._ending.is_set() or self._saved.is_set()

    async def _until(self, *futures: "asyncio.Future[Any]", limit: float | None = None) -> None:
        """Waits for one of these, for a save, for the end, or for a limited time."""
        others = [asyncio.ensure_future(each.wait()) for each in (self._ending, self._saved)]
        try:
            await asyncio.wait([*futures, *others], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in others:
                each.cancel()

    # --- the database

    async def _prepared(self, loaded: "Loaded") -> "Database | None":
        """The database with its tables; None if the end came first."""
        preparing = asyncio.ensure_future(self._database.prepare(loaded))
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait([preparing, ending], return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if preparing.done():
            return preparing.result()
        preparing.cancel()
        with suppress(asyncio.CancelledError):
            await preparing
        return None
