"""What the documents say is true: their code runs, their links lead somewhere, their numbers have tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(document: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", document.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text("utf-8")):
        if not link.startswith("http"):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_every_number_has_a_test() -> None:
    numbers = re.findall(r"^- \*\*([TLWQAX]\d+)\*\*", (ROOT / "docs/semantics.md").read_text("utf-8"), re.MULTILINE)
    assert len(numbers) > 40
    tests = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py") if "docs" not in p.parts)
    missing = [n for n in numbers if not re.search(rf"(?<![A-Za-z0-9]){n}(?!\d)", tests)]
    assert not missing, f"no test carries the numbers {missing}"


def test_the_readme_runs(tmp_path: Path, holdfast_url: str) -> None:
    """The first task by the command line, and the tutorial from Python, word for word."""
    hello, greeter, caller = blocks(ROOT / "README.md", "python")
    (tmp_path / "hello.py").write_text(hello)
    (tmp_path / "greeter.py").write_text(greeter)
    (tmp_path / "caller.py").write_text(caller)
    (tmp_path / "name.txt").write_text("Ada\n")
    environment = {**os.environ, "HOLDFAST_URL": holdfast_url}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "Hello, Ada" in run("caller.py")
    run("-m", "holdfast.cli", "migrate")
    task = run("-m", "holdfast.cli", "enqueue", "hello", "name=Ada").strip()
    run("-m", "holdfast.cli", "worker", "hello.py", "--drain")
    assert "Hello, Ada" in run("-m", "holdfast.cli", "show", task)


def test_the_testing_page_runs(tmp_path: Path, holdfast_server: str) -> None:
    (page,) = blocks(ROOT / "docs/testing.md", "python")
    (setting,) = re.findall(r"`(asyncio_mode = [^`]*)`", (ROOT / "docs/testing.md").read_text("utf-8"))
    setting = setting.replace('"', "")
    (tmp_path / "test_page.py").write_text(page)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{setting}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_TEST_URL": holdfast_server},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_the_plugin_works_in_the_strict_mode_of_pytest_asyncio(tmp_path: Path, holdfast_server: str) -> None:
    (tmp_path / "test_strict.py").write_text(
        "import pytest\n\n\n@pytest.mark.asyncio\nasync def test_it(holdfast):\n    await holdfast.drain()\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
            "--rootdir",
            ".",
            "test_strict.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_TEST_URL": holdfast_server},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
