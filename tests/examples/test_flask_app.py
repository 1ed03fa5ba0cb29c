"""`examples/flask_app.py`, with Flask's test client and a page on a local web server."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from holdfast.testing import Harness

from .support import Answer, Asked, attempts, example, web_server

checks = example("flask_app")


@pytest.fixture
def holdfast_tasks() -> Any:
    return checks.app


def page(asked: Asked) -> Answer:
    return 200, {}, "x" * 1234


class Client:
    """Flask's test client, off the event loop: as a server does it."""

    def __init__(self) -> None:
        self._client = checks.web.test_client()

    async def get(self, path: str) -> Any:
        return await asyncio.to_thread(self._client.get, path)

    async def order(self, url: str) -> Any:
        return await asyncio.to_thread(self._client.post, "/checks", data={"url": url})


async def test_a_check_is_ordered_made_and_shown(holdfast: Harness) -> None:
    client = Client()
    with web_server(page) as address:
        ordered = await client.order(address)
        assert ordered.status_code == 202
        id = ordered.json["id"]
        assert ordered.json["see"].endswith(f"/checks/{id}")
        assert (await client.get(f"/checks/{id}")).json["state"] == "ready"
        early = await client.get(f"/checks/{id}?wait=0.1")
        assert early.json == {"id": id, "state": "not yet"}
        async with holdfast.app.worker():
            done = await client.get(f"/checks/{id}?wait=25")
    assert (done.status_code, done.json) == (200, {"id": id, "state": "done", "result": 1234, "error": None})
    assert (await client.get(f"/checks/{uuid4()}")).status_code == 404
    assert holdfast.sql("SELECT headers #>> '{from}' FROM holdfast.archive") == [("127.0.0.1",)]


async def test_a_wrong_address_is_parked_at_once_and_a_wrong_page_after_four_attempts(holdfast: Harness) -> None:
    client = Client()
    with web_server(lambda asked: (500, {}, "")) as address:
        wrong = (await client.order("file:///etc/passwd")).json["id"]
        broken = (await client.order(address)).json["id"]
        await holdfast.run_all()
    assert attempts(holdfast, wrong) == [("main", "failed")]
    shown = (await client.get(f"/checks/{wrong}?wait=5")).json
    assert (shown["state"], shown["error"]) == ("parked", "file:///etc/passwd is no web address")
    assert [outcome for _, outcome in attempts(holdfast, broken)] == ["retried"] * 3 + ["failed"]
