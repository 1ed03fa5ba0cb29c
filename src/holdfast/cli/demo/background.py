"""A call that takes a while, in a thread of its own."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Background(Generic[T]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._answer: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._make, args=(call,), daemon=True)
        self._thread.start()

    def _make(self, call: Callable[[], T]) -> None:
        try:
            self._answer.append(call())
        except BaseException as error:
            self._error = error

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    def result(self) -> T:
        self.join()
        if self._error is not None:
            raise self._error
        return self._answer[0]
