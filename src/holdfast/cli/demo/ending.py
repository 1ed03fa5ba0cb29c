"""Ctrl-C, SIGTERM and a closed terminal end the demo: where nothing is left half done, and only once."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_SLICE = 0.05


class Ending:
    """Whether the demo is to end.

    The first signal is obeyed at the next pause, so that no process is started and then forgotten. A second one is
    obeyed at once: something may hang. From then on signals change nothing.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._begun = False
        self._shielded = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for name in _SIGNALS:
            if hasattr(signal, name):
                number = getattr(signal, name)
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def begin(self) -> None:
        """It ends now, for whatever reason: nothing interrupts this any more."""
        self._begun = True

    def check(self) -> None:
        """Ends the demo here if it was asked to."""
        if self._asked and not self._begun:
            self.begin()
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        """Sleeps, and ends the demo if it is asked to meanwhile."""
        until = time.monotonic() + seconds
        self.check()
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(_SLICE, left))
            self.check()

    @contextmanager
    def shield(self) -> Iterator[None]:
        """What must not be interrupted half way, not even by an impatient person."""
        self._shielded = True
        try:
            yield
        finally:
            self._shielded = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked > 1 and not self._shielded:
            self.check()
