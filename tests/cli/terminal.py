"""`holdfast` on a terminal: a process whose input and output are a pseudo terminal of a given width."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from types import TracebackType

from .conftest import DEADLINE, eventually

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command on a terminal. What it writes, to stdout or stderr, is `shown`."""

    def __init__(self, url: str, *arguments: object, columns: int = 80) -> None:
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        environment = {**os.environ, "HOLDFAST_URL": url, "USER": "tester", "TERM": "xterm"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", *map(str, arguments)],
            env=environment,
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        )
        os.close(its)
        self._ours = ours
        self._written = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All that was written, with every escape sequence."""
        return self._written.decode("utf-8", "replace")

    @property
    def shown(self) -> str:
        """The same without colours, and lines ended as in files."""
        return _STYLE.sub("", self.raw).replace("\r\n", "\n")

    def says(self, text: str) -> None:
        """Waits until it has written this."""
        eventually(lambda: text in self.shown or self._process.poll() is not None, f"{text!r} was not written")
        assert text in self.shown, self.shown

    def answer(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(DEADLINE)
        self._reader.join()
        return code

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._ours)

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 65_536)
            except OSError:
                return  # nobody has the other end open any more
            if not chunk:
                return
            self._written += chunk
