"""Forked children of a process that has connections of ours.

A child shares the sockets of its parent. If that is a worker and is killed, the server would take it for a living one,
with its transactions and their locks, for as long as the child lives; so in a child they lead nowhere. Nor does a child
go on as its parent's worker: it ends where it would.
"""

import os
from asyncio import AbstractEventLoop
from contextlib import suppress
from typing import NoReturn, Protocol, TypeVar
from weakref import WeakSet

from holdfast._model.safe_log import Log

log = Log("holdfast.worker")


class _Open(Protocol):
    def fileno(self) -> int: ...


T = TypeVar("T", bound=_Open)

count = 0
"""How many forks lie between the process that loaded this and the one it is in: to ask the kernel takes too long."""
_open: WeakSet[_Open] = WeakSet()
_loops: WeakSet[AbstractEventLoop] = WeakSet()


class Descriptor:
    """Stands for an object that cannot be weakly referenced. Its owner keeps this as long as the object is open."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number


def not_for_children(thing: T) -> T:
    """From now on no forked child holds this open."""
    _open.add(thing)
    return thing


def end_children_in(loop: AbstractEventLoop) -> None:
    """From now on a forked child that gives control back to its copy of this loop ends there."""
    _loops.add(loop)


def end_child(where: str) -> NoReturn:
    """This process is a forked child, and has come where only its parent may go on."""
    log.error("%s, and the child came back from it: the child ends here", where)
    os._exit(1)


def _after_fork() -> None:
    global count
    count += 1
    with suppress(OSError):  # too many open files
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in list(_open):
            # Not closed: the driver would close whatever has got this number by then. It may be closed already.
            with suppress(Exception):
                os.dup2(nowhere, each.fileno(), inheritable=False)
        os.close(nowhere)
    for loop in list(_loops):
        with suppress(RuntimeError):  # it has ended
            loop.call_soon(end_child, "something in the worker's event loop forked")
    _open.clear()
    _loops.clear()


os.register_at_fork(after_in_child=_after_fork)
