"""APP on the command line: how it is found, and what is said when it is not."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from holdfast.cli.input.app import load_app
from holdfast.cli.output.printing import USAGE, Failure, code_of

APP = "from holdfast import App\napp = App()\n\n@app.task\nasync def add(x: int) -> int:\n    return x\n"


def refused(spec: str | None) -> click.ClickException:
    with pytest.raises(click.ClickException) as caught:
        load_app(spec)
    return caught.value


def test_a_module_a_file_and_a_name(project: Path) -> None:
    (project / "hello.py").write_text(APP)
    found = load_app("hello.py")
    assert ("add", "main") in found._steps
    assert load_app("hello.py:app") is found
    assert load_app("hello") is found
    assert load_app("hello:app") is found
    assert load_app(str(project / "hello.py")) is found


def test_a_file_is_imported_by_the_name_others_import_it_by(project: Path) -> None:
    """So that child processes can import it again."""
    (project / "deep").mkdir()
    (project / "deep" / "alone.py").write_text(APP)
    (project / "shop").mkdir()
    (project / "shop" / "__init__.py").touch()
    (project / "shop" / "parts.py").write_text("NAME = 'x'\n")
    (project / "shop" / "work.py").write_text("from .parts import NAME\n" + APP)
    assert load_app("deep/alone.py")._steps["add", "main"].module == "alone"
    assert load_app("shop/work.py")._steps["add", "main"].module == "shop.work"
    code = f"import sys; sys.path[:] = {sys.path!r}; import alone, shop.work"
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/", env={**os.environ, "PYTHONPATH": ""})


def test_the_project_says_which(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no APP was named" in refused(None).message
    (project / "shop.py").write_text(APP)
    below = project / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    (project / "pyproject.toml").write_text('[tool.holdfast]\napp = "shop:app"\n')
    found = load_app(None)
    (project / "pyproject.toml").write_text('[tool.holdfast]\napp = "shop.py"\n')
    assert load_app(None) is found


def test_the_environment_goes_before_the_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X6. A file in the variable is seen from here, one in pyproject.toml from where that is."""
    below = project / "below"
    below.mkdir()
    (project / "pyproject.toml").write_text('[tool.holdfast]\napp = "shop.py"\n')
    (project / "shop.py").write_text(APP)
    (below / "other.py").write_text(APP)
    monkeypatch.chdir(below)
    configured = load_app(None)
    assert configured._steps["add", "main"].module == "shop"
    monkeypatch.setenv("HOLDFAST_APP", "other.py")
    assert load_app(None)._steps["add", "main"].module == "other"
    monkeypatch.setenv("HOLDFAST_APP", "")
    assert load_app(None) is configured
    assert "HOLDFAST_APP" in refused_without_one(project).message


def refused_without_one(project: Path) -> click.ClickException:
    (project / "pyproject.toml").write_text("")
    return refused(None)


def test_modules_are_imported(project: Path) -> None:
    (project / "shop.py").write_text("from holdfast import App\napp = App(modules=['mail'])\n")
    (project / "mail.py").write_text("from shop import app\n\n@app.task\ndef send() -> None: ...\n")
    assert ("send", "main") in load_app("shop.py")._steps


def test_the_command_line_goes_before_the_code(project: Path) -> None:
    (project / "hello.py").write_text(APP.replace("App()", "App('postgresql://code', schema='one')"))
    assert load_app("hello.py").database.url == "postgresql://code"
    found = load_app("hello.py", url="postgresql://line", schema="two")
    assert (found.database.url, found.schema, found._queries.schema) == ("postgresql://line", "two", "two")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("nowhere.app", "there is no module 'nowhere'"),
        ("nowhere.py", "nowhere.py does not exist"),
        ("folder/", "is a folder"),
        ("hello.nothing", "there is no module 'hello.nothing'"),
        ("hello.py:nothing", "there is no nothing in hello.py"),
        ("hello.py:add", "hello.py:add is not an App but a "),
        ("none.py", "there is no App in none.py"),
        ("tasks.py", "App(include=[tasks])"),
        ("two.py", "two.py has 2 Apps, one, two: say which one, two.py:one"),
        ("json.py", "another module is called 'json'"),
        ("a.b.py", "more than one dot"),
        ("", "is not the name of a module"),
        (":app", "is not the name of a module"),
    ],
)
def test_what_is_not_an_app_is_told(project: Path, spec: str, said: str) -> None:
    (project / "folder").mkdir()
    (project / "hello.py").write_text(APP)
    (project / "none.py").touch()
    (project / "json.py").write_text(APP)
    (project / "a.b.py").write_text(APP)
    (project / "tasks.py").write_text("from holdfast import Tasks\ntasks = Tasks()\n")
    (project / "two.py").write_text("from holdfast import App\none = App()\ntwo = App()\nagain = two\n")
    error = refused(spec)
    assert said in error.message
    assert code_of(error) == USAGE
    assert "Traceback" not in error.message


def test_the_users_own_errors_are_shown_where_they_happened(project: Path) -> None:
    (project / "broken.py").write_text("import math\n\ndef f():\n    return 1 / 0\n\nf()\n")
    (project / "missing.py").write_text("import nowhere_to_be_found\n")
    (project / "quits.py").write_text("raise SystemExit('bye')\n")
    (project / "wrong.py").write_text("def x(:\n")
    error = refused("broken.py")
    assert isinstance(error, Failure)
    assert error.code == 1
    assert "importing broken failed: ZeroDivisionError" in error.message
    assert 'broken.py", line 4, in f' in error.message
    assert "importlib" not in error.message
    assert "load.py" not in error.message
    assert "No module named 'nowhere_to_be_found'" in refused("missing.py").message
    assert 'missing.py", line 1' in refused("missing.py").message
    assert "SystemExit: bye" in refused("quits.py").message
    assert "SyntaxError" in refused("wrong.py").message


def test_wrong_declarations_are_one_line_with_the_place(project: Path) -> None:
    (project / "schema.py").write_text(APP.replace("App()", "App(schema='Bad')"))
    assert "schema.py:2: schema 'Bad' cannot be used" in refused("schema.py").message
    (project / "declared.py").write_text(APP + "\n@app.task\nasync def add(x: int) -> int:\n    return x\n")
    message = refused("declared.py").message
    assert "declared.py:8: " in message
    assert "Traceback" not in message
