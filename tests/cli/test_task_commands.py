"""`enqueue`, `retry`, `cancel`, `discard`, and what holds for all commands: options, errors, exit codes, help."""

import json
import shlex

import pytest

from commands import invoke

from .conftest import Cli
from .planted import park, plant_kind, rows

NO_TASK = "01890a5d-ac96-774b-bcce-b302099a8057"


def test_enqueue_takes_texts_and_json(cli: Cli) -> None:
    """T8."""
    id = cli.enqueue("greeter.ReadName", "filename=a=b:=c", "n:=42", 'deep:={"x": [1, null]}', "empty=")
    task = cli.show(id)["task"]
    assert (task["kind"], task["step"], task["queue"], task["state"]) == ("greeter", "ReadName", "default", "ready")
    assert task["args"] == {"filename": "a=b:=c", "n": 42, "deep": {"x": [1, None]}, "empty": ""}
    assert cli.show(cli.enqueue("send", '{"to": "ü"}'))["task"]["args"] == {"to": "ü"}
    assert cli.show(cli.enqueue("send"))["task"]["step"] == "main"


def test_enqueue_options(cli: Cli) -> None:
    options = ["--queue", "mail", "--priority", "7", "--key", "k", "--header", "trace=1=2", "--header", "by=me"]
    id = cli.enqueue("send", *options, "--at", "2999-01-31T09:00+01:00")
    task = cli.show(id)["task"]
    assert (task["queue"], task["priority"], task["key"], task["phase"]) == ("mail", 7, "k", "scheduled")
    assert task["headers"] == {"trace": "1=2", "by": "me"}
    assert task["run_at"] == "2999-01-31T08:00:00Z"
    again = cli("enqueue", "send", "--queue", "mail", "--key", "k")
    assert again.stdout.strip() == id
    assert "not enqueued" in again.stderr
    assert {"id": id, "created": False}.items() <= cli.json("enqueue", "send", "--queue", "mail", "--key", "k").items()
    delayed = cli.show(cli.enqueue("send", "--delay", "1h"))["task"]
    assert delayed["phase"] == "scheduled"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Bad Name"], "cannot be the name of a kind"),
        (["greeter.1st"], "cannot be the name of a step"),
        (["send", "novalue"], "write NAME=TEXT"),
        (["send", "n:=nope"], "is not JSON"),
        (["send", "[1]"], "must be a JSON object"),
        (["send", "{}", "a=b"], "not both"),
        (["send", "a=1", "a=2"], "twice"),
        (["send", "--priority", "10"], "0<=x<=9"),
        (["send", "--delay", "soon"], "Write for example"),
        (["send", "--at", "soon"], "is not a time"),
        (["send", "--queue", "Bad!"], "cannot be the name of a queue"),
        (["send", "--header", "x"], "write NAME=TEXT"),
    ],
)
def test_enqueue_refuses_what_it_cannot_understand(cli: Cli, arguments: list[str], said: str) -> None:
    code = 1 if "Bad!" in arguments else 2
    assert said in " ".join(cli("enqueue", *arguments, code=code).stderr.split())
    assert rows(cli, "select count(*) from holdfast.task") == [(0,)]


def test_enqueue_and_wait_tells_why_there_is_no_result(cli: Cli) -> None:
    waited = cli("enqueue", "send", "--wait", "--timeout", "200ms", code=1)
    assert "was not finished within 0.2 s: it is unroutable" in waited.stderr
    held = cli.enqueue("send", "--key", "k", "--delay", "1h")
    park(cli, held)
    parked = cli("enqueue", "send", "--key", "k", "--wait", code=1)
    assert parked.stdout == ""
    assert held in parked.stderr
    assert "is parked: FileNotFoundError: no such file" in parked.stderr
    as_json = cli("enqueue", "send", "--key", "k", "--wait", "--json", code=1)
    told = json.loads(as_json.stdout)
    assert (told["state"], told["error"]["message"]) == ("parked", "no such file")
    assert json.loads(as_json.stderr.splitlines()[-1])["error"] == "TaskParked"


def test_what_is_not_there_is_exit_code_3(cli: Cli) -> None:
    for command in ("show", "retry", "cancel", "discard", "wait"):
        assert f"there is no task {NO_TASK}" in cli(command, NO_TASK, code=3).stderr
        assert "is not the id of a task" in cli(command, "nonsense", code=3).stderr
    error = json.loads(cli("show", NO_TASK, "--json", code=3).stderr)
    assert error["error"] == "TaskNotFound"
    assert NO_TASK in error["message"]


def test_retry_repairs_and_keeps_who_and_why(cli: Cli) -> None:
    """T12."""
    plant_kind(cli)
    id = cli.enqueue("greeter.ReadName", "filename=old")
    park(cli, id)
    assert "it is at attempt 6, not 5" in cli("retry", id, "--expected-attempt", "5", code=1).stderr
    assert "must be a JSON object" in cli("retry", id, "--args", "[1]", code=2).stderr
    assert "cannot be the name of a step" in cli("retry", id, "--step", "1st", code=2).stderr
    assert cli.show(id)["task"]["state"] == "parked"
    repair = ["--args", '{"name": "Ada"}', "--step", "SayHello", "--why", "a typo", "--expected-attempt", "6"]
    assert cli("retry", id, *repair).stdout == f"{id} is ready.\n"
    told = cli.show(id)
    assert told["task"]["state"] == "ready"
    assert told["task"]["errors"] == 0
    assert (told["task"]["step"], told["task"]["args"]) == ("SayHello", {"name": "Ada"})
    change = told["changes"][0]
    assert (change["action"], change["by"], change["why"]) == ("retry", "tester", "a typo")
    assert change["old"]["args"] == {"filename": "old"}
    shown = cli("show", id).stdout
    assert "retry by tester: a typo" in shown
    assert 'args: {"filename": "old"} → {"name": "Ada"}' in shown


