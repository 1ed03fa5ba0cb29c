"""A dashboard on a database of its own, asked in this process."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest

from holdfast import App
from holdfast._db.driver.connection import connect_sync
from holdfast.web import dashboard

ORIGIN = "http://localhost"
HERE = {"sec-fetch-site": "same-origin", "origin": ORIGIN}


class Browser:
    """Somebody who looks at a dashboard."""

    def __init__(self, app: App, client: httpx.AsyncClient) -> None:
        self.app = app
        self.client = client

    async def page(self, path: str, *, status: int = 200, **options: Any) -> str:
        """The HTML of a page."""
        answer = await self.client.get(path, **options)
        assert answer.status_code == status, answer.text
        return answer.text

    async def json(self, path: str, *, status: int = 200, **options: Any) -> Any:
        """The JSON of the same."""
        answer = await self.client.get(path, **options)
        assert answer.status_code == status, answer.text
        return json.loads(answer.text)

    async def post(self, path: str, form: dict[str, Any] | None = None, *, status: int = 303) -> httpx.Response:
        """A form that is sent off."""
        answer = await self.client.post(path, data=form or {}, headers=HERE)
        assert answer.status_code == status, answer.text
        return answer


def client(asgi: Any, *, base: str = ORIGIN, peer: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
    """A client that asks an application in this process, as if from an address."""
    transport = httpx.ASGITransport(asgi, client=(peer, 5000))
    return httpx.AsyncClient(transport=transport, base_url=base, **options)


def rows(url: str, text: str, *values: object) -> list[tuple[Any, ...]]:
    """What a statement answers."""
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def plant_task(
    url: str, *, state: str = "parked", queue: str = "default", kind: str = "greeter", **columns: Any
) -> str:
    """A task as a worker leaves it, put straight into the database."""
    told: dict[str, Any] = {"step": "ReadName", "args": {"filename": "name.txt"}, "attempt": 1, "errors": 1} | columns
    if state == "parked":
        told.setdefault("error", {"type": "FileNotFoundError", "message": "no such file", "traceback": "in run"})
    names = ["queue", "kind", "state", *told]
    values = [queue, kind, state, *(json.dumps(v) if n in ("args", "headers", "error") else v for n, v in told.items())]
    places = ", ".join(f"${i + 1}" for i in range(len(values)))
    text = (
        f"insert into holdfast.task (id, run_at, created_at, {', '.join(names)}) "
        f"values (holdfast.new_id(), holdfast.now(), holdfast.now(), {places}) returning id::text"
    )
    return str(rows(url, text, *values)[0][0])


def plant_worker(
    url: str,
    name: str = "w1",
    *,
    queues: Sequence[str] = ("default",),
    steps: Sequence[str] = ("greeter.ReadName",),
    silent: str = "0s",
) -> str:
    """A worker that reported once, so long ago."""
    text = """
        insert into holdfast.worker (id, name, host, pid, version, queues, steps, slots, seen_at)
        values (holdfast.new_id(), $1, 'box', 42, '1.2.3', $2::text[], $3::text[], 10,
                holdfast.now() - $4::text::interval) returning id::text
    """
    return str(rows(url, text, name, list(queues), list(steps), silent)[0][0])


@pytest.fixture
async def app(holdfast_url: str) -> AsyncIterator[App]:
    async with App(holdfast_url) as made:
        yield made


@pytest.fixture
async def browser(app: App) -> AsyncIterator[Browser]:
    async with client(dashboard(app, auth="trusted")) as asking:
        yield Browser(app, asking)
