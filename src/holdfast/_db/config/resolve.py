"""Every setting, and where it comes from: one resolver for App and command line.

In this order: the argument or flag, the variable `HOLDFAST_…`, `[tool.holdfast]` of the nearest pyproject.toml, and
the default. For the URL then also `DATABASE_URL` and a *running* embedded server of this project, in place of a
default. Nothing here starts a server.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from holdfast._db.config.settings import SETTINGS, WORKER_SETTINGS, checked
from holdfast._db.config.settings import check_schema as check_schema
from holdfast.errors import ConfigError, NoDatabase

EMBEDDED_FACTS = "server.json"
"""The file in which a running embedded server tells its `url`, `pid` and `folder`."""

_PROJECT_SIGNS = ("pyproject.toml", ".git")


@dataclass(frozen=True, slots=True)
class Resolved:
    """The value of a setting, and where it came from."""

    name: str
    value: Any
    source: str

    @property
    def is_default(self) -> bool:
        return self.source == "default"

    @property
    def is_from_project(self) -> bool:
        return self.source.startswith("pyproject.toml ")


@dataclass(frozen=True, slots=True)
class Database:
    """A database, and where its URL came from."""

    url: str
    source: str
    direct_url: str | None = None
    """The same database without the pooler, if it is told."""

    @property
    def listen_url(self) -> str:
        """Where notifications come through, if anywhere."""
        return self.direct_url or self.url


# Resolving ------------------------------------------------------------------------------------------


def setting(
    name: str, given: Any = None, *, environment: Mapping[str, str] | None = None, start: Path | None = None
) -> Resolved:
    """The value of a setting and its source; for the URL, `NoDatabase` if there is none."""
    env, about = os.environ if environment is None else environment, SETTINGS[name]
    if given is not None and given != "":
        return Resolved(name, checked(about, given), "argument")
    # An empty variable counts as absent: it is how people unset one for a single command.
    if text := env.get(about.variable, "").strip():
        return Resolved(name, checked(about, text, about.variable, is_text=True), about.variable)
    file, settings = _project(start)
    if name in settings:
        value = checked(about, settings[name], f"{name} under [tool.holdfast] in {file}")
        return Resolved(name, value, f"pyproject.toml [tool.holdfast] {name}")
    if name == "url":
        return _last_resorts(env, start)
    return Resolved(name, about.default, "default")


def resolve(
    url: str | None = None,
    direct_url: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Database:
    """The database to use, or `NoDatabase` with the ways to name one."""
    found = setting("url", url, environment=environment, start=start)
    direct = setting("direct_url", direct_url, environment=environment, start=start)
    return Database(found.value, found.source, direct.value)


def worker_options(given: Mapping[str, Any], **where: Any) -> dict[str, Any]:
    """What is given about a worker, and what else is configured. Defaults are left to the worker."""
    chosen = {name: value for name, value in given.items() if value is not None}
    found = [setting(name, **where) for name in WORKER_SETTINGS if name not in chosen]
    return {each.name: each.value for each in found if not each.is_default} | chosen


def _last_resorts(env: Mapping[str, str], start: Path | None) -> Resolved:
    if text := env.get("DATABASE_URL", "").strip():
        return Resolved("url", _for_libpq(text), "DATABASE_URL")
    running = embedded_url(start)
    if running:
        return Resolved("url", running, f"the running embedded server of {embedded_folder(start)}")
    raise NoDatabase(
        "no database was named. Choose one of:\n"
        '  - App("postgresql://user@host/database") in code, or --url on the command line\n'
        "  - the environment variable HOLDFAST_URL (or DATABASE_URL)\n"
        '  - url = "postgresql://…" under [tool.holdfast] in pyproject.toml\n'
        "  - an embedded server for development: holdfast dev APP, or holdfast pg start\n"
        f"    (none is running for {embedded_folder(start)})"
    )


# The project ----------------------------------------------------------------------------------------


def project_file(start: Path | None = None) -> Path | None:
    """The nearest pyproject.toml at or above a folder."""
    return next((file for file, _ in _project_files(start)), None)


def project_settings(start: Path | None = None) -> dict[str, Any]:
    """`[tool.holdfast]` of the nearest pyproject.toml."""
    return dict(_project(start)[1])


def _project(start: Path | None) -> tuple[Path | None, Mapping[str, Any]]:
    for file, text in _project_files(start):
        return file, _table(file, text)
    return None, {}


def _project_files(start: Path | None) -> Iterator[tuple[Path, bytes]]:
    for folder in _upwards(start):
        try:
            yield folder / "pyproject.toml", (folder / "pyproject.toml").read_bytes()
        except OSError:
            continue


@lru_cache(maxsize=4)
def _table(file: Path, text: bytes) -> Mapping[str, Any]:
    import tomllib

    try:
        tables = tomllib.loads(text.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    if "holdfast" in tables:
        raise ConfigError(f"{file} has a table [holdfast], which nobody reads: write [tool.holdfast]")
    tool = tables.get("tool", {})
    found = tool.get("holdfast", {}) if isinstance(tool, dict) else {}
    if not isinstance(found, dict):
        raise ConfigError(f"{file}: tool.holdfast must be a table, [tool.holdfast]")
    for key in found:
        if key not in SETTINGS:
            nearest = get_close_matches(key.replace("-", "_"), SETTINGS, 1)
            meant = f": did you mean {nearest[0]}?" if nearest else "."
            raise ConfigError(f"{file} has {key!r} under [tool.holdfast]{meant} There are {', '.join(SETTINGS)}")
    return found


def unknown_variables(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables `HOLDFAST_…` that are no settings, each with what is odd about it."""
    known = [each.variable for each in SETTINGS.values()]
    odd: dict[str, str] = {}
    for name in sorted(os.environ if environment is None else environment):
        # HOLDFAST_TEST_… are the pytest plugin's and people's own tests'.
        if name.startswith("HOLDFAST_") and not name.startswith("HOLDFAST_TEST_") and name not in known:
            nearest = get_close_matches(name, known, 1)
            odd[name] = f"the variable {name:.80} is no setting" + (f": did you mean {nearest[0]}?" if nearest else "")
    return odd


# The embedded server --------------------------------------------------------------------------------


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
    """Where the embedded server of a folder lives: `.holdfast` of the project around it, else of the folder itself."""
    here, *above = _upwards(start) or [Path()]
    around = (folder for folder in above if _is_project(folder) and not _is_shared(folder))
    return (here if _is_project(here) else next(around, here)) / ".holdfast"


def _is_project(folder: Path) -> bool:
    try:
        return (folder / ".holdfast").is_dir() or any((folder / sign).exists() for sign in _PROJECT_SIGNS)
    except PermissionError:
        return False


def _is_shared(folder: Path) -> bool:
    """Whether programs that have nothing to do with each other lie below: in a home, above it, or where all may write.

    Such a folder is a project only for itself, or a command would act on the tasks of another program.
    """
    try:
        home = Path("~").expanduser().resolve()
        return home.is_relative_to(folder) or bool(folder.stat().st_mode & stat.S_IWOTH)
    except (OSError, RuntimeError):
        return True


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True  # the server runs as another user
    except OSError:
        return False
    return True


def _for_libpq(url: str) -> str:
    # SQLAlchemy's and Django's URLs name a driver: postgresql+asyncpg://…
    return re.sub(r"^(postgres(?:ql)?)\+\w+://", r"\1://", url)


def _upwards(start: Path | None) -> list[Path]:
    try:
        here = (start or Path.cwd()).resolve()
    except OSError:
        return []
    return [here, *here.parents]
