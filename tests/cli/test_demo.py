"""`holdfast demo`, as a user runs it: told, proved, interrupted, and in a world that is broken."""

import io
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from holdfast import embedded
from holdfast._db.driver.connection import connect_sync
from holdfast.cli import main
from holdfast.cli.demo.screen import Screen

from .conftest import Process
from .terminal import Terminal

Start = Callable[..., Process]

CHAPTERS = [
    "A database and two workers",
    "Orders, step by step",
    "A flaky call",
    "A delayed step",
    "A burst of small tasks",
    "A worker is killed",
    "A task is parked, and repaired",
]


@pytest.fixture
def folder(project: Path, start: Start) -> Iterator[Path]:
    """Where the demo's server is. It is deleted after the processes have ended."""
    folder = project / ".holdfast"
    yield folder
    if (folder / "embedded.json").exists():
        embedded.reset(folder)


def execute(url: str, *statements: str) -> None:
    with connect_sync(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def workers_of(told: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"process (\d+)", told)]


def commands_in(told: str) -> set[str]:
    return set(re.findall(r"^ +\$ holdfast ([a-z]+)", told, re.MULTILINE))


def outcomes(told: str, step: str) -> list[str]:
    return re.findall(rf"attempt \d  {step} +([a-z]+) ", told)


# --- the whole story


def test_it_tells_everything_and_stays_until_it_is_told_to_end(start: Start, folder: Path) -> None:
    demo = start("demo")
    demo.says("Your turn")
    demo.says("To begin with a file of your own")
    told = demo.stdout
    assert re.findall(r"^\d\. (.+)$", told, re.MULTILINE) == CHAPTERS
    assert "6 orders done in 16 moves" in told
    assert outcomes(told, "main") == ["retried", "retried", "done"]
    _check_proof(told)
    assert outcomes(told, "ReadName") == ["retried", "retried", "failed", "advanced"]
    assert "It is parked: [Errno 2] No such file or directory" in told
    assert '"Hello, Ada!"' in told
    assert "\x1b" not in told
    assert told.isascii()
    for command in commands_in(told):
        assert main.get_command(click.Context(main), command) is not None, command

    second = start("demo", "--once")
    assert second.ended() == 1
    assert "another demo is running" in second.stderr
    assert embedded.find(folder) is not None

    address = re.search(r"in a browser: (http://localhost:\d+/)(\S+)", told)
    assert address is not None
    with httpx.Client(base_url=address[1], follow_redirects=True) as browser:
        assert browser.get("tasks").status_code == 401
        assert browser.get(address[2]).status_code == 200
        assert "order" in browser.get("tasks").text

    tasks = start("enqueue", "add", "x:=20", "y:=22", "--wait")  # it finds the database by itself
    assert tasks.ended() == 0, tasks.stderr
    assert "42" in tasks.stdout

    alive = [pid for pid in workers_of(told) if exists(pid)]
    assert len(alive) == 1, "the other one was killed in the story"
    os.kill(alive[0], signal.SIGKILL)
    demo.says("was killed by signal 9")
    demo.says("takes its place")

    demo.signal(signal.SIGTERM)
    assert demo.ended() == 0, demo.stderr
    assert not any(map(exists, workers_of(demo.stdout)))
    assert embedded.find(folder) is None


def _check_proof(told: str) -> None:
    """The log of a task that was taken over: one attempt lost, its step executed again elsewhere, the others once."""
    log = told.partition("$ holdfast show")[2].partition("What was recorded")[0]
    steps, ended, workers = zip(*re.findall(r"attempt \d  (\w+) +(\w+) +(demo-\d)", log), strict=True)
    assert ended.count("lost") == 1
    lost = ended.index("lost")
    assert steps[lost] == steps[lost + 1]
    assert [*steps[:lost], *steps[lost + 1 :]] == ["Pick", "Pack", "Label", "Load"]
    assert workers[lost] not in workers[lost + 1 :]


