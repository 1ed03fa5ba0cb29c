"""`examples/fastapi_app.py`, with its lifespan and the worker inside."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest

from holdfast.testing import Harness

from .support import example

reports = example("fastapi_app")


@pytest.fixture
def holdfast_tasks() -> Any:
    return reports.app


@asynccontextmanager
async def served() -> AsyncIterator[httpx.AsyncClient]:
    """The application between its start and its end, as a web server runs it."""
    transport = httpx.ASGITransport(reports.api)
    async with (
        reports.api.router.lifespan_context(reports.api),
        httpx.AsyncClient(transport=transport, base_url="http://here", timeout=60) as client,
    ):
        yield client


async def test_a_report_is_ordered_made_and_shown(holdfast: Harness) -> None:
    async with served() as client:
        ordered = await client.post("/reports", json={"customer": 7, "year": 2024})
        assert ordered.status_code == 202
        id = ordered.json()["id"]
        made = await client.get(f"/reports/{id}/result")
        assert (made.status_code, made.json()) == (200, {"customer": 7, "year": 2024, "orders": 68})
        shown = await client.get(f"/reports/{id}")
        assert shown.json() == {"id": id, "state": "done", "result": made.json()}
        assert (await client.post("/reports", json={"customer": "seven"})).status_code == 422
        assert (await client.get(f"/reports/{uuid4()}")).status_code == 404
    assert holdfast.sql("SELECT count(*), count(stopped_at) FROM holdfast.worker") == [(1, 1)]


async def test_a_double_click_orders_one_report(holdfast: Harness) -> None:
    waiting = await holdfast.app.enqueue(reports.make_report.bind(1, 2020), key="report 1 2020", delay="1h")
    async with served() as client:
        again = await client.post("/reports", json={"customer": 1, "year": 2020})
        assert again.json()["id"] == str(waiting.id)
        assert (await client.get(f"/reports/{waiting.id}")).json()["state"] == "ready"
        assert await waiting.cancel("no longer wanted")
        answer = await client.get(f"/reports/{waiting.id}/result")
        assert answer.status_code == 409
        assert "cancelled" in answer.json()["detail"]


async def test_what_was_ordered_before_a_restart_is_made_after_it(holdfast: Harness) -> None:
    before = await holdfast.app.enqueue(reports.make_report.bind(3, 2021))
    async with served() as client:
        assert (await client.get(f"/reports/{before.id}/result")).json()["customer"] == 3
