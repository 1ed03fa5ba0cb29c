"""The typed contract: users' programs pass mypy --strict and pyright; both refuse every marked mistake.

The programs are in `contract/`. `LATER_*` lists what the contract has and the package has not yet;
a test fails when something listed there exists, so that the lists can only shrink.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

CONTRACT = Path(__file__).parent / "contract"
SOURCE = Path(__file__).parents[2] / "src"

LATER_NAMES: tuple[str, ...] = ()
"""Tolerated where a checker's message quotes the name."""

LATER_USES: tuple[str, ...] = ()
"""Tolerated on lines that hold the text."""


class Complaint(NamedTuple):
    file: str
    line: int
    message: str

    @property
    def source(self) -> str:
        return (CONTRACT / self.file).read_text().splitlines()[self.line - 1]

    def tolerated_by(self) -> set[str]:
        names = {name for name in LATER_NAMES if f'"{name}"' in self.message}
        return names or {use for use in LATER_USES if use in self.source}


def mypy(folder: Path) -> list[Complaint]:
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-pretty", "--no-error-summary"]
        + ["--python-executable", sys.executable, f"--cache-dir={folder / '.cache'}"]
        + ["examples.py", "other.py", "mistakes.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode in (0, 1), answer.stdout + answer.stderr
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", answer.stdout, re.MULTILINE)
    return [Complaint(file, int(line), message) for file, line, message in found]


def pyright(folder: Path) -> list[Complaint]:
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(SOURCE)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    answer = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    try:
        diagnostics = json.loads(answer.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not start here (it needs node): {answer.stderr.strip()[-300:]}")
    return [
        Complaint(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["message"])
        for each in diagnostics
        if each["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=[mypy, pyright], ids=["mypy", "pyright"])
def complaints(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Complaint]:
    folder = tmp_path_factory.mktemp("contract")
    for program in CONTRACT.glob("*.py"):
        shutil.copy(program, folder)
    return list(request.param(folder))


def test_users_programs_are_accepted(complaints: list[Complaint]) -> None:
    assert [each for each in complaints if each.file != "mistakes.py" and not each.tolerated_by()] == []


def test_every_marked_mistake_is_refused_and_nothing_else(complaints: list[Complaint]) -> None:
    text = (CONTRACT / "mistakes.py").read_text()
    marked = {number for number, line in enumerate(text.splitlines(), 1) if "# E" in line}
    first_line = {
        each.lineno: each.decorator_list[0].lineno
        for each in ast.parse(text).body
        if isinstance(each, ast.ClassDef) and each.decorator_list
    }  # mypy blames the class for what its decorator refuses
    refused = {first_line.get(each.line, each.line) for each in complaints if each.file == "mistakes.py"}
    assert refused == marked


def test_what_is_listed_as_later_is_still_missing(complaints: list[Complaint]) -> None:
    needed = {name for each in complaints for name in each.tolerated_by()}
    assert [name for name in (*LATER_NAMES, *LATER_USES) if name not in needed] == []
