"""Does what a page says, block by block: `python -m tests.docs.run_page PAGE`, in an empty folder, with HOLDFAST_URL.

Python blocks without a file's name share one namespace and may await; those with one are written to it. Console blocks
are commands of a shell; a worker among them goes on beside the page. SQL goes to the database. A text block right
after another is what that one prints: `…` stands for anything, and ids and times may differ. `ID` is the last id seen.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg

from holdfast import App

from .pages import Block, blocks

PATIENCE = 60.0
SKIPPED = (
    "pip ",
    "make ",
    "holdfast pg ",
    "holdfast demo",
    "holdfast web",
    "export ",
    "curl ",
    "sudo ",
    "docker ",
    "systemctl ",
    "createdb ",
)
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_WORKER = re.compile(r"holdfast (dev|worker)\b(?!.*--(drain|help))")
_VARYING = (
    (_UUID, "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d(:\d\d)?)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b(in )?\d+(\.\d+)? ?(ms|s|min|m)\b( ago)?"), "SPAN"),
    (re.compile(r"\s+"), " "),
)


class Page:
    """One page being followed."""

    def __init__(self, document: Path) -> None:
        self._blocks = blocks(document)
        # A module, so that annotations in it can be resolved as everywhere.
        self._names = vars(sys.modules.setdefault("page", ModuleType("page")))
        self._workers: list[subprocess.Popen[bytes]] = []
        self._url = os.environ["HOLDFAST_URL"]
        self._id = ""
        self._said = ""

    def follow(self) -> None:
        """Does everything; what goes wrong names its block."""
        try:
            with asyncio.Runner() as runner:
                for block in self._blocks:
                    try:
                        self._do(block, runner)
                    except BaseException as error:
                        error.add_note(f"in {block.place}")
                        raise
                for app in [each for each in self._names.values() if isinstance(each, App)]:
                    runner.run(app.close())
        finally:
            self._end_workers()

    def _do(self, block: Block, runner: asyncio.Runner) -> None:
        if not (block.is_run or block.is_output):
            self._said = ""
        match block.language:
            case "python" if block.file:
                self._write(block)
            case "python":
                self._python(block, runner)
            case "console" if block.is_run:
                self._console(block)
            case "sql" if block.is_run:
                self._said = "\n".join(" | ".join(map(str, row)) for row in self._sql(block.text) or [])
                self._remember_id()
            case "text" if block.is_output and self._said:
                expect(self._said, block.text)
            case "toml":
                tomllib.loads(block.text)
            case "json":
                json.loads(block.text)
            case _:
                pass

    # --- Python

    def _write(self, block: Block) -> None:
        file = Path(block.file)
        file.parent.mkdir(parents=True, exist_ok=True)
        before = file.read_text("utf-8") if block.continued else ""
        file.write_text(before + block.text, "utf-8")
        compile(file.read_text("utf-8"), file.name, "exec")
        if block.is_run:
            # As a module would be imported: what is under `if __name__ == "__main__"` waits for its command.
            sys.path[:0] = [] if "" in sys.path else [""]
            runpy.run_path(str(file), run_name=file.stem)

    def _python(self, block: Block, runner: asyncio.Runner) -> None:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile("\n" * block.line + block.text, block.place, "exec", flags)
        if not block.is_run:
            return
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(self._await(code, works=".result(" in block.text))
            else:
                exec(code, self._names)
        self._said = printed.getvalue()
        self._remember_id()

    async def _await(self, code: Any, *, works: bool) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for app in [each for each in self._names.values() if isinstance(each, App)] if works else []:
                queues = sorted({step.queue for step in app.load()._steps.values()} | {"default"})
                await stack.enter_async_context(app.worker(queues=queues, poll="100ms"))
            await eval(code, self._names)

    # --- the shell

    def _console(self, block: Block) -> None:
        said: list[str] = []
        for command in commands(block.text):
            if command.startswith(SKIPPED):
                continue
            self._settle()
            command = re.sub(r"\bID\b", self._id, command) if self._id else command
            if _WORKER.match(command):
                self._start_worker(command.removesuffix("&"))
                continue
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode != block.exit_code:
                raise AssertionError(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
            self._said = done.stderr if block.exit_code else done.stdout
            said.append(self._said)
            self._remember_id()
        self._said = "".join(said)

    def _start_worker(self, command: str) -> None:
        before = self._count_workers()
        process = subprocess.Popen(["bash", "-c", f"exec {command}"], stderr=subprocess.PIPE, start_new_session=True)
        self._workers.append(process)
        until = time.monotonic() + PATIENCE
        while self._count_workers() == before:
            if process.poll() is not None or time.monotonic() > until:
                assert process.stderr is not None
                process.kill()
                raise AssertionError(f"{command}: it did not start\n{process.stderr.read().decode()}")
            time.sleep(0.05)

    def _count_workers(self) -> int:
        return int(self._sql("select count(*) from holdfast.worker")[0][0])

    def _settle(self) -> None:
        """People wait a moment before they look; so does this, until the workers have nothing to do soon."""
        if not any(each.poll() is None for each in self._workers):
            return
        until = time.monotonic() + PATIENCE
        busy = """select exists (select from holdfast.tasks where phase in ('running', 'due')
                  or phase in ('retrying', 'scheduled') and run_at < holdfast.now() + interval '5 s')"""
        while self._sql(busy)[0][0]:
            if time.monotonic() > until:
                raise AssertionError("the workers do not come to an end")
            time.sleep(0.05)

    def _end_workers(self) -> None:
        for each in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGTERM)
        for each in self._workers:
            try:
                each.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(each.pid, signal.SIGKILL)
                raise

    # --- the database

    def _sql(self, text: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self._url, autocommit=True) as connection:
            for each in statements(text):
                cursor = connection.execute((re.sub(r"\bID\b", self._id, each) if self._id else each).encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def _remember_id(self) -> None:
        self._id = (_UUID.findall(self._said) or [self._id])[-1]


def commands(text: str) -> Iterator[str]:
    """The commands of a console block, without their comments; a line that ends with a backslash goes on."""
    for line in text.replace("\\\n", " ").split("\n"):
        command = re.sub(r"(^|\s+)# .*$", "", line).strip()
        if command:
            yield command


def statements(text: str) -> list[str]:
    """The statements of an SQL block, one by one, as psql sends them; what is between $$ and $$ stays together."""
    pieces = re.split(r"(\$\$.*?\$\$)|;[ \t]*(?:--[^\n]*)?(?:\n|$)", text, flags=re.DOTALL)
    found = [""]
    for n, piece in enumerate(pieces):
        if n % 2 == 0 and n and pieces[n - 1] is None:
            found.append("")
        found[-1] += piece or ""
    return [each for each in found if each.strip()]


def expect(said: str, shown: str) -> None:
    """Compares what was printed with what the page shows."""
    pattern = r".*".join(re.escape(part) for part in re.split(r" ?… ?", _plain(shown)))
    if not re.fullmatch(pattern, _plain(said), re.DOTALL):
        raise AssertionError(f"it printed\n{said}\nand the page shows\n{shown}")


def _plain(text: str) -> str:
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return text.strip()


if __name__ == "__main__":
    Path("pyproject.toml").touch()  # a project of its own: nothing above is found
    Page(Path(sys.argv[1])).follow()
