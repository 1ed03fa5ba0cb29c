"""A real browser on a real server: what a person does with a mouse, without any complaint of the browser."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from holdfast.cli.beside import Beside

from .conftest import plant_task, plant_worker, rows
from .test_pages import plant_kind, plant_many

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium")
OPTIONS = """
    --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run
"""
DEADLINE = 60_000
"""Milliseconds that anything here may take, on the slowest machine."""


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=OPTIONS.split())
        yield browser
        browser.close()


@pytest.fixture
def address(holdfast_url: str) -> Iterator[str]:
    served = Beside(holdfast_url, "holdfast")
    assert served.address is not None, served.trouble
    yield served.address
    served.stop()
    assert not any(each.name == "holdfast dashboard" for each in threading.enumerate())


@pytest.fixture
def page(chromium: "Browser", address: str) -> "Iterator[Page]":
    """A tab. Whatever the browser complains of, a policy that was broken among it, fails the test."""
    context = chromium.new_context(base_url=address, viewport={"width": 390, "height": 800})
    context.set_default_timeout(DEADLINE)
    made = context.new_page()
    complaints: list[str] = []
    made.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    yield made
    context.close()
    assert complaints == []


def eventually(condition: Callable[[], object], otherwise: str) -> None:
    until = time.monotonic() + DEADLINE / 1000
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.05)


def test_the_overview_follows_what_happens(page: "Page", holdfast_url: str) -> None:
    plant_worker(holdfast_url, "steady")
    page.goto("/")
    page.get_by_text("Nothing is parked.").wait_for()
    page.locator("[data-state=live]").wait_for()
    plant_task(holdfast_url, kind="brand_new")
    page.get_by_text("brand_new.ReadName").wait_for()
    page.get_by_role("button", name="Live").click()
    page.get_by_role("button", name="Paused").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "a phone must not scroll sideways"


def test_T12_a_parked_task_is_edited_and_retried_by_clicks(page: "Page", holdfast_url: str) -> None:
    plant_kind(holdfast_url)
    id = plant_task(holdfast_url, args={"filename": "wrong.txt", "password": "sesame"})
    page.goto("/")
    page.get_by_role("link", name="All that is parked").click()
    page.get_by_role("link", name="Newest").click()
    page.get_by_text("Edit and retry").click()
    box = page.get_by_label("Args")
    box.fill(box.input_value().replace("wrong.txt", "right.txt"))
    page.get_by_label("Why").fill("the file was renamed")
    page.get_by_role("button", name="Save and retry").click()
    page.get_by_text("the file was renamed").wait_for()
    assert page.url.endswith(f"/tasks/{id}")
    [(state, filename, password)] = rows(
        holdfast_url,
        "select state, args ->> 'filename', args ->> 'password' from holdfast.task where id = $1::uuid",
        id,
    )
    assert (state, filename, password) == ("ready", "right.txt", "sesame")


def test_T12_everything_that_matches_is_retried_by_clicks(page: "Page", holdfast_url: str) -> None:
    plant_many(holdfast_url, 230)
    page.goto("/tasks?q=state:parked")
    assert page.get_by_role("button", name="Retry", exact=True).is_disabled()
    page.get_by_label("Select all on this page").check()
    assert page.get_by_role("button", name="Retry", exact=True).is_enabled()
    page.get_by_role("link", name="Retry all").click()
    page.get_by_text("Retry 230 tasks?").wait_for()
    page.get_by_label("Why").fill("the disk is back")
    page.get_by_role("button", name="Retry them").click()
    page.get_by_role("heading", name="Retry: done").wait_for()
    page.get_by_text("230").first.wait_for()
    counted = "select count(*) from holdfast.task where state = 'parked'"
    eventually(lambda: rows(holdfast_url, counted) == [(0,)], "some are still parked")


def test_what_somebody_types_stays_while_the_page_looks_again(page: "Page", holdfast_url: str) -> None:
    first = plant_task(holdfast_url)
    page.goto("/tasks?q=state:parked")
    page.locator(f"input[value='{first}']").check()
    page.get_by_role("searchbox").fill("kind:half-typed")
    second = plant_task(holdfast_url)
    page.locator(f"input[value='{second}']").wait_for()
    assert page.locator(f"input[value='{first}']").is_checked()
    assert page.get_by_role("searchbox").input_value() == "kind:half-typed"
