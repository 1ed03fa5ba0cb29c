"""Debian's chromium, without a window."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAM = shutil.which("chromium")
MISSING = "there is no chromium here: apt-get install chromium"
# As root it has no sandbox. The rest keeps it from asking the network, and lets text look the same everywhere.
OPTIONS = """
    --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run
    --disable-lcd-text --font-render-hinting=none --hide-scrollbars
"""


@contextmanager
def chromium() -> "Iterator[Browser]":
    """A browser, as long as the body of the `with`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=PROGRAM, args=OPTIONS.split())
        yield browser
        browser.close()
