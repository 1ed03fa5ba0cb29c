"""`holdfast enqueue`: made for scripts, and it says at once what is likely to be a slip."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli, Process
from .terminal import Terminal

APP = """
from dataclasses import dataclass
from typing import Any
from holdfast import App, Done

app = App()

@app.task
async def echo(value: Any) -> Any:
    return value

@app.task
async def nothing() -> None: ...

greeter = app.kind("greeter", result=str)

@greeter.step
@dataclass
class ReadName:
    name: str
    def run(self) -> "SayHello":
        return SayHello(self.name)

@greeter.step
@dataclass
class SayHello:
    name: str
    def run(self) -> Done[str]:
        if not self.name:
            raise ValueError("no name")
        return Done(f"Hello, {self.name}")
"""


@pytest.fixture
def worker(cli: Cli, start: Callable[..., Process], project: Path) -> Iterator[Process]:
    (project / "shop.py").write_text(APP)
    process = start("worker", "shop.py", url=cli.url)
    process.says("serves default")
    yield process


def declare(cli: Cli) -> None:
    """As a worker does at its start."""
    with connect_sync(cli.url) as connection:
        connection.execute(
            b"""insert into holdfast.kind (name, queue, priority, first, graph) values
            ('send_receipt', 'default', 0, 'main', '{"main": []}'),
            ('greeter', 'default', 0, null, '{"ReadName": ["SayHello"], "SayHello": []}')"""
        )


@pytest.mark.usefixtures("worker")
def test_only_the_result_goes_to_stdout(cli: Cli) -> None:
    waited = cli("enqueue", "greeter.ReadName", "name=Ada", "--wait")
    assert waited.stdout == "Hello, Ada\n"
    id = waited.stderr.strip()
    assert cli.show(id)["task"]["result"] == "Hello, Ada"
    for given, printed in (
        ('{"value": {"a": [1, "ü"]}}', '{"a": [1, "ü"]}\n'),
        ("value:=42", "42\n"),
        ("value:=false", "false\n"),
        ("value=two\nlines\x1b[2J", "two\nlines\x1b[2J\n"),
        ("value:=null", ""),
    ):
        assert cli("enqueue", "echo", given, "--wait").stdout == printed
    assert cli("enqueue", "nothing", "--wait").stdout == ""
    told = cli("enqueue", "greeter.ReadName", "name=", "--wait", code=1)
    assert told.stdout == ""
    assert "is parked: ValueError: no name" in told.stderr


@pytest.mark.usefixtures("worker")
def test_json_tells_all(cli: Cli) -> None:
    done = cli("enqueue", "greeter.ReadName", "name=Ada", "--wait", "--json")
    told = json.loads(done.stdout)
    assert told == {
        "id": told["id"],
        "created": True,
        "enqueued": "created",
        "state": "done",
        "result": "Hello, Ada",
        "error": None,
    }
    assert done.stderr == ""
    parked = cli("enqueue", "greeter.ReadName", "name=", "--wait", "--json", code=1)
    told = json.loads(parked.stdout)
    assert (told["state"], told["result"], told["error"]["message"]) == ("parked", None, "no name")
    assert json.loads(parked.stderr)["error"] == "TaskParked"


@pytest.mark.usefixtures("worker")
def test_on_a_terminal_the_result_is_harmless(cli: Cli) -> None:
    with Terminal(cli.url, "enqueue", "echo", "value=a\x1b]0;title\x07b", "--wait") as terminal:
        assert terminal.ended() == 0
        assert "ab\n" in terminal.shown
        assert "title" not in terminal.raw


def test_a_large_result_is_not_cut(cli: Cli, worker: Process) -> None:
    text = "x" * 100_000
    assert cli("enqueue", "echo", f"value={text}", "--wait").stdout == text + "\n"


def test_why_it_waits_is_told_once(cli: Cli) -> None:
    cli("enqueue", "send", "--delay", "1h", "--key", "k")
    told = cli("enqueue", "send", "--key", "k", "--wait", "--timeout", "3s", code=1)
    lines = told.stderr.splitlines()
    assert lines[0] == "not enqueued: this is the task that holds the key 'k', which is unfinished"
    assert len([line for line in lines if "not before" in line.lower() or "scheduled" in line.lower()]) >= 1
    assert "was not finished within 3 s: it is scheduled" in lines[-1]
    quiet = cli("enqueue", "send", "--key", "k", "--wait", "--timeout", "100ms", "--json", code=1)
    assert json.loads(quiet.stderr)["error"] == "ResultTimeout"


def test_key_conflicts(cli: Cli) -> None:
    """Q2."""
    id = cli.enqueue("send", "n:=1", "--key", "k", "--delay", "1h")
    assert cli("enqueue", "send", "n:=2", "--key", "k", "--on-conflict", "skip").stdout.strip() == id
    taken = cli("enqueue", "send", "n:=2", "--key", "k", "--on-conflict", "raise", code=1)
    assert f"task {id} (send, ready) already holds the key 'k'" in taken.stderr
    assert cli.show(id)["task"]["args"] == {"n": 1}
    replaced = cli("enqueue", "send", "n:=2", "--key", "k", "--on-conflict", "replace")
    assert replaced.stdout.strip() == id
    assert "replaced: the task that holds the key 'k' has these args now" in replaced.stderr
    assert cli.show(id)["task"]["args"] == {"n": 2}
    with connect_sync(cli.url) as connection:
        connection.execute(b"update holdfast.task set attempt = 1, state = 'parked', error = '{}'")
    begun = cli("enqueue", "send", "n:=3", "--key", "k", "--on-conflict", "replace")
    assert "not replaced: this is the task that holds the key 'k', and it is parked" in begun.stderr
    assert cli.show(id)["task"]["args"] == {"n": 2}
    told = cli.json("enqueue", "send", "n:=3", "--key", "k")
    assert (told["id"], told["created"], told["enqueued"], len(told["warnings"])) == (id, False, "existing", 1)
    assert "needs a --key" in cli("enqueue", "send", "--on-conflict", "skip", code=2).stderr
    assert "'later'" in cli("enqueue", "send", "--key", "k", "--on-conflict", "later", code=2).stderr


def test_Q4_unique_for_a_while(cli: Cli) -> None:
    id = cli.enqueue("send", "n:=1", "--unique", "--unique-for", "1h")
    again = cli("enqueue", "send", "n:=1.0", "--unique")
    assert again.stdout.strip() == id
    assert "not enqueued: this is the same unique task, which is unfinished" in again.stderr
    cli("cancel", id)
    over = cli("enqueue", "send", "n:=1", "--unique", "--on-conflict", "replace")
    assert over.stdout.strip() == id and "it has ended, but its key is still held" in over.stderr
    assert cli.json("enqueue", "send", "n:=1", "--unique")["enqueued"] == "ended"
    taken = cli("enqueue", "send", "n:=1", "--unique", "--on-conflict", "raise", code=1)
    assert f"task {id} (send) has ended, and unique_for= still holds this unique task" in taken.stderr
    assert "not both" in cli("enqueue", "send", "--unique", "--key", "k", code=2).stderr
    assert "--unique-for needs a --key" in cli("enqueue", "send", "--unique-for", "1h", code=2).stderr


def test_Q5_deadline(cli: Cli) -> None:
    id = cli.enqueue("send", "--deadline", "1h")
    assert "it will expire at" in cli("show", id).stdout
    at = cli.enqueue("send", "--deadline", "2101-01-31T09:00+01:00")
    assert cli.show(at)["task"]["deadline"].startswith("2101-01-31T0")
    assert "deadline: 'soon' is not a duration" in cli("enqueue", "send", "--deadline", "soon", code=1).stderr
    assert "--deadline '2030-13-01' is not a time" in cli("enqueue", "send", "--deadline", "2030-13-01", code=2).stderr
    early = cli("enqueue", "send", "--deadline", "1h", "--delay", "2h", code=1).stderr
    assert "over before the task is due" in early


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "send_receit",
            "no worker has declared the kind 'send_receit': did you mean send_receipt? "
            "The kinds are: greeter, send_receipt. Nothing was enqueued.",
        ),
        ("zzz", "no worker has declared the kind 'zzz'. The kinds are: greeter, send_receipt."),
        (
            "greeter.ReadNam",
            "no worker has declared a step 'ReadNam' of greeter: did you mean greeter.ReadName? "
            "Its steps are: ReadName, SayHello.",
        ),
        ("greeter.SAYHELLO", "did you mean greeter.SayHello?"),
        ("send_receipt.Other", "no worker has declared a step 'Other' of send_receipt. Its steps are: main."),
    ],
)
def test_a_slip_in_the_name_is_refused_unless_forced(cli: Cli, name: str, said: str) -> None:
    declare(cli)
    refused = cli("enqueue", name, code=3)
    assert said in refused.stderr and "add --force" in refused.stderr
    assert refused.stdout == ""
    assert json.loads(cli("enqueue", name, "--json", code=3).stderr)["error"] == "NotKnown"
    assert cli.json("tasks")["tasks"] == []
    forced = cli("enqueue", name, "--force")
    assert "the task waits until one does (holdfast worker APP)" in forced.stderr
    assert cli.show(forced.stdout.strip())["task"]["state"] == "ready"


def test_old_names_are_known(cli: Cli) -> None:
    declare(cli)
    with connect_sync(cli.url) as connection:
        connection.execute(b"update holdfast.kind set was = '{receipt}' where name = 'send_receipt'")
        connection.execute(
            b"insert into holdfast.worker (id, name, host, pid, version, queues, steps, slots, seen_at) values"
            b" (gen_random_uuid(), 'w', 'h', 1, '0', '{default}', '{greeter.Read}', 1, now())"
        )
    for name in ("receipt", "receipt.main", "greeter.Read"):
        cli("enqueue", name)


def test_where_no_worker_has_ever_run_every_name_is_taken(cli: Cli) -> None:
    """There is nothing to compare it with; that is said."""
    told = cli("enqueue", "anything")
    assert "no worker has run on this database yet, so the name anything.main could not be checked" in told.stderr
    assert cli.show(told.stdout.strip())["task"]["state"] == "ready"


def test_every_failure_has_an_exit_code(cli: Cli) -> None:
    cli("enqueue", "send", "--key", "k", "--delay", "1h")
    cli("enqueue", "send", "--key", "k", "--on-conflict", "raise", code=1)
    cli("enqueue", "send", "--wait", "--timeout", "100ms", code=1)
    cli("enqueue", "send", "--schema", "nothing_here", code=1)
    cli("enqueue", "send", "n", code=2)
    cli("enqueue", "no kind", code=2)
    cli("enqueue", "send", "--url", "postgresql://127.0.0.1:1/nowhere", code=4)


def test_a_good_name_is_not_commented(cli: Cli) -> None:
    declare(cli)
    for name in ("send_receipt", "send_receipt.main", "greeter.ReadName"):
        assert "declared" not in cli("enqueue", name).stderr
    several = cli("enqueue", "greeter", code=1)
    assert "greeter has the steps ReadName, SayHello" in several.stderr


def test_no_code_is_imported(cli: Cli, project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.holdfast]\napp = 'broken.py'\n")
    (project / "broken.py").write_text("raise SystemExit('imported')\n")
    cli("enqueue", "send")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name:=Ada", "name:= is not JSON: Expecting value: line 1 column 1 (char 0). Write name=Ada for text."),
        ("n:=", "n:= is not JSON"),
        ("n:=NaN", "nan is no JSON number"),
    ],
)
def test_bad_json_says_how_to_write_text(cli: Cli, text: str, said: str) -> None:
    assert said in cli("enqueue", "send", text, code=1 if "NaN" in text else 2).stderr


def test_T13_arguments_that_are_ignored_are_told(cli: Cli, worker: Process) -> None:
    told = cli("enqueue", "echo", "value=1", "vaule=2")
    assert "echo ignores the argument 'vaule': did you mean value? Its arguments are: value" in told.stderr
    assert told.stdout.strip()
    answer = cli.json("enqueue", "greeter.ReadName", '{"name": "Ada", "a": 1, "b": 2}')
    assert answer["warnings"] == ["greeter.ReadName ignores the arguments 'a', 'b'. Its arguments are: name"]
    assert "Its arguments are: none" in cli("enqueue", "nothing", "x=1").stderr
    assert not cli("enqueue", "greeter.SayHello", "name=Ada").stderr
