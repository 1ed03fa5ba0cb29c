"""`holdfast worker` and `holdfast stop` as real processes: signals, exit codes, logs."""

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from psycopg.conninfo import make_conninfo

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli, Process, eventually

Start = Callable[..., Process]

APP = """
import asyncio, time
from pathlib import Path
from holdfast import App, current_context

app = App()

@app.task
async def slow(mark: str) -> str:
    Path(mark).touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "slow but done"

@app.task
def stuck(mark: str) -> None:
    Path(mark).touch()
    while True:
        time.sleep(1)

@app.task
async def add(x: int, y: int) -> int:
    return x + y

@app.task(queue="mail")
async def mail() -> str:
    return "sent"
"""


@pytest.fixture(autouse=True)
def app_file(project: Path) -> None:
    (project / "shop.py").write_text(APP)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_steps_end(cli: Cli, start: Start, number: signal.Signals) -> None:
    """W4."""
    worker = start("worker", "shop.py", url=cli.url)
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    waiting = cli.enqueue("add", "x:=1", "y:=1", "--delay", "1h")
    worker.signal(number)
    worker.says("stopping")
    assert not worker.has_ended
    Path("go").touch()
    assert worker.ended() == 0
    assert cli.show(id)["task"]["result"] == "slow but done"
    assert cli.show(waiting)["task"]["state"] == "ready"
    assert cli.json("stop")["asked"] == 0


def test_a_second_signal_stops_at_once_and_gives_back(cli: Cli, start: Start) -> None:
    """W4: uncharged."""
    worker = start("worker", "shop.py", url=cli.url)
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    worker.signal(signal.SIGTERM)
    worker.says("stopping")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    told = cli.show(id)
    assert told["task"]["state"] == "ready"
    assert (told["task"]["errors"], told["task"]["crashes"]) == (0, 0)
    assert [each["outcome"] for each in told["attempts"]] == ["released"]


LAST_LINES = """
import atexit, signal
from pathlib import Path

@atexit.register
def last():
    Path("last").write_text(" ".join(signal.getsignal(each).name for each in (signal.SIGTERM, signal.SIGINT)))
"""


def test_W4_a_signal_on_the_last_lines_does_not_kill(cli: Cli, start: Start, project: Path) -> None:
    """It has been told to end, and ends with its own code. Python forgets handlers before it ends, but not this."""
    (project / "shop.py").write_text(LAST_LINES + APP)
    worker = start("worker", "shop.py", url=cli.url)
    id = cli.enqueue("add", "x:=1", "y:=1")
    eventually(lambda: cli.show(id)["task"]["state"] == "done", "it did not work")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.stderr
    assert Path("last").read_text() == "SIG_IGN SIG_IGN"