def test_once_proves_what_it_tells_and_a_broken_world_fails_it(start: Start, holdfast_url: str) -> None:
    """Two demos beside each other, in schemas of their own. One database lies: a result is wrong, and a log is gone."""
    execute(
        holdfast_url,
        """CREATE FUNCTION public.lie() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN NEW.result := '"nothing"'; RETURN NEW; END $$""",
        "CREATE FUNCTION public.forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
        """CREATE TRIGGER lie BEFORE INSERT ON holdfast.archive FOR EACH ROW
           WHEN (NEW.kind = 'order' AND NEW.args ->> 'item' = 'lamp') EXECUTE FUNCTION public.lie()""",
        """CREATE TRIGGER forget BEFORE INSERT ON holdfast.attempt FOR EACH ROW
           WHEN (NEW.outcome = 'lost') EXECUTE FUNCTION public.forget()""",
    )
    broken = start("demo", "--once", "--json", "--url", holdfast_url)
    whole = start("demo", "--once", "--json", "--url", holdfast_url, "--schema", "demo")

    assert whole.ended() == 0, whole.stderr
    _check_summary(json.loads(whole.stdout))

    assert broken.ended() == 1
    told = json.loads(broken.stdout)
    assert told["ok"] is False
    assert [each["number"] for each in told["chapters"] if not each["ok"]] == [2, 6]
    assert "nothing" in told["problems"][0]
    assert "should have died with its tasks" in told["problems"][1]
    assert all(problem in json.loads(broken.stderr)["message"] for problem in told["problems"])


def _check_summary(told: Any) -> None:
    assert told["ok"] is True
    assert told["problems"] == []
    assert [each["title"] for each in told["chapters"]] == CHAPTERS
    figures = [each["figures"] for each in told["chapters"]]
    assert figures[1] | {"attempts": 0} == {"orders": 6, "moves": 16, "attempts": 0}
    assert figures[2]["waited_seconds"][:2] >= [0.6, 1.2]
    assert figures[3]["waited_seconds"][0] >= 3
    assert figures[4]["tasks"] == sum(figures[4]["by_worker"].values()) >= 5000
    assert figures[5]["taken_over"]
    assert figures[6]["result"] == "Hello, Ada!"
    assert {task["state"] for task in told["tasks"]} == {"done"}
    assert {task["queue"] for task in told["tasks"]} == {"demo"}
    known = {task["id"] for task in told["tasks"]}
    assert set(figures[5]["taken_over"]) < known == {id for each in told["chapters"] for id in each["tasks"]}


# --- its ends


def test_interrupted_at_any_moment_it_ends_all_it_started(start: Start, folder: Path) -> None:
    for moment, number in (
        ("$ holdfast pg start", signal.SIGINT),  # the server is about to start
        ("And five more", signal.SIGHUP),
        ("left unfinished come first", signal.SIGTERM),  # the orders of the one before
    ):
        demo = start("demo")
        demo.says(moment)
        demo.signal(number)
        assert demo.ended() == 130
        assert "Ending" in demo.stdout
        assert "Traceback" not in demo.stderr
        assert not any(map(exists, workers_of(demo.stdout)))
        assert embedded.find(folder) is None


def test_on_a_terminal_it_rewrites_its_board_in_place_and_stops_left_over_workers(
    start: Start, holdfast_url: str
) -> None:
    orphan = start("worker", "holdfast.cli.demo.tasks", "-q", "demo", url=holdfast_url)
    orphan.says("serves demo")
    with Terminal(holdfast_url, "demo", "--url", holdfast_url) as terminal:
        terminal.says("Restock ✓")
        assert orphan.ended() == 0
        terminal.interrupt()
        assert terminal.ended() == 130
        assert "Workers of an earlier demo are asked to stop: 1." in terminal.shown
        assert "\x1b[2K\x1b[1A" * 5 in terminal.raw, "six orders are drawn over"
        assert terminal.raw.rindex("\x1b[?25h") > terminal.raw.rindex("\x1b[?25l"), "the cursor is back"
        lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown.replace("\x1b[2K", "\n")).split("\n")
        assert max(len(line.strip("\r")) for line in lines if "holdfast" not in line) <= 80


