"""`queues`, `kinds`, `workers`, `pause` and `resume`."""

import json
import re
import shlex

from holdfast.testing import Harness

from .conftest import Cli
from .planted import HARMFUL, is_harmless, parked, plant, plant_kind, plant_worker, rows
from .terminal import Terminal


def table(text: str) -> dict[str, list[str]]:
    """The rows of a table, by their first word."""
    return {each.split()[0]: each.split()[1:] for each in text.splitlines()[1:] if each.strip()}


# --- queues


def test_queues_count_their_tasks_and_tell_what_is_wrong(cli: Cli) -> None:
    assert "no queues" in cli("queues").stderr
    plant(cli, 1234, state="ready")
    parked(cli)
    cli.enqueue("send", "--queue", "mail", "--delay", "1h")
    plant_worker(cli, queues=["mail"])
    shown = cli("queues").stdout
    assert shown.splitlines()[0].split()[:5] == ["QUEUE", "DUE", "SCHEDULED", "RUNNING", "PARKED"]
    assert table(shown)["default"][:4] == ["1,234", "0", "0", "1"]
    assert table(shown)["mail"] == ["0", "1", "0", "0", "1"]
    assert "queue default has 1,234 tasks due, and no live worker: holdfast worker APP -q default" in shown
    assert "queue mail has" not in shown
    told = {each["name"]: each for each in cli.json("queues")}
    assert (told["default"]["due"], told["default"]["parked"], told["mail"]["scheduled"]) == (1234, 1, 1)
    plant_worker(cli)
    assert "no live worker" not in cli("queues").stdout


def test_T14_unroutable_tasks_are_marked(cli: Cli) -> None:
    plant(cli, 2, state="ready")
    plant(cli, 3, step="Gone", state="ready")
    assert "unroutable" not in cli("queues").stdout, "there is no worker at all: that is what is told"
    plant_worker(cli)
    plant_worker(cli, queues=["mail"], steps=["greeter.Gone"])
    shown = cli("queues").stdout
    assert shown.splitlines()[1].endswith("3 unroutable")
    advice = next(each for each in shown.splitlines() if each.startswith("queue default has 3 tasks that no live"))
    found = cli(*shlex.split(advice.rpartition("knows: ")[2])[1:], "--json").stdout
    assert json.loads(found)["count"] == 3
    plant_worker(cli, steps=["greeter.Gone"])
    assert "unroutable" not in cli("queues").stdout


def test_a_paused_queue_is_marked(cli: Cli) -> None:
    cli.enqueue("send", "--queue", "mail")
    plant_worker(cli, queues=["mail"])
    cli("pause", "mail")
    shown = cli("queues").stdout
    assert table(shown)["mail"][-1] == "paused"
    advice = next(each for each in shown.splitlines() if each.startswith("queue mail was paused"))
    assert " by tester: " in advice
    cli(*shlex.split(advice.split(" by tester: ")[1])[1:])
    assert "paused" not in cli("queues").stdout


# --- kinds


def test_kinds_show_where_tasks_stand(cli: Cli) -> None:
    assert "no kinds" in cli("kinds").stderr
    plant_kind(cli)
    plant_kind(cli, "send", "mail", {"main": []})
    plant(cli, 1500, state="ready")
    plant(cli, 2, step="SayHello")
    plant(cli, 1, kind="forgotten", step="main", state="ready")
    plant(cli, 1, step="Old")
    plant_worker(cli)
    shown = cli("kinds").stdout
    assert re.search(r"^greeter +ReadName +1,500 +- +- +- +default +1$", shown, re.MULTILINE)
    assert re.search(r"^ +SayHello +- +- +- +2$", shown, re.MULTILINE)
    assert re.search(r"^ +Old +- +- +- +1 +no such step declared$", shown, re.MULTILINE)
    assert re.search(r"^send +main +- +- +- +- +mail +0$", shown, re.MULTILINE)
    assert re.search(r"^forgotten +main +1 +- +- +- +not declared by any worker$", shown, re.MULTILINE)
    told = {each["name"]: each for each in cli.json("kinds")}
    assert told["greeter"]["steps"] == {"ReadName": {"ready": 1500}, "SayHello": {"parked": 2}, "Old": {"parked": 1}}
    assert told["greeter"]["declared"]["queue"] == "default"
    assert told["forgotten"]["declared"] is None
    assert [each["name"] for each in cli.json("kinds", "send")] == ["send"]
    assert "there is no kind nobody" in cli("kinds", "nobody", code=3).stderr


def test_a_graph_that_is_none_does_no_harm(cli: Cli) -> None:
    plant_kind(cli, graph=[1, 2])
    plant(cli, 1)
    assert "ReadName" in cli("kinds").stdout


# --- workers


