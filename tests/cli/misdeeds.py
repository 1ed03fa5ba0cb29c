"""What user code can do to its worker: each function here does one such thing. See test_misdeeds.py.

It is loaded by workers as a file, so it knows nothing of the tests.
"""

import asyncio
import locale
import logging
import os
import random
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from holdfast import App

app = App()

AGAIN = Path("again")
"""There from the second attempt on, for those whose worker does not outlive the first."""


def once() -> bool:
    if AGAIN.exists():
        return False
    AGAIN.touch()
    return True


@app.task
async def who() -> int:
    """A task like any other."""
    await asyncio.sleep(0.01)
    return os.getpid()


# --- exits


@app.task
async def sys_exit() -> None:
    sys.exit(0)


@app.task
def sys_exit_in_a_thread() -> None:
    sys.exit(0)


@app.task(executor="process")
def sys_exit_in_a_process() -> None:
    sys.exit(0)


@app.task
async def sys_exit_in_a_task_of_its_own() -> None:
    async def leave() -> None:
        sys.exit(0)

    asyncio.create_task(leave())  # noqa: RUF006
    await asyncio.sleep(0.05)


@app.task
async def sys_exit_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.sleep(0.05)


@app.task
async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)


@app.task
async def close_the_loop() -> None:
    asyncio.get_running_loop().close()


@app.task
async def os_exit() -> None:
    if once():
        os._exit(0)


@app.task(executor="process")
def os_exit_in_a_process() -> None:
    os._exit(0)


# --- signals


@app.task
async def sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@app.task
async def sigkill() -> None:
    if once():
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def ignored_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


# --- exceptions that are no Exception


class Unheard(BaseException):
    pass


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise Unheard


@app.task
async def cancelled_error() -> None:
    raise asyncio.CancelledError


@app.task
def cancelled_error_in_a_thread() -> None:
    raise asyncio.CancelledError


@app.task
async def keyboard_interrupt() -> None:
    raise KeyboardInterrupt


@app.task
async def generator_exit() -> None:
    raise GeneratorExit


@app.task
async def base_exception() -> None:
    raise Unheard


@app.task
async def unspeakable() -> None:
    raise Unspeakable


@app.task(executor="process")
def unspeakable_in_a_process() -> None:
    raise Unspeakable


@app.task
async def endless_recursion() -> None:
    def deeper() -> None:
        deeper()

    deeper()


# --- cancelled tasks


@app.task
async def cancel_itself() -> None:
    this = asyncio.current_task()
    assert this is not None
    this.cancel()
    await asyncio.sleep(1)


@app.task
async def cancel_everything() -> None:
    if once():
        for each in asyncio.all_tasks():
            each.cancel()
        await asyncio.sleep(1)


# --- forks


def write_pid() -> None:
    Path("child").write_text(str(os.getpid()))


@app.task
async def fork_and_return() -> None:
    if os.fork() == 0:
        write_pid()


@app.task
async def fork_and_wait() -> None:
    if os.fork() == 0:
        write_pid()
    await asyncio.sleep(0.2)


@app.task
def fork_in_a_thread() -> None:
    if os.fork() == 0:
        write_pid()


@app.task(executor="process")
def fork_in_a_process() -> None:
    if os.fork() == 0:
        write_pid()


@app.task(executor="process")
def fork_and_exit_in_a_process() -> None:
    """The child stays, with the pipe to the worker."""
    if os.fork() == 0:
        write_pid()
        time.sleep(600)
    os._exit(3)


@app.task
async def fork_and_die() -> None:
    """The child stays, with all that the worker has open."""
    if once():
        if os.fork() == 0:
            write_pid()
            time.sleep(600)
        os.kill(os.getpid(), signal.SIGKILL)


# --- descriptors


@app.task
async def close_descriptors() -> None:
    if once():
        os.closerange(3, 1024)


@app.task
async def close_streams() -> None:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


# --- logging


class Broken(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ZeroDivisionError("a handler of the user")


def refuse(record: Any) -> NoReturn:
    raise SystemExit("a filter of the user")


def break_logging(how: Callable[[], object]) -> None:
    how()
    raise ValueError("this is to be logged")


@app.task
async def log_handler_raises() -> None:
    break_logging(lambda: logging.getLogger().addHandler(Broken()))


@app.task
async def log_filter_exits() -> None:
    break_logging(lambda: logging.getLogger().handlers[0].addFilter(refuse))


@app.task
async def log_factory_raises() -> None:
    break_logging(lambda: logging.setLogRecordFactory(lambda *_, **__: 1 / 0))  # type: ignore[arg-type]


@app.task
async def logging_shut_down() -> None:
    break_logging(logging.shutdown)


# --- what the whole process shares


@app.task
async def locale_and_zone() -> None:
    locale.setlocale(locale.LC_ALL, "")
    os.environ.clear()
    os.environ["TZ"] = "Pacific/Kiritimati"
    time.tzset()


@app.task
async def no_folder_no_rights() -> None:
    os.umask(0o777)
    os.chdir("/")


@app.task
async def odd_defaults() -> None:
    random.seed(0)
    warnings.simplefilter("error")
    socket.setdefaulttimeout(0.001)
    sys.setrecursionlimit(120)


@app.task
async def frozen_time() -> None:
    now, wall = time.monotonic(), time.time()
    time.monotonic = time.perf_counter = lambda: now
    time.time = lambda: wall


@app.task
async def sleepless_time() -> None:
    time.sleep = lambda seconds: None
    time.time = lambda: 0.0


# --- hooks and schedules


@app.task
async def hook_raises() -> None:
    raise ValueError


@app.on_failure
async def hook(failure: Any) -> None:
    if failure.task.kind == "hook_raises":
        raise asyncio.CancelledError
    if failure.task.kind == "sys_exit":
        sys.exit(0)
