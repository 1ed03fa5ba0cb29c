"""`holdfast stop`: asks workers to stop."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from holdfast.cli.input.options import Setup, common_options, duration, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Failure, line, note, print_json

if TYPE_CHECKING:
    from holdfast.insights import WorkerInfo

SILENT = 60.0
"""Seconds without a sign of life after which nobody waits for a worker any more."""


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
    from holdfast.cli.input.user import me
    from holdfast.cli.output.introduction import database_in_short

    with setup.opened() as (app, queries):
        asked = app.stop_workers(worker_id, by=me())
        if worker_id is not None and not asked:
            raise Failure(f"there is no running worker {worker_id}", NOT_FOUND, "WorkerNotFound")

        def look() -> "list[WorkerInfo]":
            known = app.ask(insights.workers(queries, limit=10_000))
            return [each for each in known if each.stop_requested_at and (worker_id is None or each.id == worker_id)]

        if not setup.json:
            several = "s" if asked > 1 else ""
            click.echo(f"database: {database_in_short(setup.database(), setup.schema)}")
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
        lost = [each for each in open_ if not each.live or _is_silent(each) or now - signs[each.id][1] > SILENT]
        left = [each for each in open_ if each not in lost]
        if not left or now > until:
            return left, lost
        time.sleep(0.1)


def _is_silent(worker: "WorkerInfo") -> bool:
    """Whether it had been silent for long when it was asked; both times are the database's."""
    asked = worker.stop_requested_at
    return asked is not None and (asked - worker.seen_at).total_seconds() > SILENT
