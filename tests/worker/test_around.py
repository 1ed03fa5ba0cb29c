"""What surrounds steps: resources, middleware, context, log records, and the ways to run a worker."""

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast import App, ConfigError, Context, DeclarationError, Fail, Retry, Snooze, Tasks, current_context, named
from holdfast.testing import Harness

from .support import attempts, check_log, row, running, sql, until, write_line


class Client:
    opened = 0

    def __init__(self) -> None:
        self.open = True


class Base:
    pass


class Derived(Base):
    pass


async def test_resources_are_opened_once_and_closed_after_the_last_step(holdfast: Harness) -> None:
    events: list[str] = []

    @holdfast.app.resource
    async def client() -> AsyncIterator[Client]:
        events.append("open client")
        made = Client()
        yield made
        made.open = False
        events.append("close client")

    @holdfast.app.resource
    def base() -> Iterator[Derived]:
        events.append("open base")
        yield Derived()
        events.append("close base")

    @holdfast.app.task
    async def use(ctx: Context) -> bool:
        await asyncio.sleep(0.3)
        events.append("step")
        assert isinstance(ctx.resource(Base), Derived)
        return ctx.resource(Client).open

    @holdfast.app.task
    def use_in_thread(ctx: Context) -> bool:
        return ctx.resource(Client).open

    refs = [await use.enqueue() for _ in range(3)]
    thread = await use_in_thread.enqueue()
    worker = holdfast.worker()
    async with running(worker):
        await until(lambda: worker.roster.busy >= 3, "for the steps")
    assert [await ref.result(timeout=60) for ref in refs] == [True] * 3
    assert await thread.result(timeout=60) is True
    assert events == ["open client", "open base", "step", "step", "step", "close base", "close client"]


async def test_a_resource_that_cannot_be_opened_is_a_clear_error_and_others_are_closed(holdfast: Harness) -> None:
    events: list[str] = []

    @holdfast.app.resource
    async def client() -> AsyncIterator[Client]:
        yield Client()
        events.append("closed")

    @holdfast.app.resource
    def broken() -> Iterator[Derived]:
        raise OSError("no such host")
        yield Derived()

    with pytest.raises(ConfigError, match=r"broken cannot be opened: OSError: no such host"):
        await holdfast.worker(queues=["default"]).run()
    assert events == ["closed"]


