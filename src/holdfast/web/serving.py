"""Serving the dashboard by itself: `holdfast web`, and beside `holdfast demo` and `holdfast dev`."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from holdfast.app import App
from holdfast.errors import ConfigError
from holdfast.web.auth import TRUSTED, Auth, Starter, is_loopback
from holdfast.web.site import Site
from holdfast.web.view.redaction import NAMES

PORT = 8420
NEXT_PORTS = 20
"""How many ports are tried if the first is taken and nobody insists on it."""


@dataclass(frozen=True)
class Serving:
    """Where and how. Without `auth`, only whoever is told its address is let in."""

    host: str = "127.0.0.1"
    port: int = PORT
    auth: Auth | Starter = field(default_factory=Starter)
    read_only: bool = False
    label: str | None = None
    hosts: Sequence[str] = ()
    hide: Sequence[str] = NAMES
    root_path: str = ""

    def __post_init__(self) -> None:
        if (isinstance(self.auth, Starter) or self.auth == TRUSTED) and not is_loopback(self.host):
            raise ConfigError(
                f"--host {self.host}: off this machine the dashboard needs a login. Say who may look and who may "
                "act, as name:role:token, with the role viewer or operator: set HOLDFAST_WEB_TOKENS=ada:operator:…, or "
                "write them into a file for --tokens-file. A token is made by: "
                'python -c "import secrets; print(secrets.token_urlsafe())"'
            )
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ConfigError(f"--root-path {self.root_path}: begin it with /, and do not end it with one")

    def address(self, port: int) -> str:
        """Where a browser finds it, and is let in if only that of the starter is."""
        host = "localhost" if self.host in ("127.0.0.1", "::1", "0.0.0.0", "::") else self.host  # noqa: S104 - compared
        return f"http://{host}:{port}{self.root_path}{self.auth.link if isinstance(self.auth, Starter) else '/'}"


def bound(serving: Serving, *, insist: bool) -> socket.socket:
    """A socket to listen on; on the next free port if that one is taken, unless somebody insists on it."""
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    trouble: OSError | None = None
    for port in [serving.port] if insist else range(serving.port, serving.port + NEXT_PORTS):
        found = socket.socket(family)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((serving.host, port))
            found.listen(100)
        except OSError as error:
            found.close()
            trouble = error
        else:
            return found
    raise ConfigError(
        f"the dashboard cannot listen on {serving.host}:{serving.port}: {trouble}. Give another one with --port"
    )


@asynccontextmanager
async def served(app: App, serving: Serving, listening: socket.socket) -> AsyncIterator["asyncio.Task[None]"]:
    """Serves the dashboard beside the body of the `async with`; gives the task that does it."""
    site = Site(
        app,
        auth=serving.auth,
        read_only=serving.read_only,
        label=serving.label,
        hosts=serving.hosts,
        hide=serving.hide,
    )
    server = _Server(
        uvicorn.Config(
            site.asgi(),
            root_path=serving.root_path,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
    )
    running = asyncio.create_task(server.serve([listening]), name="holdfast dashboard")
    try:
        yield running
    finally:
        site.streams.close()
        server.should_exit = True
        await running
        await site.streams.ended()
        await site.runs.close()
        listening.close()


class _Server(uvicorn.Server):
    """Signals are the business of whoever started it."""

    def capture_signals(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()
