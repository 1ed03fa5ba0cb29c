"""What `worker` and `dev` tell at their start: the database and the steps in few words, and commands to paste."""

import shlex
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from holdfast import App, Context, Done, Later
from holdfast._db.config.describe import described
from holdfast._db.config.resolve import Database
from holdfast.cli.output.introduction import (
    database_in_short,
    declared_queues,
    enqueue_commands,
    folder_in_short,
    start_warnings,
    steps_in_short,
)

from .conftest import Cli


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str


@pytest.fixture
def app() -> App:
    return App()


def test_what_has_to_be_given_is_left_open_and_plain_defaults_are_shown(app: App) -> None:
    @app.task
    async def send(
        ctx: Context,
        to: str,
        copies: int,
        at: datetime | None,
        kind: Literal["a", "b"],
        colour: Colour,
        note: Annotated[str, "free"],
        where: Address,
        ref: UUID,
        subject: str = "it's here",
        loud: bool = False,
        ratio: float = 0.5,
        tags: list[str] | None = None,
        limit: float = float("inf"),
    ) -> None: ...

    assert enqueue_commands(app) == [
        "holdfast enqueue send to=… copies:=… at=… kind=… colour=… note=… where:=… ref=… "
        f"subject={shlex.quote(chr(39).join(['it', 's here']))} loud:=false ratio:=0.5"
    ]


def test_a_command_can_be_pasted(app: App, cli: Cli) -> None:
    @app.task
    async def send(subject: str = 'it\'s "here" $HOME', n: int = 3, loud: bool = True) -> None: ...

    [command] = enqueue_commands(app)
    id = cli.enqueue(*shlex.split(command)[2:])
    assert cli.show(id)["task"]["args"] == {"subject": 'it\'s "here" $HOME', "n": 3, "loud": True}


def test_steps_where_tasks_begin_are_offered_whatever_they_are_made_of(app: App) -> None:
    kind = app.kind("greeter")
    struct = app.kind("struct")

    @kind.step
    @dataclass
    class ReadName:
        filename: str
        tags: list[str] = field(default_factory=list)

        async def run(self) -> "SayHello | Later[ReadName]":
            return SayHello(self.filename)

    @kind.step
    @dataclass
    class SayHello:
        name: str

        async def run(self) -> Done[str]:
            return Done(self.name)

    @struct.step
    class Begin(msgspec.Struct, rename="camel"):
        first_name: str
        how_often: int = 2

        async def run(self) -> None: ...

    assert enqueue_commands(app) == [
        "holdfast enqueue greeter.ReadName filename=…",
        "holdfast enqueue struct.Begin firstName=… howOften:=2",
    ]
    assert steps_in_short(app) == "3 steps: greeter (ReadName, SayHello), struct (Begin)"


def test_the_number_of_steps_reads_well(app: App) -> None:
    def declare(name: str) -> None:
        @app.task(name=name)
        async def task() -> None: ...

    declare("t0")
    assert steps_in_short(app) == "1 step: t0"
    for n in range(1, 25):
        declare(f"t{n}")
    assert steps_in_short(app).startswith("25 steps: t0, t1, ")
    assert steps_in_short(app).endswith(", t19 and 5 more")


def test_what_is_odd_about_an_app_is_told(app: App) -> None:
    assert start_warnings(app, ["default"]) == [
        "this App declares no tasks: did you name its modules, App(modules=[…])?"
    ]
    kind = app.kind("odd", queue="mail")

    @kind.step
    @dataclass
    class Odd:
        async def run(self) -> "Nowhere": ...  # type: ignore[name-defined] # noqa: F821

    @app.task
    async def plain() -> None: ...

    assert declared_queues(app) == ["default", "mail"]
    assert start_warnings(app, ["default"]) == [
        "odd goes to the queue mail, which this worker does not serve: add -q mail",
        "odd.Odd: its return annotation names Nowhere, which is no step of odd",
    ]
    assert len(start_warnings(app, ["default", "mail"])) == 1


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://ada:secret@db.example.com:6432/shop", "ada@db.example.com:6432/shop"),
        ("postgresql://localhost/shop", "localhost/shop"),
        ("postgresql://ada@a:1,b:2/shop", "ada@a:1,b:2/shop"),
        ("postgresql://a,b/shop?port=7", "a:7,b:7/shop"),
        ("host=db port=5432 dbname=shop password=secret", "db/shop"),
        ("postgresql://ada@/?host=%2Ftmp%2Fx", "ada on the socket /tmp/x"),
        ("postgresql:///shop", "shop on the local socket"),
        ("postgresql://ada:secret@host/%zz", "postgresql://ada:***@host/%zz"),
    ],
)
def test_a_database_in_few_words(url: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGUSER", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    assert described(url) == expected


def test_where_it_came_from_is_said_without_escapes() -> None:
    shown = database_in_short(Database("postgresql://localhost/\x1b[31mshop", "HOLDFAST_URL"), "holdfast")
    assert "\x1b" not in shown
    assert shown.endswith("(HOLDFAST_URL)")


def test_folders_are_named_as_seen_from_here_or_from_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_in_short(tmp_path / "here" / ".holdfast") == ".holdfast"
    assert folder_in_short(tmp_path / "elsewhere") == "~/elsewhere"
    assert folder_in_short(Path("/var/lib")) == "/var/lib"


def test_types_that_only_type_checkers_know_do_no_harm(app: App) -> None:
    def later(order: "Any", n: int) -> None: ...

    app.task(later)
    assert enqueue_commands(app) == ["holdfast enqueue later order:=… n:=…"]
