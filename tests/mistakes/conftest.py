"""A project in which a user makes mistakes: commands and scripts, run as a user runs them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from commands import invoke
from holdfast import embedded
from holdfast._db.driver.connection import connect_sync, with_database

DEADLINE = 90.0
"""Seconds that anything here may take, on the slowest machine."""

HELLO = """\
from holdfast import App

app = App()


@app.task
async def hello(name: str, times: int = 1) -> str:
    return f"Hello, {name}"
"""

FAILED, USAGE, NOT_FOUND, UNREACHABLE = 1, 2, 3, 4


class Said:
    """What a program wrote, and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def once(self, *words: str, code: int) -> "Said":
        """One error of one style, with these words in this order, no traceback, and this exit code."""
        assert self.code == code, (self.code, self.out, self.err)
        assert self.err.count("error: ") == 1, self.err
        assert "Traceback" not in self.out + self.err
        message = self.err.partition("error: ")[2]
        assert not message[0].isupper() or message.startswith(("PostgreSQL", "App", "HOLDFAST_")), message
        return self.telling(*words)

    def telling(self, *words: str) -> "Said":
        """These words, in this order."""
        rest = " ".join((self.out + self.err).split())
        for word in words:
            assert word in rest, f"{word!r} is not in: {rest}"
            rest = rest.partition(word)[2]
        return self


class Project:
    """A folder with a `hello.py`, and programs that run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url: str | None = None
        self.write("pyproject.toml", "")
        self.write("hello.py", HELLO)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def cli(self, *arguments: object, **variables: str) -> Said:
        """A command that runs no code of the user's."""
        environment: dict[str, str | None] = {"HOLDFAST_URL": self.url, "DATABASE_URL": None, **variables}
        done = invoke(arguments, environment)
        return Said(done.exit_code, done.stdout, done.stderr)

    def process(self, *arguments: object, **variables: str) -> Said:
        """A command as a process of its own, for those that import the user's code."""
        return self._run("-m", "holdfast.cli", *arguments, **variables)

    def python(self, text: str, *options: str, **variables: str) -> Said:
        """A script of the user's."""
        self.write("script.py", text)
        return self._run(*options, "script.py", **variables)

    def worker(self, *arguments: object, **variables: str) -> Said:
        return self.process("worker", "hello.py", "--drain", *arguments, **variables)

    def sql(self, text: str, *values: object) -> list[tuple[object, ...]]:
        assert self.url is not None
        return execute(self.url, text, *values)

    def _run(self, *arguments: object, **variables: str) -> Said:
        environment = {**os.environ, **({"HOLDFAST_URL": self.url} if self.url else {}), **variables}
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)


def execute(url: str, text: str, *values: object) -> list[tuple[object, ...]]:
    with connect_sync(url) as connection:
        cursor = connection.execute(text.encode(), values or None)
        return cursor.fetchall() if cursor.description is not None else []


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project without a database."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("HOLDFAST_URL", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return Project(folder)


@pytest.fixture
def project(nowhere: Project, holdfast_url: str) -> Project:
    """A project with a migrated database."""
    nowhere.url = holdfast_url
    return nowhere


@pytest.fixture
def bare(nowhere: Project, holdfast_server: str) -> Iterator[Project]:
    """A project with a database in which `holdfast migrate` was forgotten."""
    name = f"holdfast_bare_{uuid4().hex[:12]}"
    execute(holdfast_server, f"CREATE DATABASE {name} TEMPLATE template0")
    nowhere.url = with_database(holdfast_server, name)
    yield nowhere
    execute(holdfast_server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def role(project: Project, holdfast_server: str) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"holdfast_role_{uuid4().hex[:12]}"
    execute(holdfast_server, f"CREATE ROLE {name} LOGIN PASSWORD 'right'")
    yield name
    project.sql(f"DROP OWNED BY {name} CASCADE")
    execute(holdfast_server, f"DROP ROLE {name}")


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that asks the role `ada` for a password."""
    folder = tmp_path_factory.mktemp("strict") / ".holdfast"
    server = embedded.start(folder, durable=False)
    try:
        rules = server.data / "pg_hba.conf"
        rules.write_text("local all ada scram-sha-256\n" + rules.read_text())
        execute(server.url(), "CREATE ROLE ada LOGIN PASSWORD 'right'")
        execute(server.url(), "SELECT pg_reload_conf()")
        yield server.url()
    finally:
        server.stop("immediate")
        embedded.reset(folder)


Calls = Callable[..., Said]
