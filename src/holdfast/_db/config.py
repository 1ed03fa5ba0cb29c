"""Where the database is: one resolver for App and CLI.

In this order: the argument or flag, `HOLDFAST_URL`, `[tool.holdfast] url` of the nearest pyproject.toml,
`DATABASE_URL`, a *running* embedded server of this project. Nothing here starts a server.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigError, NoDatabase

EMBEDDED_FACTS = "server.json"
"""The file in which a running embedded server tells its `url`, `pid` and `folder`."""

_PASSWORD = re.compile(r"(?i)(://[^:@/\s]*:)[^@/\s]*(@)|(password=)('(?:[^'\\]|\\.)*'|[^\s&]+)")
_PROJECT_SIGNS = ("pyproject.toml", ".git")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")


@dataclass(frozen=True, slots=True)
class Database:
    """A database, and where its URL came from."""

    url: str
    source: str


def resolve(
    url: str | None = None, *, environment: Mapping[str, str] | None = None, start: Path | None = None
) -> Database:
    """The database to use, or `NoDatabase` with the ways to name one."""
    env = os.environ if environment is None else environment
    if url:
        return Database(url, "argument")
    if env.get("HOLDFAST_URL"):
        return Database(env["HOLDFAST_URL"], "HOLDFAST_URL")
    configured = project_settings(start).get("url")
    if configured:
        if not isinstance(configured, str):
            raise ConfigError("[tool.holdfast] url in pyproject.toml must be a string")
        return Database(configured, "pyproject.toml [tool.holdfast] url")
    if env.get("DATABASE_URL"):
        return Database(_for_libpq(env["DATABASE_URL"]), "DATABASE_URL")
    running = embedded_url(start)
    if running:
        return Database(running, f"the running embedded server of {embedded_folder(start)}")
    raise NoDatabase(
        "no database was named. Choose one of:\n"
        '  - App("postgresql://user@host/database") in code, or --url on the command line\n'
        "  - the environment variable HOLDFAST_URL (or DATABASE_URL)\n"
        '  - url = "postgresql://…" under [tool.holdfast] in pyproject.toml\n'
        "  - an embedded server for development: holdfast pg start"
    )


def check_schema(name: str) -> str:
    """The name of a schema, if it can be one."""
    if not _SCHEMA.fullmatch(name):
        raise ConfigError(
            f"schema {name!r} cannot be used: write at most 48 lower-case letters, digits and _, no digit first"
        )
    return name


def project_settings(start: Path | None = None) -> dict[str, Any]:
    """`[tool.holdfast]` of the nearest pyproject.toml at or above a folder."""
    for folder in _upwards(start):
        file = folder / "pyproject.toml"
        try:
            text = file.read_text("utf-8")
        except OSError:
            continue
        try:
            settings = tomllib.loads(text).get("tool", {}).get("holdfast", {})
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from None
        return dict(settings)
    return {}


def embedded_url(start: Path | None = None) -> str | None:
    """The URL of the running embedded server that belongs to a folder, from the facts it left."""
    home = embedded_folder(start)
    try:
        told = json.loads((home / EMBEDDED_FACTS).read_text("utf-8"))
        # A copied folder carries the facts of a server that is not its own.
        mine = Path(told["folder"]).samefile(home) and _lives(int(told["pid"]))
        return str(told["url"]) if mine else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def embedded_folder(start: Path | None = None) -> Path:
    """Where the embedded server of a folder lives: `.holdfast` of the project around it, else the user's own."""
    for folder in _upwards(start):
        if _is_project(folder):
            return folder / ".holdfast"
    return user_folder()


def _is_project(folder: Path) -> bool:
    try:
        return (folder / ".holdfast").is_dir() or any((folder / sign).exists() for sign in _PROJECT_SIGNS)
    except PermissionError:
        return False


def user_folder() -> Path:
    """Where an embedded server keeps its data outside of projects."""
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data_home.is_absolute():
        data_home = Path("~").expanduser() / ".local" / "share"
    return data_home / "holdfast"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # the server runs as another user
    except OSError:
        return False
    return True


def redact(text: str) -> str:
    """Text with the passwords of URLs and connection strings removed."""
    return _PASSWORD.sub(lambda m: f"{m[1]}***{m[2]}" if m[1] else f"{m[3]}***", text)


def _for_libpq(url: str) -> str:
    # SQLAlchemy's and Django's URLs name a driver: postgresql+asyncpg://…
    return re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url)


def _upwards(start: Path | None) -> list[Path]:
    try:
        here = (start or Path.cwd()).resolve()
    except OSError:
        return []
    return [here, *here.parents]
