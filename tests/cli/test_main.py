"""The command line as a whole: its help, its commands, and one style of errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from holdfast.cli import SECTIONS, main
from holdfast.cli.input.options import Setup, pass_setup, setting_option

from .conftest import Cli

NAMES = [name for section in SECTIONS.values() for name in section]


@pytest.fixture
def bare(project: Path) -> Cli:
    """Commands without a database."""
    made = Cli("")
    made.environment["HOLDFAST_URL"] = None
    return made


# Help -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 60])
def test_help_lists_every_command_in_its_section_uncut(bare: Cli, columns: int) -> None:
    told = CliRunner().invoke(main, ["--help"], terminal_width=columns).stdout
    assert "…" not in told
    assert "..." not in told.replace("[ARGS]...", "")
    assert all(len(line) <= columns for line in told.splitlines())
    at = -1
    for title, commands in SECTIONS.items():
        at = told.index(f"\n{title}:\n", at + 1)
        for name, (_, about) in commands.items():
            at = told.index(f"\n  {name} ", at + 1)
            if columns == 80:
                assert told[at:].splitlines()[1].endswith(f" {about}")


@pytest.mark.parametrize("name", NAMES)
def test_every_command_loads_and_has_an_example(bare: Cli, name: str) -> None:
    told = bare(name, "--help").stdout
    assert "Example:" in told
    assert f"  holdfast {name}" in told or f"holdfast {name}" in told.split("Example:")[1]
    if name != "pg":
        assert "--json" in told


def test_help_and_version_import_no_command(project: Path) -> None:
    """So that they are quick: neither the driver nor the engine."""
    seen = """
