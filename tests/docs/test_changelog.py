"""The changelog has the form of Keep a Changelog: the newest version first, and entries of one line each."""

import re

from .pages import ROOT

SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Performance", "Security"]
VERSION = r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2}|not yet published)"
TEXT = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSIONS = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]


def test_the_versions_are_in_order_and_the_unreleased_one_is_the_first() -> None:
    unreleased, *released = [version.split("\n", 1)[0] for version in VERSIONS]
    assert unreleased == "[Unreleased]"
    found = [re.fullmatch(VERSION, each) for each in released]
    assert found and all(found), released
    numbers = [[int(part) for part in each.groups()[:3]] for each in found if each]
    assert numbers == sorted(numbers, reverse=True)


def test_the_sections_are_known_and_in_order() -> None:
    for version in VERSIONS:
        sections = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert sections == sorted(set(sections), key=SECTIONS.index), version.split("\n", 1)[0]


def test_an_entry_is_one_line() -> None:
    lines = [line for version in VERSIONS for line in version.split("\n")[1:] if line and not line.startswith("#")]
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) > 50
    for entry in entries:
        assert len(entry) <= 145, entry
        assert entry.endswith("."), entry
    prose = [line for line in lines if not line.startswith("- ")]
    assert all(not line.startswith(" ") for line in prose), "an entry goes on in a second line"
