"""`holdfast graph`: what it draws, where it writes, and what it says when it cannot (T23)."""

import json
import socket
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .conftest import Cli
from .planted import plant, rows
from .terminal import Terminal

SHOP = """
from dataclasses import dataclass
from holdfast import App, Done, Later

app = App()
greeter = app.kind("greeter", result=str, was=["welcomer"])

@greeter.step
@dataclass
class ReadName:
    filename: str
    def run(self) -> "SayHello | Later[Fetch]": ...

@greeter.step(was=["Download"])
@dataclass
class Fetch:
    url: str
    def run(self) -> "SayHello | Later[Fetch]": ...

@greeter.step
@dataclass
class SayHello:
    name: str
    def run(self) -> Done[str]: ...

@app.task(queue="mail")
def send(to: str) -> str: ...

@app.task
def add(x: int, y: int) -> int: ...
"""
GREETER = """greeter
  ReadName
  ├→ SayHello
  │  → end
  └→ Fetch (later)
     ├→ SayHello (above)
     └→ Fetch (later) ↺
"""
NOBODY = "postgresql://127.0.0.1:1/nobody"


@pytest.fixture(autouse=True)
def shop(project: Path) -> None:
    (project / "shop.py").write_text(SHOP)


@pytest.fixture
def no_database(project: Path) -> Cli:
    """Commands where no database is named."""
    return Cli("")


def test_t23_all_kinds_as_text(no_database: Cli) -> None:
    result = no_database("graph", "shop.py")
    assert result.stdout == GREETER + "\nfunctions  send, add\n"
    assert result.stderr == ""
    assert no_database("graph", "shop.py", "greeter").stdout == GREETER
    assert no_database("graph", "shop:app", "add", "greeter", "add").stdout == GREETER + "\nfunctions  add\n"
    assert no_database("graph", "shop", "welcomer").stdout == GREETER  # by its old name


def test_an_unknown_kind_is_exit_code_3_with_the_known_ones(no_database: Cli, project: Path) -> None:
    result = no_database("graph", "shop.py", "greter", "-o", "out.svg", code=3)
    assert "there is no kind 'greter' in this App. Did you mean greeter? It has: greeter, send, add" in result.stderr
    assert result.stdout == ""
    assert not (project / "out.svg").exists()
    error = json.loads(no_database("graph", "shop.py", "greeter", "x\x1b[2J", "--json", code=3).stderr)
    assert error == {"error": "NoSuchKind", "message": "there is no kind 'x' in this App. It has: greeter, send, add"}
    (project / "bare.py").write_text("from holdfast import App\napp = App()\n")
    assert "declares no tasks" in no_database("graph", "bare.py", code=3).stderr


def test_the_configured_app_and_a_kind_of_it(no_database: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may have imported an example of that name.
    monkeypatch.delitem(sys.modules, "greeter", raising=False)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if not (Path(each) / "greeter.py").exists()])
    assert "no APP was named" in no_database("graph", code=2).stderr
    assert "there is no module 'greeter'" in no_database("graph", "greeter", code=2).stderr
    (project / "pyproject.toml").write_text('[tool.holdfast]\napp = "shop.py"\n')
    assert no_database("graph", "greeter").stdout == GREETER
    assert no_database("graph", "send", "add").stdout == "functions  send, add\n"
    assert no_database("graph", "shop", "add").stdout == "functions  add\n"
    assert "there is no kind 'nobody'" in no_database("graph", "nobody", code=3).stderr
    # A module goes before a kind of the same name.
    (project / "greeter.py").write_text(SHOP.replace("greeter", "welcome").replace('was=["welcomer"]', ""))
    assert no_database("graph", "greeter", "--no-live").stdout.startswith("welcome\n")


def test_files_say_the_format(no_database: Cli, project: Path) -> None:
    for name, begin in {"a.svg": "<svg ", "b.mmd": "flowchart LR\n", "c.json": "{\n", "d.txt": "greeter\n"}.items():
        assert no_database("graph", "shop.py", "-o", name).stdout == ""
        assert (project / name).read_text("utf-8").startswith(begin)
    no_database("graph", "shop.py", "-f", "mermaid", "-o", "e.svg")
    assert (project / "e.svg").read_text("utf-8").startswith("flowchart")
    assert no_database("graph", "shop.py", "-f", "text", "-o", "-").stdout.startswith("greeter\n")
    assert "exclude each other" in no_database("graph", "shop.py", "-f", "svg", "--json", code=2).stderr
    assert "No such file" in no_database("graph", "shop.py", "-o", "nowhere/a.svg", code=1).stderr


def test_pictures_and_flowcharts_read_right_or_down(no_database: Cli) -> None:
    def measures(*options: str) -> tuple[float, float]:
        root = ET.fromstring(no_database("graph", "shop.py", "greeter", "-f", "svg", *options).stdout)
        return float(root.attrib["width"]), float(root.attrib["height"])

    for options in ([], ["--direction", "right"]):
        width, height = measures(*options)
        assert width > height
    width, height = measures("--direction", "down")
    assert width < height
    assert "flowchart TB" in no_database("graph", "shop.py", "-f", "mermaid", "--direction", "down").stdout


