"""Is a server running on this data? What `postmaster.pid` claims, checked against the process itself.

The file outlives a crash, and the system may have given its pid to another process since. So a pid
counts only if that process is a `postgres` that works in this very data folder.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["smart", "fast", "immediate"]

_SIGNALS: dict[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server process."""

    pid: int
    data: Path
    port: int
    sockets: Path
    ready: bool


def running(data: Path) -> Postmaster | None:
    """The server running on this data, or None."""
    try:
        lines = (data / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        pid, port, sockets = int(lines[0]), int(lines[3]), Path(lines[4])
    except (IndexError, ValueError):
        return None
    if not _serves(pid, data):
        return None
    return Postmaster(pid, data, port, sockets, ready=len(lines) > 7 and lines[7].strip() == "ready")


def remove_stale_pid_file(data: Path) -> None:
    """Remove a `postmaster.pid` whose pid is now another process, or a zombie. Only when nothing is running.

    PostgreSQL copes with a pid that is gone, but takes any process of its user that has it for a server.
    Processes a killed server left behind are still noticed: they hold its shared memory.
    """
    path = data / "postmaster.pid"
    try:
        pid = int(path.read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return
    if _exists(pid) and not _serves(pid, data):
        path.unlink(missing_ok=True)


def wait_until_ready(data: Path, pid: int, *, timeout: float) -> Postmaster | None:
    """Wait until this process takes connections; None if it ended, or has not come that far in time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = running(data)
        if found is not None and found.ready and found.pid == pid:
            return found
        if not is_alive(pid):
            return None
        time.sleep(_PAUSE)
    return None


def end(postmaster: Postmaster, mode: Mode, *, timeout: float) -> bool:
    """Ask the server to stop and wait until it has; False if it has not in time."""
    deadline = time.monotonic() + timeout
    if _serves(postmaster.pid, postmaster.data):
        os.kill(postmaster.pid, _SIGNALS[mode])
    while _serves(postmaster.pid, postmaster.data):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def is_alive(pid: int) -> bool:
    """Whether this process exists and is no zombie (in a container nobody may ever collect those)."""
    return bool(_arguments(pid))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def program_of(pid: int) -> Path:
    """The path the process was started by."""
    return Path((_arguments(pid) or [""])[0])


def _serves(pid: int, data: Path) -> bool:
    arguments = _arguments(pid)
    if not arguments or Path(arguments[0]).name not in ("postgres", "postmaster"):
        return False
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").samefile(data)  # the postmaster works in its data folder
        except FileNotFoundError:
            return False
        except PermissionError:
            pass  # a process of another user: its arguments must do
    return str(data) in arguments


def _arguments(pid: int) -> list[str]:
    if pid <= 0:
        return []
    if sys.platform == "linux":
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return []
        return [os.fsdecode(part) for part in raw.split(b"\0") if part]
    listed = subprocess.run(
        ["ps", "-ww", "-o", "stat=,args=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    if len(listed) < 2 or listed[0].startswith("Z"):
        return []
    program, _, data = listed[1].strip().partition(" -D ")
    return [program, "-D", data] if data else [program]
