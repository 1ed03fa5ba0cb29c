"""Enqueueing: from Python and by name. More: tests/unit/test_tasks.py, tests/cli/test_enqueue_command.py."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import ConfigError, EncodeError, EnqueueRefused, KeyTaken, ResultTimeout, TaskNotFound, Tasks
from holdfast.testing import Harness

from .conftest import FAILED, NOT_FOUND, USAGE, Project

tasks = Tasks()
greeter = tasks.kind("greeter", result=str)
other = tasks.kind("other")


@tasks.task
async def hello(name: str, times: int = 1) -> str:
    return f"Hello, {name}"


@tasks.task
def greet(name: str) -> str:
    return f"Hello, {name}"


@greeter.step
@dataclass
class ReadName:
    filename: str

    def run(self) -> None: ...


@other.step
@dataclass
class Elsewhere:
    def run(self) -> None: ...


@pytest.fixture
def holdfast_tasks() -> Tasks:
    return tasks


# Python ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "cure"),
    [
        (lambda: hello("Ada"), "hello(...) was called, not enqueued: enqueue hello.bind(...)"),
        (lambda: greet("Ada"), "a string cannot be enqueued: if a function was called to get it, write function.bind"),
        (lambda: None, "None is not a step of any kind: if a function was called to get it, write function.bind(...)"),
        (lambda: hello, "hello is a function without its arguments: enqueue hello.bind(...)"),
        (lambda: ReadName, "ReadName is a class: enqueue a value of it, ReadName(...)"),
        (lambda: "greeter.ReadName", "for a task by its name write named('greeter.ReadName', {...})"),
    ],
)
async def test_17_what_is_no_task(holdfast: Harness, what: Callable[[], Any], cure: str) -> None:
    for enqueue in (holdfast.app.enqueue, asyncio_of(holdfast.app.sync.enqueue)):
        with pytest.raises(EnqueueRefused) as caught:
            await enqueue(what())
        assert cure in str(caught.value)
    assert holdfast.sql("SELECT count(*) FROM holdfast.task") == [(0,)]


async def test_17_arguments_beside_the_function(holdfast: Harness) -> None:
    """As other libraries have it."""
    app: Any = holdfast.app
    for enqueue in (app.enqueue, asyncio_of(app.sync.enqueue)):
        with pytest.raises(EnqueueRefused, match=r"bind arguments to it, enqueue\(hello\.bind\(…\)\)"):
            await enqueue(hello, "Ada")
        with pytest.raises(EnqueueRefused, match=r"enqueue hello\.bind\(\.\.\.\)"):
            await enqueue(hello, name="Ada")


async def test_17_one_where_many_belong(holdfast: Harness) -> None:
    app: Any = holdfast.app
    for what in (hello.bind("Ada"), ReadName("x"), "hello", 3):
        for enqueue_many in (app.enqueue_many, asyncio_of(app.sync.enqueue_many)):
            with pytest.raises(EnqueueRefused, match=r"takes a list .*: put it into a list, or use enqueue\(…\)"):
                await enqueue_many(what)


async def test_17_a_step_or_function_of_another_kind(holdfast: Harness) -> None:
    with pytest.raises(EnqueueRefused, match=r"Elsewhere is a step of other, not of greeter: use app\.enqueue"):
        await greeter.enqueue(Elsewhere())
    with pytest.raises(EnqueueRefused, match=r"hello is not a step of greeter: use app\.enqueue"):
        await greeter.enqueue(hello.bind("Ada"))  # type: ignore[arg-type]


def test_17_options_and_names_that_the_function_does_not_have() -> None:
    bind: Any = hello.bind
    with pytest.raises(TypeError, match=r"hello: it has no parameter 'nam'; its parameters are name, times"):
        bind(nam="Ada")
    for option in ("delay", "key", "conn"):
        meant = rf"no parameter '{option}'; .* write app\.enqueue\(hello\.bind\(\.\.\.\), {option}=\.\.\.\)"
        with pytest.raises(TypeError, match=meant):
            bind("Ada", **{option: "5m"})


def test_17_an_argument_that_cannot_be_stored_is_named() -> None:
    with pytest.raises(EncodeError, match=r"^hello: args\['name'\]: a value of type PosixPath .* store str\(path\)$"):
        hello.bind(Path("name.txt"))  # type: ignore[arg-type]


async def test_17_a_misspelt_option(holdfast: Harness) -> None:
    with pytest.raises(EnqueueRefused, match=r"no enqueue option 'prio': did you mean priority\? There are at, "):
        await holdfast.app.enqueue(hello.bind("Ada"), prio=5)  # type: ignore[call-overload]


def test_18_a_forgotten_await_is_told_by_python(project: Project) -> None:
    said = project.python("from hello import app, hello\nhello.enqueue('Ada')\napp.enqueue(hello.bind('Ada'))\n")
    said.telling("coroutine 'Function.enqueue' was never awaited", "coroutine 'App.enqueue' was never awaited")
    assert project.sql("SELECT count(*) FROM holdfast.task") == [(0,)]


async def test_19_app_sync_on_an_event_loop(holdfast: Harness) -> None:
    """It would block the loop for as long as the database takes; a wait with a worker in the same loop is for ever."""
    sync = holdfast.app.sync
    ref = await asyncio.to_thread(sync.enqueue, hello.bind("Ada"))
    refused: list[Callable[[], object]] = [
        lambda: sync.enqueue(hello.bind("Ada")),
        lambda: sync.enqueue_many([hello.bind("Ada")]),
        lambda: sync.retry(ref.id),
        lambda: sync.schedules.pause("nightly"),
        ref.info,
        ref.result,
        sync.failures,
    ]
    for call in refused:
        with pytest.raises(ConfigError, match=r"block the event loop.*await app\.enqueue.*asyncio\.to_thread"):
            call()
    with psycopg.connect(holdfast.url) as conn:
        sync.enqueue(hello.bind("Ada"), conn=conn)  # who brings a blocking connection has decided
        conn.rollback()
    await asyncio.gather(asyncio.to_thread(ref.result, "60s"), holdfast.drain())


async def test_24_a_result_that_nobody_works_on(holdfast: Harness) -> None:
    refs = (
        await holdfast.app.enqueue(hello.bind("Ada")),
        await asyncio.to_thread(holdfast.app.sync.enqueue, hello.bind("Ada")),
    )
    for wait in (refs[0].result, asyncio_of(refs[1].result, off_loop=True)):
        with pytest.raises(ResultTimeout) as caught:
            await wait("1s")
        assert "hello.main is unroutable, no live worker knows this step and serves the queue default" in str(
            caught.value
        )
        assert "holdfast show" in str(caught.value)


async def test_28_a_result_of_a_task_that_is_not_there(holdfast: Harness) -> None:
    ref = holdfast.app.ref("01890a5d-ac96-774b-bcce-b302099a8057")
    with pytest.raises(ResultTimeout, match=r"no such task so far.*in a transaction, is that committed\?"):
        await ref.result("1s")
    with pytest.raises(TaskNotFound, match=r"there is no task 01890a5d.*the right database, and the right schema\?"):
        await ref.info()
    for id in ("123", 5):
        with pytest.raises(TaskNotFound, match="is not the id of a task: it should look like 01890a5d-"):
            holdfast.app.ref(id)  # type: ignore[arg-type]


async def test_31_the_same_key_twice(holdfast: Harness) -> None:
    held = await holdfast.app.enqueue(hello.bind("Ada"), key="k")
    for enqueue in (holdfast.app.enqueue, asyncio_of(holdfast.app.sync.enqueue, off_loop=True)):
        with pytest.raises(KeyTaken) as caught:
            await enqueue(hello.bind("Bob"), key="k", on_conflict="raise")
        assert f"task {held.id} (hello, ready) already holds the key 'k' in queue 'default'" in str(caught.value)
        assert 'on_conflict="skip"' in str(caught.value) and '"replace"' in str(caught.value)


async def test_32_a_time_without_a_zone_is_local(holdfast: Harness) -> None:
    """Not refused: people mean the clock on their wall. What is no time at all is."""
    at = (datetime.now() + timedelta(days=1)).replace(microsecond=0)
    ref = await holdfast.app.enqueue(hello.bind("Ada"), at=at)
    assert (await ref.info()).run_at == at.astimezone()
    with pytest.raises(EnqueueRefused, match="at= must be a datetime, not str; for a length of time give delay="):
        await holdfast.app.enqueue(hello.bind("Ada"), at="2030-01-31")  # type: ignore[call-overload]
    with pytest.raises(EnqueueRefused, match="give delay= or at=, not both"):
        await holdfast.app.enqueue(hello.bind("Ada"), at=at, delay="5m")


# By name --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (['{"name": Ada}'], """'{"name": Ada}' is not JSON: Expecting value"""),
        (['{"name": Ada}'], """Write for example '{"filename": "name.txt"}', with the quotes."""),
        (["{'name': 'Ada'}"], "is not JSON: Expecting property name enclosed in double quotes"),
        (['["Ada"]'], """'["Ada"]' must be a JSON object. Write for example '{"""),
        (["Ada"], "'Ada' is not understood: write NAME=TEXT, NAME:=JSON, or all args as one JSON object."),
        (["name:=Ada"], "name:= is not JSON: Expecting value: line 1 column 1 (char 0). Write name=Ada for text."),
        (["--args", '{"name": "Ada"}'], "are given without --args: holdfast enqueue KIND '{…}'"),
        (["name=Ada", "--dely", "5m"], "no such option '--dely'."),
        (["name=Ada", "--at", "tomorrow"], "'tomorrow' is not a time: write for example 2030-01-31T09:00+01:00."),
    ],
)
def test_23_args_that_are_not_understood(nowhere: Project, given: list[str], said: str) -> None:
    nowhere.cli("enqueue", "hello", *given).once(said, "Try 'holdfast enqueue --help'.", code=USAGE)