async def test_middleware_runs_in_the_order_of_declaration_and_its_failure_is_the_attempts(holdfast: Harness) -> None:
    events: list[str] = []

    @holdfast.app.middleware
    async def outer(ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        events.append(f"outer {ctx.kind}")
        try:
            return await proceed()
        finally:
            events.append("outer end")

    @holdfast.app.middleware
    async def inner(ctx: Context, proceed: Callable[[], Awaitable[Any]]) -> Any:
        events.append("inner")
        if ctx.headers.get("refuse"):
            raise PermissionError("refused")
        answer = await proceed()
        return f"{answer}!"

    @holdfast.app.task
    def hello() -> str:
        assert current_context.get().kind == "hello"
        events.append("step")
        return "hello"

    ref = await hello.enqueue()
    await holdfast.drain()
    assert await ref.result() == "hello!"
    assert events == ["outer hello", "inner", "step", "outer end"]
    refused = await holdfast.app.enqueue(hello.bind(), headers={"refuse": "yes"})
    await holdfast.drain()
    info = await refused.info()
    assert (info.state, info.errors) == ("parked", 1)
    assert info.error is not None
    assert info.error["type"] == "PermissionError"


async def test_the_context_variable_belongs_to_each_attempt(holdfast: Harness) -> None:
    @holdfast.app.task
    async def mine(n: int) -> bool:
        before = current_context.get().id
        await asyncio.sleep(0.01)
        return current_context.get().id == before

    refs = [await mine.enqueue(n) for n in range(20)]
    await holdfast.drain()
    assert all([await ref.result() for ref in refs])
    with pytest.raises(LookupError):
        current_context.get()


async def test_log_records_carry_what_a_person_searches_for(
    holdfast: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    @holdfast.app.task
    async def broken() -> None:
        raise ValueError("no")

    ref = await broken.enqueue()
    await holdfast.drain()
    [record] = [r for r in caplog.records if "is parked after attempt 1" in r.message]
    assert (record.levelno, getattr(record, "task_id", None)) == (logging.WARNING, str(ref.id))
    [(worker,)] = sql(holdfast.url, "SELECT worker_id::text FROM holdfast.attempts")
    said = [getattr(record, name, None) for name in ("kind", "step", "attempt", "queue", "worker")]
    assert said == ["broken", "main", 1, "default", worker]


async def test_every_error_is_in_the_log(holdfast: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Also args that do not decode and wrong returns: the commonest mistakes must not be silent."""
    caplog.set_level(logging.INFO, "holdfast")
    kind = holdfast.app.kind("odd")

    @kind.step
    @dataclass
    class Odd:
        x: int = 0

        async def run(self) -> Any:
            return "not a step"

    @holdfast.app.task(retry=Retry(1, delay="1h"))
    async def flaky(n: int) -> None:
        raise ValueError("once")

    await kind.enqueue(Odd())
    await holdfast.app.enqueue(named("flaky", {"n": "no number"}))
    await flaky.enqueue(1)
    await holdfast.drain()
    assert "odd.Odd is parked after attempt 1: holdfast.errors.DeclarationError" in caplog.text
    assert "flaky is parked after attempt 1: holdfast.errors.DecodeError" in caplog.text
    assert "flaky failed in attempt 1, again in" in caplog.text


async def test_app_worker_runs_beside_the_body_and_stops_after_it(holdfast: Harness) -> None:
    @holdfast.app.task
    async def plain(n: int) -> int:
        return n

    async with holdfast.app.worker(concurrency=2, name="beside"):
        assert await (await plain.enqueue(1)).result(timeout=60) == 1
        assert sql(holdfast.url, "SELECT name, slots FROM holdfast.worker WHERE stopped_at IS NULL") == [("beside", 2)]
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == [(0,)]
    with pytest.raises(ConfigError):
        async with holdfast.app.worker(concurrency=0):
            raise AssertionError("must not begin")


async def test_lifespan_is_a_worker_for_an_asgi_application(holdfast: Harness) -> None:
    @holdfast.app.task
    async def plain(n: int) -> int:
        return n

    async with holdfast.app.lifespan(object()):
        assert await (await plain.enqueue(2)).result(timeout=60) == 2
    lifespan = holdfast.app.lifespan(queues="mail", concurrency=3)
    async with lifespan(object()):
        elsewhere = await holdfast.app.enqueue(plain.bind(3), queue="mail")
        assert await elsewhere.result(timeout=60) == 3
    assert sql(holdfast.url, "SELECT count(*) FROM holdfast.worker WHERE stopped_at IS NULL") == [(0,)]


async def test_T23_modules_are_imported_when_a_worker_needs_them(
    holdfast: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "shop_for_test"
    package.mkdir()
    (package / "__init__.py").write_text("from holdfast import App\napp = App(modules=['shop_for_test.mail'])\n")
    (package / "mail.py").write_text(
        "from shop_for_test import app\n\n@app.task\nasync def send(n: int) -> int:\n    return n + 1\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    app: App = importlib.import_module("shop_for_test").app
    assert "shop_for_test.mail" not in sys.modules
    app._url = holdfast.url
    async with app.worker():
        send: Any = sys.modules["shop_for_test.mail"].__dict__["send"]
        assert await (await send.enqueue(1)).result(timeout=60) == 2
    await app.close()
    with pytest.raises(DeclarationError, match="no module 'not_there'"):
        App(modules=["not_there"]).load()
    for name in [name for name in sys.modules if name.startswith("shop_for_test")]:
        monkeypatch.delitem(sys.modules, name)
    assert isinstance(sys.modules["holdfast"], ModuleType)


async def test_T23_included_tasks_belong_to_the_app_also_those_declared_later(holdfast: Harness) -> None:
    billing = Tasks()

    @billing.task
    async def before(n: int) -> int:
        return n

    holdfast.app._include(billing)

    @billing.task
    async def after(n: int) -> int:
        return n * 2

    refs = [await before.enqueue(4), await after.enqueue(4)]
    await holdfast.drain()
    assert [await ref.result() for ref in refs] == [4, 8]


async def test_A1_A2_the_log_equals_what_really_ran(holdfast: Harness, log: Path) -> None:
    ran: Counter[str] = Counter()
    lock = threading.Lock()

    def work(ctx: Context, n: int) -> int:
        write_line(log, "begin", ctx)
        with lock:
            ran[ctx.kind] += 1
        if n % 5 == 1 and ctx.errors == 0:
            raise ValueError("once")
        if n % 5 == 2 and ctx.attempt == 1:
            raise Snooze("100ms")
        if n % 5 == 3:
            raise Fail("never")
        return n

    @holdfast.app.task(retry=Retry(2, delay=0.05))
    def in_thread(ctx: Context, n: int) -> int:
        return work(ctx, n)

    @holdfast.app.task(retry=Retry(2, delay=0.05))
    async def on_loop(ctx: Context, n: int) -> int:
        return work(ctx, n)

    refs = [await f.enqueue(n) for n in range(25) for f in (in_thread, on_loop)]
    async with running(holdfast.worker(), holdfast.worker()):
        await until(
            lambda: sql(holdfast.url, "SELECT count(*) FROM holdfast.task WHERE state <> 'parked'") == [(0,)], "for all"
        )
    parked = [ref for n, ref in enumerate(refs) if n // 2 % 5 == 3]
    for ref in parked:
        assert row(holdfast.url, ref.id)["state"] == "parked"
        assert attempts(holdfast.url, ref.id) == [(1, "main", "failed")]
        await holdfast.app.discard(ref.id, by="test")
    outcomes = check_log(holdfast.url, log)
    assert outcomes == {"done": 40, "retried": 10, "snoozed": 10, "failed": 10}
    assert sum(ran.values()) == 70
