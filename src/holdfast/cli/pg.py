"""`holdfast pg`: the embedded PostgreSQL on the command line."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import click

from holdfast import embedded
from holdfast.embedded import Server
from holdfast.errors import HoldfastError

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Failure(click.ClickException):
    """Something to say on stderr, without a traceback."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.format_message()}", file=file or sys.stderr)


class _NotFound(_Failure):
    exit_code = 3


class _Group(click.Group):
    """A group whose commands end with one line instead of a traceback when Holdfast says no."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            raise _Failure(str(error)) from error


def _folder_option(command: _Command) -> _Command:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path, file_okay=False),
        help="The server's folder. Default: .holdfast of this project, else of the user.",
    )(command)


def _json_option(command: _Command) -> _Command:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def _database_option(command: _Command) -> _Command:
    return click.option("--database", "-d", default="postgres", show_default=True, help="The database to connect to.")(
        command
    )


@click.group("pg", cls=_Group)
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
@_json_option
def start(folder: Path | None, durable: bool, as_json: bool) -> None:
    """Start the server, or find the one that is running.

    The first start sets it up. It goes on running until `holdfast pg stop`.

    \b
    Example:
      holdfast pg start
      export HOLDFAST_URL=$(holdfast pg url)
    """
    before = embedded.find(folder)
    server = embedded.start(folder, durable=durable)
    reused = before is not None and before.pid == server.pid
    if as_json:
        _print_json({**_facts(server), "started": not reused})
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
@_json_option
def stop(folder: Path | None, mode: embedded.Mode, as_json: bool) -> None:
    """Stop the server. The data stays.

    \b
    Example:
      holdfast pg stop
      holdfast pg stop --mode smart
    """
    server = _running(folder, as_json=as_json)
    server.stop(mode)
    if as_json:
        _print_json({"running": False, "pid": server.pid, "folder": str(server.folder)})
    else:
        click.echo(f"PostgreSQL {server.version} (pid {server.pid}) stopped.")


@pg.command()
@_folder_option
@_json_option
def status(folder: Path | None, as_json: bool) -> None:
    """Say whether the server is running, and where. Exit code 3 if it is not.

    \b
    Example:
      holdfast pg status
      holdfast pg status --json
    """
    server = _running(folder, as_json=as_json)
    if as_json:
        _print_json(_facts(server))
    else:
        click.echo(f"PostgreSQL {server.version} is running.")
        _print_facts(server)


@pg.command()
@_folder_option
@_database_option
@_json_option
def url(folder: Path | None, database: str, as_json: bool) -> None:
    """Print the URL of the running server.

    \b
    Example:
      export HOLDFAST_URL=$(holdfast pg url)
      pg_dump "$(holdfast pg url --database shop)"
    """
    found = _running(folder, as_json=as_json).url(database)
    if as_json:
        _print_json({"url": found})
    else:
        click.echo(found)


@pg.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@_folder_option
@_database_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[PSQL ARGUMENTS]...")
def psql(folder: Path | None, database: str, arguments: tuple[str, ...]) -> None:
    """Open psql on the running server. What follows goes to psql.

    \b
    Example:
      holdfast pg psql
      holdfast pg psql -c 'select version()'
    """
    server = _running(folder)
    program = server.bindir / "psql"
    found = str(program) if program.is_file() else shutil.which("psql")
    if found is None:
        raise _Failure(f"There is no psql in {server.bindir} nor on the PATH. Install the client of PostgreSQL.")
    sys.stdout.flush()
    os.execv(found, ["psql", f"--dbname={server.url(database)}", *arguments])  # noqa: S606


@pg.command()
@_folder_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(folder: Path | None, yes: bool) -> None:
    """Stop the server and delete all its data.

    \b
    Example:
      holdfast pg reset
      holdfast pg reset --yes
    """
    target = folder or embedded.default_folder()
    if not target.exists():
        raise _NotFound(f"There is no {target}: nothing to delete. `holdfast pg start` sets it up.")
    if not yes:
        click.confirm(f"Delete all data of the PostgreSQL in {target}?", abort=True)
    embedded.reset(target)
    click.echo(f"The data of {target} is deleted. `holdfast pg start` sets it up anew.")


def _running(folder: Path | None, *, as_json: bool = False) -> Server:
    server = embedded.find(folder)
    if server is None:
        _not_running(folder or embedded.default_folder(), as_json=as_json)
    return server


def _not_running(folder: Path, *, as_json: bool) -> NoReturn:
    if as_json:
        _print_json({"running": False, "folder": str(folder)})
    raise _NotFound(f"No embedded PostgreSQL is running in {folder}. Start it with `holdfast pg start`.")


def _facts(server: Server) -> dict[str, object]:
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
    lines = {"url": server.url(), "pid": server.pid, "data": server.data, "log": server.log}
    for name, value in lines.items():
        click.echo(f"  {name:<5} {value}")
    if not server.durable:
        click.echo("  It is not durable: a crash of the machine may damage the data.")


def _print_json(content: dict[str, object]) -> None:
    click.echo(json.dumps(content, indent=2))
