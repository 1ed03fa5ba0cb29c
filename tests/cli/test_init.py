"""`holdfast init`: a file that really runs."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Cli, Process


def test_what_it_writes_runs_on_a_real_worker(cli: Cli, start: Callable[..., Process], project: Path) -> None:
    told = cli("init").stdout
    assert "wrote tasks.py" in told
    for command in ("holdfast dev tasks.py", "holdfast enqueue hello name=Ada --wait", "holdfast tasks"):
        assert f"  {command}" in told
    start("worker", "tasks.py", url=cli.url)
    assert cli("enqueue", "hello", "name=Ada", "--wait").stdout == "Hello, Ada\n"
    assert cli("enqueue", "order.Pack", "item=book", "pieces:=2", "--wait").stdout == "shipped 2 x book\n"
    assert {each["kind"] for each in cli.json("tasks")["tasks"]} == {"hello", "order"}


def test_what_it_writes_can_be_imported_and_type_checked(cli: Cli, project: Path) -> None:
    cli("init", "shop_tasks.py")
    subprocess.run([sys.executable, "-c", "import shop_tasks; shop_tasks.app"], check=True, cwd=project)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "shop_tasks.py"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_it_never_overwrites(cli: Cli, project: Path) -> None:
    (project / "tasks.py").write_text("mine = 1\n")
    told = cli("init", code=1)
    assert "tasks.py exists already, and nothing was written" in told.stderr
    assert told.stdout == ""
    assert (project / "tasks.py").read_text() == "mine = 1\n"
    assert json.loads(cli("init", "--json", code=1).stderr)["error"] == "FileExists"


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        ("tasks", "cannot be the name of a module", 2),
        ("my-tasks.py", "cannot be the name of a module", 2),
        ("a.b.py", "cannot be the name of a module", 2),
        ("json.py", "another module is called 'json'", 2),
        ("click.py", "another module is called 'click'", 2),
        ("nowhere/tasks.py", "there is no folder nowhere", 1),
        (".", "is a directory", 2),
    ],
)
def test_names_that_could_not_be_imported(cli: Cli, project: Path, name: str, said: str, code: int) -> None:
    assert said in cli("init", name, code=code).stderr
    assert [each.name for each in project.iterdir()] == ["pyproject.toml"]


def test_it_says_how_to_make_it_the_projects_app(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "shop").mkdir()
    monkeypatch.chdir(project / "shop")
    told = cli("init", "work.py").stdout
    assert 'app = "shop/work.py"' in told
    assert (project / "pyproject.toml").read_text() == ""
    (project / "pyproject.toml").write_text('[tool.holdfast]\napp = "shop/work.py"\n')
    assert "[tool.holdfast]" not in cli("init", "other.py").stdout
    assert cli.json("init", "third.py") == {
        "file": "third.py",
        "next": ["holdfast dev third.py", "holdfast enqueue hello name=Ada --wait", "holdfast tasks"],
    }
