"""`/healthz`, `/readyz` and `/metrics` of a worker process: a small HTTP server in its event loop.

It answers GET and nothing else, closes after each answer, and waits for no client long. Because it lives in the
worker's own loop, a loop that is blocked does not answer: then the process is not healthy.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from holdfast._db.driver.forks import Descriptor, not_for_children
from holdfast._model.safe_log import Log

log = Log("holdfast.worker")

PATIENCE = 5.0
"""Seconds that a request may take to come."""
LARGEST = 16_384
"""Bytes of a request."""
AT_ONCE = 50
"""Requests that are answered at the same time; more are turned away."""
TRY_AGAIN = 1.0
"""Seconds until the port is tried again, which a process that is being replaced may still have."""

_WORDS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 501: "Not Implemented"}
_WORDS[503] = "Service Unavailable"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    code: int
    body: bytes
    content_type: str = "application/json"

    @classmethod
    def of(cls, code: int, told: object) -> "Reply":
        return cls(code, json.dumps(told).encode() + b"\n")


class HttpServer:
    """Answers at some paths for as long as it is run."""

    def __init__(self, address: tuple[str, int], paths: Mapping[str, Callable[[], Reply]]) -> None:
        self._address = address
        self._paths = paths
        self._open = 0
        self.listening = asyncio.Event()
        self.port = 0
        self._sockets: list[Descriptor] = []

    async def run(self) -> None:
        """Never returns; ends by cancellation."""
        failing = False
        while True:
            try:
                server = await asyncio.start_server(self._answer, *self._address, limit=LARGEST)
            except OSError as error:
                level = logging.DEBUG if failing else logging.WARNING
                log.log(level, "nobody can ask this worker at %s: %s", self._shown, error.strerror or error)
                failing = True
                await asyncio.sleep(TRY_AGAIN)
                continue
            async with server:
                self.port = server.sockets[0].getsockname()[1]
                self._sockets = [not_for_children(Descriptor(each.fileno())) for each in server.sockets]
                self.listening.set()
                log.info("http://%s:%s has %s", self._host, self.port, " ".join(self._paths), extra={"routine": True})
                await server.serve_forever()

    @property
    def _host(self) -> str:
        host = self._address[0]
        return f"[{host}]" if ":" in host else host

    @property
    def _shown(self) -> str:
        return f"{self._host}:{self._address[1]}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            async with asyncio.timeout(PATIENCE):
                reply = Reply.of(503, {"error": "busy"}) if self._open > AT_ONCE else self._reply(await _heard(reader))
                writer.write(_written(reply))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a request that is broken or too slow gets no answer
        finally:
            self._open -= 1
            writer.close()
            with suppress(Exception):
                await writer.wait_closed()

    def _reply(self, request: bytes) -> Reply:
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Reply.of(400, {"error": "this is not HTTP"})
        if words[0] not in ("GET", "HEAD"):
            return Reply.of(405, {"error": "only GET"})
        found = self._paths.get(words[1].partition("?")[0])
        reply = Reply.of(404, {"error": "not found", "paths": list(self._paths)}) if found is None else found()
        return reply if words[0] == "GET" else Reply(reply.code, b"", reply.content_type)


async def _heard(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def _written(reply: Reply) -> bytes:
    head = (
        f"HTTP/1.1 {reply.code} {_WORDS[reply.code]}\r\nContent-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(reply.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + reply.body
