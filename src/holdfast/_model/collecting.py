"""The garbage collector, where it only gets in the way."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collecting() -> Iterator[None]:
    """Around a loop of our own that makes many objects and no garbage, and runs nobody else's code.

    The collector would walk over everything that is there, again and again, in vain. It comes back afterwards, unless
    it was off before.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def loaded_set_aside() -> Iterator[None]:
    """Around the life of a process of ours: what was loaded before it lives as long as it does.

    The collector would walk over all of it each time that some thousands of tasks have come and gone.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
