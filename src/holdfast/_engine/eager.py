"""Beginning a coroutine by hand: no Task is made for one that never waits.

Each runs in a context of its own, as a Task would give it. One that waits goes on in the Task in which it was begun,
which is its own from then on: so timeouts, cancellation and `asyncio.current_task()` are what they are everywhere.
"""

from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any


def begin(coroutine: Coroutine[Any, Any, None]) -> "Rest | None":
    """Runs a coroutine until it waits, and gives what is to be awaited then; None if it has ended."""
    context = copy_context()
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    return Rest(context, coroutine, awaited)


class Rest:
    """The rest of a coroutine that has begun. To be awaited at once: `awaited` is what it waits for."""

    __slots__ = ("_awaited", "_context", "_coroutine")

    def __init__(self, context: Context, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._context = context
        self._coroutine = coroutine
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        run, coroutine, awaited = self._context.run, self._coroutine, self._awaited
        del self._awaited
        try:
            while True:
                try:
                    answer = yield awaited
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:
                    awaited = run(coroutine.throw, error)
                else:
                    awaited = run(coroutine.send, answer)
        except StopIteration:
            return
