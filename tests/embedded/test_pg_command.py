"""`holdfast pg`: what it prints, where, and the exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from holdfast import embedded
from holdfast.cli import main


def call(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(main, ["pg", *map(str, arguments)], input=answer)


def printed(result: Result) -> dict[str, Any]:
    return dict(json.loads(result.stdout))


def test_start_status_url_stop(folder: Path) -> None:
    started = call("start", "--folder", folder, "--no-durable")
    assert started.exit_code == 0, started.output
    server = embedded.find(folder)
    assert server is not None
    assert not server.durable
    assert server.url() in started.stdout
    assert "started" in started.stdout
    assert "already running" in call("start", "--folder", folder, "--no-durable").stdout

    status = call("status", "--folder", folder)
    assert status.exit_code == 0
    assert f"PostgreSQL {server.version} is running" in status.stdout

    assert call("url", "--folder", folder).stdout == server.url() + "\n"
    assert call("url", "--folder", folder, "--database", "shop").stdout == server.url("shop") + "\n"

    stopped = call("stop", "--folder", folder)
    assert stopped.exit_code == 0
    assert str(server.pid) in stopped.stdout
    assert embedded.find(folder) is None


def test_json(folder: Path) -> None:
    started = printed(call("start", "--folder", folder, "--no-durable", "--json"))
    assert started["running"] is True
    assert started["started"] is True
    assert printed(call("start", "--folder", folder, "--no-durable", "--json"))["started"] is False
    status = printed(call("status", "--folder", folder, "--json"))
    published = json.loads((folder / "server.json").read_text())
    for name in ("url", "pid", "version", "data", "log"):
        assert started[name] == status[name] == published[name]
    assert printed(call("url", "--folder", folder, "--json")) == {"url": status["url"]}
    with psycopg.connect(status["url"]) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    assert printed(call("stop", "--folder", folder, "--json"))["running"] is False


@pytest.mark.parametrize("command", ["status", "url", "stop", "psql"])
def test_nothing_runs(folder: Path, command: str) -> None:
    result = call(command, "--folder", folder)
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("error: no embedded PostgreSQL is running")
    assert "holdfast pg start" in result.stderr
    assert not folder.exists()


@pytest.mark.parametrize("command", ["status", "url", "stop"])
def test_nothing_runs_in_json(folder: Path, command: str) -> None:
    result = call(command, "--folder", folder, "--json")
    assert result.exit_code == 3
    assert printed(result) == {"running": False, "folder": str(folder)}
    assert "holdfast pg start" in result.stderr


def test_a_failure_is_one_message_and_no_traceback(folder: Path) -> None:
    (folder / "postgres").mkdir(parents=True)
    result = call("start", "--folder", folder)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_wrong_usage(folder: Path) -> None:
    assert call("start", "--no-such-option").exit_code == 2
    assert call("stop", "--mode", "rude", "--folder", folder).exit_code == 2


@pytest.mark.parametrize("command", ["start", "stop", "status", "url", "psql", "reset"])
def test_help_has_an_example(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert f"Example:\n    holdfast pg {command}" in result.stdout or "$(holdfast pg url)" in result.stdout


def test_psql_gets_the_url_and_the_arguments(folder: Path, python_environment: dict[str, str]) -> None:
    embedded.start(folder, durable=False)

    def psql(*arguments: str) -> subprocess.CompletedProcess[str]:
        program = [
            sys.executable,
            "-m",
            "holdfast.cli",
            "pg",
            "psql",
            "--folder",
            str(folder),
        ]
        return subprocess.run(
            [*program, *arguments],
            env=python_environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    done = psql("-X", "-At", "-c", "select 6 * 7, current_database()")
    assert (done.returncode, done.stdout) == (0, "42|postgres\n"), done.stderr
    assert psql("--database", "template1", "-XAtc", "select current_database()").stdout == "template1\n"
    # The exit code is psql's own: 1 here is for the script that failed.
    assert psql("-X", "-v", "ON_ERROR_STOP=1", "-c", "select no_such_column").returncode == 1


def test_reset_asks_first(folder: Path) -> None:
    server = embedded.start(folder, durable=False)
    refused = call("reset", "--folder", folder, answer="n\n")
    assert refused.exit_code == 1
    assert embedded.find(folder) == server
    agreed = call("reset", "--folder", folder, answer="y\n")
    assert agreed.exit_code == 0, agreed.output
    assert embedded.find(folder) is None
    assert not server.data.exists()


def test_reset_does_not_ask_with_yes(folder: Path) -> None:
    server = embedded.start(folder, durable=False)
    assert call("reset", "--yes", "--folder", folder).exit_code == 0
    assert not server.data.exists()


def test_reset_of_what_is_not_there_or_not_ours(tmp_path: Path) -> None:
    missing = call("reset", "--yes", "--folder", tmp_path / "missing")
    assert missing.exit_code == 3
    assert "nothing to delete" in missing.stderr
    (tmp_path / "postgres").mkdir()
    foreign = call("reset", "--yes", "--folder", tmp_path)
    assert foreign.exit_code == 1
    assert "nothing was deleted" in foreign.stderr
    assert (tmp_path / "postgres").is_dir()