def test_t23_warnings_go_to_stderr_or_into_the_json(no_database: Cli, project: Path) -> None:
    (project / "vague.py").write_text(SHOP.replace("-> Done[str]", '-> "Done[str] | Nobody"'))
    warning = "greeter.SayHello: its return annotation names Nobody, which is no step of greeter"
    result = no_database("graph", "vague.py")
    assert result.stderr == f"warning: {warning}\n"
    assert "  │  ├→ end\n  │  └→ ?\n" in result.stdout
    as_json = no_database("graph", "vague.py", "--json")
    assert as_json.stderr == ""
    assert json.loads(as_json.stdout)["warnings"] == [warning]


def test_a_step_named_end_is_warned_of(no_database: Cli, project: Path) -> None:
    (project / "ends.py").write_text(
        SHOP.replace("@greeter.step\n@dataclass\nclass Say", "@greeter.step(name='end')\n@dataclass\nclass Say")
    )
    assert "greeter.end: a graph cannot tell it from the end of a task" in no_database("graph", "ends.py").stderr


# --- live


def test_counts_of_steps_old_names_among_them(cli: Cli) -> None:
    plant(cli, 1200, state="ready")
    plant(cli, 2, step="SayHello")
    plant(cli, 1, step="Fetch")
    plant(cli, 3, step="Download", kind="welcomer")
    plant(cli, 4, step="Gone", state="ready")
    plant(cli, 5, kind="send", step="main", state="ready")
    plant(cli, 6, kind="strange", step="main", state="ready")
    result = cli("graph", "shop.py")
    assert (
        result.stdout
        == """greeter
  ReadName                  1,200 ready
  ├→ SayHello               2 parked
  │  → end
  └→ Fetch (later)          4 parked
     ├→ SayHello (above)
     └→ Fetch (later) ↺
  Gone (not in this code)   4 ready

functions  send (5 ready), add
"""
    )
    assert result.stderr == (
        "unfinished tasks of kinds that this App does not declare: strange (6). See: holdfast check\n"
    )
    assert cli("graph", "shop.py", "greeter").stderr == ""
    assert cli("graph", "shop.py", "--no-live").stdout == GREETER + "\nfunctions  send, add\n"
    told = cli.json("graph", "shop.py", "greeter", "--live")
    assert told["live"] is True
    assert {each["name"]: (each["known"], each["tasks"]) for each in told["kinds"][0]["steps"]} == {
        "ReadName": (True, {"ready": 1200}),
        "Fetch": (True, {"parked": 4}),
        "SayHello": (True, {"parked": 2}),
        "Gone": (False, {"ready": 4}),
    }
    assert told["kinds"][0]["steps"][0]["followers"] == [
        {"step": "SayHello", "delayed": False},
        {"step": "Fetch", "delayed": True},
    ]
    assert "1,200" in cli("graph", "shop.py", "-f", "svg").stdout
    assert "ReadName<br/>1,200 ready" in cli("graph", "shop.py", "-f", "mermaid").stdout


def test_tasks_that_are_not_due_yet_are_told_apart(cli: Cli) -> None:
    plant(cli, 2, state="ready")
    cli.enqueue("greeter.ReadName", "--delay", "1h")
    assert " 2 ready, 1 scheduled" in cli("graph", "shop.py", "greeter").stdout
    assert 'class="count scheduled"' in cli("graph", "shop.py", "greeter", "-f", "svg").stdout
    at = cli.json("kinds", "greeter")[0]["steps"]["ReadName"]
    assert at == {"ready": 2, "scheduled": 1}
    assert cli("kinds", "greeter").stdout.splitlines()[1].split()[:4] == ["greeter", "ReadName", "2", "1"]


def test_counts_of_another_schema(cli: Cli) -> None:
    assert "schema 'elsewhere' is missing" in cli("graph", "shop.py", "--live", "--schema", "elsewhere", code=1).stderr
    cli("migrate", "--schema", "elsewhere")
    rows(cli, "select elsewhere.enqueue('add')")
    assert cli("graph", "shop.py", "add", "--schema", "elsewhere").stdout == "functions  add (1 ready)\n"
    assert cli("graph", "shop.py", "add", "--schema", "holdfast").stdout == "functions  add\n"


def test_without_a_database_counts_are_left_out_unless_asked_for(no_database: Cli) -> None:
    assert "no database was named" in no_database("graph", "shop.py", "--live", code=2).stderr
    assert no_database("graph", "shop.py", "greeter", "--url", NOBODY).stdout == GREETER
    assert no_database.json("graph", "shop.py", "--url", NOBODY)["live"] is False
    refused = no_database("graph", "shop.py", "--live", "--url", NOBODY, code=4)
    assert "cannot connect to PostgreSQL" in refused.stderr
    assert refused.stdout == ""


def test_a_server_that_does_not_answer_is_not_waited_for(no_database: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.cli.commands.graph.PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        assert no_database("graph", "shop.py", "greeter", "--url", url).stdout == GREETER


def test_colours_on_a_terminal_only(cli: Cli, project: Path) -> None:
    plant(cli, 1)
    assert "\x1b" not in cli("graph", "shop.py").stdout
    with Terminal(cli.url, "graph", "shop.py") as terminal:
        assert terminal.ended() == 0
    assert "\x1b[31m1 parked\x1b[0m" in terminal.raw
    assert "  ReadName" in terminal.shown
    with Terminal(cli.url, "graph", "shop.py", "-o", "plain.txt") as terminal:
        assert terminal.ended() == 0
    assert "1 parked" in (project / "plain.txt").read_text("utf-8")
    assert "\x1b" not in (project / "plain.txt").read_text("utf-8")
