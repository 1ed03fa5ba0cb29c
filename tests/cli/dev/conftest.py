"""`holdfast dev` as a real process, of which nothing is left in the end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import embedded

from ..conftest import Cli, Process, eventually
from .support import SLOW, Start, workers


@pytest.fixture
def start(start: Start) -> Iterator[Start]:
    """As elsewhere; and whoever is left in the end is killed."""
    groups: list[int] = []

    def begin(*arguments: object, **more: Any) -> Process:
        process = start(*arguments, **more)
        groups.append(process.pid)
        return process

    yield begin
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


@pytest.fixture
def folder(project: Path, start: Start) -> Iterator[Path]:
    """Where the embedded server is. It is deleted after the processes have ended."""
    folder = project / ".holdfast"
    yield folder
    if (folder / "embedded.json").exists():
        embedded.reset(folder)


@pytest.fixture
def dev(cli: Cli, start: Start, project: Path) -> Callable[..., Process]:
    """`holdfast dev` on the test's database, once it is ready."""

    def begin(code: str = SLOW, *options: object) -> Process:
        (project / "shop.py").write_text(code)
        process = start("dev", "shop.py", *options, url=cli.url)
        process.says('"loaded"' if "--json" in options else "Ctrl-C ends")
        eventually(lambda: workers(cli) == 1, "no worker has introduced itself")
        return process

    return begin
