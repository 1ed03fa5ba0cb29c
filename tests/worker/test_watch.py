"""What a worker tells others over HTTP, and in its row: whether it lives, whether it does its work, what it counted."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest

from holdfast import App, Context, Fail, Snooze
from holdfast._db.driver.connection import connect_sync, with_database
from holdfast._engine import loops as pulse
from holdfast._engine.observe import http as probes
from holdfast._engine.worker import Worker
from holdfast.testing import Harness

from .support import running, sql, until

app = App()


@app.task(queue="mail")
async def greet(name: str) -> str:
    if name == "bad":
        raise Fail("no such name")
    if name == "later":
        raise Snooze("1h")
    return f"Hello, {name}"


@app.task
async def long(ctx: Context) -> None:
    while not ctx.cancelled:
        await asyncio.sleep(0.01)


released = threading.Event()


@app.task
def waiting() -> None:
    assert released.wait(60)


@pytest.fixture
def holdfast_tasks() -> App:
    return app


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop is late after three intervals and a second."""
    monkeypatch.setattr(pulse, "MARGIN", 1.0)


class Asked:
    """A worker that answers over HTTP."""

    def __init__(self, worker: Worker, client: httpx.AsyncClient) -> None:
        self.worker = worker
        self._client = client

    async def get(self, path: str, method: str = "GET") -> httpx.Response:
        assert self.worker.health.probes is not None
        await self.worker.health.probes.listening.wait()
        return await self._client.request(method, f"http://127.0.0.1:{self.worker.health.probes.port}{path}")

    async def reasons(self) -> list[str]:
        answer = await self.get("/readyz")
        told = answer.json()
        assert (answer.status_code == 200) == told["ready"] == (not told["reasons"])
        return list(told["reasons"])

    async def until_reasons(self, *words: str) -> list[str]:
        """Waits until the reasons are about these, and nothing else."""
        end = time.monotonic() + 60
        while True:
            found = await self.reasons()
            if len(found) == len(words) and all(word in each for word, each in zip(words, found, strict=True)):
                return found
            assert time.monotonic() < end, found
            await asyncio.sleep(0.05)

    async def value(self, name: str, **labels: str) -> float:
        """The value of a metric; -1 if there is none."""
        text = (await self.get("/metrics")).text
        for found, given, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE):
            if found == name and dict(re.findall(r'(\w+)="([^"]*)"', given)) == labels:
                return float(value)
        return -1.0


@asynccontextmanager
async def asked(holdfast: Harness, **settings: Any) -> AsyncIterator[Asked]:
    worker = holdfast.worker(http="127.0.0.1:0", queues="mail,default", **settings)
    async with httpx.AsyncClient(timeout=30) as client, running(worker):
        yield Asked(worker, client)


@contextmanager
def locked(url: str, table: str) -> Iterator[None]:
    """Nobody can use a table."""
    with connect_sync(url) as connection:
        connection.execute(b"BEGIN")
        connection.execute(f"LOCK TABLE holdfast.{table}".encode())
        try:
            yield
        finally:
            connection.execute(b"ROLLBACK")


async def test_attempts_are_counted_with_their_times(holdfast: Harness) -> None:
    async with asked(holdfast) as worker:
        for name in ("Ada", "Grace", "bad", "later"):
            await holdfast.app.enqueue(greet.bind(name))
        greets = {"kind": "greet", "step": "main", "queue": "mail"}
        for outcome, count in (("done", 2), ("failed", 1), ("snoozed", 1)):
            end = time.monotonic() + 60
            while (found := await worker.value("holdfast_attempts_total", **greets, outcome=outcome)) != count:
                assert time.monotonic() < end, f"{found} attempts are {outcome}"
                await asyncio.sleep(0.05)
        for name in ("holdfast_attempt_duration_seconds", "holdfast_wait_seconds"):
            assert await worker.value(f"{name}_count", **greets) == 4
            assert await worker.value(f"{name}_bucket", **greets, le="+Inf") == 4
            assert 0 <= await worker.value(f"{name}_sum", **greets) < 60 * 4
        assert await worker.value("holdfast_slots", state="free") == 10
        assert await worker.value("holdfast_leases_lost_total") == 0
        answer = await worker.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "python_info" not in answer.text  # nothing that others have registered


async def test_slots_that_are_busy_and_leases_that_are_lost(holdfast: Harness) -> None:
    async with asked(holdfast, lease=3, beat=0.2) as worker:
        ref = await holdfast.app.enqueue(long.bind())
        await until(lambda: worker.worker.roster.busy, "for the step")
        assert await worker.value("holdfast_slots", state="busy") == 1
        taken = "UPDATE holdfast.task SET worker_id = holdfast.new_id(), attempt = attempt + 1 WHERE id = $1"
        sql(holdfast.url, taken, ref.id)
        await until(lambda: worker.worker.roster.lost, "for the lease to be lost")
        assert await worker.value("holdfast_leases_lost_total") == 1
        sql(holdfast.url, "DELETE FROM holdfast.task")


