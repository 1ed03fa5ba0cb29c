"""`examples/django_app`: its own commands, its development server and a worker, as processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import httpx

from holdfast.testing import Harness

from .support import EXAMPLES

FOLDER = EXAMPLES / "django_app"


def command(url: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=FOLDER, env=environment(url), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def environment(url: str) -> dict[str, str]:
    return {**os.environ, "HOLDFAST_URL": url, "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def web_server(url: str) -> Iterator[httpx.Client]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"],
        cwd=FOLDER,
        env=environment(url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until = time.monotonic() + 60
            while time.monotonic() < until and process.poll() is None:
                try:
                    client.get("/orders/0/")
                    break
                except httpx.TransportError:
                    time.sleep(0.05)
            yield client
    finally:
        process.kill()
        process.wait()


def test_an_order_and_its_task_are_one_transaction(holdfast: Harness) -> None:
    command(holdfast.url, "manage.py", "migrate", "--run-syncdb")
    with web_server(holdfast.url) as client:
        placed = client.post("/orders/", data={"item": "book", "quantity": "2"})
        assert placed.status_code == 201, placed.text
        number, task = placed.json()["order"], UUID(placed.json()["task"])
        assert holdfast.sql("SELECT id FROM holdfast.task WHERE kind = 'send_receipt'") == [(task,)]

        refused = client.post("/orders/", data={"item": "lamp", "quantity": "1000"})
        assert (refused.status_code, refused.json()) == (409, {"error": "there are not 1000 x lamp"})
        assert holdfast.sql("SELECT item FROM shop_order") == [("book",)]
        assert holdfast.enqueued("send_receipt") == 1

        command(holdfast.url, "-m", "holdfast.cli", "worker", "holdfast_app", "--drain")
        assert client.get(f"/orders/{number}/").json() == {
            "item": "book",
            "quantity": 2,
            "receipt": "receipt for 2 x book",
        }
    assert holdfast.app.sync.info(task).result == "receipt for 2 x book"