def test_23_bad_args_for_a_retry(project: Project) -> None:
    for text in ("{name: Ada}", "name=Ada"):
        said = project.cli("retry", "01890a5d-ac96-774b-bcce-b302099a8057", "--args", text)
        said.once("--args is not JSON: Expecting", """Write for example '{"filename": "name.txt"}'""", code=USAGE)


def test_23_a_step_without_its_kind(nowhere: Project) -> None:
    said = nowhere.cli("enqueue", "ReadName", "filename=name.txt")
    said.once("'ReadName' cannot be the name of a kind; a step is named with its kind: KIND.ReadName", code=USAGE)


@pytest.fixture
def declared(project: Project) -> Project:
    """A project whose worker has been there, and has gone."""
    project.sql(
        """INSERT INTO holdfast.kind (name, queue, priority, first, graph) VALUES
           ('hello', 'default', 0, 'main', '{"main": []}'),
           ('greeter', 'default', 0, NULL, '{"ReadName": ["SayHello"], "SayHello": []}')"""
    )
    return project


@pytest.mark.parametrize(("name", "meant"), [("helo", "hello"), ("greeter.ReadNam", "greeter.ReadName")])
def test_24_a_slip_in_the_name_is_refused(declared: Project, name: str, meant: str) -> None:
    said = declared.cli("enqueue", name)
    said.once("no worker has declared", f"did you mean {meant}?", "Nothing was enqueued", "--force", code=NOT_FOUND)
    assert declared.cli("enqueue", name, "--force").code == 0


