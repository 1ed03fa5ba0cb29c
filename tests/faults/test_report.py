"""The page of figures is written whole from one run."""

from pathlib import Path

import pytest

from faults.all import FAULTS
from faults.checker import Violation
from faults.report import PAGE, may_be_told, write_page
from faults.suite import Result

OLD = """before
<!-- figures: begin -->
words on a run of long ago

| F99 | a fault that is no more | lost: 7 |
<!-- figures: end -->
between
<!-- soak: begin -->
an old soak
<!-- soak: end -->
after
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    made = tmp_path / "page.md"
    made.write_text(OLD)
    return made


def result(name: str, **more: str) -> Result:
    return Result(name, FAULTS[name].title, 5, 120.0, {"lost": "0", **more})


def test_a_run_of_all_faults_leaves_nothing_of_an_earlier_one(page: Path) -> None:
    results = [result("F12"), result("F5b", tried="3"), result("M19")]
    results[2].violations.append(Violation("M19", "it did not end"))
    write_page(results, page)
    told = page.read_text()
    assert "long ago" not in told and "F99" not in told
    assert "A run of 6 minutes with seed 5" in told
    assert [line.split()[1] for line in told.splitlines() if line.startswith(("| F", "| M"))] == ["F5b", "F12", "M19"]
    assert "lost: 0; tried: 3" in told and "| a dead event loop under a live beat | **does not hold** |" in told
    assert told.startswith("before\n") and "between\n" in told and "an old soak" in told and told.endswith("after\n")


def test_a_soak_has_a_place_of_its_own(page: Path) -> None:
    write_page([result("F30", minutes="60")], page)
    told = page.read_text()
    assert "an old soak" not in told and "| minutes | 60 |" in told
    assert "long ago" in told and "| F99 |" in told


def test_some_faults_alone_are_not_told() -> None:
    every = [name for name, fault in FAULTS.items() if not fault.alone]
    assert may_be_told(every) and may_be_told(["F30"])
    assert not may_be_told(every[:-1]) and not may_be_told(["F1"]) and not may_be_told([*every, "F30"])


def test_the_page_has_both_places(tmp_path: Path) -> None:
    copy = tmp_path / "copy.md"
    copy.write_text(PAGE.read_text())
    write_page([result("F1")], copy)
    write_page([result("F30")], copy)
    assert copy.read_text().count("A run of 2 minutes with seed 5") == 2
