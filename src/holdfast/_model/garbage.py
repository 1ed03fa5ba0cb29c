"""The garbage collector, where it only gets in the way."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 100
"""For fewer objects the collector hardly comes by."""
YOUNG = 20_000
"""New objects after which the collector comes by in a process of ours. A worker has thousands of attempts at hand, none
of them garbage: after 700, as is the default, it walks over them again and again."""


class _Leave:
    """The collector is away for as long as anybody, in whichever thread, does without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if not self._users:
                self._was_on = gc.isenabled()
                gc.disable()
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._was_on:
                gc.enable()


_leave = _Leave()


def _come_back() -> None:
    """In a forked child there is nobody who would end what other threads began."""
    global _leave
    if _leave._users and _leave._was_on:
        gc.enable()
    _leave = _Leave()


os.register_at_fork(after_in_child=_come_back)


class no_collecting:  # noqa: N801 - reads as a word where it is used
    """Around a loop of our own that makes so many objects and no garbage, and runs nobody else's code.

    The collector would walk over everything that is there, again and again, in vain. It comes back afterwards, unless
    it was off before.
    """

    __slots__ = ("_leave",)

    def __init__(self, objects: int = MANY) -> None:
        self._leave = None if objects < MANY else _leave

    def __enter__(self) -> None:
        if self._leave is not None:
            self._leave.begin()

    def __exit__(self, *exception: object) -> None:
        if self._leave is not None:
            self._leave.end()


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """Around the life of a process of ours: what was loaded before it lives as long as it does.

    The collector would walk over all of it each time that some thousands of tasks have come and gone. It comes by more
    rarely, too, unless somebody has told it to come by even more rarely, or never.
    """
    gc.collect()
    gc.freeze()
    often, *older = gc.get_threshold()
    if 0 < often < YOUNG:
        gc.set_threshold(YOUNG, *older)
    try:
        yield
    finally:
        gc.set_threshold(often, *older)
        gc.unfreeze()
