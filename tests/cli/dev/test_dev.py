"""`holdfast dev`: it begins, reloads, serves, and uses the database that is named."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import embedded
from holdfast._db.driver.connection import connect_sync

from ..conftest import Cli, Process, eventually
from .support import (
    HELLO,
    SLOW,
    Start,
    all_have_ended,
    answer,
    edit,
    interrupt,
    wait_for,
)

# --- from the beginning to the end


def test_from_nothing_to_ctrl_c(start: Start, project: Path, folder: Path) -> None:
    file = project / "hello.py"
    file.write_text(HELLO)

    def enqueued(name: str) -> str:
        asked = start("enqueue", "hello", f"name={name}", "--wait")
        assert asked.ended() == 0, asked.stderr
        return asked.stdout.splitlines()[-1].strip('"')

    process = start("dev", "hello.py")
    process.says("Save a file to reload, Ctrl-C ends.")
    assert re.search(r"database  embedded PostgreSQL \d+ in \.holdfast\n", process.stdout)
    assert "%2F" not in process.stdout
    assert "holdfast enqueue hello name=…" in process.stdout
    assert enqueued("Ada") == "Hello, Ada"
    process.says("hello done in")
    process.says('→ "Hello, Ada"')
    edit(file, "Hello,", "Good morning,")
    process.says("hello.py saved: reloading")
    process.says("Reloaded in")
    assert enqueued("Bob") == "Good morning, Bob"
    edit(file, "return f", "return (f")
    process.says("SyntaxError: '(' was never closed")
    process.says("Waiting for the next save")
    assert "Traceback" not in process.stderr
    edit(file, "return (f", "return f")
    eventually(lambda: process.stdout.count("Reloaded in") == 2, "it was not reloaded after the repair")
    assert enqueued("Eve") == "Good morning, Eve"
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    assert embedded.find(folder) is None
    assert "PostgreSQL is stopped" in process.stdout


def test_a_server_that_ran_before_goes_on_and_one_that_ends_is_started_again(
    start: Start, project: Path, folder: Path
) -> None:
    (project / "hello.py").write_text(HELLO)
    server = embedded.start(folder, durable=False)
    process = start("dev", "hello.py")
    process.says("Ctrl-C ends")
    server.stop()
    process.says("PostgreSQL had ended: it is started again.")
    again = embedded.find(folder)
    assert again is not None
    asked = start("enqueue", "hello", "name=Ada", "--wait")
    assert asked.ended() == 0, asked.stderr
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert embedded.find(folder) is None  # that one was started by dev

    server = embedded.start(folder, durable=False)
    process = start("dev", "hello.py")
    process.says("Ctrl-C ends")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
    assert "PostgreSQL is stopped" not in process.stdout
    found = embedded.find(folder)
    assert found is not None
    assert found.pid == server.pid


def test_a_folder_without_pyproject_has_a_server_of_its_own(start: Start, project: Path) -> None:
    """As by the first commands of the README: another folder's tasks are never acted on from here."""
    (project / "pyproject.toml").unlink()
    (project / "hello.py").write_text(HELLO)
    folder = project / ".holdfast"
    try:
        process = start("dev", "hello.py")
        process.says("Ctrl-C ends")
        assert re.search(r"embedded PostgreSQL \d+ in \.holdfast\n", process.stdout)
        assert embedded.find(folder) is not None
        process.signal(signal.SIGTERM)
        assert process.ended() == 0
        assert embedded.find(folder) is None
    finally:
        embedded.reset(folder)


def test_interrupted_while_the_server_starts_it_leaves_none(start: Start, project: Path, folder: Path) -> None:
    (project / "hello.py").write_text(HELLO)
    process = start("dev", "hello.py")
    process.says("Starting PostgreSQL")
    interrupt(process)
    assert process.ended() == 0
    all_have_ended(process)
    assert embedded.find(folder) is None
    assert "Traceback" not in process.stderr


# --- reloading


def test_a_step_in_flight_may_end_at_a_reload(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "60s")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says("Waiting for 1 step that runs, 60 s at most")
    Path("go").touch()
    process.says("Reloaded in")
    assert wait_for(cli, id) == "VERSION 1"  # by the code that had begun it
    told = cli.show(id)
    assert [each["outcome"] for each in told["attempts"]] == ["done"]
    assert (told["task"]["errors"], told["task"]["crashes"]) == (0, 0)
    assert answer(cli, "slow", "mark=again") == "VERSION 2"


def test_a_step_that_does_not_end_is_given_back_uncharged(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "100ms")
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says("Reloaded in")
    eventually(Path("began.2").exists, "the step did not begin again")
    Path("go").touch()
    assert wait_for(cli, id) == "VERSION 2"
    told = cli.show(id)
    assert [each["outcome"] for each in told["attempts"]] == ["released", "done"]
    assert (told["task"]["errors"], told["task"]["crashes"]) == (0, 0)