# --- refusals


def test_it_does_not_touch_kinds_that_are_somebody_elses(start: Start, holdfast_url: str) -> None:
    execute(holdfast_url, "INSERT INTO holdfast.kind (name, queue, priority, graph) VALUES ('order', 'shop', 0, '{}')")
    demo = start("demo", "--once", "--url", holdfast_url)
    assert demo.ended() == 1
    assert "tasks of its own of kind 'order'" in demo.stderr
    assert workers_of(demo.stdout) == []


def test_it_does_not_wait_for_what_is_paused(start: Start, holdfast_url: str) -> None:
    assert start("pause", "demo", "--queue", url=holdfast_url).ended() == 0
    demo = start("demo", "--once", "--url", holdfast_url)
    assert demo.ended() == 1
    assert "holdfast resume demo" in demo.stderr
    assert workers_of(demo.stdout) == []


def test_a_database_that_cannot_be_reached_or_used_is_told_in_a_line(start: Start, holdfast_url: str) -> None:
    away = start("demo", "--once", "--url", "postgresql://127.0.0.1:1/nowhere")
    execute(holdfast_url, "ALTER TABLE holdfast.worker RENAME TO no_worker")
    broken = start("demo", "--once", "--url", holdfast_url)
    assert away.ended() == 4
    assert broken.ended() == 1
    for demo in (away, broken):
        assert "error: " in demo.stderr
        assert "Traceback" not in demo.stderr


# --- the screen


class FakeTerminal(io.TextIOWrapper):
    """A terminal that keeps what is written."""

    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def written(self) -> str:
        self.seek(0)
        return self.read()


def on_terminal(monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8") -> FakeTerminal:
    """A terminal of 80 columns as stdout. In the test itself: before it, pytest would set its own stdout again."""
    made = FakeTerminal(encoding)
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.mark.parametrize(
    ("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", ""), ("COLUMNS", "40"), ("LINES", "10")]
)
def test_what_cannot_or_must_not_be_rewritten_is_printed_once_and_plain(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    terminal = on_terminal(monkeypatch)
    assert Screen().rewrites
    monkeypatch.setenv(name, value)
    screen = Screen()
    with screen.board() as board, screen.waiting("it takes a while"):
        board.update(screen.row("a ", screen.marked(None)), refresh=True)
        screen.say("b " * 100)
        board.update(screen.row("a ", screen.marked("done")), refresh=True)
    assert terminal.written == "   " + "b " * 100 + "\n   a +\n"


def test_a_board_is_drawn_over_and_its_lines_are_cut_before_they_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    screen = Screen()
    with screen.board() as board:
        board.update(screen.row("x" * 50, ("y" * 50, "red")), refresh=True)
        board.update(screen.row("short"), refresh=True)
    assert "x" * 50 + "\x1b[31m" + "y" * 26 + "…" in terminal.written
    assert "\x1b[2K   short" in terminal.written
    terminal = on_terminal(monkeypatch, "latin-1")
    screen = Screen()
    with screen.board() as board:
        board.update(screen.row("x" * 50, "y" * 50), refresh=True)
    assert "   " + "x" * 50 + "y" * 27 + "\n" in terminal.written


def test_a_long_command_is_not_broken_so_that_it_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    Screen().command("$ holdfast enqueue greeter.ReadName filename=" + "/a/long/folder" * 3)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.written)
    assert plain == "   $ holdfast enqueue greeter.ReadName filename=" + "/a/long/folder" * 3 + "\n"


def test_marks_are_ascii_where_the_encoding_has_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    assert Screen().marked("advanced") == ("✓", "green")
    on_terminal(monkeypatch, "latin-1")
    assert Screen().marked("advanced") == ("+", "green")
