"""`holdfast worker --http`: real processes that answer monitors; and what `holdfast workers` tells of late loops."""

import re
import socket
from collections.abc import Callable
from pathlib import Path

import httpx

from .conftest import Cli, Process, eventually
from .planted import plant_worker, rows

Start = Callable[..., Process]
APP = "from holdfast import App\napp = App()\n@app.task\ndef hello() -> None: ...\n"


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=30).status_code == 200
    except httpx.TransportError:
        return False


def free_ports() -> int:
    """The first of two ports that follow each other and are free."""
    while True:
        with socket.socket() as one, socket.socket() as two:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            try:
                two.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port


def test_a_worker_answers_monitors_where_it_is_told_to(start: Start, cli: Cli, project: Path) -> None:
    (project / "hello.py").write_text(APP)
    worker = start("worker", "hello.py", "--http", "127.0.0.1:0", url=cli.url)
    worker.says("has /healthz /readyz /metrics")
    (address,) = re.findall(r"(http://127\.0\.0\.1:\d+) has", worker.stderr + worker.stdout)
    eventually(lambda: is_ready(address), "it is not ready")
    assert "holdfast_slots" in httpx.get(f"{address}/metrics", timeout=30).text
    assert cli.json("workers")[0]["late"] == []


def test_processes_answer_at_ports_that_follow(start: Start, cli: Cli, project: Path) -> None:
    (project / "hello.py").write_text(APP)
    port = free_ports()
    start("worker", "hello.py", "--http", f"127.0.0.1:{port}", "--processes", 2, url=cli.url)
    for each in (port, port + 1):
        eventually(lambda: is_ready(f"http://127.0.0.1:{each}"), "it is not ready")  # noqa: B023 - asked at once


def test_an_address_that_is_none_is_refused(cli: Cli, project: Path) -> None:
    (project / "hello.py").write_text(APP)
    assert "is not an address such as" in cli("worker", "hello.py", "--http", "nowhere", code=2).stderr


def test_workers_tells_which_loops_are_late(cli: Cli) -> None:
    plant_worker(cli)
    assert "late" not in cli("workers").stdout
    rows(cli, "update holdfast.worker set late = '{claim,settle}', loops = '{\"claim\": 45.2, \"settle\": 99}'")
    assert "running, late: claim, settle" in cli("workers").stdout
    assert cli.json("workers")[0]["loops"] == {"claim": 45.2, "settle": 99}
