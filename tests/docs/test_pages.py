"""What the pages say can be done: every block of code runs, and prints what the page shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import DOCUMENTS, ROOT, blocks
from .run_page import expect

LANGUAGES = {"python", "console", "sql", "toml", "json"}
ELSEWHERE = {"testing.md", "CONTRIBUTING.md", "RELEASING.md"}
RUN = [
    page
    for page in DOCUMENTS
    if page.name not in ELSEWHERE and any(block.language in LANGUAGES for block in blocks(page))
]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs(page: Path, tmp_path: Path, holdfast_url: str) -> None:
    here = {"HOLDFAST_URL": holdfast_url, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:Using `httpx`", "-m", "tests.docs.run_page", str(page)],
        cwd=tmp_path,
        env={**os.environ, **here, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_printed_is_compared() -> None:
    """A test of the tests: ids and times may differ, words may not."""
    expect("01a1e198-1937-772d-986b-facfd62fd978 is ready.\n", "01890a5d-ac96-774b-bcce-b302099a8057 is ready.")
    expect("a  b   3s ago\nmore\n", "a b 12s ago\n…")
    with pytest.raises(AssertionError):
        expect("parked", "ready")
    with pytest.raises(AssertionError):
        expect("1 task", "2 tasks")
