"""The design records have numbers without gaps, one form, and a list."""

import re
from pathlib import Path

import pytest

from .pages import DOCS

FOLDER = DOCS / "design"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
PARTS = (["Status", "Context", "Decision"], ["Status", "Context", "Decision", "Measured"])


def title(record: Path) -> str:
    return record.read_text("utf-8").split("\n", 1)[0].removeprefix("# ")


def test_the_numbers_have_no_gaps() -> None:
    assert [record.name[:4] for record in RECORDS] == [f"{number:04}" for number in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_a_record_has_the_form(record: Path) -> None:
    text = record.read_text("utf-8")
    assert re.fullmatch(rf"{record.name[:4]} [A-Z`].*[^.:]", title(record))
    assert re.findall(r"^#", text, re.MULTILINE) == ["#"], "a record has one heading: its title"
    assert re.findall(r"^\*\*(Status|Context|Decision|Measured)\*\*:", text, re.MULTILINE) in PARTS
    assert re.search(r"^\*\*Status\*\*: (accepted|replaced by \[\d{4}\]\(\S+\))\.$", text, re.MULTILINE)


def test_the_list_has_every_record() -> None:
    listed = re.findall(r"^- \[(.+)\]\((\S+)\)$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
    assert listed == [(title(record), record.name) for record in RECORDS]
