"""Child processes for steps with `executor="process"`: each runs one attempt at a time and can be killed.

A child must never go on beside the rerun of its task: it ends when the pipe to its worker closes, and on Linux
the kernel kills it with its parent. Children are spawned, not forked, so they inherit no connection and no lease.
The code to run is found by the step's module and name in our own registry, never by something a row says.
"""

import asyncio
import contextlib
import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import reduce
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from msgspec.structs import replace

from holdfast._db.driver import forks
from holdfast._engine.run.attempt import Attempt
from holdfast._engine.run.threads import Threads, outcome_of, take_note
from holdfast._model.declare.step import OWNER, Step
from holdfast._model.enqueue.request import Request
from holdfast._model.json.error_json import PLACE, message_of, place_of
from holdfast._model.run.context import Context, Described, Offers, current_context
from holdfast._model.run.progress import Told
from holdfast.errors import HoldfastError

_SPAWN = multiprocessing.get_context("spawn")
_PR_SET_PDEATHSIG = 1

TELL_EVERY = 0.2
"""Seconds between what a child tells of its step."""
LOOK_EVERY = 1.0
"""Seconds between two checks whether a silent child is alive."""


class ProcessDied(HoldfastError):
    """The child process that ran a step ended without an answer: killed, out of memory, or by os._exit()."""


class _Child:
    """One child process and the pipe to it."""

    def __init__(self) -> None:
        ours, theirs = _SPAWN.Pipe()
        self.pipe: Connection[Any, Any] = ours
        self.process: SpawnProcess = _SPAWN.Process(
            target=serve, args=(theirs, os.getpid()), name="holdfast-step", daemon=True
        )
        self.process.start()
        theirs.close()
        self.loaded: set[str] = set()

    def ask(self, request: dict[str, Any], tell: Callable[[Told], None]) -> tuple[bool, Any]:
        try:
            self.pipe.send(request)
            while isinstance(answer := self._hear(), Told):
                tell(answer)
            return answer  # type: ignore[no-any-return]
        except (EOFError, OSError):
            self.process.join(5)
            self.pipe.close()
            raise ProcessDied(
                f"the child process that ran this step ended with exit code {self.process.exitcode} and no answer"
            ) from None

    def _hear(self) -> Any:
        """What the child says next. Its own children may hold the pipe open when it is gone, so that does not tell."""
        while not self.pipe.poll(LOOK_EVERY):
            if not self.process.is_alive() and not self.pipe.poll():
                raise EOFError
        return self.pipe.recv()

    def kill(self) -> None:
        """Ends the process; the thread that waits at the pipe closes it, or it is closed with this object."""
        self.process.kill()


class Processes:
    """Child processes, started when needed and used again."""

    def __init__(self) -> None:
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()
        self._threads = Threads()

    async def run(
        self,
        step: Step,
        attempt: Attempt,
        limit: AbstractAsyncContextManager[None],
        tell: Callable[[Told], None],
    ) -> tuple[Any, list[Request]]:
        """Runs an attempt in a child and gives what it returned and what it enqueued; cancelling this kills the child.

        `limit` begins when the code is loaded there; `tell` is told what the step tells of itself.
        """
        child = self._living() or await self._start()
        self._all.add(child)
        place = {"module": step.module, "qualname": step.qualname}
        request = {
            **place,
            "args": step.current_args(attempt.args),
            "attempt": Described(
                attempt.id,
                attempt.kind,
                step.name,
                attempt.queue,
                attempt.number,
                attempt.errors,
                attempt.crashes,
                attempt.moves,
                attempt.key,
                attempt.strings(),
                attempt.deadline,
            ),
        }
        try:
            if step.module not in child.loaded:
                await outcome_of(self._threads.run(lambda: child.ask(place, tell)))
                child.loaded.add(step.module)
            async with limit:
                asking = self._threads.run(lambda: child.ask(request, tell))
                asking.add_done_callback(take_note)  # the attempt may have ended when the child is killed
                ok, answer = await outcome_of(asking)
        except BaseException:
            self._all.discard(child)
            child.kill()
            raise
        self._idle.append(child)
        if ok:
            return answer  # type: ignore[no-any-return]
        raise answer

    def _living(self) -> _Child | None:
        """An idle child; one that died meanwhile, of hunger for memory perhaps, is passed over."""
        while self._idle:
            child = self._idle.pop()
            if child.process.is_alive():
                return child
            self._all.discard(child)
        return None

    async def _start(self) -> _Child:
        starting = self._threads.run(_Child)
        try:
            child: _Child = await outcome_of(starting)
        except BaseException:
            starting.add_done_callback(_end_unwanted)
            raise
        return child

    async def close(self) -> None:
        for child in self._all:
            child.kill()
        self._all.clear()
        self._idle.clear()
        self._threads.close()


def _end_unwanted(starting: "asyncio.Future[_Child]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().kill()


class _Teller:
    """Sends what a step tells of itself to the worker: now and then, and the last of it before the answer."""

    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._sent_at = 0.0
        self._unsent: Told | None = None

    def tell(self, attempt: Described) -> None:
        self._unsent = attempt.told
        if time.monotonic() - self._sent_at >= TELL_EVERY:
            self.finish()

    def finish(self) -> None:
        told, self._unsent = self._unsent, None
        if told is not None:
            self._sent_at = time.monotonic()
            self._pipe.send(told)


def serve(pipe: "Connection[Any, Any]", parent: int) -> None:
    """The child's life: runs what it is asked to until the pipe closes."""
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    before = forks.count
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        ended = threading.Event()
        threading.Thread(target=_watch, args=(pipe, parent, ended), daemon=True).start()
        teller = _Teller(pipe)
        answer = _run(request, teller)
        if forks.count != before:
            forks.end_child(f"{request['qualname']} forked")  # its answer would be taken for its parent's
        ended.set()
        try:
            teller.finish()
            pipe.send(answer)
        except (OSError, ValueError):
            return
        except Exception as error:
            pipe.send((False, _portable(error)))


def _run(request: dict[str, Any], teller: _Teller) -> tuple[bool, Any]:
    try:
        step = _find(request["module"], request["qualname"])
        if "args" not in request:
            return True, None  # it was only to be loaded
        context = Context(request["attempt"], Offers(tell=teller.tell))
        current_context.set(context)
        returned = step.call(step.decode(request["args"]), context)
        # How to read a result stays here: it is code, and not needed there.
        return True, (returned, [replace(each, decode_result=None) for each in context._enqueued or ()])
    except BaseException as error:
        return False, _portable(error)


def _find(module: str, qualname: str) -> Step:
    target = reduce(getattr, qualname.split("."), importlib.import_module(module))
    step = getattr(target, OWNER, None)
    if not isinstance(step, Step):
        raise HoldfastError(
            f"{module}.{qualname} is not a step in the child process: is it declared at import, by name?"
        )
    return step


def _portable(error: BaseException) -> BaseException:
    """An exception that survives the pipe; the traceback travels as a note, and so does its place."""
    import pickle
    import traceback

    note = "In the child process:\n" + "".join(traceback.format_exception(error)).rstrip()
    try:
        copy: BaseException = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here, by us
    except BaseException:
        copy = HoldfastError(f"{type(error).__qualname__}: {message_of(error)}")
    with contextlib.suppress(BaseException):
        copy.add_note(note)
        setattr(copy, PLACE, place_of(error))
    return copy


def _watch(pipe: "Connection[Any, Any]", parent: int, ended: threading.Event) -> None:
    # While a step runs the pipe is not read: the parent itself is checked.
    while not ended.wait(0.5):
        if os.getppid() != parent:
            os._exit(1)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
