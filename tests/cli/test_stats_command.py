"""`holdfast stats` and `holdfast top`: what they tell, on a terminal and for scripts."""

import json
import re

import pytest

from .conftest import Cli
from .planted import HARMFUL, is_harmless, parked, plant_worker, rows
from .terminal import Terminal

ENDED = """
    insert into holdfast.archive (id, queue, kind, step, args, state, priority, run_at, moves, attempt, errors, crashes,
                                  claimed_at, outcome, created_at, finished_at)
    select holdfast.new_id(), $1, $2, 'main', '{}', 'done', 0, at - interval '3 seconds', 0, 1, 0, 0,
           at - interval '1.5 seconds', 'done', at, at
    from (select holdfast.now() - n * interval '1 second' from generate_series(1, $3::int) as n) as n(at)
"""
FAILED = """
    insert into holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, claimed_at, finished_at, outcome,
                                  error, parked, run_at)
    select holdfast.new_id(), 'mail', 'greeter', 'ReadName', '{}', 0, 1, holdfast.now() - interval '2 seconds',
           holdfast.now(), 'failed', $1::jsonb, true, holdfast.now() - interval '2 seconds'
"""


@pytest.fixture
def busy(cli: Cli) -> Cli:
    """Twenty tasks were done, one was parked, and some wait."""
    rows(cli, ENDED, "mail", "greeter", 15)
    rows(cli, ENDED, "default", "report", 5)
    rows(cli, FAILED, json.dumps({"type": "OSError", "message": HARMFUL}))
    cli.enqueue("greeter.ReadName", "--queue", "mail")
    parked(cli, message=HARMFUL)
    plant_worker(cli, HARMFUL, queues=["mail"])
    rows(
        cli,
        "insert into holdfast.task (id, queue, kind, step, state, worker_id, lease_expires_at, claimed_at, attempt)"
        " select holdfast.new_id(), 'mail', 'report', 'main', 'running', holdfast.new_id(),"
        " holdfast.now() + interval '1 hour', holdfast.now() - n * interval '1 minute', 1"
        " from generate_series(1, 3) as n",
    )
    return cli


def test_stats_tells_totals_and_each_kind(busy: Cli) -> None:
    shown = busy("stats").stdout
    assert re.search(r"attempts +21 \(", shown) and re.search(r"done +20 \(", shown)
    assert re.search(r"errors +1 \(4\.8 %\): failed 1", shown)
    assert re.search(r"run +p50 1\.\d s, p95", shown)
    assert re.search(r"waiting +1 due, 0 scheduled, 3 running, 1 parked; the oldest due \d+ s ago, in mail", shown)
    greeter = next(each for each in shown.splitlines() if each.startswith("greeter"))
    assert greeter.split()[1] == "16" and is_harmless(shown)
    assert busy("stats", "--by", "step", "--kind", "report").stdout.count("report.main") == 1
    assert "waiting" not in busy("stats", "--kind", "report").stdout
    only = busy.json("stats", "--queue", "default", "--by", "queue")
    assert only["total"]["attempts"] == 5 and list(only["groups"]) == ["default"]
    assert [queue["name"] for queue in only["queues"]] == ["default"]


def test_stats_as_json_has_everything(busy: Cli) -> None:
    told = busy.json("stats", "--since", "15m")
    assert told["total"]["outcomes"] == {"done": 20, "failed": 1}
    assert told["groups"]["greeter"]["error_rate"] == pytest.approx(1 / 16)
    assert 1.0 <= told["total"]["run"]["p50"] <= 2.0 and told["missing_since"] is None
    assert busy("stats", "--since", "soon", code=2)


def test_stats_of_nothing(cli: Cli) -> None:
    shown = cli("stats").stdout
    assert re.search(r"attempts +0 \(0/s\)", shown) and "KIND" not in shown
    assert cli.json("stats")["total"]["error_rate"] is None


@pytest.mark.parametrize("columns", [80, 40])
def test_stats_fits_a_terminal(busy: Cli, columns: int) -> None:
    with Terminal(busy.url, "stats", columns=columns) as terminal:
        assert terminal.ended() == 0
        table = terminal.shown[terminal.shown.index("KIND") :]
        assert max(map(len, table.splitlines())) <= columns


def test_top_once_shows_every_part(busy: Cli) -> None:
    shown = busy("top", "--once").stdout
    for expected in (
        "QUEUE ",
        "WORKER ",
        "report.main",
        "PARKED  STEP",
        "FAILED ",
        "greeter.ReadName",
        "OSError: ",
    ):
        assert expected in shown, shown
    running = [each.split()[2:4] for each in shown.splitlines() if "report.main" in each]
    minutes = [float(number) / (60 if unit == "s" else 1) for number, unit in running]
    assert len(minutes) == 3 and minutes == sorted(minutes, reverse=True)
    assert is_harmless(shown)


def test_top_as_json(busy: Cli) -> None:
    told = busy.json("top")
    assert {each["name"] for each in told["queues"]} >= {"mail", "default"}
    assert told["recent"]["mail"]["attempts"] == 16
    assert [len(told[each]) for each in ("running", "workers", "parked", "failures")] == [3, 1, 1, 1]
    assert told["failures"][0]["error_type"] == "OSError"


def test_top_wants_a_terminal(cli: Cli) -> None:
    assert "say --once" in cli("top", code=2).stderr


@pytest.mark.parametrize("end", ["q", "interrupt"])
def test_top_lives_on_a_screen_of_its_own_and_leaves_the_terminal_as_it_was(busy: Cli, end: str) -> None:
    with Terminal(busy.url, "top", "--every", "200ms", columns=80) as terminal:
        terminal.says("OLDEST DUE")
        busy.enqueue("greeter.ReadName", "--queue", "quite-new")
        terminal.says("quite-new")
        if end == "q":
            terminal.answer("q")
        else:
            terminal.interrupt()
        assert terminal.ended() == 0
        written = terminal.raw
    assert written.startswith("\x1b[?1049h") and "\x1b[?25l" in written
    assert written.endswith("\x1b[?25h\x1b[?1049l")
    assert "\x1b[2J" not in written  # nothing is wiped before it is written anew
    frames = [each for each in written.removesuffix("\x1b[?25h\x1b[?1049l").split("\x1b[H") if "QUEUE" in each]
    assert len(frames) > 1
    for frame in frames:
        lines = frame.split("\r\n")
        plain = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", each) for each in lines]
        assert len(plain) <= 24 and max(map(len, plain)) <= 80
        assert is_harmless("".join(plain))
