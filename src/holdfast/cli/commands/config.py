"""`holdfast config`: every setting and where it came from."""

import sys
from dataclasses import dataclass
from typing import Any

import click

from holdfast._db.config.resolve import Resolved, embedded_folder, embedded_url, project_file, unknown_variables
from holdfast._db.config.settings import SETTINGS, shown
from holdfast._model.json.redact import redact
from holdfast.cli.input.options import Setup, common_options, pass_setup
from holdfast.cli.input.time_limit import quickly
from holdfast.cli.output.printing import USAGE, Cell, Failure, facts, line, note, print_json
from holdfast.cli.output.tables import fitted_table
from holdfast.errors import ConfigError, HoldfastError, NoDatabase

PATIENCE = 3.0
"""Seconds that the database has to answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the database said."""

    reachable: bool
    said: str
    server: str | None = None
    schema_version: int | None = None


@click.command()
@common_options
@pass_setup
def config(setup: Setup) -> None:
    """Show every setting and where it came from, and whether the database answers.

    A setting is a flag, else a variable such as HOLDFAST_LEASE, else a key under [tool.holdfast] in the nearest
    pyproject.toml, else its default. Passwords are never shown. Exit code 2 if a setting is wrong.

    \b
    Example:
      holdfast config
      HOLDFAST_LEASE=1m holdfast config --json
    """
    found, problems = _settings(setup)
    answer = _ask(setup, found)
    unknown = unknown_variables()
    if setup.json:
        print_json(_as_json(found, answer, list(unknown)))
    else:
        _print(found, answer)
        for about in unknown.values():
            note(line(about))
    if problems:
        raise Failure("\n".join(problems), USAGE, "ConfigError")


def _settings(setup: Setup) -> tuple[dict[str, Resolved], list[str]]:
    """All settings, those that are wrong without a value, and what is wrong with them."""
    found: dict[str, Resolved] = {}
    problems: list[str] = []
    for name in SETTINGS:
        try:
            found[name] = setup.setting(name)
        except NoDatabase:
            found[name] = Resolved(name, None, "not set")
        except ConfigError as error:
            found[name] = Resolved(name, None, "wrong")
            problems.append(redact(str(error)))
    if found["app"].value is None and found["app"].is_default:
        found["app"] = Resolved("app", None, "not set")
    for name in ("url", "direct_url"):
        if found[name].value is not None:
            found[name] = Resolved(name, redact(found[name].value), found[name].source)
    return found, list(dict.fromkeys(problems))


def _print(found: dict[str, Resolved], answer: Answer) -> None:
    rows: list[tuple[str, str, Cell]] = []
    for name, each in found.items():
        value = SETTINGS[name].default_text if each.is_default else shown(each.value)
        source: Cell = ("wrong: see below", "red") if each.source == "wrong" else line(each.source)
        rows.append((name, line(value or "-"), source))
    fitted_table(("SETTING", "VALUE", "SOURCE"), rows, whole=("SETTING", "SOURCE"))
    click.echo()
    project, running = project_file(), embedded_url() is not None
    facts(
        [
            ("version", _version()),
            ("python", f"{sys.version.split()[0]} ({sys.executable})"),
            ("pyproject.toml", line(project or "none here or above")),
            ("embedded server", f"{line(embedded_folder())}, {'running' if running else 'not running'}"),
            ("database", (line(answer.said), "green" if answer.schema_version is not None else "red")),
        ],
        indent="",
    )


def _as_json(found: dict[str, Resolved], answer: Answer, unknown: list[str]) -> dict[str, Any]:
    project = project_file()
    return {
        "settings": {
            name: {"value": each.value, "source": each.source, "variable": SETTINGS[name].variable}
            for name, each in found.items()
        },
        "version": _version(),
        "python": sys.version.split()[0],
        "pyproject": None if project is None else str(project),
        "embedded": {"folder": str(embedded_folder()), "running": embedded_url() is not None},
        "database": answer,
        "unknown_variables": unknown,
    }


def _version() -> str:
    from holdfast.app import package_version

    return package_version()


# The database ---------------------------------------------------------------------------------------


def _ask(setup: Setup, found: dict[str, Resolved]) -> Answer:
    if found["url"].value is None:
        wrong = found["url"].source == "wrong"
        return Answer(False, "its URL is wrong" if wrong else "none was named: holdfast pg start, or set HOLDFAST_URL")
    if found["schema"].value is None:
        return Answer(False, "not asked: the name of the schema is wrong")
    url, schema = setup.database().url, found["schema"].value
    return quickly(PATIENCE, lambda: _asked(url, schema), otherwise=Answer(False, f"no answer within {PATIENCE:g} s"))


def _asked(url: str, schema: str) -> Answer:
    from holdfast._db.driver.connection import connect_sync, run_sync
    from holdfast._db.errors import explaining
    from holdfast._db.migrate import latest
    from holdfast._sql.queries import queries

    try:
        connection = connect_sync(url, "holdfast config")
    except HoldfastError as error:
        return Answer(False, redact(str(error)))
    with connection:
        server = connection.info.parameter_status("server_version") or "?"
        try:
            with explaining(schema):
                version = run_sync(connection, queries(schema).schema_version())
        except Exception as error:
            return Answer(True, f"reachable, PostgreSQL {server}, but {redact(str(error))}", server)
    of = f"version {version} of {latest()}"
    advice = ". Run: holdfast migrate" if version < latest() else ""
    return Answer(True, f"reachable, PostgreSQL {server}, schema at {of}{advice}", server, version)
