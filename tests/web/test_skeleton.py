"""The frame of the dashboard: pages, their JSON, the prefix, what is live."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import App
from holdfast.web import dashboard, live
from holdfast.web.live import event

from .conftest import Browser, client, plant_task, plant_worker
from .test_pages import plant_kind
from .test_schedules import plant_schedule


async def test_the_overview_tells_what_needs_a_person(browser: Browser, holdfast_url: str) -> None:
    plant_task(holdfast_url, state="ready", queue="mail", attempt=0)
    plant_task(holdfast_url, kind="greeter")
    plant_worker(holdfast_url, "lonely", queues=["other"])
    page = await browser.page("/")
    assert "no live worker serves it" in page and "Queue mail" in page
    found = await browser.json("/api")
    assert found["totals"]["due"] == 1 and found["totals"]["parked"] == 1
    assert [each["name"] for each in found["workers"]] == ["lonely"]
    plant_worker(holdfast_url, "helper", queues=["mail"], steps=["other.Step"])
    assert "no live worker there knows the step" in await browser.page("/")


PAGES = ("/", "/tasks", "/parked", "/queues", "/queues/default/pause", "/kinds", "/kinds/greeter", "/workers")
MORE_PAGES = ("/schedules", "/schedules/nightly", "/schedules/nightly/backfill", "/schedules/nightly/fire", "/database")


async def test_links_stay_below_the_prefix(app: App, holdfast_url: str) -> None:
    plant_task(holdfast_url)
    plant_kind(holdfast_url)
    plant_worker(holdfast_url)
    plant_schedule(holdfast_url)
    mounted = Starlette(routes=[Mount("/a/b", dashboard(app, auth="trusted"))])
    async with client(mounted) as asking:
        links: list[str] = []
        for path in (*PAGES, *MORE_PAGES):
            page = (await asking.get(f"/a/b{path}")).text
            links = [
                part.split('"')[0]
                for name in ("href", "src", "action", "data-live")
                for part in page.split(f'{name}="')[1:]
            ]
            assert links and all(each.startswith("/a/b/") or each == "#main" for each in links), links
            assert not any("//" in each for each in links)
        for each in links:
            if "/static/" in each:
                assert (await asking.get(each)).status_code == 200, each
        assert (await asking.get("/a/b/api")).status_code == 200
        assert (await asking.get("/a/b", follow_redirects=True)).status_code == 200


async def test_only_its_own_files_are_served(browser: Browser) -> None:
    for name in ("../__init__.py", "..%2f__init__.py", "vendor/../../site.py", "nothing.js", "vendor"):
        assert (await browser.client.get(f"/static/{name}")).status_code == 404, name
    script = await browser.client.get("/static/page.js")
    assert script.headers["content-type"].startswith("text/javascript")


async def test_what_is_not_there_is_told(browser: Browser) -> None:
    assert "There is no such page" in await browser.page("/nowhere", status=404)
    assert (await browser.json("/api/nowhere", status=404))["error"] == "There is no such page"
    assert (await browser.json("/healthz")) == {"alive": True}


async def test_an_unreachable_database_is_told_without_its_password() -> None:
    async with (
        App("postgresql://ada:sesame-sesame@127.0.0.1:1/nowhere") as app,
        client(dashboard(app, auth="trusted")) as asking,
    ):
        answer = await asking.get("/")
        assert answer.status_code == 503 and "cannot be reached" in answer.text
        assert "sesame" not in answer.text


async def test_a_page_that_is_open_is_sent_again_when_it_changed(
    app: App, holdfast_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVERY", 0.05)
    monkeypatch.setattr(live, "SHARE", 1.0)
    received: asyncio.Queue[str] = asyncio.Queue()
    left = asyncio.Event()

    async def receive() -> dict[str, object]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            await received.put(message["body"].decode())

    async def next_look() -> str:
        while not (piece := await asyncio.wait_for(received.get(), 30)).startswith("event: look"):
            pass
        return piece

    scope = {
        "type": "http", "method": "GET", "path": "/live/", "root_path": "", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80),
    }  # fmt: skip
    asgi: Any = dashboard(app, auth="trusted")
    streaming = asyncio.create_task(asgi(scope, receive, send))
    first = await next_look()
    assert "<html" not in first and "Nothing is parked." in first
    plant_task(holdfast_url, kind="brand_new")
    assert "brand_new" in await next_look()
    left.set()
    await asyncio.wait_for(streaming, 30)


def test_no_text_can_end_an_event() -> None:
    told = event("look", "one\n\nevent: evil\r\rdata: x\r\n\r\ntwo")
    lines = re.split("\r\n|\r|\n", told)  # as a browser does
    assert lines[-2:] == ["", ""] and all(each.startswith(("event: look", "data: ")) for each in lines[:-2])


async def test_the_document_describes_every_page(browser: Browser) -> None:
    found = await browser.json("/api/openapi.json")
    assert found["openapi"].startswith("3.1") and "Overview" in found["components"]["schemas"]
    schema = found["paths"]["/api"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/Overview"}


def test_files_of_others_name_their_licence() -> None:
    import holdfast.web

    vendor = Path(holdfast.web.__file__).parent / "static" / "vendor"
    told = (vendor / "README.md").read_text()
    for file in (*vendor.glob("*.min.*"), *vendor.glob("*.woff2")):
        assert f"`{file.name}`" in told
        assert (vendor / f"{file.name.split('.')[0]}.LICENSE").is_file()
