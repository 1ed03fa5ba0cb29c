"""Where the database is: the order of the choices, and errors without passwords (X6 in part)."""

import json
import os
from pathlib import Path

import pytest

from holdfast._db.config import check_schema, embedded_folder, embedded_url, project_settings, redact, resolve
from holdfast._db.connection import conninfo, unreachable
from holdfast.errors import ConfigError, NoDatabase


@pytest.fixture(autouse=True)
def no_server_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.holdfast]\nurl = "postgresql://configured/db"\n')
    return tmp_path


def announce(home: Path, *, pid: int, **facts: str) -> None:
    (home / ".holdfast").mkdir()
    told = {"url": "postgresql://embedded/db", "pid": pid, "folder": str(home / ".holdfast"), **facts}
    (home / ".holdfast" / "server.json").write_text(json.dumps(told))


def test_the_order_of_choices(project: Path, tmp_path: Path) -> None:
    everything = {"HOLDFAST_URL": "postgresql://variable/db", "DATABASE_URL": "postgresql://platform/db"}
    assert resolve("postgresql://given/db", environment=everything, start=project).source == "argument"
    assert resolve(None, environment=everything, start=project).url == "postgresql://variable/db"
    assert resolve(None, environment={"DATABASE_URL": "x"}, start=project).url == "postgresql://configured/db"
    (project / "pyproject.toml").unlink()
    assert resolve(None, environment=everything | {"HOLDFAST_URL": ""}, start=project).source == "DATABASE_URL"
    announce(tmp_path, pid=os.getpid())
    assert resolve(None, environment={}, start=project).url == "postgresql://embedded/db"


def test_no_database_lists_the_choices(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase) as caught:
        resolve(None, environment={}, start=tmp_path)
    for choice in ("--url", "HOLDFAST_URL", "[tool.holdfast]", "DATABASE_URL", "holdfast pg start"):
        assert choice in str(caught.value)


def test_a_driver_in_the_url_of_a_platform_is_left_out(tmp_path: Path) -> None:
    found = resolve(None, environment={"DATABASE_URL": "postgresql+asyncpg://u:p@h/db"}, start=tmp_path)
    assert found.url == "postgresql://u:p@h/db"


def test_a_dead_or_foreign_embedded_server_is_not_taken(tmp_path: Path) -> None:
    dead, copied, broken = tmp_path / "dead", tmp_path / "copied", tmp_path / "broken"
    for folder in (dead, copied, broken):
        folder.mkdir()
    announce(dead, pid=2**22 + 1)
    announce(copied, pid=os.getpid(), folder=str(dead / ".holdfast"))
    announce(broken, pid=os.getpid())
    (broken / ".holdfast" / "server.json").write_text("{")
    assert [embedded_url(folder) for folder in (dead, copied, broken)] == [None, None, None]


def test_outside_of_projects_the_users_own_server_is_found(tmp_path: Path) -> None:
    home = tmp_path / "data" / "holdfast"
    home.mkdir(parents=True)
    (home / "server.json").write_text(
        json.dumps({"url": "postgresql://own/db", "pid": os.getpid(), "folder": str(home)})
    )
    assert resolve(None, environment={}, start=tmp_path).url == "postgresql://own/db"


def test_a_project_never_falls_back_to_the_users_server(tmp_path: Path) -> None:
    """`holdfast pg status` would say that none is running, while tasks went to another project's database."""
    home = tmp_path / "data" / "holdfast"
    home.mkdir(parents=True)
    (home / "server.json").write_text(
        json.dumps({"url": "postgresql://own/db", "pid": os.getpid(), "folder": str(home)})
    )
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "pyproject.toml").touch()
    assert embedded_url(tmp_path / "shop") is None
    assert embedded_folder(tmp_path / "shop") == tmp_path / "shop" / ".holdfast"


def test_settings_are_found_from_a_folder_below(project: Path) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert project_settings(below) == {"url": "postgresql://configured/db"}


def test_a_broken_pyproject_is_told(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.holdfast\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        resolve(None, environment={}, start=tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:s3cret@host/db",
        "host=h password=s3cret dbname=d",
        "host=h password='s3cret with space' dbname=d",
        "postgresql://host/db?user=u&password=s3cret&x=y",
    ],
)
def test_passwords_are_removed(text: str) -> None:
    assert "s3cret" not in redact(text)
    assert "***" in redact(text)
    assert "s3cret" not in str(unreachable(ConnectionError(f'connection to "{text}" failed')))


def test_what_is_no_url_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        conninfo("postgresql://u:s3cret@host:port:bad/db?nonsense", "holdfast")
    assert "s3cret" not in str(caught.value)


def test_our_defaults_yield_to_the_users() -> None:
    assert "connect_timeout=10" in conninfo("postgresql://h/d", "holdfast")
    assert "connect_timeout=3" in conninfo("postgresql://h/d?connect_timeout=3", "holdfast")


@pytest.mark.parametrize("name", ["", "Public", "a-b", "1a", 'x"y', "x;drop", "a" * 49, "holdfast\n"])
def test_schema_names_are_checked(name: str) -> None:
    with pytest.raises(ConfigError):
        check_schema(name)


def test_good_schema_names() -> None:
    assert check_schema("holdfast_2") == "holdfast_2"
