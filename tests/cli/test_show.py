"""`show`: a task's way, attempts, error, changes and why it stands where it does; and ids that are shortened."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import Done, Later, Retry, Tasks
from holdfast._model.enqueue.ref import TaskInfo
from holdfast._model.read.visits import Visit
from holdfast.cli.output.visits import way
from holdfast.testing import Harness

from .conftest import Cli
from .planted import HARMFUL, is_harmless, park, parked, plant, rows
from .terminal import Terminal

X = "\N{MULTIPLICATION SIGN}"

tasks = Tasks()
greeter = tasks.kind("greeter", result=str, retry=Retry(5, delay="1s"))
files: dict[str, str] = {}


@greeter.step
@dataclass
class ReadName:
    filename: str

    async def run(self) -> "SayHello | Later[Poll]":
        if self.filename == "poll":
            return Later(Poll(3), "1m")
        return SayHello(files[self.filename])


@greeter.step
@dataclass
class Poll:
    left: int

    async def run(self) -> "SayHello | Later[Poll]":
        return Later(Poll(self.left - 1), "1m") if self.left else SayHello("Ada")


@greeter.step
@dataclass
class SayHello:
    name: str

    async def run(self) -> Done[str]:
        return Done(f"Hello, {self.name}")


@pytest.fixture
def holdfast_tasks() -> Tasks:
    files.clear()
    return tasks


def fact(shown: str, name: str) -> str:
    """What is said about something in the list of facts."""
    line = next(each for each in shown.splitlines() if each.startswith(f"  {name} "))
    return line.removeprefix(f"  {name}").strip()


def test_what_the_exception_carried_is_shown(cli: Cli) -> None:
    id = parked(cli)
    carried = '{"attributes": {"code": 402, "details": {"field": "a\\u001bb"}}}'
    rows(cli, "update holdfast.task set error = error || $1::jsonb where id = $2::uuid", carried, id)
    shown = cli("show", id).stdout
    assert fact(shown, "code") == "402"
    assert fact(shown, "details").startswith('{"field": "a') and is_harmless(shown)


async def test_the_way_of_a_task_that_was_repaired(cli: Cli, holdfast: Harness) -> None:
    """T10, T11, T12, A1."""
    ref = await greeter.enqueue(ReadName("name.txt"))
    await holdfast.run_all()
    shown = cli("show", ref.id).stdout
    assert fact(shown, "state") == "parked"
    assert fact(shown, "way").startswith(f"ReadName {X}6 (")
    assert "It is parked since" in shown
    assert f"holdfast retry {ref.id}" in shown
    assert "KeyError: 'name.txt'" in shown

    files["name.txt"] = "Ada"
    cli("retry", ref.id, "--why", "the file is there")
    assert fact(cli("show", ref.id).stdout, "way").startswith(f"ReadName {X}6 (")
    await holdfast.run_all()
    shown = cli("show", ref.id).stdout
    assert fact(shown, "result") == '"Hello, Ada"'
    steps = [each.split(" (")[0] for each in fact(shown, "way").split(" → ")]
    assert steps == [f"ReadName {X}7", "SayHello", "done"]
    assert "retry by tester: the file is there" in shown
    assert "before: " in shown
    assert "error KeyError: 'name.txt'" in shown
    told = cli.show(str(ref.id))
    assert [(each["step"], each["attempts"]) for each in told["visits"]] == [("ReadName", 7), ("SayHello", 1)]
    assert [each["outcome"] for each in told["attempts"]] == ["retried"] * 5 + ["failed", "advanced", "done"]
    assert told["explain"].startswith("It was done at ")


async def test_a_way_that_goes_round_is_told_shortly(cli: Cli, holdfast: Harness) -> None:
    """T2, T4."""
    ref = await greeter.enqueue(ReadName("poll"))
    await holdfast.drain()
    assert fact(cli("show", ref.id).stdout, "way").split(" → ")[1] == "Poll"
    await holdfast.run_all()
    stations = fact(cli("show", ref.id).stdout, "way").split(" → ")
    assert [each.split(" (")[0] for each in stations] == ["ReadName", f"Poll {X}4", "SayHello", "done"]
    assert stations[1].startswith(f"Poll {X}4 (4 visits, ")


def test_a_very_long_way_is_cut_in_the_middle() -> None:
    began = datetime(2030, 1, 1, tzinfo=UTC)
    info = TaskInfo(id=UUID(int=1), queue="q", kind="k", step="B", state="ready", moves=1999)
    stays = [Visit("AB"[n % 2], n, 1 + (n == 0), began, began + timedelta(seconds=3)) for n in range(2000)]
    told = way(info, stays)
    assert told.startswith(f"A {X}2 (3 s) → B (3 s) → A (3 s) → ")
    assert " → … 1,988 more … → " in told
    assert told.endswith("→ A (3 s) → B (3 s)")
    assert way(replace(info, state="done", finished_at=began), stays[:1]) == f"A {X}2 (3 s) → done"
    assert way(info, [Visit("A", 0, 0, None, None)]) == "A"


async def test_all_shows_every_attempt_in_full(cli: Cli, holdfast: Harness) -> None:
    ref = await greeter.enqueue(ReadName("no.txt"))
    await holdfast.run_all()
    assert "Attempt 3: ReadName" not in cli("show", ref.id).stdout
    shown = cli("show", ref.id, "--all").stdout
    third = shown.split("Attempt 3: ReadName, retried")[1].split("Attempt 4: ")[0]
    assert '{"filename": "no.txt"}' in third
    assert "Traceback" in third
    assert "KeyError: 'no.txt'" in third


def test_many_attempts_are_not_all_shown_unless_asked_for(cli: Cli) -> None:
    id = parked(cli)
    rows(
        cli,
        """
        insert into holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, outcome, claimed_at)
        select $1::uuid, 'default', 'greeter', 'ReadName', '{}', 0, n, 'snoozed', holdfast.now()
        from generate_series(1, 1234) as n
        """,
        id,
    )
    shown = cli("show", id).stdout
    assert "(the last 20 of 1,234; --all shows all)" in shown
    assert "\n  1,215  ReadName" in shown
    assert "\n  1,214  ReadName" not in shown
    assert "\n  1      ReadName" in cli("show", id, "--all").stdout
    assert len(cli.show(id)["attempts"]) == 1234


def test_show_says_why_it_is_not_running(cli: Cli) -> None:
    """Q13."""
    assert "no worker is alive" in cli("show", cli.enqueue("send")).stdout
    assert "It is not due until" in cli("show", cli.enqueue("send", "--delay", "1h")).stdout


def test_show_prints_all_and_nothing_harmful(cli: Cli) -> None:
    id = cli.enqueue("greeter.ReadName", f"filename={HARMFUL}", "--key", HARMFUL, "--header", f"trace={HARMFUL}")
    park(cli, id, f"bad \x1b]52;c;evil\x07 \u202e news\nnext line {HARMFUL}")
    rows(cli, "update holdfast.task set error = error || jsonb_build_object('type', $1::text)", HARMFUL)
    cli("retry", id, "--why", HARMFUL, "--args", '{"x": "\\u001b[2J"}')
    park(cli, id, f"bad \x1b]52;c;evil\x07 \u202e news\nnext line {HARMFUL}", HARMFUL)
    result = cli("show", id, "--all")
    assert "bad  \\u202e news\n  next line" in result.stdout
    assert "caused by OSError: the disk is gone" in result.stdout
    assert "Traceback (most recent call last):" in result.stdout
    assert is_harmless(result.output)
    assert is_harmless(cli("show", id, "--json").output)
    assert cli.show(id)["task"]["key"] == HARMFUL


@pytest.mark.parametrize("error", ['"text"', "[1]", "{}", '{"type": 5, "causes": 7}', '{"causes": [1, null]}'])
def test_an_error_of_another_shape_is_shown_all_the_same(cli: Cli, error: str) -> None:
    id = parked(cli)
    rows(cli, "alter table holdfast.task drop constraint if exists task_parked_error")
    rows(cli, "update holdfast.task set error = $1::jsonb", error)
    assert fact(cli("show", id, "--all").stdout, "state") == "parked"
    assert id in cli("tasks").stdout


def test_the_attempts_fit_a_terminal(cli: Cli) -> None:
    id = parked(cli, message="a long message " * 20)
    rows(
        cli,
        "insert into holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, outcome, claimed_at, error)"
        " select id, queue, kind, step, args, 0, 1, 'failed', holdfast.now(), error from holdfast.task",
    )
    with Terminal(cli.url, "show", id, columns=60) as terminal:
        assert terminal.ended() == 0
        attempts = terminal.shown.split("Attempts\n")[1].splitlines()
        assert max(map(len, attempts)) <= 60


# --- shortened ids


def as_if_enqueued(cli: Cli, id: str, *, like: str) -> str:
    """The task as if it had been given another id."""
    rows(cli, "update holdfast.task set id = $1::uuid where id = $2::uuid", id, like)
    return id


@pytest.mark.parametrize("command", ["show", "retry", "cancel", "discard", "wait"])
def test_the_beginning_of_an_id_is_enough_if_it_is_unique(cli: Cli, command: str) -> None:
    first, second = parked(cli), parked(cli)
    first = as_if_enqueued(cli, "01890a5d-ac96-774b-bcce-b302099a8057", like=first)
    second = as_if_enqueued(cli, "01890a5d-ac97-774b-bcce-b302099a8057", like=second)
    code = 1 if command == "wait" else 0
    found = cli(command, "01890a5d-ac97", code=code)
    assert second in found.output
    several = cli(command, "01890A5D", code=2).stderr
    assert "2 tasks have an id that begins with 01890A5D: give more of it." in several
    assert first in several
    assert second in several
    assert "there is no task whose id begins with 01890a5e" in cli(command, "01890a5e", code=3).stderr
    for bad in ("01890a5", "nonsense", "01890a5d-ac97-774b-bcce-b302099a80577", "\x1b[2J", ""):
        said = cli(command, bad, code=3)
        assert "is not the id of a task" in said.stderr
        assert is_harmless(said.output)


def test_the_list_of_matches_ends_somewhere(cli: Cli) -> None:
    planted = ["01890a5d" + id[8:] for id in plant(cli, 15)]
    rows(cli, "update holdfast.task set id = ('01890a5d' || substr(id::text, 9))::uuid")
    said = cli("show", "01890a5d", code=2).stderr
    assert "more than 10 tasks have an id that begins with" in said
    assert sum(each in said for each in planted) == 10


def test_an_archived_task_is_found_too(cli: Cli) -> None:
    id = cli.enqueue("send")
    cli("cancel", id)
    told: Any = cli.json("show", id[:30])
    assert told["task"]["id"] == id


def test_Q13_the_explanation_is_wrapped_to_the_terminal(cli: Cli) -> None:
    id = parked(cli)
    assert max(map(len, cli("show", id).stdout.splitlines())) > 150, "in a file it is one line"
    with Terminal(cli.url, "show", id, columns=80) as terminal:
        assert terminal.ended() == 0
    lines = terminal.shown.splitlines()
    begin = next(number for number, each in enumerate(lines) if "It is parked" in each)
    sentence = lines[begin : lines.index("", begin)]
    assert len(sentence) > 2 and all(len(each) <= 80 for each in sentence)
    assert f"holdfast retry {id}" in " ".join(each.strip() for each in sentence)


@pytest.mark.parametrize("odd", ["[1, 2]", "42", '"text"'])
def test_headers_that_are_no_object_are_shown_as_what_they_are(cli: Cli, odd: str) -> None:
    id = cli.enqueue("send")
    rows(cli, "update holdfast.task set headers = $1::jsonb where id = $2::uuid", odd, id)
    shown = fact(cli("show", id).stdout, "headers")
    assert json.loads(shown) == {"not an object": json.loads(odd)}
    assert id in cli("tasks").stdout


def test_X6_passwords_in_urls_are_not_printed(cli: Cli) -> None:
    secret = "s3same"
    words = [f"dsn=postgresql://ada:{secret}@db/x", f"said=host=db password={secret}", "mail=ada@example.com"]
    id = cli.enqueue("send", *words)
    assert secret not in cli("tasks").stdout
    park(cli, id, f"amqp://ada:{secret}@mq is gone")
    for command in (["show", id, "--all"], ["tasks"], ["parked"]):
        assert secret not in cli(*command).stdout, command
    shown = cli("show", id).stdout
    assert "postgresql://ada:***@db/x" in shown and "ada@example.com" in shown and "amqp://ada:***@mq is gone" in shown