def test_a_stuck_thread_does_not_keep_the_process(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--grace", "100ms", url=cli.url)
    cli.enqueue("stuck", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.parametrize("options", [[], ["--processes", "2"]])
def test_the_collector_does_not_walk_over_what_a_worker_has_loaded(cli: Cli, start: Start, options: list[str]) -> None:
    with Path("shop.py").open("a") as file:
        file.write("\nimport gc\n@app.task\nasync def set_aside() -> int:\n    return gc.get_freeze_count()\n")
    id = cli.enqueue("set_aside")
    worker = start("worker", "shop.py", *options, url=cli.url)
    eventually(lambda: cli.show(id)["task"]["state"] == "done", "the task was not executed")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert cli.show(id)["task"]["result"] > 10_000


def test_drain_ends_when_nothing_is_due(cli: Cli, start: Start) -> None:
    ids = [cli.enqueue("add", f"x:={n}", "y:=1") for n in range(3)]
    later = cli.enqueue("add", "x:=1", "y:=1", "--delay", "1h")
    worker = start("worker", "shop:app", "--drain", url=cli.url)
    assert worker.ended() == 0, worker.stderr
    assert [cli.show(id)["task"]["result"] for id in ids] == [1, 2, 3]
    assert cli.show(later)["task"]["phase"] == "scheduled"


def test_queues_name_schema_and_logs(cli: Cli, start: Start) -> None:
    cli("migrate", "--schema", "other")
    id = cli("enqueue", "mail", "--queue", "mail", "--schema", "other").stdout.strip()
    options = ["-q", "mail,other", "-c", "3", "--name", "tom", "--schema", "other", "--log-format", "json"]
    worker = start("worker", "shop.py", "--drain", *options, "--url", cli.url)
    assert worker.ended() == 0, worker.stderr
    assert cli.json("show", id, "--schema", "other")["task"]["result"] == "sent"
    records = [json.loads(each) for each in worker.stderr.splitlines()]
    assert {"time", "level", "logger", "message"} <= records[0].keys()
    assert any("add goes to the queue default, which this worker does not serve" in r["message"] for r in records)
    with connect_sync(cli.url) as connection:
        rows = connection.execute(b"select name, slots, queues from other.worker").fetchall()
    assert rows == [("tom", 3, ["mail", "other"])]


def test_W7_limits_of_queues_and_only_some_steps(cli: Cli, start: Start) -> None:
    id, other = cli.enqueue("mail", "--queue", "mail"), cli.enqueue("add", "x:=1", "y:=1")
    worker = start("worker", "shop.py", "-q", "mail:5,default", "--only", "mail", "--name", "tom", url=cli.url)
    worker.says("serves mail:5, default with 10 slots, only mail")
    eventually(lambda: cli.show(id)["task"]["state"] == "done", "it was not executed")
    shown = cli("workers").stdout
    assert "mail:5, default (only mail)" in shown
    told = cli.json("workers")[0]
    assert (told["limits"], told["only"], told["steps"]) == ({"mail": 5}, ["mail"], ["mail.main"])
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert cli.show(other)["task"]["attempt"] == 0
    assert "add goes to the queue" not in worker.stderr


def test_W7_a_step_that_the_app_does_not_have_is_refused(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--only", "mial", url=cli.url)
    assert worker.ended() == 2
    assert worker.stderr.splitlines()[-1].startswith("error: only='mial': there is no such kind or step in this App")
    assert "add.main, mail.main, slow.main, stuck.main" in worker.stderr


def test_an_unreachable_database_is_exit_code_4(cli: Cli, start: Start) -> None:
    """W6, X6: one clear line, without the password. Waiting would not help, so nobody waits."""
    worker = start("worker", "shop.py", url=make_conninfo(cli.url, dbname="nowhere", password="topsecret"))
    assert worker.ended() == 4
    assert "error: cannot connect to PostgreSQL" in worker.stderr
    assert "topsecret" not in worker.stderr
    assert "Traceback" not in worker.stderr


def test_a_database_without_schema_is_exit_code_1(cli: Cli, start: Start) -> None:
    """W6."""
    worker = start("worker", "shop.py", "--schema", "elsewhere", url=cli.url)
    assert worker.ended() == 1
    last = worker.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "'elsewhere'" in last
    assert "Run: holdfast migrate" in last
    assert "Traceback" not in worker.stderr


@pytest.mark.direct("a line more is written there")
def test_what_can_be_read_at_the_start(cli: Cli, start: Start, project: Path) -> None:
    """No percent signs, one or many, what is odd, and nothing about tasks that went well."""
    cli.enqueue("add", "x:=1", "y:=1")
    with (project / "shop.py").open("a") as file:
        file.write(
            "\nfrom dataclasses import dataclass\nodd = app.kind('odd')\n"
            "@odd.step\n@dataclass\nclass Odd:\n    def run(self) -> 'Nowhere': ...\n"
        )
    worker = start("worker", "shop.py", "--drain", "-c", "1", "-q", "default,mail", url=cli.url)
    assert worker.ended() == 0
    said = [each[9:] for each in worker.stderr.splitlines()]
    assert said[0].startswith("INFO    database: PostgreSQL at holdfast_test_")
    assert said[0].endswith("(HOLDFAST_URL)")
    assert said[1:3] == [
        "INFO    5 steps: slow, stuck, add, mail, odd (Odd)",
        "WARNING odd.Odd: its return annotation names Nowhere, which is no step of odd",
    ]
    assert said[3].startswith("INFO    worker ")
    assert said[3].endswith("serves default, mail with 1 slot")
    assert said[4:] == ["INFO    stopped"]
    assert "%2F" not in worker.stderr


def test_settings_are_those_of_the_project_unless_flags_say_otherwise(
    cli: Cli, start: Start, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text(
        "[tool.holdfast]\napp = 'shop.py'\nqueues = ['mail', 'default']\nconcurrency = 7\nlog_format = 'json'\n"
    )
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "6")
    for options, slots in (([], 6), (["-c", "5"], 5)):
        worker = start("worker", "--drain", "--name", f"w{slots}", *options, url=cli.url)
        assert worker.ended() == 0, worker.stderr
        assert all(json.loads(each) for each in worker.stderr.splitlines())
        with connect_sync(cli.url) as connection:
            query = b"select slots, queues from holdfast.worker where name = $1"
            assert connection.execute(query, [f"w{slots}"]).fetchall() == [(slots, ["mail", "default"])]


def test_waiting_for_the_database_is_told_again_and_the_end_once(
    start: Start, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are shorter here, by a file that Python reads at its start."""
    (project / "sitecustomize.py").write_text(
        "import holdfast._engine.lease.registration as p\np.FIRST_CONTACT, p.TELL_EVERY = 3.0, 1.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(project))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        worker = start("worker", "shop.py", url=f"postgresql://joe@127.0.0.1:{taken.getsockname()[1]}/shop")
        assert worker.ended() == 4
    said = worker.stderr
    assert "waiting for the database, 3 s at most: cannot connect to PostgreSQL" in said
    assert "still waiting for the database, " in said
    assert said.count("Is the server running") == 1
    assert said.count("error: cannot connect to PostgreSQL") == 1


def test_a_signal_ends_a_worker_that_waits_for_its_database(start: Start, project: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens: refused
        worker = start("worker", "shop.py", url=f"postgresql://joe@127.0.0.1:{taken.getsockname()[1]}/shop")
        worker.says("waiting for the database")
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.stderr


def test_wrong_settings_and_no_database_are_usage(cli: Cli, start: Start) -> None:
    assert "a beat every 9 s is too seldom" in cli("worker", "shop.py", "--lease", "10s", "--beat", "9", code=2).stderr
    assert "must be a whole number of at least 1" in cli("worker", "shop.py", "-c", "0", code=2).stderr
    assert "must be one of debug, info" in cli("worker", "shop.py", "--log-level", "loud", code=2).stderr
    assert "'Bad!' cannot be the name of a queue" in cli("worker", "shop.py", "-q", "Bad!", code=2).stderr
    assert "named twice" in cli("worker", "shop.py", "-q", "mail:5", "-q", "mail", code=2).stderr
    assert "cannot have 'x' steps at once" in cli("worker", "shop.py", "-q", "mail:x", code=2).stderr
    assert "must be a duration" in cli("worker", "shop.py", "--grace", "soon", code=2).stderr
    worker = start("worker", "shop.py")
    assert worker.ended() == 2
    assert "no database was named" in worker.stderr


def test_stop_asks_all_or_one_and_waits(cli: Cli, start: Start) -> None:
    """W4."""
    workers = [start("worker", "shop.py", url=cli.url) for _ in range(2)]
    for worker in workers:
        worker.says("serves default")
    with connect_sync(cli.url) as connection:
        ids: dict[int, UUID] = dict(connection.execute(b"select pid, id from holdfast.worker").fetchall())
    told = cli.json("stop", ids[workers[0].pid], "--wait")
    assert (told["asked"], told["running"], told["lost"]) == (1, [], [])
    assert workers[0].ended() == 0
    assert not workers[1].has_ended
    assert "there is no running worker" in cli("stop", ids[workers[0].pid], code=3).stderr
    asked = cli("stop", "--wait").stdout
    assert asked.startswith("database: PostgreSQL at ")
    assert asked.endswith("\nasked 1 worker to stop.\nstopped.\n")
    assert workers[1].ended() == 0
    assert cli("stop", "--wait").stdout.endswith("\nno worker is running.\n")
    cli("stop", "not-an-id", code=2)


@pytest.mark.parametrize(("silent", "lease"), [("1 hour", "1 minute"), ("7 seconds", "6 seconds")])
def test_stop_does_not_wait_for_the_dead(cli: Cli, silent: str, lease: str) -> None:
    with connect_sync(cli.url) as connection:
        connection.execute(
            b"insert into holdfast.worker (id, name, host, pid, version, queues, steps, slots, seen_at, lease) values"
            b" (gen_random_uuid(), E'old\\x1b[31m', 'h', 1, '0', '{}', '{}', 1, now() - $1::text::interval,"
            b" $2::text::interval)",
            [silent, lease],
        )
    stopped = cli("stop", "--wait", "--timeout", "5s")
    assert "no sign of life" in stopped.stderr
    assert "\x1b" not in stopped.stderr
    assert len(cli.json("stop", "--wait", "--timeout", "5s")["lost"]) == 1
