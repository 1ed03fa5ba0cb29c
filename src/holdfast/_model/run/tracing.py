"""What tracing adds to enqueues and attempts, where somebody has asked for it. `holdfast.otel` is one."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast._model.enqueue.request import Request


class Tracing(Protocol):
    """Told of every enqueue and every attempt of an App."""

    def enqueuing(self, requests: Sequence[Request]) -> AbstractContextManager[Sequence[Request]]:
        """Around an enqueue: gives the requests to be written, with what is to be carried along in their headers."""
        ...

    def attempting(self, attempt: Any) -> AbstractContextManager[Callable[[Any], None]]:
        """Around an attempt: gives a function to be told its outcome."""
        ...
