"""`holdfast schedules`: what recurs, in plain words, and the verbs."""

from typing import Any

import pytest

from .conftest import Cli
from .planted import HARMFUL, rows


@pytest.fixture
def nightly(cli: Cli) -> str:
    cli("schedules", "set", "nightly", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--step", "report")
    return "nightly"


def test_nothing_there(cli: Cli) -> None:
    assert "no schedules" in cli("schedules").stderr
    assert cli.json("schedules") == []
    assert "there is no schedule 'nightly'" in cli("schedules", "show", "nightly", code=3).stderr


def test_the_list_in_plain_words(cli: Cli, nightly: str) -> None:
    cli("schedules", "set", "beat", "--every", "15m", "--step", "ping", "--scope", "a", "--scope", "b")
    said = cli("schedules").stdout
    assert "at 02:30 every day (Europe/Berlin)" in said and "every 15 minutes" in said
    beat, found = cli.json("schedules")
    assert (found["name"], found["condition"], found["words"]) == (
        "nightly",
        "active",
        "at 02:30 every day (Europe/Berlin)",
    )
    assert found["next_at"] > found["now"]
    assert beat["definition"]["scopes"] == ["a", "b"]


def test_show(cli: Cli, nightly: str) -> None:
    cli("schedules", "fire", nightly, "--plan-time", "2030-01-31T03:00Z")
    said = cli("schedules", "show", nightly).stdout
    assert "at 02:30 every day (Europe/Berlin)" in said and "at run time, by no code" in said
    assert "ready" in said
    shown = cli.json("schedules", "show", nightly)
    assert [(each["plan_time"][:19], each["state"]) for each in shown["occurrences"]] == [
        ("2030-01-31T03:00:00", "ready")
    ]


def test_S10_next_across_a_change_of_the_clocks(cli: Cli, nightly: str) -> None:
    said = cli("schedules", "next", nightly, "-n", "3", "--after", "2030-03-30T00:00+01:00").stdout
    assert "Sat 2030-03-30 02:30:00 +0100" in said
    assert "Sun 2030-03-31 03:00:00 +0200" in said and said.count("the clocks have been set") == 1
    times = cli.json("schedules", "next", nightly, "-n", "2", "--after", "2030-03-30T00:00+01:00")
    assert [each["local"] for each in times] == ["2030-03-30T02:30:00+01:00", "2030-03-31T03:00:00+02:00"]


def test_fire_pause_resume_delete(cli: Cli, nightly: str) -> None:
    [id] = cli.json("schedules", "fire", nightly)["tasks"]
    assert cli.show(id)["task"]["kind"] == "report"
    assert "is paused" in cli("schedules", "pause", nightly, "--why", "the warehouse moves").stdout
    assert "tester: the warehouse moves" in cli("schedules").stderr
    assert cli.json("schedules")[0]["condition"] == "paused"
    assert "goes on from now" in cli("schedules", "resume", nightly).stdout
    assert "was not paused" in cli("schedules", "resume", nightly).stdout
    assert "is deleted" in cli("schedules", "delete", nightly).stdout
    assert "nothing was deleted" in cli("schedules", "delete", nightly).stderr, "twice is no error"
    assert cli.json("schedules", "delete", nightly)["state"] == "not there"
    assert cli.json("schedules") == []
    actions = [row[0] for row in rows(cli, "select action from holdfast.change order by id")]
    assert actions == ["schedule", "fire", "pause", "resume", "delete"]


def test_backfill(cli: Cli, nightly: str) -> None:
    range_ = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-03T00:00Z")
    said = cli("schedules", "backfill", nightly, *range_, "--dry-run").stdout
    assert "2 would be enqueued, 0 are there already" in said
    assert "2 enqueued, 0 were there already" in cli("schedules", "backfill", nightly, *range_).stdout
    assert cli.json("schedules", "backfill", nightly, *range_)["existing"] == 2
    assert len(cli.json("tasks")["tasks"]) == 2
    cli("schedules", "backfill", nightly, "--from", "2026-01-03", "--to", "2026-01-01", code=2)
    assert (
        "lies ahead"
        in cli("schedules", "backfill", nightly, "--from", "2030-01-01", "--to", "2030-01-02", code=2).stderr
    )


def test_set_changes_what_is_given(cli: Cli, nightly: str) -> None:
    assert "is changed: at 04:00 every day (UTC)" in cli("schedules", "set", nightly, "--cron", "0 4 * * *").stdout
    assert cli.json("schedules", "set", nightly, "--overlap", "skip")["state"] == "changed"
    assert cli.json("schedules", "set", nightly, "--overlap", "skip")["state"] == "unchanged"
    definition = cli.json("schedules", "show", nightly)["definition"]
    assert definition["timing"]["cron"] == "0 4 * * *" and definition["step"] == "report"
    cli("schedules", "set", nightly, "--queue", "slow")
    cli("schedules", "set", nightly, "--priority", "7")
    assert cli.json("schedules", "show", nightly)["definition"]["options"] == {"queue": "slow", "priority": 7}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cron", "61 * * * *", "--step", "report"], "cannot read the field minute"),
        (["--cron", "0 3 * * *", "--tz", "Mars/Olympus", "--step", "report"], "there is no time zone"),
        (["--every", "soon", "--step", "report"], "is not a duration"),
        (["--every", "15m"], "to make it, give --step"),
        (["--step", "report"], "--cron, --every or --time"),
        (["--every", "15m", "--cron", "@daily", "--step", "report"], "give one of"),
        (["--every", "15m", "--tz", "UTC", "--step", "report"], "belong to --cron"),
        (["--every", "15m", "--step", "Bad Step"], "name of a step"),
        (["--time", "2020-01-01T00:00Z", "--step", "report"], "lie in the past"),
        (["--time", "tomorrow", "--step", "report"], "is no time"),
        (["--every", "15m", "--step", "report", "--args", "[1]"], "must be a JSON object"),
        ([], "say what to set"),
    ],
)
def test_bad_input_is_refused_at_once(cli: Cli, arguments: list[Any], message: str) -> None:
    result = cli("schedules", "set", "odd", *arguments, code=1 if "Bad Step" in arguments else 2)
    assert message in result.stderr
    assert cli.json("schedules") == []


def test_harmful_texts_do_not_reach_the_terminal(cli: Cli, nightly: str) -> None:
    rows(cli, "update holdfast.schedule set error = $1, definition = definition || $2", HARMFUL, "{}")
    for arguments in (["schedules"], ["schedules", "show", nightly]):
        result = cli(*arguments)
        assert "\x1b]" not in result.output and "\u202e" not in result.output
