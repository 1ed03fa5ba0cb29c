"""Pictures of the dashboard, for the README and the documentation: `make screenshots`.

    python -m tests.web.screenshots [FOLDER]

A server of its own is filled with a day of a shop, and pictures of five pages are taken: light and dark, on a desk and
on a phone.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._db.migrate import migrate
from holdfast.testing.blocking import blocking
from holdfast.testing.server import server
from holdfast.web import User
from holdfast.web.serving import Serving

from . import palette
from .chromium import MISSING, PROGRAM, chromium
from .served import dashboard_of
from .shop.planting import Shop

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Page

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FINISHED = 20_000
SIZES = {"": (1280, 900, 1), "-phone": (390, 844, 2)}
"""Width, height, and dots for a pixel."""
DEADLINE = 60_000
"""Milliseconds for anything."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    serving = Serving(port=0, label="shop", auth=lambda _: User("ada", "operator"))
    with server() as url, chromium() as browser:
        blocking(migrate(url))
        shop = Shop(url)
        shop.plant(finished=FINISHED)
        plain = browser.new_page()
        with dashboard_of(url, serving) as address:
            for theme in ("light", "dark"):
                for size, (width, height, dots) in SIZES.items():
                    context = browser.new_context(
                        base_url=address,
                        viewport={"width": width, "height": height},
                        device_scale_factor=dots,
                        color_scheme=theme,
                        reduced_motion="reduce",
                        locale="en-GB",
                        timezone_id="Europe/Berlin",
                    )
                    context.set_default_timeout(DEADLINE)
                    page = context.new_page()
                    for name, path in pages(shop).items():
                        shop.beat()
                        page.goto(path)
                        page.locator("[data-state=live]").wait_for()
                        page.evaluate("document.fonts.ready")
                        file = folder / f"{name}{size}-{theme}.png"
                        palette.write(plain, page.screenshot(clip=_content(page, width, height)), file)
                        print(f"{file.name:30} {file.stat().st_size / 1024:6.0f} kB")
                    context.close()


def _content(page: "Page", width: int, height: int) -> "FloatRect":
    """What there is to see of a window: without what is empty below."""
    bottom: float = page.evaluate("document.querySelector('main > :last-child').getBoundingClientRect().bottom")
    return {"x": 0, "y": 0, "width": width, "height": min(height, max(height * 0.6, bottom + 32))}


def pages(shop: Shop) -> dict[str, str]:
    """The five pages by name. The one task is the newest order that could not be charged."""
    [(order,)] = shop.run("select max(id::text) from holdfast.task where state = 'parked' and step = 'ChargeCard'")
    return {
        "overview": "/?span=24h",
        "tasks": "/tasks?q=queue:orders,mail,invoices",
        "task": f"/tasks/{order}",
        "kind": "/kinds/order",
        "schedules": "/schedules",
    }


if __name__ == "__main__":
    if PROGRAM is None:
        sys.exit(MISSING)
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
