"""Every page in a real browser: no complaints, nothing to scroll sideways on a phone, readable, fit for listening."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import App
from holdfast.testing.server import database
from holdfast.web import Token, User, dashboard
from holdfast.web.routes import Page as DashboardPage
from holdfast.web.serving import Serving
from holdfast.web.site import Site

from .browsing import DESK, PHONE, STREAMS, eventually, tab
from .chromium import MISSING, PROGRAM, chromium
from .conftest import rows
from .served import application, dashboard_of
from .shop.planting import Shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from pgbouncer import Way

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)

LOOK = (Path(__file__).parent / "look.js").read_text("utf-8")
OVERFLOW = """() => [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .filter((each) => !each.closest(".scroll, .graph, .tabs, pre"))
    .map((each) => each.tagName + " " + each.className)"""
MENU = ["Tasks", "Parked", "Queues", "Kinds", "Schedules", "Workers", "Database", "Overview"]
TOKEN = "a-token-that-is-long-enough-for-ada"


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def shop(holdfast_server: str, holdfast_template: str, way: "Way") -> Iterator[Shop]:
    with database(holdfast_server, holdfast_template) as made:
        planted = Shop(made)
        planted.plant(finished=150)
        planted.url = way.to(made, holdfast_server)
        yield planted


@pytest.fixture(scope="module")
def address(shop: Shop) -> Iterator[str]:
    with dashboard_of(shop.url, Serving(port=0, auth=lambda _: User("ada", "operator"))) as found:
        yield found


@pytest.fixture
def empty(holdfast_url: str) -> Iterator[str]:
    with dashboard_of(holdfast_url, Serving(port=0, auth=lambda _: User("ada", "operator"))) as found:
        yield found


def wrong_with(page: "Page") -> dict[str, list[str]]:
    """What is wrong with the page that is shown, in both themes, and on a phone."""
    found: dict[str, list[str]] = {}
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found[theme] = page.evaluate(LOOK)
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    found["phone"] = page.evaluate(LOOK)
    sideways = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    found["sideways"] = (page.evaluate(OVERFLOW) or ["something"]) if sideways else []
    page.set_viewport_size({"width": DESK[0], "height": DESK[1]})
    page.emulate_media(color_scheme="light")
    return {where: what for where, what in found.items() if what}


def test_every_page_is_in_order(browser: "Browser", address: str, shop: Shop) -> None:
    long = shop.task("resize_image", shop.now) | {"args": {"product": "x" * 4000, "wide": "W" * 500}}
    long |= {"state": "parked", "errors": 1, "attempt": 1, "error": {"type": "E" * 300, "message": "m" * 3000}}
    shop.write("task", [long])
    ids = {
        "/tasks/{id}": [
            long["id"],
            *(id for (id,) in rows(shop.url, "select distinct on (state) id::text from holdfast.task")),
        ],
        "/workers/{id}/stop": list(shop.workers.values())[:1],
    }
    ids["/tasks/{id}"] += [
        id for (id,) in rows(shop.url, "select id::text from holdfast.archive where kind = 'order' limit 1")
    ]
    names = {"kinds": "order", "queues": "orders", "schedules": "nightly-report"}
    asked = {
        "/bulk/new": "?verb=discard&q=state:parked",
        "/schedules/{name}/backfill": "?since=2026-01-01T00:00&until=2026-01-03T00:00",
    }
    checked, wrong = set(), {}
    with tab(browser, address) as page:
        page.goto("/bulk/new?verb=retry&q=state:parked kind:invoice")
        page.get_by_role("button", name="Retry them").click()
        page.get_by_role("heading", name="Retry: done").wait_for()
        ids["/bulk/{run}"] = [page.url.rpartition("/")[2]]
        for place in Site(App(shop.url), auth="trusted").places:
            if isinstance(place, DashboardPage):
                for id in ids.get(place.path, [names.get(place.path.split("/")[1], "")]):
                    path = re.sub(r"\{\w+\}", id, place.path) + asked.get(place.path, "")
                    answer = page.goto(path)
                    assert answer is not None and answer.ok, path
                    if found := wrong_with(page):
                        wrong[path] = found
                checked.add(place.path)
    assert wrong == {}
    assert len(checked) >= 20


def test_pages_with_nothing_on_them_are_in_order(browser: "Browser", empty: str) -> None:
    with tab(browser, empty) as page:
        page.goto("/")
        for name in MENU:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            page.get_by_role("heading", name=name, level=1).wait_for()
            assert wrong_with(page) == {}, name
            if name not in ("Database", "Workers", "Overview"):
                assert page.locator(".nothing").count() >= 1, f"{name} says that there is nothing"


def test_problems_are_told_on_a_page_in_order(browser: "Browser", address: str) -> None:
    with browser.new_context(base_url=address) as context:
        page = context.new_page()  # the browser complains of the status, rightly
        for path in ("/tasks?q=nonsense", "/tasks/01890a5d-ac96-774b-bcce-b302099a8057", "/nowhere"):
            page.goto(path)
            page.get_by_role("alert").wait_for()
            assert wrong_with(page) == {}, path


def test_the_login_is_in_order_and_lets_in(browser: "Browser", holdfast_url: str) -> None:
    serving = Serving(port=0, auth=[Token("ada", "operator", TOKEN)])
    with dashboard_of(holdfast_url, serving) as address, browser.new_context(base_url=address) as context:
        page = context.new_page()  # the browser complains of the status, rightly
        page.goto("/queues")
        assert wrong_with(page) == {}
        page.get_by_label("Your token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Queues", level=1).wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Your token").wait_for()


def test_everything_works_under_a_prefix(browser: "Browser", shop: Shop) -> None:
    def mounted(app: App) -> Starlette:
        site = dashboard(app, auth=lambda _: User("ada", "operator"))
        return Starlette(routes=[Mount("/ops/tasks", site)])

    with application(mounted, shop.url) as found, tab(browser, found) as page:
        page.goto("/ops/tasks/")
        for name in MENU:
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            page.get_by_role("heading", name=name, level=1).wait_for()
            assert "/ops/tasks/" in page.url
            page.locator("[data-state=live]").wait_for()
        page.goto("/ops/tasks/tasks?q=state:parked kind:order step:ShipParcel")
        page.locator("tbody th a").first.click()
        page.get_by_role("button", name="Retry now").click()
        page.get_by_text("It is due").or_(page.get_by_text("ready")).first.wait_for()
        assert page.url.startswith(f"{found}/ops/tasks/tasks/")
        assert page.evaluate("document.fonts.check('13px Inter')"), "fonts come from under the prefix too"


def test_who_wants_no_motion_sees_none_and_one_stream_is_enough(browser: "Browser", address: str) -> None:
    moving = "getComputedStyle(document.querySelector('.live .dot')).animationName"
    with tab(browser, address, reduced_motion="reduce") as page:
        page.goto("/")
        page.locator("[data-state=live]").wait_for()
        assert page.evaluate(moving) == "none"
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
        page.emulate_media(reduced_motion="no-preference")
        assert page.evaluate(moving) != "none"
        for name in ("Queues", "Kinds"):
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
            page.get_by_role("heading", name=name, level=1).wait_for()
        eventually(lambda: page.evaluate(STREAMS) == 1, "pages that were left still look again")


def test_light_and_dark_are_as_the_system_is(browser: "Browser", address: str) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    with tab(browser, address, color_scheme="dark") as page:
        page.goto("/")
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        assert (
            sum(map(int, re.findall(r"\d+", dark)))
            < 128
            < 600
            < sum(map(int, re.findall(r"\d+", page.evaluate(ground))))
        )
