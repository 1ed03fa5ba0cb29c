"""`holdfast config`: every setting, where it came from, and whether the database answers (X6)."""

import json
import re
import socket
from pathlib import Path

import pytest

from holdfast._db.config.resolve import EMBEDDED_FACTS
from holdfast._db.config.settings import SETTINGS
from holdfast._db.migrate import latest
from holdfast.cli.commands import config as command

from .conftest import Cli
from .terminal import Terminal


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS.values():
        monkeypatch.delenv(setting.variable, raising=False)


def row(output: str, name: str) -> list[str]:
    return re.split(r" {2,}", next(line for line in output.splitlines() if line.startswith(f"{name} ")))


def test_each_setting_with_its_source(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.holdfast]\nconcurrency = 3\nqueues = ['mail', 'default']\n")
    cli.environment["HOLDFAST_LEASE"] = "90s"
    told = cli("config", "--schema", "holdfast").stdout
    assert row(told, "schema") == ["schema", "holdfast", "--schema"]
    assert row(told, "queues") == ["queues", "mail,default", "pyproject.toml [tool.holdfast] queues"]
    assert row(told, "concurrency") == ["concurrency", "3", "pyproject.toml [tool.holdfast] concurrency"]
    assert row(told, "lease") == ["lease", "90s", "HOLDFAST_LEASE"]
    assert row(told, "poll") == ["poll", "1s", "default"]
    assert row(told, "app") == ["app", "-", "not set"]
    assert row(told, "url")[2] == "HOLDFAST_URL"
    assert str(project / "pyproject.toml") in row(told, "pyproject.toml")[1]
    assert "not running" in told

    as_json = cli.json("config")
    assert list(as_json["settings"]) == list(SETTINGS)
    assert as_json["settings"]["lease"] == {"value": 90.0, "source": "HOLDFAST_LEASE", "variable": "HOLDFAST_LEASE"}
    assert as_json["settings"]["queues"]["value"] == ["mail", "default"]
    assert as_json["pyproject"] == str(project / "pyproject.toml")
    assert as_json["embedded"] == {"folder": str(project / ".holdfast"), "running": False}


def test_the_database_is_asked(cli: Cli) -> None:
    answer = cli.json("config")["database"]
    assert answer["reachable"]
    assert answer["schema_version"] == latest()
    assert answer["said"] == f"reachable, PostgreSQL {answer['server']}, schema at version {latest()} of {latest()}"
    assert answer["said"] in cli("config").stdout
    missing = cli.json("config", "--schema", "shop")["database"]
    assert (missing["reachable"], missing["schema_version"]) == (True, None)
    assert "schema 'shop' is missing in this database" in missing["said"]
    assert "Run: holdfast migrate" in missing["said"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://joe:topsecret@127.0.0.1:1/shop",
        "postgresql://joe:top@topsecret@127.0.0.1:1/shop",
        "host=127.0.0.1 port=1 user=joe password='topsecret'",
        "postgresql://127.0.0.1:1/shop?user=joe&password=topsecret",
        "nonsense://joe:topsecret@127.0.0.1:1/shop",
    ],
)
def test_passwords_are_never_shown_and_trouble_is_no_failure(cli: Cli, url: str) -> None:
    cli.environment["HOLDFAST_URL"] = url
    told = cli("config")
    assert "***" in row(told.stdout, "url")[1] or "***" in told.stdout
    as_json = cli("config", "--json")
    if "top@" not in url:  # libpq takes the rest of such a password for a part of the host
        assert "topsecret" not in told.output + as_json.output
    assert "topsecret" not in json.loads(as_json.stdout)["settings"]["url"]["value"]
    assert not json.loads(as_json.stdout)["database"]["reachable"]


def test_a_server_that_does_not_answer_is_not_waited_for(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cli.environment["HOLDFAST_URL"] = f"postgresql://joe@127.0.0.1:{silent.getsockname()[1]}/shop?connect_timeout=2"
        assert "no answer within 0.2 s" in cli("config").stdout


def test_without_a_database(cli: Cli, project: Path) -> None:
    cli.environment["HOLDFAST_URL"] = None
    told = cli("config").stdout
    assert row(told, "url") == ["url", "-", "not set"]
    assert "none was named: holdfast pg start, or set HOLDFAST_URL" in told
    (project / ".holdfast").mkdir()
    facts = {"url": "postgresql://127.0.0.1:1/x", "pid": 1, "folder": str(project / ".holdfast")}
    (project / ".holdfast" / EMBEDDED_FACTS).write_text(json.dumps(facts))
    told = cli("config").stdout
    assert f"the running embedded server of {project / '.holdfast'}" in row(told, "url")[2]
    assert f"{project / '.holdfast'}, running" in told


def test_what_is_wrong_is_shown_among_the_rest(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.holdfast]\nconcurrency = 'many'\n")
    cli.environment |= {"HOLDFAST_LEASE": "soon", "HOLDFAST_CONCURENCY": "1", "HOLDFAST_TEST_X": "1"}
    told = cli("config", code=2)
    assert row(told.stdout, "concurrency") == ["concurrency", "-", "wrong: see below"]
    assert row(told.stdout, "lease") == ["lease", "-", "wrong: see below"]
    assert row(told.stdout, "grace") == ["grace", "30s", "default"]
    assert "reachable" in told.stdout
    assert "HOLDFAST_LEASE must be a duration" in told.stderr
    assert "concurrency under [tool.holdfast]" in told.stderr
    assert "HOLDFAST_CONCURENCY is no setting: did you mean HOLDFAST_CONCURRENCY?" in told.stderr
    assert "HOLDFAST_TEST_X" not in told.output
    as_json = cli("config", "--json", code=2)
    assert json.loads(as_json.stdout)["unknown_variables"] == ["HOLDFAST_CONCURENCY"]
    assert json.loads(as_json.stderr)["error"] == "ConfigError"


def test_a_broken_pyproject_is_told_once(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.holdfast\n")
    told = cli("config", code=2)
    assert told.stderr.count("is not valid TOML") == 1
    assert row(told.stdout, "url")[2] == "HOLDFAST_URL"


def test_X6_on_a_terminal_the_table_fits_and_the_sources_are_whole(cli: Cli) -> None:
    with Terminal(cli.url, "config", columns=80) as terminal:
        assert terminal.ended() == 0
    table = terminal.shown.partition("\n\n")[0].splitlines()
    assert all(len(each) <= 80 for each in table), terminal.shown
    url = next(each for each in table if each.startswith("url "))
    assert "…" in url and url.endswith("HOLDFAST_URL")
