"""What runs by itself calls what developers call, and names the versions that the support policy names."""

import re

import pytest

from .pages import DOCS, ROOT

CI = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
SERVERS = (ROOT / "tests/servers.py").read_text("utf-8")


def recipe(target: str) -> list[str]:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, f"there is no target {target}"
    return [line.strip() for line in found[1].replace("$(BIN)", ".venv/bin").splitlines()]


def matrix(name: str) -> list[list[str]]:
    return [re.findall(r'"([^"]+)"', each) for each in re.findall(rf"^ +{name}: \[(.*)\]$", CI, re.MULTILINE)]


def supported(name: str) -> list[str]:
    """The versions that the table of the support policy gives."""
    found = re.search(rf"^\| {name} \| ([^|]+) \|", (DOCS / "support.md").read_text("utf-8"), re.MULTILINE)
    assert found
    return found[1].split(", ")


def test_ci_calls_make() -> None:
    called = [word for line in re.findall(r"\bmake ([a-z ]+)", CI.split("steps:", 1)[1]) for word in line.split()[:1]]
    assert {"test", "demo", "servers", "lint", "types", "docs"} <= set(called)


def test_a_commit_is_checked_by_the_commands_of_make() -> None:
    config = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
    entries = re.findall(r"^ +entry: (.+)$", config, re.MULTILINE)
    assert entries == [*recipe("lint"), recipe("types")[0]]


def test_ci_runs_on_every_supported_python() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    versions = supported("Python")
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project) == versions
    assert f'requires-python = ">={versions[0]}"' in project
    all_of_them, first_and_last = matrix("python")
    assert all_of_them == versions
    assert first_and_last == [versions[0], versions[-1]]


def test_ci_runs_on_every_supported_postgresql() -> None:
    *older, newest = supported("PostgreSQL")
    assert matrix("postgresql") == [older]
    assert f"SERVERS = {(*older, 'debian')!r}".replace("'", '"') in SERVERS
    assert f"and PostgreSQL {newest}" in CI  # the embedded one


@pytest.mark.parametrize("name", ["SECURITY.md", "RELEASING.md", "docs/support.md"])
def test_who_looks_for_it_finds_it(name: str) -> None:
    linked = [page for page in ("README.md", "CONTRIBUTING.md") if f"]({name})" in (ROOT / page).read_text("utf-8")]
    assert linked, f"neither the README nor CONTRIBUTING links to {name}"
