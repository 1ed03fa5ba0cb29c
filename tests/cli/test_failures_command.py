"""T15: `holdfast failures` tells what was parked, and with --follow as it happens."""

import json
import signal
import subprocess
import sys

from .conftest import Cli
from .planted import HARMFUL, rows


def fail(cli: Cli, message: str, ago: str = "0s") -> str:
    """As a worker records it: an attempt that parked its task."""
    id = cli.enqueue("greeter.ReadName")
    error = json.dumps({"type": "OSError", "message": message})
    rows(
        cli, "update holdfast.task set state = 'parked', attempt = 1, error = $1::jsonb where id = $2::uuid", error, id
    )
    rows(
        cli,
        "insert into holdfast.attempt (task_id, queue, kind, step, args, moves, attempt, worker_id, claimed_at,"
        " outcome, error, parked, finished_at) select id, queue, kind, step, args, moves, attempt,"
        " gen_random_uuid(), now(), 'failed', error, true, now() - $1::interval from holdfast.task where id = $2::uuid",
        ago,
        id,
    )
    rows(cli, "select pg_notify('holdfast', 'failed')")
    return id


def test_T15_failures_are_listed_the_oldest_first(cli: Cli) -> None:
    assert "no task was parked" in cli("failures").stderr
    second, first, old = fail(cli, "new"), fail(cli, f"older {HARMFUL}", "10m"), fail(cli, "old", "3h")
    told = cli("failures").stdout
    assert told.index(first) < told.index(second) and old not in told
    assert "greeter.ReadName" in told and "attempt 1: OSError: new" in told
    assert "\x1b]" not in told and "\u202e" not in told
    assert cli("failures", "--since", "1d").stdout.index(old) < told.index(first)
    lines = [json.loads(each) for each in cli("failures", "--since", "1d", "--json").stdout.splitlines()]
    assert [each["task"]["id"] for each in lines] == [old, first, second]
    assert lines[0]["task"]["error"]["message"] == "old"


def test_T15_failures_are_followed_until_interrupted(cli: Cli) -> None:
    known = fail(cli, "known")
    command = [
        sys.executable,
        "-m",
        "holdfast.cli",
        "failures",
        "--follow",
        "--since",
        "1h",
        "--json",
        "--url",
        cli.url,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["task"]["id"] == known
        new = fail(cli, "new")
        assert json.loads(following.stdout.readline())["task"]["id"] == new
        following.send_signal(signal.SIGINT)
        assert following.wait(60) == 130
        assert following.stderr is not None and "Traceback" not in following.stderr.read()
