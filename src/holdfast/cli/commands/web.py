"""`holdfast web`: the dashboard in a browser."""

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.output.printing import FAILED, Failure, note, print_json
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from holdfast.app import App
    from holdfast.web.serving import Serving

MISSING = "the dashboard needs more packages: pip install 'holdfast[web]'"


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8420, show_default=True, help="The port; 0: any.")
@click.option("--read-only", is_flag=True, help="Nobody can change anything.")
@click.option(
    "--tokens-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Who may look and act, a line each: name:role:token.  [or HOLDFAST_WEB_TOKENS]",
)
@click.option(
    "--trusted", is_flag=True, help="Without tokens: every user and program of this machine may look and act."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="A name it answers to; may be repeated.")
@click.option("--label", help="What the pages call this database.  [default: its host and name]")
@click.option("--root-path", default="", metavar="PATH", help="The path in front of it, if a proxy takes one off.")
@click.option("--hide", multiple=True, metavar="NAME", help="Hide values under names like this too.")
@common_options
@pass_setup
def web(
    setup: Setup,
    /,
    host: str,
    port: int,
    read_only: bool,
    tokens_file: Path | None,
    trusted: bool,
    hosts: Sequence[str],
    label: str | None,
    root_path: str,
    hide: Sequence[str],
) -> None:
    """Serve the dashboard.

    It listens on this machine only, and prints a link that lets in one browser, once: yours. For others, for programs
    and on any other address it needs tokens: HOLDFAST_WEB_TOKENS="ada:operator:… bob:viewer:…", or a file with a line
    for each. People log in with theirs; programs send it as Authorization: Bearer …. With --trusted whoever uses this
    machine may look and act: never behind a proxy.

    \b
    Example:
      holdfast web
      holdfast web --read-only --port 9000
      HOLDFAST_WEB_TOKENS=ada:operator:$TOKEN holdfast web --host 0.0.0.0 --allow-host tasks.example.com
    """
    serving = _serving(
        host, port, read_only, _auth(tokens_file, trusted), hosts=hosts, label=label, root_path=root_path, hide=hide
    )
    from holdfast.app import App
    from holdfast.web.auth import Starter
    from holdfast.web.serving import bound

    app = App(setup.url, schema=setup.chosen_schema)
    app.database  # noqa: B018 - complains now if nobody said which
    listening = bound(serving, insist=True)
    port = listening.getsockname()[1]
    if setup.json:
        print_json({"url": serving.address(port)})
    else:
        note(f"the dashboard is at {serving.address(port)} (Ctrl-C ends it)")
    if isinstance(serving.auth, Starter):
        serving.auth.when_used = lambda: note(f"a browser was let in; for another one: {serving.address(port)}")
    asyncio.run(_serve(app, serving, listening))


def _auth(file: Path | None, trusted: bool) -> str | None:
    """Tokens, or trust; None: only whoever has started it."""
    tokens = _tokens(file)
    if trusted and tokens:
        raise ConfigError("--trusted lets everybody on this machine in, so tokens are of no use: give one or the other")
    return "trusted" if trusted else tokens


def _tokens(file: Path | None) -> str | None:
    import os

    text = os.environ.get("HOLDFAST_WEB_TOKENS", "") if file is None else file.read_text("utf-8")
    if file is not None and not text.strip():
        raise ConfigError(f"{file} has no tokens in it: write name:role:token, a line each")
    return text.strip() or None


def _serving(
    host: str,
    port: int,
    read_only: bool,
    auth: str | None,
    *,
    hosts: Sequence[str],
    label: str | None,
    root_path: str,
    hide: Sequence[str],
) -> "Serving":
    try:
        from holdfast.web.auth import Starter
        from holdfast.web.serving import Serving
        from holdfast.web.view.redaction import NAMES
    except ImportError:
        raise Failure(MISSING, FAILED, "NotInstalled") from None
    return Serving(host, port, auth or Starter(), read_only, label, hosts, (*NAMES, *hide), root_path)


async def _serve(app: "App", serving: "Serving", listening: "socket.socket") -> None:
    from holdfast.web.serving import served

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with app, served(app, serving, listening) as running:
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([running, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
