"""Every example is listed, has a test, begins by telling how to run it, and what it tells is right."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from commands import invoke
from holdfast import App
from holdfast.testing import Harness

from .support import EXAMPLES, example

FILES = sorted(path for path in EXAMPLES.glob("*.py"))
FOLDERS = sorted(path for path in EXAMPLES.iterdir() if (path / "manage.py").exists())
ALL = [*FILES, *FOLDERS]


def told(path: Path) -> str:
    """The docstring of an example; of a project, that of its manage.py."""
    source = path if path.is_file() else path / "manage.py"
    return ast.get_docstring(ast.parse(source.read_text("utf-8")), clean=False) or ""


def commands(path: Path, name: str) -> list[list[str]]:
    found = re.findall(rf"^ +({name} .*?)(?: +#.*)?$", told(path), re.MULTILINE)
    return [shlex.split(line) for line in found]


def test_there_are_examples() -> None:
    assert len(ALL) >= 11
    others = {path for path in EXAMPLES.iterdir() if not path.name.startswith((".", "__"))} - {*ALL}
    assert others == {EXAMPLES / "README.md"}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_every_example_is_listed_and_has_a_test(path: Path) -> None:
    listed = re.findall(
        r"^\| \[`(.*?)`\]\((.*?)\) \| \S.* \|$", (EXAMPLES / "README.md").read_text("utf-8"), re.MULTILINE
    )
    name = path.name if path.is_file() else f"{path.name}/"
    assert (name, name) in listed
    assert (Path(__file__).parent / f"test_{path.stem}.py").exists()
    assert len(told(path).splitlines()) > 4
    assert commands(path, "holdfast")


def test_examples_can_share_a_database() -> None:
    """Somebody will try one after the other: no two may declare the same kind."""
    kinds = [kind for path in FILES for kind in example(path.stem).app._kinds] + ["send_receipt"]  # that of django_app
    assert len(kinds) == len(set(kinds))


def test_nothing_is_listed_that_is_not_there() -> None:
    for name in re.findall(r"\]\((.*?)\)", (EXAMPLES / "README.md").read_text("utf-8")):
        assert (EXAMPLES / name).exists()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_its_docstring_enqueues_can_be_run_by_it(path: Path, holdfast: Harness) -> None:
    app: App = example(path.stem).app
    wanted = commands(path, "holdfast enqueue")
    for _, _, *arguments in wanted:
        given = [each for each in arguments if each != "--wait"]
        done = invoke(["--url", holdfast.url, "enqueue", *given], {})
        assert done.exit_code == 0, done.output
    found = holdfast.sql("SELECT kind, step, args::text FROM holdfast.task")
    assert len(found) == len(wanted)
    for kind, step, args in found:
        app._steps[kind, step].decode(args.encode())
