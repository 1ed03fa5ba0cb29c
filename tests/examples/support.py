"""What the tests of examples share: loading one, and a web server with scripted answers."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.testing import Harness

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """An example as a module, under the name it has when it is run from its folder."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return import_module(name)


def attempts(holdfast: Harness, id: UUID) -> list[tuple[str, str]]:
    """The log of one task: step and outcome."""
    text = "SELECT step, outcome FROM holdfast.attempts WHERE task_id = $1 ORDER BY attempt"
    return [(step, outcome) for step, outcome in holdfast.sql(text, id)]


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]


Answer = tuple[int, dict[str, str], str]


@contextmanager
def web_server(answer: Callable[[Asked], Answer]) -> Iterator[str]:
    """A real server on a free port; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, headers, text = answer(Asked(self.command, self.path, dict(self.headers.items())))
            self.send_response(code)
            for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
