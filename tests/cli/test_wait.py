"""`wait`: until tasks have ended, with results and reasons."""

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cli.output import following
from holdfast.testing import Harness

from .conftest import Cli, Process
from .planted import HARMFUL, is_harmless, parked, rows
from .terminal import Terminal

NO_TASK = "01890a5d-ac96-774b-bcce-b302099a8057"

APP = """
import time
from holdfast import App

app = App()


@app.task
def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "well rested"
"""


async def done(cli: Cli, holdfast: Harness, result: object) -> str:
    """A task that has ended with a result."""
    name = f"give_{len(holdfast.app._steps)}"

    @holdfast.app.task(name=name)
    async def give() -> object:
        return result

    id = cli.enqueue(name, "--force")
    await holdfast.drain()
    return id


async def test_results_are_printed_for_programs(cli: Cli, holdfast: Harness) -> None:
    text, number = await done(cli, holdfast, "two\nlines"), await done(cli, holdfast, {"n": 1})
    nothing = await done(cli, holdfast, None)
    assert cli("wait", text).stdout == "two\nlines\n"
    assert cli("wait", number).stdout == '{"n": 1}\n'
    assert cli("wait", nothing).stdout == ""
    both = cli("wait", number, text, number).stdout
    assert both == f'{number}  {{"n": 1}}\n{text}  "two\\nlines"\n'
    assert cli.json("wait", number) == [{"id": number, "state": "done", "result": {"n": 1}, "error": None}]


async def test_what_has_no_result_is_exit_code_1_with_the_reason(cli: Cli, holdfast: Harness) -> None:
    stopped, cancelled, given_up = parked(cli), cli.enqueue("send"), parked(cli)
    cli("cancel", cancelled, "--why", "ordered twice")
    cli("discard", given_up)
    assert "is parked: FileNotFoundError: no such file" in cli("wait", stopped, code=1).stderr
    assert "is cancelled by tester: ordered twice\n" in cli("wait", cancelled, code=1).stderr
    assert cli("show", cancelled).stdout.count("cancelled: ") == 0, "it says it once"
    assert "is discarded" in cli("wait", given_up, code=1).stderr
    good = await done(cli, holdfast, 42)
    mixed = cli("wait", stopped, good, "--json", code=1)
    assert [(each["state"], each["result"]) for each in json.loads(mixed.stdout)] == [("parked", None), ("done", 42)]
    assert json.loads(mixed.stderr)["error"] == "TaskParked"
    assert f"{good}  42" in cli("wait", stopped, good, code=1).stdout


def test_what_is_not_there_is_exit_code_3_before_any_waiting(cli: Cli) -> None:
    waits = cli.enqueue("send")
    assert f"there is no task {NO_TASK}" in cli("wait", waits, NO_TASK, code=3).stderr


def test_time_is_up(cli: Cli) -> None:
    id = cli.enqueue("send", "--delay", "1h")
    said = cli("wait", id, "--timeout", "100ms", code=1).stderr
    assert f"task {id} was not finished within 0.1 s: it is scheduled. It is not due until " in said
    as_json = cli("wait", id, "--timeout", "0", "--json", code=1)
    assert json.loads(as_json.stderr)["error"] == "ResultTimeout"
    assert json.loads(as_json.stdout)[0]["state"] == "ready"
    assert "timeout" in cli("wait", id, "--timeout", "soon", code=2).stderr


def test_why_it_does_not_start_is_told_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PATIENCE", 0.1)
    id = cli.enqueue("send")
    lines = cli("wait", id, "--timeout", "1s", code=1).stderr.splitlines()
    assert lines[0].startswith("It is due, but no worker is alive: ")
    assert len(lines) == 2
    assert cli("wait", id, "--timeout", "1s", "--json", code=1).stderr.count("no worker is alive") == 1
    monkeypatch.setattr(following, "PATIENCE", 60.0)
    assert len(cli("wait", id, "--timeout", "1s", code=1).stderr.splitlines()) == 1


def test_it_waits_for_a_worker(cli: Cli, project: Path, start: Callable[..., Process]) -> None:
    (project / "app.py").write_text(APP)
    id = cli.enqueue("nap", "seconds:=0.5")
    with Terminal(cli.url, "wait", id) as terminal:
        terminal.says("nap.main unroutable, attempt 0")
        terminal.says("It is due, but no worker is alive")
        worker = start("worker", "app.py", url=cli.url)
        assert terminal.ended() == 0
        assert "nap.main running, attempt 1" in terminal.shown
        # The line that shows how it stands is gone before the result is there.
        assert terminal.shown.endswith("\x1b[2Kwell rested\n")
    worker.signal(signal.SIGTERM)
    worker.ended()


def test_ctrl_c_ends_the_waiting_and_not_the_task(cli: Cli) -> None:
    id = cli.enqueue("send")
    with Terminal(cli.url, "wait", id) as terminal:
        terminal.says("send.main unroutable")
        terminal.interrupt()
        assert terminal.ended() == 130
        assert f"the task goes on: holdfast show {id}" in terminal.shown
    assert cli.show(id)["task"]["state"] == "ready"


def test_nothing_harmful_is_shown(cli: Cli) -> None:
    id = parked(cli, message=HARMFUL, type=HARMFUL)
    assert is_harmless(cli("wait", id, code=1).output)
    result = cli.enqueue("send")
    rows(cli, "select holdfast.cancel($1::uuid)", result)
    rows(cli, "update holdfast.archive set state = 'done', result = to_jsonb($1::text)", HARMFUL)
    with Terminal(cli.url, "wait", result) as terminal:
        assert terminal.ended() == 0
        assert "turned\nsecond line \\x08" in terminal.shown
        assert is_harmless(re.sub(r"\r?\x1b\[K", "", terminal.shown))
