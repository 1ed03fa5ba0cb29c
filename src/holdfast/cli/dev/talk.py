"""What `holdfast dev` says: lines for people, or one JSON object per event."""

import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output.printing import line, report

if TYPE_CHECKING:
    from holdfast._db.config.resolve import Database
    from holdfast.cli.dashboard import Beside
    from holdfast.cli.dev.worker import Loaded
    from holdfast.cli.worker.child import Child

MOST_COMMANDS = 15


class Talk:
    """The voice of one `holdfast dev`."""

    def __init__(self, *, as_json: bool, watched: Path | None) -> None:
        self._json = as_json
        self._watched = watched
        self._commands: list[str] | None = None
        self._warnings: list[str] = []

    def loaded(self, app: str | None, loaded: "Loaded", database: "Database") -> None:
        """The first time everything; later what is new."""
        where = _where(database.url, loaded["schema"])
        commands = [each + where for each in loaded["commands"]]
        before, self._commands = self._commands, commands
        if before is None:
            self._beginning(app, loaded, database)
        else:
            self._differences(before, commands)
        for warning in loaded["warnings"]:
            if warning not in self._warnings:
                self._say("warning", f"{click.style('warning:', fg='yellow')} {line(warning)}", warning=warning)
        self._warnings = loaded["warnings"]

    def _beginning(self, app: str | None, loaded: "Loaded", database: "Database") -> None:
        from holdfast.cli.output.introduction import database_in_short

        shown = database_in_short(database, loaded["schema"])
        commands = self._commands or []
        more = [f"… and {len(commands) - MOST_COMMANDS} more"] if len(commands) > MOST_COMMANDS else []
        rows = [
            ("database", [shown]),
            ("queues", [", ".join(loaded["queues"])]),
            ("tasks", [click.style(line(each), fg="cyan") for each in commands[:MOST_COMMANDS]] + more),
        ]
        lines = [
            f"  {click.style((name if number == 0 else '').ljust(8), dim=True)}  {text}"
            for name, texts in rows
            for number, text in enumerate(texts)
        ]
        title = click.style(f"holdfast dev {line(app or '')}".rstrip(), bold=True)
        hint = "Save a file to reload, Ctrl-C ends." if self._watched else "Ctrl-C ends."
        self._say(
            "loaded",
            "\n".join([title, *lines, click.style(f"  {hint}", dim=True)]),
            database=shown,
            schema=loaded["schema"],
            queues=loaded["queues"],
            commands=commands,
            watched=str(self._watched) if self._watched else None,
        )

    def shown(self, dashboard: "Beside") -> None:
        where = click.style(dashboard.address, fg="cyan") if dashboard.address else line(dashboard.trouble)
        self._say("dashboard", f"  {click.style('browser ', dim=True)}  {where}", address=dashboard.address)

    def _differences(self, before: list[str], commands: list[str]) -> None:
        new, gone = [each for each in commands if each not in before], [each for each in before if each not in commands]
        lines = [f"  new: {click.style(line(each), fg='cyan')}" for each in new]
        lines += [click.style(f"  no more: {line(each)}", dim=True) for each in gone]
        self._say("loaded", "\n".join(lines), commands=commands, new=new, gone=gone)

    def warn(self, text: str) -> None:
        self._say("warning", f"{click.style('warning:', fg='yellow')} {line(text)}", warning=text)

    def starting_server(self) -> None:
        self._say("starting_server", click.style("Starting PostgreSQL …", dim=True))

    def migrated(self, applied: list[str]) -> None:
        self._say("migrated", f"The tables are made: {line(', '.join(applied))}.", applied=applied)

    def started(self, seconds: float, *, again: bool) -> None:
        self._say("started", click.style(f"Reloaded in {seconds:.1f} s.", dim=True) if again else "", seconds=seconds)

    def reloading(self, files: Iterable[Path]) -> None:
        from holdfast.cli.dev.reload import told

        text = f"{line(told(files, self._watched or Path()))} saved: reloading"
        self._say("reloading", click.style(text, bold=True), files=sorted(map(str, files)))

    def waits_for(self, steps: int, grace: float) -> None:
        if steps:
            what = "1 step that runs" if steps == 1 else f"{steps} steps that run"
            self._say("waiting", click.style(f"Waiting for {what}, {grace:g} s at most …", dim=True), steps=steps)

    def not_started(self, code: int) -> None:
        self._say(
            "not_started", click.style("Waiting for the next save …", dim=True) if self._watched else "", code=code
        )

    def stopped(self) -> None:
        hint = " Save a file to start it again." if self._watched else ""
        self._say("worker_stopped", f"The worker was asked to stop.{hint}")

    def crashed(self, child: "Child", pause: float) -> None:
        text = f"The worker ended {child.end}. Another starts in {pause:g} s" + (
            ", or when you save a file." if self._watched else "."
        )
        self._say("worker_crashed", click.style(text, fg="red"), end=child.end, pause=pause)

    def killed(self) -> None:
        text = "The worker did not end and was killed: its tasks go on when their leases run out."
        self._say("worker_killed", click.style(text, fg="yellow"))

    def ending(self) -> None:
        self._say("ending", "\nEnding …")

    def server_again(self) -> None:
        self._say("server_started", "PostgreSQL had ended: it is started again.")

    def server_stopped(self) -> None:
        self._say("server_stopped", "PostgreSQL is stopped; its data stays.")

    def failed(self, error: Exception) -> None:
        """An error that the next save may repair."""
        from holdfast.cli.output.printing import failure_of

        report(failure_of(error), as_json=self._json)

    def _say(self, event: str, text: str, **facts: Any) -> None:
        with suppress(OSError):  # the terminal is gone: what is to be ended is ended all the same
            if self._json:
                click.echo(json.dumps({"event": event, **facts}))
            elif text:
                click.echo(text)


def _where(url: str, schema: str) -> str:
    """What has to be added to commands: nothing if they find the database by themselves."""
    from holdfast._db.config.resolve import resolve, setting
    from holdfast._model.json.redact import redact
    from holdfast.errors import NoDatabase

    words = []
    try:
        is_found = resolve().url == url
    except NoDatabase:
        is_found = False
    if not is_found:
        words += ["--url", redact(url)]
    if setting("schema").value != schema:
        words += ["--schema", schema]
    return "".join(f" {shlex.quote(word)}" for word in words)
