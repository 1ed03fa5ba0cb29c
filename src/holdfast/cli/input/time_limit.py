"""Asking something that may hang, such as a server that does not answer, and not waiting for it."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


def quickly(limit: float, work: Callable[[], T], *, otherwise: T) -> T:
    """The answer of `work`, if it gives one within `limit` seconds.

    What takes longer is left behind in its thread: these are commands that end soon, and threads that nobody waits
    for. Neither connecting nor looking up a host's name can be interrupted in a reliable way.
    """
    answers: list[T] = []

    def ask() -> None:
        with suppress(Exception):
            answers.append(work())

    thread = Thread(target=ask, name="holdfast quickly", daemon=True)
    thread.start()
    thread.join(limit)
    return answers[0] if answers else otherwise