def test_workers_are_live_lost_or_stopped(cli: Cli) -> None:
    assert "no worker is running" in cli("workers").stderr
    assert "no workers." in cli("workers", "--all").stderr
    live = plant_worker(cli, "busy", queues=["default", "mail"])
    lost = plant_worker(cli, "gone", silent="2 min")
    stopped = plant_worker(cli, "old", stopped=True)
    cli.enqueue("greeter.ReadName")
    rows(
        cli,
        "update holdfast.task set state = 'running', worker_id = $1::uuid, attempt = 1, claimed_at = holdfast.now(),"
        " lease_expires_at = holdfast.now() + '1 h'::interval",
        live,
    )
    shown = table(cli("workers").stdout)
    assert shown.keys() == {live, lost}
    assert shown[live][:7] == ["busy", "box:42", "running", "default,", "mail", "1/10", "0"]
    assert shown[live][-1] == "1.2.3"
    assert shown[lost][2] == "lost"
    everyone = table(cli("workers", "--all").stdout)
    assert everyone.keys() == {live, lost, stopped}
    assert everyone[stopped][2] == "stopped"
    assert {each["id"]: each["condition"] for each in cli.json("workers", "--all")} == {
        live: "running",
        lost: "lost",
        stopped: "stopped",
    }
    assert len(cli.json("workers", "--all", "--limit", "1")) == 1


def test_M19_a_worker_that_is_late_is_shown_in_red(cli: Cli) -> None:
    late = plant_worker(cli, "busy")
    rows(cli, "update holdfast.worker set late = '{loop}'")
    with Terminal(cli.url, "workers", columns=200) as terminal:
        assert terminal.ended() == 0
    assert "\x1b[31mrunning, late: loop" in terminal.raw
    [found] = cli.json("workers")
    assert (found["id"], found["late"]) == (late, ["loop"])


def test_the_names_of_workers_are_shown_harmlessly(cli: Cli) -> None:
    plant_worker(cli, HARMFUL)
    result = cli("workers")
    assert "turned second line" in result.stdout
    assert is_harmless(result.output)
    with Terminal(cli.url, "workers", columns=80) as terminal:
        assert terminal.ended() == 0
        assert max(map(len, terminal.shown.splitlines())) <= 80


# --- pause and resume


async def test_nothing_of_a_paused_kind_begins_until_it_is_resumed(cli: Cli, holdfast: Harness) -> None:
    ran: list[int] = []

    @holdfast.app.task
    async def send(n: int) -> None:
        ran.append(n)

    await send.enqueue(1)
    await holdfast.drain()
    assert ran == [1]
    paused = cli("pause", "send", "--why", "the server is down").stdout
    assert paused.startswith("kind send is paused: running steps finish; nothing new of it is claimed until: ")
    id = cli.enqueue("send", "n:=2")
    await holdfast.drain()
    assert ran == [1]
    assert "paused" in cli("show", id).stdout
    assert "kind send was paused" in cli("kinds").stdout
    cli(*shlex.split(paused.split("until: ")[1])[1:], "--why", "it is up")
    await holdfast.drain()
    assert ran == [1, 2]
    changes = rows(cli, "select action, by, why, new ->> 'kind' from holdfast.change order by id")
    assert changes == [
        ("pause", "tester", "the server is down", "send"),
        ("resume", "tester", "it is up", "send"),
    ]


def test_pause_and_resume_say_what_is_meant(cli: Cli) -> None:
    plant_kind(cli, "mail", "mail")
    assert "is both a queue and a kind: say --queue or --kind" in cli("pause", "mail", code=2).stderr
    assert cli.json("pause", "mail", "--kind") == {"name": "mail", "what": "kind", "state": "paused"}
    assert cli("resume", "mail", "--queue").stdout == "queue mail was not paused.\n"
    assert cli("resume", "mail", "--kind").stdout == "kind mail is resumed.\n"
    assert cli.json("resume", "mail", "--kind")["state"] == "not paused"


def test_what_is_not_there_cannot_be_paused_by_mistake(cli: Cli) -> None:
    for verb in ("pause", "resume"):
        missing = cli(verb, "nobody", code=3).stderr
        assert "there is neither a queue nor a kind 'nobody'" in missing
        assert json.loads(cli(verb, "nobody", "--json", code=3).stderr)["error"] == "NotFound"
        assert cli(verb, "nobody", "--kind", code=3).stderr.startswith("error: there is no kind 'nobody'")
    assert rows(cli, "select count(*) from holdfast.queue") == [(0,)]
    assert "is paused" in cli("pause", "soon", "--queue").stdout
    assert "is not the name of a queue" in cli("pause", "Bad!", "--queue", code=1).stderr
    assert is_harmless(cli("pause", "\x1b[2J", code=3).output)