def test_a_save_within_the_same_second_and_of_the_same_size_is_new_code(
    cli: Cli, dev: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python alone would take what it compiled before for up to date."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    file = Path("shop.py")
    file.write_text(HELLO)
    second = int(time.time()) - 100
    process = dev(HELLO)
    os.utime(file, ns=(second * 10**9, second * 10**9))
    process.says("Reloaded in")
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    other = file.with_name("other")
    other.write_text(HELLO.replace("Hello,", "Howdy,"))
    os.utime(other, ns=(second * 10**9 + 1, second * 10**9 + 1))
    other.replace(file)
    eventually(lambda: process.stdout.count("Reloaded in") == 2, "it was not reloaded")
    assert answer(cli, "hello", "name=Ada") == "Howdy, Ada"


def test_what_is_saved_while_a_worker_ends_is_loaded_with_the_rest(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "--grace", "60s", "--json")
    cli.enqueue("slow", "mark=began")
    eventually(Path("began.1").exists, "the step did not begin")
    edit(Path("shop.py"), "VERSION 1", "VERSION 2")
    process.says('"waiting"')
    edit(Path("shop.py"), "VERSION 2", "VERSION 3")
    Path("go").touch()
    eventually(lambda: process.stdout.count('"started"') >= 2, "it was not reloaded")
    assert answer(cli, "slow", "mark=again") == "VERSION 3"


def test_new_tasks_and_new_warnings_are_told_at_a_reload(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(HELLO)
    with Path("shop.py").open("a") as file:
        file.write(
            "\n@app.task(queue='mail')\nasync def mail(to: str, copies: int = 2) -> None: ...\n"
            "\nkind = app.kind('odd')\n\nfrom dataclasses import dataclass\n\n"
            "@kind.step\n@dataclass\nclass Odd:\n    n: int\n    def run(self) -> 'Nowhere': ...\n"
        )
    process.says("new: holdfast enqueue mail to=… copies:=2")
    process.says("new: holdfast enqueue odd.Odd n:=…")
    process.says("warning: odd.Odd: its return annotation names Nowhere")
    process.says("Reloaded in")
    assert answer(cli, "mail", "to=Ada") is None  # its queue is served as well


def test_without_reload_nothing_is_watched(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(HELLO, "--no-reload")
    assert "Save a file" not in process.stdout
    edit(Path("shop.py"), "Hello,", "Howdy,")
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    process.signal(signal.SIGTERM)
    assert process.ended() == 0


# --- queues and databases


def test_all_declared_queues_are_served_and_what_steps_print_is_seen(
    cli: Cli, dev: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "4")
    process = dev(SLOW)
    with connect_sync(cli.url) as connection:
        rows = connection.execute(b"select slots, queues from holdfast.worker").fetchall()
    assert rows == [(4, ["default", "mail"])]
    assert "queues    default, mail" in process.stdout
    assert answer(cli, "mail", "to=Ada") == "sent to Ada"
    process.says("mail for Ada")


def test_chosen_queues_are_served_alone(cli: Cli, dev: Callable[..., Process]) -> None:
    process = dev(SLOW, "-q", "other,default", "-c", "3", "--json")
    events = [json.loads(each) for each in process.stdout.splitlines()]
    [loaded] = [each for each in events if each["event"] == "loaded"]
    assert loaded["queues"] == ["other", "default"]
    assert "mail goes to the queue mail, which this worker does not serve: add -q mail" in process.stdout
    with connect_sync(cli.url) as connection:
        rows = connection.execute(b"select slots, queues from holdfast.worker").fetchall()
    assert rows == [(3, ["other", "default"])]


@pytest.mark.parametrize("how", ["HOLDFAST_URL", "pyproject.toml", "DATABASE_URL", "--url", "the App"])
def test_a_database_that_is_named_is_used_and_no_server_started(
    cli: Cli, start: Start, project: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    code, options = HELLO, []
    if how == "pyproject.toml":
        (project / how).write_text(f"[tool.holdfast]\nurl = '{cli.url}'\n")
    elif how == "--url":
        options = ["--url", cli.url]
    elif how == "the App":
        code = code.replace("App()", f"App('{cli.url}')")
    else:
        monkeypatch.setenv(how, cli.url)
    (project / "hello.py").write_text(code)
    process = start("dev", "hello.py", *options)
    process.says("Ctrl-C ends")
    assert "database  PostgreSQL at holdfast_test_" in process.stdout
    assert "%2F" not in process.stdout.partition("enqueue")[0]
    # A command that would not find the database by itself is told it.
    assert ("name=… --url" in process.stdout) == (how in ("--url", "the App"))
    assert not (project / ".holdfast").exists()
    assert answer(cli, "hello", "name=Ada") == "Hello, Ada"
    process.signal(signal.SIGTERM)
    assert process.ended() == 0


@pytest.mark.parametrize("how", ["--yes", "migrate"])
def test_X1_tables_are_not_made_in_a_database_that_has_none_unless_somebody_says_so(
    cli: Cli, start: Start, project: Path, how: str
) -> None:
    """DATABASE_URL may be that of another application."""
    (project / "hello.py").write_text(HELLO)
    command = ["dev", "hello.py", "--schema", "fresh"]
    process = start(*command, url=cli.url)
    assert process.ended() == 1
    assert "there are no tables in schema 'fresh' of holdfast_test_" in process.stderr
    assert "make them: holdfast dev --yes, or holdfast migrate --schema fresh" in process.stderr
    with connect_sync(cli.url) as connection:
        assert connection.execute(b"select to_regnamespace('fresh')").fetchall() == [(None,)]
    if how == "migrate":
        cli("migrate", "--schema", "fresh")
    process = start(*command, *(["--yes"] if how == "--yes" else []), url=cli.url)
    process.says("Ctrl-C ends")
    process.signal(signal.SIGTERM)
    assert process.ended() == 0
