"""The reference is complete: every public name, option, command, setting, table and column is there; and it builds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import EnqueueOptions, KindOptions, StepOptions, testing, web
from holdfast._db.config.settings import SETTINGS
from holdfast._engine.settings import WorkerOptions
from holdfast.cli import SECTIONS

from .generated import generate
from .pages import DOCS, anchors, blocks


def rows(heading: str) -> set[str]:
    """The names in the first column of the table below a heading of the page of options."""
    text = (DOCS / "reference" / "options.md").read_text("utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))


def test_every_public_name_is_in_the_api_reference() -> None:
    text = (DOCS / "reference" / "api.md").read_text("utf-8")
    documented = set(re.findall(r"^\.\. auto\w+:: (\w+)", text, re.MULTILINE))
    types = {"Auth", "Role"}  # told with the function that takes them
    assert documented == {*holdfast.__all__, *testing.__all__, *web.__all__, "trace"} - types


def test_what_is_made_from_the_code_is_in_its_page() -> None:
    """It is read where the pages are not built, too. To write it anew: python docs/generate.py."""
    for page, text, made in generate.written():
        assert text == made, f"{page.name} is not up to date: python docs/generate.py"


def test_every_public_name_has_a_docstring() -> None:
    objects = [(name, getattr(holdfast, name)) for name in holdfast.__all__]
    objects += [(name, getattr(testing, name)) for name in testing.__all__]
    silent = [name for name, found in objects if callable(found) and not (found.__doc__ or "").strip()]
    assert not silent


def test_every_option_is_on_its_page() -> None:
    assert rows("Kinds, functions and steps") == {*_keys(StepOptions), *_keys(KindOptions)}
    assert rows("Enqueue") == _keys(EnqueueOptions)
    assert rows("Workers") == _keys(WorkerOptions)


def _keys(options: type) -> set[str]:
    return {*getattr(options, "__required_keys__"), *getattr(options, "__optional_keys__")}  # noqa: B009 - of a TypedDict


def test_the_generated_pages_have_everything() -> None:
    pages = generate.pages()
    for command in (name for section in SECTIONS.values() for name in section):
        assert f"### holdfast {command}\n" in pages["cli"]
    assert pages["cli"].count("```console") >= 25  # every command has an example
    assert all(f"`{each.variable}`" in pages["settings"] for each in SETTINGS.values())
    for name in ("enqueue", "enqueue_many", "retry", "cancel", "discard", "again", "explain", "pause", "resume"):
        assert f"### {name}\n" in pages["schema"]
    for table in ("task", "archive", "attempt", "worker", "kind", "queue", "change"):
        assert f"### {table}\n" in pages["schema"]
    assert "Internal" not in pages["schema"]
    assert not re.findall(r"\|\s+\|$", pages["schema"], re.MULTILINE), "a column has no comment"


def test_the_drawing_of_the_states_says_what_its_text_says() -> None:
    drawing = (DOCS / "_static" / "states.svg").read_text("utf-8")
    drawn = set(re.findall(r"[\w()]+", " ".join(re.findall(r">([^<]+)</text>", drawing))))
    text = next(block.text for block in blocks(DOCS / "states.md") if block.language == "mermaid")
    said = re.findall(r"(\w+) --> (\w+): ([\w()]+)", text)
    assert len(said) > 10
    for source, target, verb in said:
        assert {source, target, verb} <= drawn, f"{source} --> {target}: {verb}"


def test_the_documentation_builds(tmp_path: Path) -> None:
    """Warnings are errors: a link, an anchor or a public name that leads nowhere, a page that is in no menu."""
    pytest.importorskip("sphinx", reason="pip install holdfast[docs]")
    pytest.importorskip("furo")
    pytest.importorskip("myst_parser")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert 'id="holdfast.App.enqueue"' in (tmp_path / "reference" / "api.html").read_text("utf-8")
    assert {"holdfast-retry", "holdfast-pg-start"} <= anchors(DOCS / "reference" / "cli.md")