async def test_a_worker_is_ready_while_all_its_loops_succeed(holdfast: Harness) -> None:
    async with asked(holdfast) as worker:
        await worker.until_reasons()
        told = (await worker.get("/readyz")).json()
        assert {"claim", "settle", "reap", "maintain", "beat", "schedule"} <= told["loops"].keys()
        assert (await worker.get("/healthz")).json() == {"alive": True, "state": "running"}
        for loop in told["loops"]:
            assert await worker.value("holdfast_loop_last_success_seconds", loop=loop) >= 0


@pytest.mark.usefixtures("impatient")
async def test_a_claim_that_waits_for_a_lock_is_a_reason_not_to_be_ready(holdfast: Harness) -> None:
    async with asked(holdfast, poll=0.1, reap=60) as worker:
        await worker.until_reasons()
        with locked(holdfast.url, "queue"):
            (reason,) = await worker.until_reasons("claim has not succeeded for")
            assert (await worker.get("/healthz")).status_code == 200  # the process itself is well
        await worker.until_reasons()
    assert "it should at least every 1 s" in reason


@pytest.mark.usefixtures("impatient")
async def test_the_database_tells_which_loops_are_late(holdfast: Harness) -> None:
    late = "SELECT late FROM holdfast.worker"
    async with asked(holdfast, poll=0.1, reap=60, lease=3, beat=0.1) as worker:
        await worker.until_reasons()
        with locked(holdfast.url, "queue"):
            await until(lambda: sql(holdfast.url, late) == [(["claim"],)], "for the row to say it")
        await until(lambda: sql(holdfast.url, late) == [([],)], "for the row to say that it is over")
        ((loops,),) = sql(holdfast.url, "SELECT loops FROM holdfast.worker")
    assert {"claim", "beat", "settle", "reap", "maintain"} <= json.loads(loops).keys()


@pytest.mark.usefixtures("impatient")
async def test_outcomes_that_cannot_be_recorded_are_a_reason_not_to_be_ready(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    async with asked(holdfast, poll=0.1, reap=60) as worker:
        await worker.until_reasons()
        await holdfast.app.enqueue(waiting.bind())
        await until(lambda: worker.worker.roster.busy, "for the step")
        with locked(holdfast.url, "archive"):
            released.set()
            await worker.until_reasons("settle has not succeeded for")
            assert "recording is interrupted" not in caplog.text  # it is told while they are still on their way
        await worker.until_reasons()


@pytest.mark.direct("it ends the sessions of others")
@pytest.mark.usefixtures("impatient")
async def test_a_database_that_is_away_is_a_reason_not_to_be_ready(holdfast: Harness) -> None:
    async with asked(holdfast, poll=0.1, reap=0.5, lease=3, beat=0.3) as worker:
        await worker.until_reasons()
        name = sql(holdfast.url, "SELECT current_database()")[0][0]
        other = with_database(holdfast.url, "postgres")
        sql(other, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        try:
            sql(other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            end = time.monotonic() + 60
            while "the database does not accept the beat of this worker" not in await worker.reasons():
                assert time.monotonic() < end
                await asyncio.sleep(0.05)
        finally:
            sql(other, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await worker.until_reasons()


async def test_a_worker_that_stops_is_not_ready(holdfast: Harness) -> None:
    async with asked(holdfast, grace=60) as worker:
        await holdfast.app.enqueue(long.bind())
        await until(lambda: worker.worker.roster.busy, "for the step")
        worker.worker.stop()
        assert await worker.until_reasons("it is stopping")
        worker.worker.stop()


async def test_who_asks_badly_is_told_so_and_harms_nobody(holdfast: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PATIENCE", 600.0)
    async with asked(holdfast) as worker:
        assert (await worker.get("/nothing")).json()["paths"] == ["/healthz", "/readyz", "/metrics"]
        assert (await worker.get("/healthz", "POST")).status_code == 405
        head = await worker.get("/metrics", "HEAD")
        assert head.status_code == 200 and not head.content
        assert worker.worker.health.probes is not None
        for said in (b"\r\n\r\n", b"GET / SPDY/3\r\n\r\n", b"\x16\x03\x01" + b"\0" * 100 + b"\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", worker.worker.health.probes.port)
            writer.write(said)
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", worker.worker.health.probes.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 100_000)
        async with asyncio.timeout(60):
            assert await reader.read() == b""  # it is not waited for its end, nor remembered
        writer.close()
        assert (await worker.get("/healthz")).status_code == 200


async def test_without_an_address_nobody_counts_and_nobody_listens(holdfast: Harness) -> None:
    worker = holdfast.worker()
    assert worker.health.probes is None and worker.health.count is None