def test_many_at_once_does_what_can_be_done(cli: Cli) -> None:
    ids = [cli.enqueue("greeter.ReadName") for _ in range(2)]
    for id in ids:
        park(cli, id)
    result = cli("retry", ids[0], NO_TASK, ids[1], "--json", code=3)
    assert json.loads(result.stdout) == [{"id": id, "state": "ready"} for id in ids]
    assert json.loads(result.stderr)["error"] == "TaskNotFound"


def test_cancel_and_discard(cli: Cli) -> None:
    """Q8."""
    first, second = cli.enqueue("send"), cli.enqueue("send")
    assert cli("cancel", first, "--why", "twice").stdout == f"{first} is cancelled.\n"
    told = cli.show(first)
    assert told["task"]["state"] == "cancelled"
    assert told["changes"][0]["why"] == "twice"
    assert "it is already cancelled" in cli("cancel", first, code=1).stderr
    assert "cannot discard task" in cli("discard", second, code=1).stderr
    park(cli, second)
    assert cli("discard", second, "--why", "obsolete").stdout == f"{second} is discarded.\n"
    assert cli.show(second)["task"]["state"] == "discarded"


def test_a_cancelled_task_is_enqueued_again_and_each_tells_of_the_other(cli: Cli) -> None:
    old = cli.enqueue("greeter.ReadName", "filename=a.txt", "--key", "k", "--priority", "3", "--header", "a=b")
    assert "it has not ended" in cli("again", old, code=1).stderr
    cli("cancel", old)
    assert f"to enqueue the same anew: holdfast again {old}" in cli("retry", old, code=1).stderr
    [answer] = json.loads(cli("again", old, "--why", "a mistake", "--json").stdout)
    new, told = cli.show(answer["id"])["task"], cli.show(old)
    assert answer["again"] == old and new["state"] == "ready"
    for name in ("kind", "step", "args", "queue", "priority", "key"):
        assert new[name] == told["task"][name], name
    assert new["headers"] == {"a": "b", "holdfast-again": old}
    change = told["changes"][-1]
    assert (change["action"], change["why"], change["new"]) == ("again", "a mistake", {"id": new["id"]})
    assert new["id"] in cli("show", old).stdout and old in cli("show", new["id"]).stdout
    held = cli("again", old, code=1)
    assert "key" in held.stderr and len(cli.json("tasks", "state:ready")["tasks"]) == 1
    cli("again", NO_TASK, code=3)


def test_options_go_before_or_after_the_command(cli: Cli) -> None:
    cli.environment["HOLDFAST_URL"] = None
    id = cli("--url", cli.url, "enqueue", "send").stdout.strip()
    assert json.loads(cli("--json", "tasks", "--url", cli.url).stdout)["tasks"][0]["id"] == id
    assert json.loads(cli("--url", "postgresql://nobody@127.0.0.1:1/x", "tasks", "--url", cli.url, "--json").stdout)
    missing = cli("--schema", "none", "tasks", "--url", cli.url, code=1).stderr
    assert "'none'" in missing
    assert "Run: holdfast migrate" in missing
    assert "schema 'Bad' cannot be used" in cli("tasks", "--schema", "Bad", "--url", cli.url, code=2).stderr


def test_errors_have_exit_codes_and_no_traceback(cli: Cli) -> None:
    """X6."""
    url = "postgresql://joe:topsecret@127.0.0.1:1/shop"
    gone = cli("tasks", "--url", url, code=4)
    assert gone.stderr.startswith("error: cannot connect to PostgreSQL")
    assert "topsecret" not in gone.output
    as_json = cli("tasks", "--url", url, "--json", code=4)
    assert as_json.stdout == ""
    assert json.loads(as_json.stderr)["error"] == "DatabaseUnreachable"
    cli.environment["HOLDFAST_URL"] = None
    none = cli("tasks", code=2)
    assert "no database was named. Choose one of:" in none.stderr
    assert "holdfast pg start" in none.stderr
    assert json.loads(cli("tasks", "--json", code=2).stderr)["error"] == "NoDatabase"
    assert json.loads(cli("tasks", "--json", "--nonsense", code=2).stderr)["error"] == "NoSuchOption"
    assert "no such command" in cli("nonsense", code=2).stderr.lower()


def test_what_the_database_refuses_is_told_without_a_traceback(cli: Cli) -> None:
    id = cli.enqueue("send")
    rows(cli, "alter table holdfast.change add constraint closed check (action = 'never')")
    assert cli("cancel", id, code=1).stderr.startswith("error: the database refused this: ")


@pytest.mark.parametrize(
    "name",
    ["tasks", "parked", "wait", "show", "retry", "cancel", "discard", "again"]
    + ["queues", "kinds", "workers", "pause", "resume"],
)
def test_help_has_an_example_that_is_understood(cli: Cli, name: str) -> None:
    told = cli(name, "--help").stdout
    assert "--json" in told
    lines = told.split("Example:\n")[1].split("\n\n")[0].splitlines()
    assert all(each.startswith(f"    holdfast {name}") for each in lines)
    for each in lines:
        if "$(" not in each:
            # Well formed, whatever it finds in an empty database.
            assert invoke(shlex.split(each)[1:], cli.environment).exit_code in (
                (2,) if "--where" in each and "--yes" not in each and "--dry-run" not in each else (0, 3)
            )
    assert ("A FILTER is a list of terms" in told) == (name in ("tasks", "parked", "retry", "cancel", "discard"))
