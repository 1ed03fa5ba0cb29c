"""`holdfast pg`: the embedded PostgreSQL on the command line."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import embedded
from holdfast.cli.input.options import Setup, json_option, pass_setup
from holdfast.cli.output.printing import NOT_FOUND, Failure, facts, note, print_json
from holdfast.embedded import Server

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _folder_option(command: _Command) -> _Command:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        help="The server's folder. Default: .holdfast of this project, or of the current folder.",
    )(command)


def _database_option(command: _Command) -> _Command:
    return click.option("--database", "-d", default="postgres", show_default=True, help="The database to connect to.")(
        command
    )


@click.group("pg")
@json_option
def pg() -> None:
    """Run a PostgreSQL of your own, for development and tests.

    \b
    Example:
      holdfast pg start
      holdfast pg psql
      holdfast pg stop
    """


@pg.command()
@_folder_option
@click.option(
    "--durable/--no-durable",
    default=True,
    help="Whether data must survive a crash of the machine. --no-durable is faster: for tests.",
)
@json_option
@pass_setup
def start(setup: Setup, /, folder: Path | None, durable: bool) -> None:
    """Start the server, or find the one that is running.

    The first start sets it up. It goes on running until `holdfast pg stop`.

    \b
    Example:
      holdfast pg start
      export HOLDFAST_URL=$(holdfast pg url)
    """
    before = embedded.find(folder)
    if before is None and not setup.json and sys.stderr.isatty():
        note("starting PostgreSQL …")  # the first time takes seconds
    server = embedded.start(folder, durable=durable)
    reused = before is not None and before.pid == server.pid
    if setup.json:
        print_json({**_told(server), "started": not reused})
    else:
        click.echo(f"PostgreSQL {server.version} {'is already running' if reused else 'started'}.")
        _print_facts(server)


@pg.command()
@_folder_option
@click.option(
    "--mode",
    type=click.Choice(["smart", "fast", "immediate"]),
    default="fast",
    show_default=True,
    help="smart waits for clients to leave, fast ends their sessions, immediate does not tidy up.",
)
@json_option
@pass_setup
def stop(setup: Setup, /, folder: Path | None, mode: embedded.Mode) -> None:
    """Stop the server. The data stays.

    \b
    Example:
      holdfast pg stop
      holdfast pg stop --mode smart
    """
    server = _running(setup, folder)
    server.stop(mode)
    if setup.json:
        print_json({"running": False, "pid": server.pid, "folder": str(server.folder)})
    else:
        click.echo(f"PostgreSQL {server.version} (pid {server.pid}) stopped.")


@pg.command()
@_folder_option
@json_option
@pass_setup
def status(setup: Setup, /, folder: Path | None) -> None:
    """Say whether the server is running, and where. Exit code 3 if it is not.

    \b
    Example:
      holdfast pg status
      holdfast pg status --json
    """
    server = _running(setup, folder)
    if setup.json:
        print_json(_told(server))
    else:
        click.echo(f"PostgreSQL {server.version} is running.")
        _print_facts(server)


@pg.command()
@_folder_option
@_database_option
@json_option
@pass_setup
def url(setup: Setup, /, folder: Path | None, database: str) -> None:
    """Print the URL of the running server.

    \b
    Example:
      export HOLDFAST_URL=$(holdfast pg url)
      pg_dump "$(holdfast pg url --database shop)"
    """
    found = _running(setup, folder).url(database)
    if setup.json:
        print_json({"url": found})
    else:
        click.echo(found)


@pg.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_folder_option
@_database_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL ARGUMENTS]...")
@pass_setup
def psql(setup: Setup, /, folder: Path | None, database: str, arguments: tuple[str, ...]) -> None:
    """Open psql on the running server. What follows goes to psql.

    \b
    Example:
      holdfast pg psql
      holdfast pg psql -c 'select version()'
    """
    server = _running(setup, folder)
    program = server.bindir / "psql"
    found = str(program) if program.is_file() else shutil.which("psql")
    if found is None:
        raise Failure(f"there is no psql in {server.bindir} nor on the PATH. Install the client of PostgreSQL")
    sys.stdout.flush()
    os.execv(found, ["psql", f"--dbname={server.url(database)}", *arguments])  # noqa: S606


@pg.command()
@_folder_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_setup
def reset(setup: Setup, /, folder: Path | None, yes: bool) -> None:
    """Stop the server and delete all its data.

    \b
    Example:
      holdfast pg reset
      holdfast pg reset --yes
    """
    target = folder or embedded.default_folder()
    if not target.exists():
        raise Failure(f"there is no {target}: nothing to delete. Set it up with: {_start(folder)}", NOT_FOUND, _NAME)
    if not yes:
        if setup.json:
            raise click.UsageError(f"this deletes all data of the PostgreSQL in {target}: give --yes if that is meant.")
        click.confirm(f"Delete all data of the PostgreSQL in {target}?", abort=True)
    embedded.reset(target)
    if setup.json:
        print_json({"folder": str(target), "deleted": True})
    else:
        click.echo(f"the data of {target} is deleted. Set it up anew with: {_start(folder)}")


_NAME = "NoServer"


def _running(setup: Setup, folder: Path | None) -> Server:
    server = embedded.find(folder)
    if server is None:
        where = folder or embedded.default_folder()
        if setup.json:
            print_json({"running": False, "folder": str(where)})
        raise Failure(
            f"no embedded PostgreSQL is running in {where}. Start it with: {_start(folder)}", NOT_FOUND, _NAME
        )
    return server


def _start(folder: Path | None) -> str:
    return "holdfast pg start" + ("" if folder is None else f" --folder {shlex.quote(str(folder))}")


def _told(server: Server) -> dict[str, object]:
    return {
        "running": True,
        "url": server.url(),
        "pid": server.pid,
        "version": server.version,
        "durable": server.durable,
        "folder": str(server.folder),
        "data": str(server.data),
        "log": str(server.log),
        "bindir": str(server.bindir),
    }


def _print_facts(server: Server) -> None:
    facts([("url", server.url()), ("pid", str(server.pid)), ("data", str(server.data)), ("log", str(server.log))])
    if not server.durable:
        click.echo("  It is not durable: a crash of the machine may damage the data.")
