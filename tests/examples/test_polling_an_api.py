"""`examples/polling_an_api.py`, with a web server that answers as a script says, and with the one it brings along."""

import socket
import subprocess
import sys
from datetime import timedelta
from typing import Any

import httpx
import pytest

from holdfast.testing import Harness

from .support import EXAMPLES, Answer, Asked, attempts, example, web_server

polling = example("polling_an_api")


@pytest.fixture
def holdfast_tasks() -> Any:
    return polling.app


class Api:
    """Answers with the next line of its script, and remembers what it was asked."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.asked: list[Asked] = []

    def __call__(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        return self.script.pop(0)


BUSY: Answer = (429, {"Retry-After": "7"}, "")
NOT_YET: Answer = (202, {}, "")


async def test_it_polls_until_the_export_is_ready(holdfast: Harness) -> None:
    api = Api((503, {}, ""), (201, {}, '{"path": "/exports/9"}'), NOT_YET, BUSY, NOT_YET, (200, {}, "a,b\n1,2\n"))
    with web_server(api) as address:
        ref = await polling.export.enqueue(polling.Begin(address))
        await holdfast.run_all()
    assert await ref.result() == "a,b\n1,2\n"
    assert attempts(holdfast, ref.id) == [
        ("Begin", "retried"),
        ("Begin", "advanced"),
        ("Poll", "advanced"),
        ("Poll", "snoozed"),
        ("Poll", "advanced"),
        ("Poll", "done"),
    ]
    assert [(asked.method, asked.path) for asked in api.asked] == [("POST", "/exports")] * 2 + [
        ("GET", "/exports/9")
    ] * 4
    assert len({asked.headers["Idempotency-Key"] for asked in api.asked[:2]}) == 1
    info = await ref.info()
    assert info.args == {"url": f"{address}/exports/9", "polls": 2}


async def test_busy_means_later_when_the_api_wants_it(holdfast: Harness) -> None:
    holdfast.clock.advance(0)
    with web_server(Api(BUSY)) as address:
        ref = await polling.export.enqueue(polling.Poll(f"{address}/exports/9"))
        await holdfast.drain()
    info = await ref.info()
    assert (info.state, info.errors, info.moves) == ("ready", 0, 0)
    assert info.run_at is not None
    assert timedelta(seconds=6) < info.run_at - holdfast.clock.now() < timedelta(seconds=8)


async def test_a_thousand_polls_are_enough(holdfast: Harness) -> None:
    with web_server(Api(NOT_YET)) as address:
        ref = await polling.export.enqueue(polling.Poll(f"{address}/exports/9", polls=1000))
        await holdfast.drain()
    info = await ref.info()
    assert info.state == "parked"
    assert info.error is not None
    assert "was not ready after 1000 polls" in info.error["message"]


async def test_the_api_to_play_with(holdfast: Harness) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code = f"import polling_an_api; polling_an_api.play_api({port})"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code], cwd=EXAMPLES, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening on http://localhost:{port}\n"
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(retries=5)) as client:
            assert (await client.get(f"http://localhost:{port}/exports/1")).status_code == 202
        ref = await polling.export.enqueue(polling.Begin(f"http://localhost:{port}"))
        await holdfast.run_all()
        assert await ref.result() == "a,b\n1,2\n"
        assert ("Poll", "snoozed") in attempts(holdfast, ref.id)
    finally:
        process.kill()
        process.communicate()
