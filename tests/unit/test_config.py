"""Every setting: the order of the choices, what is refused, and errors without passwords (X6)."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast._db.config.resolve import (
    check_schema,
    embedded_folder,
    embedded_url,
    project_file,
    project_settings,
    resolve,
    setting,
    worker_options,
)
from holdfast._db.config.settings import SETTINGS, WORKER_SETTINGS, shown
from holdfast._db.driver.connection import conninfo
from holdfast._db.errors import unreachable
from holdfast._engine.settings import WorkerOptions, WorkerSettings
from holdfast._model.json.redact import redact
from holdfast.errors import ConfigError, NoDatabase


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


def test_a_folder_never_falls_back_to_the_server_of_another(tmp_path: Path) -> None:
    """`holdfast pg status` would say that none is running, while tasks went to another project's database."""
    announce(tmp_path, pid=os.getpid())
    for sign in ("pyproject.toml", ".git"):
        inside = tmp_path / sign.strip(".")
        inside.mkdir()
        (inside / sign).touch()
        assert embedded_url(tmp_path) is not None
        assert embedded_url(inside) is None
        assert embedded_folder(inside) == inside / ".holdfast"


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


# Settings -------------------------------------------------------------------------------------------

EXAMPLES: dict[str, tuple[Any, str, str, list[Any]]] = {
    # name: an argument, a variable, a line of TOML, and the values they come to
    "url": ("postgresql://a/db", "postgresql://b/db", '"postgresql://c/db"', [f"postgresql://{x}/db" for x in "abc"]),
    "direct_url": ("postgresql://a/db", "host=b", '"host=c"', ["postgresql://a/db", "host=b", "host=c"]),
    "pooler": ("none", "Transaction", '"auto"', ["none", "transaction", "auto"]),
    "schema": ("a", "b", '"c"', ["a", "b", "c"]),
    "app": ("a.py", "b:app", '"c"', ["a.py", "b:app", "c"]),
    "queues": (["a", "b"], "b:5, c", '["c", "d:1"]', [("a", "b"), ("b:5", "c"), ("c", "d:1")]),
    "only": (["a", "b.C"], "b, c.D", '["c"]', [("a", "b.C"), ("b", "c.D"), ("c",)]),
    "durable": (False, "ON", "false", [False, True, False]),
    "concurrency": (1, "2", "3", [1, 2, 3]),
    "lease": ("1m", "90", '"3s"', [60.0, 90.0, 3.0]),
    "beat": (1.5, "2s", "3", [1.5, 2.0, 3.0]),
    "poll": (0.1, "200ms", "0.3", [0.1, 0.2, 0.3]),
    "reap": ("1s", "2s", '"3s"', [1.0, 2.0, 3.0]),
    "grace": (0, "0", "0", [0.0, 0.0, 0.0]),
    "retention": ("2d", "86400", '"1w"', [172_800.0, 86_400.0, 604_800.0]),
    "processes": (1, "2", "3", [1, 2, 3]),
    "max_tasks": (1, "2", "3", [1, 2, 3]),
    "http": ("127.0.0.1:1", "127.0.0.1:2", "3", ["127.0.0.1:1", "127.0.0.1:2", "3"]),
    "max_memory": ("1GB", "500mb", "2000000", [2**30, 500 * 2**20, 2_000_000]),
    "log_level": ("debug", "ERROR", '"warning"', ["debug", "error", "warning"]),
    "log_format": ("json", "pretty", '"json"', ["json", "pretty", "json"]),
}


def configure(folder: Path, *lines: str) -> Path:
    (folder / "pyproject.toml").write_text("\n".join(["[tool.holdfast]", *lines]), "utf-8")
    return folder


@pytest.mark.parametrize("name", SETTINGS)
def test_one_order_for_every_setting(tmp_path: Path, name: str) -> None:
    """X6."""
    argument, text, line, expected = EXAMPLES[name]
    here = configure(tmp_path, f"{name} = {line}")
    variable = f"HOLDFAST_{name.upper()}"
    environment = {variable: text}
    found = [
        setting(name, argument, environment=environment, start=here),
        setting(name, environment=environment, start=here),
        setting(name, environment={variable: " "}, start=here),
    ]
    assert [each.value for each in found] == expected
    assert [each.source for each in found] == ["argument", variable, f"pyproject.toml [tool.holdfast] {name}"]
    configure(tmp_path)
    if name != "url":
        default = setting(name, environment={}, start=here)
        assert (default.value, default.source) == (SETTINGS[name].default, "default")


