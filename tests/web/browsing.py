"""A browser for the tests of a file, on one database and one server that they share."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DEADLINE = 60_000
"""Milliseconds that anything may take, on the slowest machine."""
DESK, PHONE = (1280, 900), (390, 844)

# Streams that a page opens are kept, so that a test can see whether they are open.
_WATCH = """
window.streams = [];
window.EventSource = class extends EventSource {
  constructor(...given) { super(...given); window.streams.push(this); }
};
"""
STREAMS = "window.streams.filter((each) => each.readyState !== EventSource.CLOSED).length"


@contextmanager
def tab(browser: "Browser", address: str, size: tuple[int, int] = DESK, **options: Any) -> "Iterator[Page]":
    """A tab. Whatever the browser complains of, a content security policy that was broken among it, fails the test."""
    context = browser.new_context(base_url=address, viewport={"width": size[0], "height": size[1]}, **options)
    try:
        context.set_default_timeout(DEADLINE)
        context.add_init_script(_WATCH)
        made = context.new_page()
        complaints: list[str] = []
        made.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        made.on("pageerror", lambda error: complaints.append(str(error)))
        yield made
        assert complaints == []
    finally:
        context.close()


def eventually(condition: Callable[[], object], otherwise: str) -> None:
    until = time.monotonic() + DEADLINE / 1000
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.05)
