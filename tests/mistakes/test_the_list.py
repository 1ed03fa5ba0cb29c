"""The table of mistakes names tests that are there, and every test here is in it."""

import re
from pathlib import Path

HERE = Path(__file__).parent
_TEST = re.compile(r"([\w./]+\.py)::(\w+)")
_DEFINED = re.compile(r"^(?:async )?def (test_\d\d_\w+)", re.MULTILINE)


def rows() -> list[str]:
    return [line for line in (HERE / "README.md").read_text("utf-8").splitlines() if re.match(r"\| \d", line)]


def test_every_mistake_has_a_test_that_is_there() -> None:
    assert [int(row.split("|")[1]) for row in rows()] == list(range(1, len(rows()) + 1))
    for row in rows():
        named = _TEST.findall(row)
        assert named, f"no test for: {row}"
        for file, name in named:
            text = (HERE / file).read_text("utf-8")
            assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), f"there is no {name} in {file}"


def test_every_test_here_is_in_the_row_of_its_number() -> None:
    for file in HERE.glob("test_*.py"):
        for name in _DEFINED.findall(file.read_text("utf-8")):
            number = int(name.split("_")[1])
            assert f"{file.name}::{name}" in rows()[number - 1], f"{name} is not in row {number}"