@pytest.mark.parametrize(
    ("queues", "concurrency"),
    [("mail,default", 10), ("mail:5,default", 10), ("mail:50,default", 50), ("mail:5,default:50", 55), ("mail:2", 2)],
)
def test_W7_without_a_concurrency_the_limits_of_queues_can_be_reached(queues: str, concurrency: int) -> None:
    assert WorkerSettings.of(queues=queues).concurrency == concurrency
    assert WorkerSettings.of(queues=queues, concurrency=7).concurrency == 7


def test_defaults_are_those_of_a_worker() -> None:
    worker = WorkerSettings.of()
    assert set(WORKER_SETTINGS) <= WorkerOptions.__annotations__.keys()
    for name in set(WORKER_SETTINGS) - {"beat", "concurrency"}:
        assert getattr(worker, name) == SETTINGS[name].default, name
    assert SETTINGS["concurrency"].default_text == (
        f"{worker.concurrency}, or the sum of the limits if that is more or every queue has one"
    )
    assert (SETTINGS["beat"].default, SETTINGS["beat"].default_text) == (None, "a third of the lease, 10s at most")


def test_a_worker_gets_what_was_given_and_what_is_configured(tmp_path: Path) -> None:
    here = configure(tmp_path, "concurrency = 3", 'lease = "1m"')
    found = worker_options(
        {"lease": 5, "queues": None, "name": "x"}, environment={"HOLDFAST_QUEUES": "mail"}, start=here
    )
    assert found == {"concurrency": 3, "lease": 5, "name": "x", "queues": ("mail",)}
    assert WorkerSettings.of(**found).queues == ("mail",)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("concurency = 1", "'concurency' under [tool.holdfast]: did you mean concurrency?"),
        ("log-level = 'debug'", "did you mean log_level?"),
        ("zzz = 1", "'zzz' under [tool.holdfast]. There are url, schema, app, queues"),
        ("[tool.holdfast.worker]\nlease = 1", "'worker' under [tool.holdfast]"),
    ],
)
def test_unknown_keys_are_told(tmp_path: Path, key: str, said: str) -> None:
    """Whatever is asked for: a slip must not be silent."""
    here = configure(tmp_path, key)
    with pytest.raises(ConfigError) as caught:
        setting("schema", environment={}, start=here)
    assert said in str(caught.value)
    assert str(here / "pyproject.toml") in str(caught.value)
    assert "log_format" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("url = 1", "a text such as"),
        ('url = ""', "a text such as"),
        ("schema = true", "the name of a schema"),
        ("app = ['x']", 'a text such as "shop.app:app"'),
        ("queues = []", 'names of queues, "mail:5,default" or'),
        ("queues = 3", 'names of queues, "mail:5,default" or'),
        ('concurrency = "3"', "a whole number of at least 1"),
        ("concurrency = true", "a whole number of at least 1"),
        ("concurrency = 0", "a whole number of at least 1"),
        ('lease = "soon"', 'a duration of at least 1s, such as "30s", or a number of seconds'),
        ("lease = true", "a duration of at least 1s"),
        ("lease = 0.5", "a duration of at least 1s"),
        ("poll = 0", 'a duration of at least 50ms, such as "1s"'),
        ("grace = 2030-01-01", 'a duration such as "30s", or a number of seconds'),
        ('log_level = "loud"', "one of debug, info, warning, error"),
        ("log_format = 1", "one of pretty, json"),
        ("processes = 0", "a whole number of at least 1"),
        ('max_memory = "much"', "a size of at least 1MB"),
        ("max_memory = 500", "a size of at least 1MB"),
        ("max_memory = true", "a size of at least 1MB"),
    ],
)
def test_wrong_types_are_told_with_the_file_and_the_key(tmp_path: Path, line: str, expected: str) -> None:
    here, name = configure(tmp_path, line), line.split()[0]
    with pytest.raises(ConfigError) as caught:
        setting(name, environment={}, start=here)
    assert f"{name} under [tool.holdfast] in {here / 'pyproject.toml'} must be {expected}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("concurrency", "many", "HOLDFAST_CONCURRENCY must be a whole number of at least 1, not 'many'"),
        ("concurrency", "1.5", "HOLDFAST_CONCURRENCY must be a whole number"),
        ("lease", "nan", "HOLDFAST_LEASE must be a duration"),
        ("schema", "Bad", "HOLDFAST_SCHEMA: schema 'Bad' cannot be used"),
        ("queues", "a,,b", "HOLDFAST_QUEUES: '' cannot be the name of a queue"),
    ],
)
def test_wrong_variables_are_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        setting(name, environment={f"HOLDFAST_{name.upper()}": text}, start=tmp_path)
    assert said in str(caught.value)


