"""A real browser on a real server: what a person does with a mouse or a keyboard, without complaints of the browser."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast import App
from holdfast.testing.server import database
from holdfast.web import User
from holdfast.web.serving import Serving

from .browsing import PHONE, STREAMS, eventually, tab
from .chromium import MISSING, PROGRAM, chromium
from .conftest import plant_task, plant_worker, rows
from .served import dashboard_of, worker_of
from .shop import RenderInvoice, tasks
from .test_pages import plant_kind, plant_many

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from pgbouncer import Way

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def url(holdfast_server: str, holdfast_template: str, way: "Way") -> Iterator[str]:
    """One database for all of them: each has kinds of its own."""
    with database(holdfast_server, holdfast_template) as made:
        plant_kind(made)
        yield way.to(made, holdfast_server)


@pytest.fixture(scope="module")
def address(url: str) -> Iterator[str]:
    with dashboard_of(url, Serving(port=0, auth=lambda _: User("ada", "operator"))) as found:
        yield found


@pytest.fixture
def page(browser: "Browser", address: str) -> "Iterator[Page]":
    with tab(browser, address) as made:
        yield made


def focused(page: "Page") -> str:
    """What has the focus, in the words that a person sees, with the outline that shows it."""
    found: list[str] = page.evaluate(
        """() => { const e = document.activeElement;
                   return [e.innerText || e.getAttribute("aria-label") || e.id, getComputedStyle(e).outlineStyle] }"""
    )
    text, outline = found
    assert outline != "none", f"nobody sees that {text!r} has the focus"
    return text.strip()


# --- a person's way


def test_T12_a_parked_task_is_found_edited_retried_and_done(page: "Page", url: str) -> None:
    app = App(url, include=[tasks])
    with ThreadPoolExecutor(1) as thread:  # Playwright's blocking interface has an event loop on this one
        ref = thread.submit(lambda: app.sync.enqueue(RenderInvoice(4711, "CH"))).result()
    with worker_of(url, tasks, "invoices"):
        page.goto("/")
        page.get_by_text("invoice.RenderInvoice").first.wait_for()  # parked by the worker, and shown without a reload
        page.get_by_role("link", name="All that is parked").click()
        page.get_by_role("listitem").filter(has_text="no rate of tax").get_by_role("link", name="Newest").click()
        page.get_by_role("heading", name="invoice.RenderInvoice parked").wait_for()
        page.get_by_text("Edit and retry").click()
        box = page.get_by_label("Args")
        box.fill(box.input_value().replace("CH", "AT"))
        page.get_by_label("Why").fill("they meant Austria")
        page.get_by_role("button", name="Save and retry").click()
        page.get_by_role("heading", name="invoice.SendInvoice done").wait_for()
        page.get_by_text("invoice 4711 with 20 % tax").wait_for()
        page.get_by_text("they meant Austria").wait_for()
        assert page.url.endswith(f"/tasks/{ref.id}")
        assert page.locator(".across .end.current").count() == 1, "the graph shows that it has come to the end"
    [(by, why)] = rows(url, "select by, why from holdfast.change where task_id = $1::uuid", str(ref.id))
    assert (by, why) == ("ada", "they meant Austria")


def test_T12_what_is_hidden_stays_when_args_are_edited(page: "Page", url: str) -> None:
    id = plant_task(url, args={"filename": "wrong.txt", "password": "sesame"})
    page.goto(f"/tasks/{id}")
    page.get_by_text("Edit and retry").click()
    box = page.get_by_label("Args")
    assert "sesame" not in box.input_value()
    box.fill(box.input_value().replace("wrong.txt", "right.txt"))
    page.get_by_label("Why").fill("the file was renamed")
    page.get_by_role("button", name="Save and retry").click()
    page.get_by_text("the file was renamed").wait_for()
    told = "select state, args ->> 'filename', args ->> 'password' from holdfast.task where id = $1::uuid"
    assert rows(url, told, id) == [("ready", "right.txt", "sesame")]


def test_T12_everything_that_matches_is_retried_by_clicks(page: "Page", url: str) -> None:
    plant_many(url, 230)
    page.goto("/tasks?q=state:parked error:disk")
    assert page.get_by_role("button", name="Retry", exact=True).is_disabled()
    page.get_by_label("Select all on this page").check()
    assert page.get_by_role("button", name="Retry", exact=True).is_enabled()
    page.get_by_role("link", name="Retry all").click()
    page.get_by_text("Retry 230 tasks?").wait_for()
    page.get_by_label("Why").fill("the disk is back")
    page.get_by_role("button", name="Retry them").click()
    page.get_by_role("heading", name="Retry: done").wait_for()  # without a reload
    page.get_by_text("230").first.wait_for()
    progress = page.get_by_role("progressbar")
    assert progress.get_attribute("value") == progress.get_attribute("max")
    counted = "select count(*) from holdfast.task where state = 'parked' and error ->> 'message' = 'disk'"
    eventually(lambda: rows(url, counted) == [(0,)], "some are still parked")


# --- live


def test_the_overview_follows_what_happens_until_it_is_paused_or_hidden(page: "Page", url: str) -> None:
    plant_worker(url, "steady")
    page.goto("/")
    page.locator("[data-state=live]").wait_for()
    page.evaluate("window.here = true")
    plant_task(url, kind="brand_new")
    page.get_by_text("brand_new.ReadName").wait_for()
    page.get_by_role("button", name="Live").click()
    page.get_by_role("button", name="Paused").wait_for()
    assert page.evaluate(STREAMS) == 0, "whoever pauses asks nothing of the database"
    page.get_by_role("status").filter(has_text="paused").wait_for(state="attached")
    plant_task(url, kind="meanwhile")
    page.get_by_role("button", name="Paused").click()
    page.get_by_text("meanwhile.ReadName").wait_for()
    page.evaluate(
        """Object.defineProperty(document, "hidden", { get: () => window.isHidden, configurable: true });
           window.isHidden = true; document.dispatchEvent(new Event("visibilitychange"))"""
    )
    assert page.evaluate(STREAMS) == 0, "a hidden tab asks nothing of the database"
    plant_task(url, kind="unseen")
    page.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("unseen.ReadName").wait_for()
    assert page.evaluate("window.here"), "all of it without a reload"


def test_what_somebody_types_opens_or_selects_stays_while_the_page_looks_again(page: "Page", url: str) -> None:
    first = plant_task(url, kind="typed")
    page.goto("/tasks?q=state:parked kind:typed")
    page.locator(f"input[value='{first}']").check()
    page.get_by_role("searchbox").fill("kind:half-typed")
    second = plant_task(url, kind="typed")
    page.locator(f"input[value='{second}']").wait_for()
    assert page.locator(f"input[value='{first}']").is_checked()
    assert page.get_by_role("searchbox").input_value() == "kind:half-typed"
    page.goto(f"/tasks/{first}")
    page.locator("[data-state=live]").wait_for()
    page.get_by_text("Edit and retry").click()
    page.get_by_label("Why").fill("half a rea")
    page.locator("#error summary").click()
    rows(url, "update holdfast.task set queue = 'elsewhere' where id = $1::uuid", first)
    page.get_by_role("link", name="elsewhere").wait_for()
    assert page.get_by_label("Why").input_value() == "half a rea"
    assert page.locator("#edit").get_attribute("open") is not None
    assert page.locator("#error details").get_attribute("open") is None, "what somebody closed stays closed"


# --- the keyboard alone


def test_the_keyboard_alone_leads_everywhere(page: "Page", url: str) -> None:
    page.goto("/tasks?q=state:parked")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert focused(page) == "Filter", "the first thing in the content"
    page.goto("/tasks?q=state:parked")
    order = []
    for _ in range(11):
        page.keyboard.press("Tab")
        order.append(focused(page))
    menu = ["Overview", "Tasks", "Parked", "Queues", "Kinds", "Schedules", "Workers", "Database"]
    assert order == ["Skip to the content", "Holdfast", *menu, "Live"]
    page.keyboard.press("Space")
    page.get_by_role("button", name="Paused").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Live").wait_for()


def test_the_keyboard_alone_acts_on_a_task(page: "Page", url: str) -> None:
    id = plant_task(url, kind="by_keys")
    page.goto("/tasks?q=kind:by_keys")
    page.get_by_label(f"Select by_keys {id}").focus()
    page.keyboard.press("Space")
    page.get_by_role("status").filter(has_text="1 selected").wait_for(state="attached")
    page.get_by_role("button", name="Discard", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Discard 1 task?").wait_for()
    assert page.evaluate("document.activeElement.id") == "why", "where one writes the reason"
    page.keyboard.press("Escape")
    page.get_by_role("heading", name="Tasks").wait_for()
    assert page.evaluate("document.activeElement.id") == "main", "a new page begins at its beginning"
    page.goto(f"/tasks/{id}")
    page.get_by_text("Edit and retry").focus()
    page.keyboard.press("Enter")
    page.get_by_label("Why").focus()
    page.keyboard.press("Escape")
    assert focused(page) == "Edit and retry"
    assert page.locator("#edit").get_attribute("open") is None
    page.keyboard.press("Space")
    page.get_by_label("Why").focus()
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    page.get_by_text("by keys", exact=True).wait_for()
    assert rows(url, "select state from holdfast.task where id = $1::uuid", id) == [("ready",)]


# --- a phone


def test_a_phone_shows_a_task_and_its_graph(browser: "Browser", address: str, url: str) -> None:
    id = plant_task(url, step="SayHello", moves=1, args={"name": "Ada"})
    with tab(browser, address, PHONE, has_touch=True) as page:
        page.goto(f"/tasks/{id}")
        assert page.locator(".graph .down svg").is_visible() and not page.locator(".graph .across svg").is_visible()
        page.get_by_role("button", name="Retry now").tap()
        page.get_by_role("heading", name="greeter.SayHello").wait_for()
        eventually(
            lambda: rows(url, "select state from holdfast.task where id = $1::uuid", id) == [("ready",)], "not retried"
        )
