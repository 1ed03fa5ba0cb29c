"""What the documents say is true: their links lead somewhere, their commands exist, their numbers have tests."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli import main

from .pages import DOCS, DOCUMENTS, ROOT, anchors, blocks, links, prose
from .run_page import commands

by_name = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))


@by_name
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{document.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{document.name} links to {link}, and there is no such heading"


def test_every_number_has_a_test() -> None:
    numbers = re.findall(r"^- \*\*([TLWQAX]\d+)\*\*", (ROOT / "docs/semantics.md").read_text("utf-8"), re.MULTILINE)
    assert len(numbers) > 40
    tests = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py") if "docs" not in p.parts)
    missing = [n for n in numbers if not re.search(rf"(?<![A-Za-z0-9]){n}(?!\d)", tests)]
    assert not missing, f"no test carries the numbers {missing}"


def test_every_promise_names_numbers_that_are_there() -> None:
    promises = (DOCS / "promises.md").read_text("utf-8")
    named = set(re.findall(r"\b([TLWQAX]\d+)\b", promises))
    assert len(named) > 10
    assert named <= set(re.findall(r"\*\*([TLWQAX]\d+)\*\*", (DOCS / "semantics.md").read_text("utf-8")))


# Commands -------------------------------------------------------------------------------------------


def written_commands(document: Path) -> Iterator[str]:
    """The commands of Holdfast that a document writes, in blocks and in the middle of a sentence."""
    for block in blocks(document):
        if block.language == "console":
            yield from (each for each in commands(block.text) if each.startswith("holdfast "))
    yield from re.findall(r"`(holdfast [^`…]+)`", prose(document))


def check(written: str) -> None:
    """Refuses a command or an option that nobody knows."""
    shell_ends = re.split(r"\s(?:[|>&]|\|\|)\s?", written.removesuffix("&").strip())[0]
    words = shlex.split(shell_ends)[1:]
    if words[0] == "COMMAND":
        return
    command: click.Command = main
    with click.Context(main, info_name="holdfast") as top:
        while words and isinstance(command, click.Group) and not words[0].startswith("-"):
            found = command.get_command(top, words[0])
            assert found is not None, f"there is no command {words[0]!r}"
            command, words = found, words[1:]
        ctx = click.Context(command, parent=top, **command.context_settings)
        # As `FilterCommand` does it: -queue:mail is a filter.
        options = [word for word in words if not re.match(r"-[a-z]+:", word)]
        command.make_parser(ctx).parse_args(options)


@by_name
def test_commands_exist(document: Path) -> None:
    for written in written_commands(document):
        try:
            check(written)
        except (click.UsageError, AssertionError) as error:
            pytest.fail(f"{document.name} writes {written!r}: {error}")


def test_wrong_commands_are_noticed() -> None:
    """A test of the tests."""
    check("holdfast retry --where 'state:parked -queue:mail' --yes > log.txt")
    for wrong in ("holdfast resurrect", "holdfast retry --nonsense", "holdfast pg explode", "holdfast --nonsense"):
        with pytest.raises((click.UsageError, AssertionError)):
            check(wrong)


# The testing page -----------------------------------------------------------------------------------


def run_pytest(folder: Path, server: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "HOLDFAST_TEST_URL": server},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_testing_page_runs(tmp_path: Path, holdfast_server: str) -> None:
    page = "\n".join(block.text for block in blocks(DOCS / "testing.md") if block.language == "python")
    (setting,) = re.findall(r"`(asyncio_mode = [^`]*)`", prose(DOCS / "testing.md"))
    (tmp_path / "test_page.py").write_text(page)
    (tmp_path / "pytest.ini").write_text("[pytest]\n" + setting.replace('"', "") + "\n")
    tests = len(re.findall(r"^ *(async )?def test_", page, re.MULTILINE))
    assert f"{tests} passed" in run_pytest(tmp_path, holdfast_server, "test_page.py")


def test_the_plugin_works_in_the_strict_mode_of_pytest_asyncio(tmp_path: Path, holdfast_server: str) -> None:
    (tmp_path / "test_strict.py").write_text(
        "import pytest\n\n\n@pytest.mark.asyncio\nasync def test_it(holdfast):\n    await holdfast.drain()\n"
    )
    said = run_pytest(tmp_path, holdfast_server, "-c", "/dev/null", "--rootdir", ".", "test_strict.py")
    assert "1 passed" in said