def test_a_wrong_url_is_never_shown(tmp_path: Path) -> None:
    here = configure(tmp_path, 'url = ["postgresql://u:s3cret@h/d"]')
    with pytest.raises(ConfigError) as caught:
        resolve(None, environment={}, start=here)
    assert "not a list" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", [b"tool = 3", b"[tool]\nholdfast = 3", b"\xff\xfe"])
def test_what_is_no_table_is_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text)
    if text == b"tool = 3":
        assert project_settings(tmp_path) == {}
        return
    with pytest.raises(ConfigError, match=r"must be a table|not valid TOML"):
        setting("schema", environment={}, start=tmp_path)


def test_the_nearest_file_counts_alone(tmp_path: Path) -> None:
    """As other tools do it: a project within a project has its own settings."""
    configure(tmp_path, 'schema = "outer"')
    inner = tmp_path / "inner"
    inner.mkdir()
    assert setting("schema", environment={}, start=inner).value == "outer"
    (inner / "pyproject.toml").touch()
    assert setting("schema", environment={}, start=inner).value == "holdfast"
    assert project_file(inner) == inner / "pyproject.toml"


def test_values_as_people_write_them() -> None:
    assert [shown(each) for each in (None, 30.0, 0.25, ("a", "b"), 10, "x")] == ["", "30s", "0.25s", "a,b", "10", "x"]


def test_an_app_follows_the_schema_that_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At first use, not when it is made, and what the code says goes first (X4)."""
    monkeypatch.delenv("HOLDFAST_SCHEMA", raising=False)
    monkeypatch.chdir(configure(tmp_path))
    plain, early, explicit, configured = App(), App(), App(schema="mine"), App()
    assert plain.schema == "holdfast"
    configure(tmp_path, 'schema = "shop"')
    assert (plain.schema, configured.schema, configured._queries.schema) == ("holdfast", "shop", "shop")
    monkeypatch.setenv("HOLDFAST_SCHEMA", "variable")
    assert (early.schema, explicit.schema) == ("variable", "mine")
    assert early.use(schema="other").schema == "other"
    for wrong in ("Bad", ""):
        with pytest.raises(ConfigError):
            App(schema=wrong)


@pytest.mark.parametrize("password", ["p@ss", "p@s/s", "a:b@c", "%40x", "%20x", "80/x", "a:b"])
def test_passwords_that_should_have_been_quoted_are_removed_as_well(password: str) -> None:
    assert redact(f"postgresql://user:{password}@host:5432/db?a=b") == "postgresql://user:***@host:5432/db?a=b"
    assert redact(f"host=h password = {password} dbname=d") == "host=h password = *** dbname=d"


@pytest.mark.parametrize(
    "password", ["two words", "p@ss word", " x", "x ", "80x y", "a: b/c", "it's 5 o'clock", "100%zz"]
)
def test_a_password_with_blanks_in_a_url_is_removed(password: str) -> None:
    url = f"postgresql://user:{password}@host:5432/db?a=b"
    assert redact(f'spaces in "{url}" of x') == 'spaces in "postgresql://user:***@host:5432/db?a=b" of x'
    with pytest.raises(ConfigError) as caught:
        conninfo(url, "holdfast")
    assert password not in str(caught.value) and "user:" not in str(caught.value)


def test_what_is_no_password_stays() -> None:
    for text in (
        "postgresql://user@host:5432/db",
        "postgresql:///db?host=/tmp/x&port=5432",
        "host=h user=u",
        "POST http://api:8080/x failed for ada@example.com",
        "http://api:8080 failed for ada@example.com",
        '{"url": "redis://cache:6379", "mail": "ada@example.com"}',
        "see https://example.com/a:b or write to ada@example.com",
    ):
        assert redact(text) == text
    both = "postgresql://a:one@h1/db is not postgresql://b:two three@h2/db"
    assert redact(both) == "postgresql://a:***@h1/db is not postgresql://b:***@h2/db"
    assert redact(f"{redact(both)}, says ada@example.com") == f"{redact(both)}, says ada@example.com"