import sys, runpy
sys.argv = ["holdfast", sys.argv[1]]
try:
    runpy.run_module("holdfast.cli", run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
heavy = [m for m in sys.modules if m in ("psycopg", "msgspec", "asyncio", "rich", "holdfast.app")]
loaded = [m for m in sys.modules if m.startswith("holdfast.cli.") and m.count(".") > 2]
print(sorted(loaded), heavy, file=sys.stderr)
"""
    for flag in ("--help", "--version"):
        answer = subprocess.run([sys.executable, "-c", seen, flag], capture_output=True, text=True, check=True)
        assert answer.stderr.strip() == "['holdfast.cli.input.options', 'holdfast.cli.output.printing'] []"


def test_the_package_gives_its_names_when_they_are_used(project: Path) -> None:
    code = "import sys, holdfast; assert 'psycopg' not in sys.modules; holdfast.App(); assert 'psycopg' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_command_the_help_is_shown(bare: Cli) -> None:
    told = bare(code=2)
    assert told.stdout == ""
    assert told.stderr.startswith("Usage: ")
    assert json.loads(bare("--json", code=2).stderr)["message"] == "missing command."
    assert json.loads(bare("--json", "pg", code=2).stderr)["message"] == "no command was given"


# Errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (["tasc"], "no such command 'tasc'. Did you mean 'tasks'?", "holdfast --help"),
        (["enque", "x"], "no such command 'enque'. Did you mean 'enqueue'?", "holdfast --help"),
        (["zzz"], "no such command 'zzz'.", "holdfast --help"),
        (["--nonsense"], "no such option '--nonsense'.", "holdfast --help"),
        (["config", "--jsn"], "no such option '--jsn'. Did you mean '--json'?", "holdfast config --help"),
        (["enqueue"], "missing argument 'KIND[.STEP]'.", "holdfast enqueue --help"),
        (["init", "a.py", "b"], "got unexpected extra argument (b)", "holdfast init --help"),
        (["completion", "tcsh"], "invalid value for", "holdfast completion --help"),
    ],
)
def test_wrong_usage_has_one_style(bare: Cli, arguments: list[str], said: str, hint: str) -> None:
    told = bare(*arguments, code=2)
    first, *rest = told.stderr.splitlines()
    assert first.startswith(f"error: {said}")
    assert rest == [f"Try '{hint}'."]
    assert told.stdout == ""
    as_json = bare(*arguments, "--json", code=2)
    assert json.loads(as_json.stderr)["message"].startswith(said)
    assert as_json.stdout == ""


def test_colours_only_on_a_terminal(bare: Cli) -> None:
    def error(colour: bool | None, **environment: str) -> str:
        return CliRunner(env=environment).invoke(main, ["zzz"], color=bool(colour)).stderr

    assert error(False).startswith("error:")
    assert error(True).startswith("\x1b[31merror:\x1b[0m")
    assert error(True, NO_COLOR="1").startswith("error:")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with a bug."""

    @click.command("broken")
    def broken() -> None:
        raise KeyError("postgresql://u:s3cret@h/d \x1b[2J")

    monkeypatch.setitem(main.commands, "show", broken)


@pytest.mark.usefixtures("broken")
def test_what_nobody_expected_is_called_a_bug(bare: Cli) -> None:
    told = bare("show", code=1)
    first, second, *rest = told.stderr.splitlines()
    assert first.startswith("error: this is a bug in holdfast: KeyError: ")
    assert "report it" in second
    assert "holdfast config" in second
    assert "Traceback (most recent call last):" in rest
    assert "s3cret" not in told.stderr
    assert "\x1b" not in told.stderr
    as_json = json.loads(bare("--json", "show", code=1).stderr)
    assert (as_json["error"], "KeyError" in as_json["message"]) == ("Bug", True)
    assert "s3cret" not in as_json["message"] + as_json["traceback"]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (PermissionError(13, "Permission denied", "x.py"), 1, "error: [Errno 13] Permission denied: 'x.py'\n"),
        (KeyboardInterrupt(), 130, "aborted.\n"),
        (click.Abort(), 1, "aborted.\n"),
    ],
)
def test_what_is_nobodys_bug(
    bare: Cli, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    @click.command("broken")
    def broken() -> Any:
        raise raised

    monkeypatch.setitem(main.commands, "show", broken)
    assert bare("show", code=code).stderr.lstrip("\n") == said


def test_wrong_settings_are_told_by_every_command(bare: Cli, project: Path) -> None:
    """X6."""
    (project / "pyproject.toml").write_text("[tool.holdfast]\nshcema = 'shop'\n")
    told = bare("tasks", code=2).stderr
    assert told.startswith(f"error: {project / 'pyproject.toml'} has 'shcema' under [tool.holdfast]")
    assert "did you mean schema?" in told
    assert json.loads(bare("tasks", "--json", code=2).stderr)["error"] == "ConfigError"


def test_commands_follow_the_schema_that_is_configured(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.holdfast]\nschema = 'shop'\n")
    assert "'shop'" in cli("tasks", code=1).stderr
    assert cli.json("migrate")["schema"] == "shop"
    assert cli.json("migrate", "--check")["schema"] == "shop"
    cli.environment["HOLDFAST_SCHEMA"] = "other"
    assert cli.json("migrate")["schema"] == "other"
    assert cli.json("migrate", "--schema", "third")["schema"] == "third"


def test_json_goes_before_the_group_of_the_server_too(bare: Cli) -> None:
    assert json.loads(bare("--json", "pg", "status", code=3).stdout)["running"] is False


def test_a_reader_that_goes_away_is_no_error(project: Path) -> None:
    """`holdfast --help | head -1`."""
    answer = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m holdfast.cli --help | head -n 1; exit ${{PIPESTATUS[1]}}"],
        capture_output=True,
        text=True,
    )
    assert answer.stderr == ""
    assert answer.stdout.startswith("Usage: holdfast")


def test_a_flag_goes_before_what_is_configured(bare: Cli, project: Path) -> None:
    """X6: `setting_option`, as the commands that run workers use it."""
    seen: dict[str, Any] = {}

    @click.command()
    @setting_option("queues", "-q", multiple=True)
    @setting_option("concurrency", "-c")
    @setting_option("lease")
    @pass_setup
    def command(setup: Setup, /, **given: Any) -> None:
        seen.update({name: (value, setup.setting(name).source) for name, value in given.items()})

    (project / "pyproject.toml").write_text("[tool.holdfast]\nconcurrency = 3\nlease = '1m'\n")
    runner = CliRunner(env={"HOLDFAST_LEASE": "2m"})
    assert runner.invoke(command, ["-q", "a,b", "-q", "c"]).exit_code == 0
    assert seen == {
        "queues": (("a", "b", "c"), "--queues"),
        "concurrency": (3, "pyproject.toml [tool.holdfast] concurrency"),
        "lease": (120.0, "HOLDFAST_LEASE"),
    }
    assert runner.invoke(command, ["-c", "4", "--lease", "3"]).exit_code == 0
    assert (seen["concurrency"], seen["lease"]) == ((4, "--concurrency"), (3.0, "--lease"))
    assert "concurrency must be a whole number of at least 1, not '0'" in runner.invoke(command, ["-c", "0"]).stderr
    assert "[HOLDFAST_LEASE; default: 30s]" in " ".join(runner.invoke(command, ["--help"]).stdout.split())
