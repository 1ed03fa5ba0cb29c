"""`holdfast` in this process, by click's runner, and as real processes that are always ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from commands import invoke

DEADLINE = 90.0
"""Seconds that anything here may take, on the slowest machine."""


class Cli:
    """Commands on one database, in an empty folder."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment: dict[str, str | None] = {"HOLDFAST_URL": url, "DATABASE_URL": None, "USER": "tester"}

    def __call__(self, *arguments: object, code: int = 0, answer: str | None = None) -> Result:
        """Runs a command and expects an exit code."""
        result = invoke(arguments, self.environment, answer)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: object, code: int = 0) -> Any:
        """What a command prints with --json."""
        return json.loads(self(*arguments, "--json", code=code).stdout)

    def enqueue(self, *arguments: object) -> str:
        return self("enqueue", *arguments).stdout.strip()

    def show(self, id: str) -> Any:
        return self.json("show", id)


class Process:
    """A `holdfast` of its own, in a session of its own; its output goes to files."""

    def __init__(self, arguments: tuple[object, ...], folder: Path, environment: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        number = len(list(folder.glob("*.out")))
        self._out, self._err = folder / f"{number}.out", folder / f"{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", *map(str, arguments)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def stdout(self) -> str:
        return self._out.read_text("utf-8")

    @property
    def stderr(self) -> str:
        return self._err.read_text("utf-8")

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, once it has ended."""
        try:
            return self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it goes on:\n{self.stdout}\n{self.stderr}") from None

    def says(self, text: str) -> None:
        """Waits until it has written this."""
        eventually(lambda: text in self.stdout + self.stderr or self.has_ended, f"{text!r} was not written")
        assert text in self.stdout + self.stderr, f"{self.stdout}\n{self.stderr}"

    def end(self) -> None:
        if not self.has_ended:
            self._process.kill()
        self._process.wait()


def eventually(condition: Callable[[], object], otherwise: str) -> None:
    """Waits until something holds."""
    until = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < until, otherwise
        time.sleep(0.05)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, where the test is."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    monkeypatch.chdir(folder)
    for name in ("HOLDFAST_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def cli(holdfast_url: str, project: Path) -> Cli:
    """Commands on a migrated database."""
    return Cli(holdfast_url)


@pytest.fixture
def start(project: Path, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts `holdfast` as a process; told which database by the environment."""
    made: list[Process] = []

    def start(*arguments: object, url: str | None = None) -> Process:
        environment = {**os.environ, **({"HOLDFAST_URL": url} if url else {})}
        made.append(Process(arguments, tmp_path / "output", environment))
        return made[-1]

    yield start
    for process in made:
        process.end()