def test_24_a_kind_of_several_steps_is_one_error(declared: Project) -> None:
    said = declared.cli("enqueue", "greeter", "filename=name.txt")
    said.once("greeter has the steps ReadName, SayHello: name the one to begin with", "greeter.ReadName", code=FAILED)
    assert len(said.err.splitlines()) == 1


def test_24_nobody_works_and_that_is_not_said_three_times(declared: Project) -> None:
    said = declared.cli("enqueue", "hello", "name=Ada", "--wait", "--timeout", "3s")
    warned, id, error = said.err.splitlines()
    assert warned.startswith("no live worker serves the queue default") and "holdfast worker APP" in warned
    assert error.startswith(f"error: task {id} was not finished within 3 s: it is unserved.")
    assert said.code == FAILED
    told = declared.cli("enqueue", "hello", "name=Ada", "--wait", "--timeout", "100ms", "--json")
    assert json.loads(told.err)["error"] == "ResultTimeout"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("nam=Ada", "hello: Object missing required field `name` (the args are: nam)."),
        ("name:=5", "hello.name: Expected `str`, got `int` (the args are: name)."),
    ],
)
def test_25_args_that_do_not_fit_are_told_with_the_cure(project: Project, given: str, said: str) -> None:
    id = project.cli("enqueue", "hello", given).out.strip()
    cure = f"holdfast retry {id} --args '{{…}}'"
    project.worker().telling("hello is parked after attempt 1: holdfast.errors.DecodeError:", said, cure)
    shown = project.cli("show", id).telling("Error", said, cure)
    assert "Traceback" not in shown.out  # of our own lines there is nothing to learn
    assert project.cli("retry", id, "--args", '{"name": "Ada"}').code == 0
    project.worker()
    assert project.sql("SELECT state FROM holdfast.tasks") == [("done",)]


def asyncio_of(blocking: Callable[..., Any], *, off_loop: bool = False) -> Callable[..., Any]:
    async def call(*args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(blocking, *args, **options) if off_loop else blocking(*args, **options)

    return call
