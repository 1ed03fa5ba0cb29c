"""`holdfast worker --processes`, `--max-tasks` and `--max-memory` as real processes (W7)."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from holdfast._db.driver.connection import connect_sync

from .conftest import Cli, Process, eventually

Start = Callable[..., Process]

APP = """
import asyncio, os, signal
from pathlib import Path
from holdfast import App, Context

if Path("deadly").exists():
    os.kill(os.getpid(), signal.SIGKILL)

app = App()
eaten = []

@app.task
async def slow(ctx: Context, mark: str) -> str:
    Path(mark).touch()
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "slow but done"

@app.task
async def add(x: int) -> int:
    await asyncio.sleep(0.001)
    return x + 1

@app.task
async def eat() -> None:
    eaten.append(b"x" * 300_000_000)
"""


@pytest.fixture(autouse=True)
def app_file(project: Path) -> None:
    (project / "shop.py").write_text(APP)


def sql(cli: Cli, text: str) -> list[tuple[Any, ...]]:
    with connect_sync(cli.url) as connection:
        return connection.execute(text.encode()).fetchall()


def pids(cli: Cli) -> set[int]:
    """The processes of the workers that have not stopped."""
    return {row[0] for row in sql(cli, "SELECT pid FROM holdfast.worker WHERE stopped_at IS NULL")}


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def started(cli: Cli, number: int) -> set[int]:
    eventually(lambda: len(pids(cli)) == number, f"there were never {number} workers")
    return pids(cli)


def test_W7_several_processes_with_names_and_numbers_and_one_stop_for_all(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", "-c", "1", "--name", "tom", url=cli.url)
    found = started(cli, 2)
    assert worker.pid not in found
    assert sorted(sql(cli, "SELECT name FROM holdfast.worker")) == [("tom-1",), ("tom-2",)]
    ids = [cli.enqueue("slow", f"mark=began{n}") for n in range(2)]
    eventually(lambda: Path("began0").exists() and Path("began1").exists(), "the steps did not begin")
    worker.signal(signal.SIGTERM)
    worker.says("stopping")
    eventually(lambda: sql(cli, "SELECT count(stopping_at) FROM holdfast.worker") == [(2,)], "not all were told")
    Path("go").touch()
    assert worker.ended() == 0, worker.stderr
    assert [cli.show(id)["task"]["result"] for id in ids] == ["slow but done"] * 2
    said = worker.stderr
    assert said.count("database: PostgreSQL") == 1
    assert "[1] worker " in said and "[2] worker " in said
    assert not any(map(is_there, found))


def test_W7_a_second_signal_gives_everything_back_at_once(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", url=cli.url)
    started(cli, 2)
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    worker.signal(signal.SIGINT)
    worker.says("SIGINT: stopping")
    worker.signal(signal.SIGINT)
    assert worker.ended() == 0, worker.stderr
    told = cli.show(id)
    assert (told["task"]["state"], told["task"]["crashes"]) == ("ready", 0)
    assert [each["outcome"] for each in told["attempts"]] == ["released"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_W7_signals_to_everybody_are_still_graceful(cli: Cli, start: Start, number: signal.Signals) -> None:
    """As a terminal sends Ctrl-C, and systemd SIGTERM, to parent and children alike."""
    worker = start("worker", "shop.py", "--processes", "2", url=cli.url)
    started(cli, 2)
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    os.killpg(worker.pid, number)
    worker.says(f"{number.name}: stopping")
    eventually(lambda: sql(cli, "SELECT count(stopping_at) FROM holdfast.worker") == [(2,)], "not all were told")
    Path("go").touch()
    assert worker.ended() == 0, worker.stderr
    assert cli.show(id)["task"]["result"] == "slow but done"


def test_W7_a_process_that_dies_is_replaced_and_the_others_go_on(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", "--log-format", "json", url=cli.url)
    victim, other = started(cli, 2)
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: len(pids(cli) - {victim, other}) == 1, "it was not replaced")
    id = cli.enqueue("add", "x:=1")
    eventually(lambda: cli.show(id)["task"]["state"] == "done", "nobody works")
    assert is_there(other)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    records = [json.loads(each) for each in worker.stderr.splitlines()]
    told = [each["message"] for each in records if "ended by SIGKILL" in each["message"]]
    assert len(told) == 1 and f"(pid {victim}) ended by SIGKILL: another one is started now" in told[0]
    assert {each.get("process_number") for each in records} == {None, 1, 2}


def test_W7_one_that_dies_at_once_is_started_after_pauses(cli: Cli, start: Start) -> None:
    Path("deadly").touch()
    worker = start("worker", "shop.py", "--processes", "2", url=cli.url)
    worker.says("another one is started now")
    worker.says("another one is started in ")
    assert "process 2" not in worker.stderr, "the first one begins alone"
    Path("deadly").unlink()
    started(cli, 2)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0


@pytest.mark.parametrize(
    ("arguments", "database", "code", "said"),
    [
        (["shop.py", "--schema", "elsewhere"], "", 1, "error: schema 'elsewhere'"),
        (["shop.py"], "nowhere", 4, "error: cannot connect to PostgreSQL"),
        (["nothing.py"], "", 2, "nothing.py"),
        (["shop.py", "--only", "nothing"], "", 2, "error: only='nothing'"),
    ],
)
def test_W6_W7_what_will_not_pass_is_told_once_and_ends_everything(
    cli: Cli, start: Start, arguments: list[str], database: str, code: int, said: str
) -> None:
    url = make_conninfo(cli.url, dbname=database) if database else cli.url
    worker = start("worker", *arguments, "--processes", "3", url=url)
    assert worker.ended() == code, worker.stderr
    assert worker.stderr.count("error: ") == 1, worker.stderr
    assert said in worker.stderr.replace("Error: ", "error: ")
    assert "another one is started" not in worker.stderr
    assert "Traceback" not in worker.stderr


def test_X7_the_children_of_a_killed_parent_stop_gracefully(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", url=cli.url)
    found = started(cli, 2)
    id = cli.enqueue("slow", "mark=began")
    eventually(Path("began").exists, "the step did not begin")
    worker.signal(signal.SIGKILL)
    eventually(lambda: sql(cli, "SELECT count(stopping_at) FROM holdfast.worker") == [(2,)], "nobody noticed")
    Path("go").touch()
    eventually(lambda: not any(map(is_there, found)), "they go on")
    assert cli.show(id)["task"]["result"] == "slow but done"
    assert pids(cli) == set()


def test_W4_W7_a_stop_by_sql_is_for_good(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--processes", "2", url=cli.url)
    started(cli, 2)
    assert cli.json("stop", "--wait")["running"] == []
    assert worker.ended() == 0, worker.stderr
    assert sql(cli, "SELECT count(*) FROM holdfast.worker") == [(2,)]


def test_W7_drain_with_several_processes(cli: Cli, start: Start) -> None:
    ids = [cli.enqueue("add", f"x:={n}") for n in range(5)]
    worker = start("worker", "shop.py", "--processes", "2", "--drain", url=cli.url)
    assert worker.ended() == 0, worker.stderr
    assert [cli.show(id)["task"]["result"] for id in ids] == [1, 2, 3, 4, 5]


# --- recycling


def test_W7_a_process_is_replaced_after_so_many_attempts(cli: Cli, start: Start) -> None:
    sql(cli, "SELECT holdfast.enqueue('add.main', '{\"x\": 1}') FROM generate_series(1, 100)")
    worker = start("worker", "shop.py", "--max-tasks", "30", "--drain", url=cli.url)
    assert worker.ended() == 0, worker.stderr
    assert "this process is replaced: it has made 30 attempts" in worker.stderr
    assert "another one is started" not in worker.stderr, "that is no accident"
    assert sql(cli, "SELECT count(*) FROM holdfast.archive WHERE state = 'done' AND errors + crashes = 0") == [(100,)]
    most = "SELECT max(n) FROM (SELECT count(*) AS n FROM holdfast.archive GROUP BY worker_id) AS each"
    assert sql(cli, most)[0][0] <= 40, "what runs may end, nothing else begins"
    assert sql(cli, "SELECT count(*) >= 3, bool_and(stopped_at IS NOT NULL) FROM holdfast.worker") == [(True, True)]


def test_W7_a_process_that_uses_much_memory_is_replaced(cli: Cli, start: Start) -> None:
    worker = start("worker", "shop.py", "--max-memory", "250MB", url=cli.url)
    (first,) = started(cli, 1)
    id = cli.enqueue("eat")
    eventually(lambda: pids(cli) - {first}, "it was not replaced")
    assert cli.show(id)["task"]["state"] == "done"
    assert "of memory, more than 250MB" in worker.stderr
    assert not is_there(first)
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0


def test_W7_wrong_numbers_are_usage(cli: Cli) -> None:
    assert "must be a whole number" in cli("worker", "shop.py", "--processes", "0", code=2).stderr
    assert "must be a whole number" in cli("worker", "shop.py", "--max-tasks", "x", code=2).stderr
    assert "must be a size of at least 1MB" in cli("worker", "shop.py", "--max-memory", "5", code=2).stderr
