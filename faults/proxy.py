"""A network between clients and their server that can be spoilt: a proxy that knows PostgreSQL's messages.

It can fall silent without closing anything (`frozen`), cut what is open, delay every message, and lose requests or
answers: then the connection breaks before a request reaches the server, or after the server has done it.
Each connection is known by its `application_name`, so a fault can be for the listener or the beat alone.
"""

import asyncio
import random
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_GATHERED = b"PBEDC"
"""Parse, Bind, Execute, Describe, Close: forwarded only with what follows them, so that a request goes whole."""
_REQUESTS = b"SQ"
"""Sync and Query: after these the server answers."""
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102


@dataclass(eq=False)
class _Pair:
    """A client's connection and the server's."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    name: str
    answer_is_lost: bool = False

    def close(self) -> None:
        self.client.close()
        self.server.close()


@dataclass
class Weather:
    """How bad it is. `only`: the beginning of the names of those concerned."""

    frozen: bool = False
    delay: float = 0.0
    jitter: float = 0.0
    lost: float = 0.0
    """The share of requests whose connection breaks: half before the server gets them, half after they are done."""
    only: str = ""

    def reaches(self, name: str) -> bool:
        return name.startswith(self.only)


@dataclass
class Proxy:
    """Listens on a port of this machine, in a thread of its own, for a server on a Unix socket."""

    socket: Path
    chance: random.Random
    weather: Weather = field(default_factory=Weather)
    freeze_at: bytes = b""
    """All falls silent when a request with these words comes by, before it reaches the server."""
    break_at: bytes = b""
    """The connection breaks when a request with these words comes by, once."""
    break_after: bool = False
    """Whether the server still gets that request; its answer is lost."""
    port: int = 0
    lost_before: int = 0
    lost_after: int = 0
    _pairs: set[_Pair] = field(default_factory=set)
    _ready: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="proxy", daemon=True)
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self._call(self._end.set)
        self._thread.join()

    def url(self, direct: str) -> str:
        """The same database by way of this proxy."""
        given = {**conninfo_to_dict(direct), "host": "127.0.0.1", "port": self.port}
        return make_conninfo("", **{**given, "sslmode": "disable", "gssencmode": "disable"})

    def cut(self, only: str = "") -> None:
        """Closes every open connection whose name begins so."""

        def close() -> None:
            for pair in list(self._pairs):
                if pair.name.startswith(only):
                    pair.close()

        self._call(close)

    def _call(self, what: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(what)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        self.weather = Weather()
        while self._pairs:
            for pair in list(self._pairs):
                pair.close()
            await asyncio.sleep(0.01)

    async def _meet(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            packet = await _first_packet(client)
            while struct.unpack("!I", packet[4:8])[0] in (_SSL, _GSS):
                to_client.write(b"N")
                packet = await _first_packet(client)
            name = _application_name(packet)
            await self._pass(name)
            server, to_server = await asyncio.open_unix_connection(str(self.socket))
        except (OSError, asyncio.IncompleteReadError):
            to_client.close()
            return
        pair = _Pair(to_client, to_server, name)
        self._pairs.add(pair)
        to_server.write(packet)
        pumps = [
            asyncio.ensure_future(self._requests(client, pair)),
            asyncio.ensure_future(self._answers(server, pair)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            pair.close()
            self._pairs.discard(pair)

    async def _requests(self, client: asyncio.StreamReader, pair: _Pair) -> None:
        gathered = b""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                kind, frame = await _frame(client)
                gathered += frame
                if kind in _GATHERED:
                    continue
                if self.freeze_at and self.freeze_at in gathered:
                    self.freeze_at, self.weather = b"", Weather(frozen=True)
                await self._pass(pair.name)
                if kind in _REQUESTS and self._is_lost(pair.name):
                    if self.chance.random() < 0.5:
                        self.lost_before += 1
                        return
                    pair.answer_is_lost = True
                if self.break_at and self.break_at in gathered:
                    self.break_at = b""
                    if not self.break_after:
                        return
                    pair.answer_is_lost = True
                pair.server.write(gathered)
                gathered = b""
                await pair.server.drain()

    async def _answers(self, server: asyncio.StreamReader, pair: _Pair) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                kind, frame = await _frame(server)
                if pair.answer_is_lost:
                    if kind in b"Z":
                        self.lost_after += 1
                        return
                    continue
                await self._pass(pair.name, delayed=kind in b"Z")
                pair.client.write(frame)
                await pair.client.drain()

    def _is_lost(self, name: str) -> bool:
        return self.weather.reaches(name) and self.chance.random() < self.weather.lost

    async def _pass(self, name: str, *, delayed: bool = True) -> None:
        """Waits as long as the weather wants."""
        while self.weather.frozen and self.weather.reaches(name):
            await asyncio.sleep(0.05)
        weather = self.weather
        if delayed and weather.delay and weather.reaches(name):
            await asyncio.sleep(max(0.0, weather.delay + self.chance.uniform(-weather.jitter, weather.jitter)))


async def _first_packet(client: asyncio.StreamReader) -> bytes:
    length = await client.readexactly(4)
    return length + await client.readexactly(struct.unpack("!I", length)[0] - 4)


def _application_name(packet: bytes) -> str:
    """What the client calls itself in its first packet; a request to cancel has no name."""
    if struct.unpack("!I", packet[4:8])[0] == _CANCEL:
        return "cancel"
    words = packet[8:].split(b"\0")
    given = dict(zip(words[::2], words[1::2], strict=False))
    return given.get(b"application_name", b"").decode()


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """One message: its kind, and all of it."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
