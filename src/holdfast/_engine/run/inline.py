"""Beginning coroutines by hand: no Task is made for one that never waits.

Each runs in a context of its own, as a Task would give it. One that waits goes on in the Task in which it was begun,
which is its own from then on: so timeouts, cancellation and `asyncio.current_task()` are what they are everywhere.

What is run is a generator that attends to one after another, and yields in between. A coroutine for each would have to
return: to code that runs it by hand, that is an exception with a traceback, which takes longer than many a step.
"""

from collections.abc import Generator
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

from holdfast._db.driver import forks

T = TypeVar("T")

ENDED: Any = object()
"""What is yielded when one has ended, and the next may come."""


class InlineRunner(Generic[T]):
    """Runs a generator that yields `ENDED` again and again, for the next one to be sent.

    It is of no use any more after one that waited, whose own it is then, or that raised.
    """

    __slots__ = ("_each", "_forks", "_send")

    def __init__(self, each: Generator[Any, Any, None]) -> None:
        self._each = each
        self._forks = forks.count
        self._send = each.send
        self._send(None)

    def begin(self, one: T) -> "InlineRest | None":
        """Runs until it waits, and gives what is to be awaited then; None if this one has ended."""
        context = copy_context()
        awaited = context.run(self._send, one)
        return None if awaited is ENDED else InlineRest(context, self._each, awaited, self._forks)


class InlineRest:
    """The rest of one that has begun. To be awaited at once: `awaited` is what it waits for."""

    __slots__ = ("_awaited", "_context", "_each", "_forks")

    def __init__(self, context: Context, each: Generator[Any, Any, None], awaited: Any, before: int) -> None:
        self._context = context
        self._each = each
        self._awaited = awaited
        self._forks = before

    def __await__(self) -> Generator[Any, Any, None]:
        run, each, awaited = self._context.run, self._each, self._awaited
        del self._awaited
        while awaited is not ENDED:
            if forks.count != self._forks:
                forks.end_child("a step forked")  # before the loop goes on with the steps of others
            try:
                answer = yield awaited
            except GeneratorExit:
                with suppress(RuntimeError):  # it takes that for the end of this one, and asks for the next
                    run(each.close)
                raise
            except BaseException as error:
                awaited = run(each.throw, error)
            else:
                awaited = run(each.send, answer)
